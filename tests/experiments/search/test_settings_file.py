"""The settings file: what is written is read back, by any TOML reader; what is missing is named."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expect import error
from regun.errors import RegunError, SettingsError
from regun.experiments.search.settings_file import (
    format_settings,
    read_settings,
    settings_for,
)
from regun.experiments.search.trials import SearchResult, Trial
from regun.methods import crossfit
from regun.settings import bind

SCALARS = st.one_of(
    st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
VALUES = st.one_of(SCALARS, st.lists(st.text(), max_size=3), st.lists(st.integers(0, 9), max_size=3))
NAMES = st.text(min_size=0, max_size=12)
BLOCKS = st.dictionaries(
    NAMES, st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=3), max_size=3
)
REMARKS = st.text(max_size=20)


@given(BLOCKS, REMARKS)
def test_round_trip(blocks, remark: str) -> None:
    remarks = {(request, method): remark for request, methods in blocks.items() for method in methods}
    assert tomllib.loads(format_settings(blocks, remarks))["settings"] == blocks


def test_the_block_as_it_is_documented(tmp_path: Path) -> None:
    blocks = {"0.1": {"regun": {"lr": 0.05, "w": 0.97}, "regun@wide_retain": {"epochs": 2, "layers": ["a", "b"]}}}
    text = format_settings(blocks, {("0.1", "regun"): "found by a search\nof 20 trials"})
    (tmp_path / "tuned.toml").write_text(text)
    assert text.startswith('# found by a search\n# of 20 trials\n[settings."0.1".regun]\nlr = 0.05\nw = 0.97\n')
    assert '[settings."0.1"."regun@wide_retain"]\n' in text
    assert read_settings(tmp_path / "tuned.toml") == blocks
    assert settings_for(blocks, "0.1", "regun@wide_retain,lr=3") == {"epochs": 2, "layers": ["a", "b"]}


def test_settings_that_follow_from_the_training_survive_a_file() -> None:
    trial = Trial(number=0, values={"w": 0.4}, score=0.0, forgetting=0.0, utility=0.0)
    result = SearchResult("crossfit", "gap", (trial,), {"repair": None, "share": 0.08})
    written = tomllib.loads(format_settings({"0.1": {"crossfit": result.settings}}, {}))
    config = bind(crossfit.Config, written["settings"]["0.1"]["crossfit"], "crossfit")
    assert config == crossfit.Config(repair=None, share=0.08, w=0.4)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), {"a": 1}, [[1]]])
def test_what_a_file_cannot_hold_is_refused(value) -> None:
    with error(SettingsError, "settings.0.1.regun.lr"):
        format_settings({"0.1": {"regun": {"lr": value}}})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x = ", ["TOML"]),
        ("a = 1", ["[settings"]),
        ("settings = 3", ["[settings"]),
        ("[settings]\nx = 1", ["settings.x", 1]),
        ('[settings."0.1"]\nregun = 2', ["settings.0.1", 2]),
        ('[settings."0.1".regun]\nlr = nan', ["settings.0.1.regun.lr", "nan"]),
        ('[settings."0.1".regun]\nlr = 2026-01-01', ["settings.0.1.regun.lr", "2026"]),
    ],
)
def test_bad_files(text: str, names: list[object], tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with error(RegunError, tmp_path / "bad.toml", *names):
        read_settings(tmp_path / "bad.toml")


def test_missing_files_and_blocks(tmp_path: Path) -> None:
    with error(RegunError, tmp_path / "none.toml"):
        read_settings(tmp_path / "none.toml")
    blocks = {"0.1": {"regun": {}, "amun": {}}}
    with error(SettingsError, "x.toml", "'0.2'", "0.1"):
        settings_for(blocks, "0.2", "regun", "x.toml")
    with error(SettingsError, "'regun@a'", "'0.1'", "amun", "regun"):
        settings_for(blocks, "0.1", "regun@a,lr=1")
