"""Names, settings, descriptions, and what is said of mistakes."""

import dataclasses
import json
import re
import sys
from typing import Any

import pytest

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
    ("spec", "size", "text"),
    [
        ("resnet81", RGB, "unknown model 'resnet81'. Did you mean 'resnet18'?"),
        ("swin", RGB, "unknown model 'swin'. Did you mean 'swin-t'? Known: cnn, hf:PATH, mlp, module:function"),
        ("resnet18,widht=8", RGB, "unknown setting of resnet18 'widht'. Did you mean 'width'?"),
        ("resnet18,width=0", RGB, "resnet.width is 0; the least allowed is 1."),
        ("resnet18,stem=small", RGB, "resnet.stem is 'small'; give one of auto, cifar, tiny, imagenet."),
        ("cnn,width=wide", RGB, "cnn.width is 'wide'; give a whole number."),
        ("cnn", None, "cnn works on images, but the data has no image size (got None)."),
        ("mlp", None, "mlp cannot tell the length of its inputs: the data has no image size. Set mlp.features=N."),
        ("mlp,features=5", DIGIT, "mlp.features is 5, but images of size (1, 8, 8) have 64 values."),
        ("vit,dim=30,heads=4", RGB, "vit.dim is 30; give a multiple of vit.heads, which is 4."),
        ("vit,patch=5", RGB, "vit cannot cut an image of 32x32 pixels into patches of 5x5."),
        ("vit", (3, 31, 31), "vit cannot cut an image of 31x31 pixels"),
        ("vit,dropout=1", RGB, "vit.dropout is 1.0; the most allowed is 0.9."),
        ("swin-t", RGB, "swin-t does not fit images of 32x32 pixels: with patch 4 and 4 stages the last grid has 1x1"),
        ("swin-t", RGB, "It is made for 224x224: resize the images, or use the model 'swin-nano'."),
        ("swin-t,drop_path=-1", RGB, "swin-t.drop_path is -1.0; the least allowed is 0."),
        ("swin-nano,window=5", DIGIT, "the last grid has 2x2 patches, less than its window of 5."),
        ("swin-nano", (1, 2, 2), "swin-nano does not fit images of 2x2 pixels"),
        ("swin-nano,depths=2/2/2", RGB, "swin-nano.depths is (2, 2, 2) and swin-nano.heads is (2, 4); give both one"),
        ("swin-nano,depths=0/2", RGB, "swin-nano.depths is (0, 2); the least allowed is 1 block a stage."),
        ("swin-nano,heads=2/5", RGB, "in stage 2 give a divisor of its 64 channels, not 5."),
    ],
)
def test_mistakes_are_explained(spec: str, size: tuple[int, int, int] | None, text: str) -> None:
    with pytest.raises(RegunError, match=re.escape(text)):
        build_model(ModelSpec(*parse_spec(spec)), 10, size, 0)


def test_all_mistakes_in_settings_are_reported_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        build_model(ModelSpec("vit", {"dimm": 3, "depth": "deep", "heads": 0, "dropout": 2}), 10, RGB, 0)
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize(
    ("classes", "size", "text"),
    [
        (1, RGB, "num_classes is 1; a classifier needs at least 2 classes."),
        (10, (3, 0, 32), "image_size is (3, 0, 32); give (channels, height, width), all at least 1."),
    ],
)
def test_impossible_shapes_are_refused(classes: int, size: tuple[int, int, int], text: str) -> None:
    with pytest.raises(RegunError, match=re.escape(text)):
        build_model(ModelSpec("cnn"), classes, size, 0)


@pytest.mark.parametrize("name", ["vit", "swin-nano", "swin-t"])
def test_a_missing_transformers_is_explained(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    text = f"the model '{name}' needs the package transformers, .* pip install 'regun\\[transformers\\]'"
    with pytest.raises(RegunError, match=text):
        build_model(ModelSpec(name), 10, (3, 224, 224), 0)


def test_models_of_plain_torch_do_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in ("resnet18", "cnn", "mlp"):
        build_model(ModelSpec(name), 10, DIGIT, 0)
