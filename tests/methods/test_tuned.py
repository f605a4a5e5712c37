"""Settings that were searched for on real data: shipped as files, seen as presets, used by studies."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import regun.methods._registry as catalogue
from expect import assert_names, error
from regun.cli import main
from regun.errors import SettingsError
from regun.experiments.search.settings_file import read_settings
from regun.experiments.study.parse import parse_study
from regun.methods import MethodSpec, get_method, tuned_files

SHIPPED = """
[settings."0.1"."regun,batch_size=32"]
lr = 0.05
w = 0.25

[settings."0.1"."regun@teacher"]
lr = 0.1

[settings."0.005".finetune]
lr = 0.02
"""


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "photos.toml").write_text(SHIPPED)
    monkeypatch.setattr(catalogue, "TUNED", tmp_path)
    catalogue._tuned.cache_clear()
    yield
    catalogue._tuned.cache_clear()


@pytest.mark.usefixtures("shipped")
def test_searched_settings_are_presets_named_by_data_and_percent(capsys: pytest.CaptureFixture[str]) -> None:
    config = MethodSpec.parse("regun@photos-10,w=0.75").configure()
    assert (config.lr, config.w, config.batch_size, config.target) == (0.05, 0.75, 32, "reference")
    taught = MethodSpec.parse("regun@photos-10-teacher").configure()
    assert (taught.lr, taught.target, taught.schedule) == (0.1, "teacher", "cosine")
    assert "photos-0.5" in get_method("finetune").presets
    assert not any("photos" in name for name in get_method("ssd").presets)
    assert main(["methods", "finetune"]) == 0
    assert_names(capsys.readouterr().out, "photos-0.5", "0.02")
    with error(SettingsError, "finetune", "photos-10"):
        MethodSpec.parse("finetune@photos-10").configure()


@pytest.mark.usefixtures("shipped")
def test_a_study_takes_them_by_name(tmp_path: Path) -> None:
    text = 'methods = ["regun,batch_size=32", "regun@teacher", "finetune"]\nforget = [0.1]\nsettings_from = "photos"'
    study = parse_study(text, "mine.toml", tmp_path / "elsewhere")
    assert study.resolve("regun,batch_size=32", "0.1")[1].w == 0.25
    assert study.resolve("regun@teacher", "0.1")[1].lr == 0.1
    assert study.resolve("finetune", "0.1")[1].lr == 0.01, "found for another request"


@pytest.mark.parametrize("name", tuned_files())
def test_every_file_that_ships_gives_presets(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = read_settings(tuned_files()[name])
    assert found
    for text in {spec for blocks in found.values() for spec in blocks}:
        assert main(["methods", MethodSpec.parse(text).name, "--json"]) == 0
        presets = json.loads(capsys.readouterr().out)[0]["presets"]
        assert any(preset.startswith(f"{name}-") for preset in presets)
