"""The settings file: what is written is read back, by any TOML reader; what is missing is named."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regun.errors import RegunError, SettingsError
from regun.experiments.search.settings_file import (
    format_settings,
    read_settings,
    settings_for,
    write_settings,
)

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
    write_settings(tmp_path / "tuned.toml", blocks, {("0.1", "regun"): "found by a search\nof 20 trials"})
    text = (tmp_path / "tuned.toml").read_text()
    assert text.startswith('# found by a search\n# of 20 trials\n[settings."0.1".regun]\nlr = 0.05\nw = 0.97\n')
    assert '[settings."0.1"."regun@wide_retain"]\n' in text
    assert read_settings(tmp_path / "tuned.toml") == blocks
    assert settings_for(blocks, "0.1", "regun@wide_retain,lr=3") == {"epochs": 2, "layers": ["a", "b"]}


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), {"a": 1}, [[1]]])
def test_what_a_file_cannot_hold_is_refused(value) -> None:
    with pytest.raises(SettingsError, match="lr is .*, which a settings file cannot hold; give text, true or false"):
        format_settings({"0.1": {"regun": {"lr": value}}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "not valid TOML"),
        ("a = 1", r'has no table \[settings."REQUEST".METHOD\]'),
        ("settings = 3", "has no table"),
        ("[settings]\nx = 1", "settings.x must hold one table a method, got 1"),
        ('[settings."0.1"]\nregun = 2', "settings.0.1 must hold one table a method"),
        ('[settings."0.1".regun]\nlr = nan', "settings.0.1.regun.lr is nan; give text"),
        ('[settings."0.1".regun]\nlr = 2026-01-01', "settings.0.1.regun.lr is datetime.date"),
    ],
)
def test_bad_files(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(RegunError, match=message):
        read_settings(tmp_path / "bad.toml")


def test_missing_files_and_blocks(tmp_path: Path) -> None:
    with pytest.raises(RegunError, match="cannot read the settings file .*none.toml: No such file"):
        read_settings(tmp_path / "none.toml")
    with pytest.raises(RegunError, match="cannot write .*Name a file you may write"):
        write_settings(tmp_path / "no" / "x.toml", {})
    blocks = {"0.1": {"regun": {}, "amun": {}}}
    with pytest.raises(SettingsError, match=r"x.toml has no settings for the request '0.2'; it has requests: 0.1\."):
        settings_for(blocks, "0.2", "regun", "x.toml")
    with pytest.raises(
        SettingsError, match=r"no settings for the method 'regun@a' and request '0.1'; it has methods: amun, regun"
    ):
        settings_for(blocks, "0.1", "regun@a,lr=1")
