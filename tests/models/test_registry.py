"""Names, settings, descriptions, and what is said of mistakes."""

import dataclasses
import json
import sys
from typing import Any

import pytest

from expect import error
from regun.errors import RegunError, SettingsError
from regun.hashing import code_digest
from regun.models import ModelSpec, build_model, models_help
from regun.models.registry import CATALOGUE
from regun.settings import parse_spec


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_description_is_json_and_gives_the_same_model_back(name: str) -> None:
    description = ModelSpec(name).describe()
    assert json.loads(json.dumps(description)) == description
    assert ModelSpec(description["name"], description["settings"]).describe() == description


def test_a_description_does_not_depend_on_how_settings_were_written() -> None:
    described = {"embed_dim": 24, "depths": "2/4", "heads": "3/6", "window": "none", "patch": "none", "drop_path": 0.0}
    as_text = ModelSpec(*parse_spec("swin-nano,depths=2/4,heads=3/6,embed_dim=24,drop_path=0")).describe()
    as_values = ModelSpec("swin-nano", {"depths": "2/4", "heads": "3/6", "embed_dim": 24, "drop_path": 0.0}).describe()
    code = code_digest("regun.models.swin")
    assert as_text == as_values == {"name": "swin-nano", "settings": described, "code": code}


def test_a_description_changes_with_every_setting() -> None:
    assert ModelSpec("cnn", {"width": 8}).describe() != ModelSpec("cnn").describe()


def test_a_spec_keeps_its_own_settings() -> None:
    settings: dict[str, Any] = {"width": 8}
    spec = ModelSpec("cnn", settings)
    settings["width"] = 99
    assert spec.settings == {"width": 8}


def test_settings_change_the_model() -> None:
    model: Any = build_model(ModelSpec(*parse_spec("swin-nano,depths=1/1,patch=4,window=2")), 3, (3, 32, 32), 0)
    config = model.model.config
    assert (tuple(config.depths), config.patch_size, config.window_size) == ((1, 1), 4, 2)


def test_help_lists_every_model_and_setting_with_its_default() -> None:
    listed = {entry.name: entry for entry in models_help()}
    assert set(listed) == {*CATALOGUE, "hf:PATH", "module:function"}
    for name, entry in CATALOGUE.items():
        assert listed[name].summary
        assert [s.name for s in listed[name].settings] == [f.name for f in dataclasses.fields(entry.settings)]
        assert all(s.help for s in listed[name].settings)
    assert [(s.name, s.default) for s in listed["swin-nano"].settings][1:4] == [
        ("depths", "2/2"),
        ("heads", "2/4"),
        ("window", "none"),
    ]


RGB, DIGIT = (3, 32, 32), (1, 8, 8)


@pytest.mark.parametrize(
    ("spec", "size", "names"),
    [
        ("resnet81", RGB, "'resnet81' 'resnet18'"),
        ("swin", RGB, "'swin' 'swin-t' cnn hf:PATH mlp module:function"),
        ("resnet18,widht=8", RGB, "resnet18 'widht' 'width'"),
        ("resnet18,width=0", RGB, "resnet.width 0 1"),
        ("resnet18,stem=small", RGB, "resnet.stem 'small' auto cifar tiny imagenet"),
        ("cnn,width=wide", RGB, "cnn.width 'wide'"),
        ("cnn", None, "cnn None image_size"),
        ("mlp", None, "mlp mlp.features"),
        ("mlp,features=5", DIGIT, "mlp.features 5 64"),
        ("vit,dim=30,heads=4", RGB, "vit.dim 30 vit.heads 4"),
        ("vit,patch=5", RGB, "vit 32x32 5x5"),
        ("vit", (3, 31, 31), "vit 31x31"),
        ("vit,dropout=1", RGB, "vit.dropout 1.0 0.9"),
        ("swin-t", RGB, "swin-t 32x32 1x1"),
        ("swin-t", RGB, "224x224 'swin-nano'"),
        ("swin-t,drop_path=-1", RGB, "swin-t.drop_path -1.0 0"),
        ("swin-nano,window=5", DIGIT, "2x2 5"),
        ("swin-nano", (1, 2, 2), "swin-nano 2x2"),
        ("swin-nano,depths=2/2/2", RGB, "swin-nano.depths swin-nano.heads"),
        ("swin-nano,depths=0/2", RGB, "swin-nano.depths 1"),
        ("swin-nano,heads=2/5", RGB, "2 64 5"),
    ],
)
def test_mistakes_are_explained(spec: str, size: tuple[int, int, int] | None, names: str) -> None:
    with error(RegunError, *names.split()):
        build_model(ModelSpec(*parse_spec(spec)), 10, size, 0)


def test_all_mistakes_in_settings_are_reported_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        build_model(ModelSpec("vit", {"dimm": 3, "depth": "deep", "heads": 0, "dropout": 2}), 10, RGB, 0)
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize(
    ("classes", "size", "names"),
    [
        (1, RGB, "num_classes 1 2"),
        (10, (3, 0, 32), "image_size (3 1"),
    ],
)
def test_impossible_shapes_are_refused(classes: int, size: tuple[int, int, int], names: str) -> None:
    with error(RegunError, *names.split()):
        build_model(ModelSpec("cnn"), classes, size, 0)


@pytest.mark.parametrize("name", ["vit", "swin-nano", "swin-t"])
def test_a_missing_transformers_is_explained(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with error(RegunError, f"'{name}'", "transformers", "extra"):
        build_model(ModelSpec(name), 10, (3, 224, 224), 0)


def test_models_of_plain_torch_do_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in ("resnet18", "cnn", "mlp"):
        build_model(ModelSpec(name), 10, DIGIT, 0)
