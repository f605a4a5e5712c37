"""A user's own function as a model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from expect import error
from regun.artifacts.setup import default_pipeline, default_recipe, family_of
from regun.data.pipelines import PIPELINES
from regun.errors import RegunError, SettingsError
from regun.models import Defaults, ModelSpec, build_model, defaults_of
from regun.models.registry import CATALOGUE
from regun.training.recipes import RECIPES, read_recipe

SIZE = (1, 4, 4)
TEXT = """
from __future__ import annotations
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

torch.rand(7)  # an import that draws must not shift the weights
NUMBER = 3

@dataclass
class Options:
    width: int

def build(num_classes: int, width: int = 8, bias=True, act: Literal["relu", "gelu"] = "relu") -> nn.Module:
    options = Options(width)
    head = nn.Linear(options.width, num_classes, bias)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, options.width), nn.ReLU(), head)
    net.act = act
    return net

class Net(nn.Linear):
    def __init__(self, num_classes: int, scale: float = 1.0) -> None:
        super().__init__(16, num_classes)
        self.scale = scale

    def forward(self, x):
        return super().forward(x.flatten(1)) * self.scale

def sized(num_classes, image_size):
    return nn.Sequential(nn.Flatten(), nn.Linear(image_size[0] * image_size[1] * image_size[2], num_classes))

def free(num_classes, **settings):
    net = build(num_classes)
    net.settings = settings
    return net

def needs(num_classes, width: int):
    return build(num_classes, width)

def text(num_classes):
    return "a model"

def no_classes(width=3):
    return nn.Identity()

def fails(num_classes):
    raise ValueError("out of ideas")

def leaves(num_classes):
    raise SystemExit(0)

def one_too_many(num_classes):
    return build(num_classes + 1)

def other_input(num_classes):
    return nn.Linear(99, num_classes)

def returns_pair(num_classes):
    class Pair(nn.Module):
        def forward(self, x):
            return x, x
    return Pair()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(TEXT)
    return path


def make(name: str, settings: dict[str, Any] | None = None, seed: int = 0) -> Any:
    return build_model(ModelSpec(name, settings or {}), 5, SIZE, seed)


def test_a_function_in_a_file_builds_the_model_with_its_settings(file: Path) -> None:
    model = make(f"{file}:build", {"width": "6", "bias": "false", "act": "gelu"})
    assert model[1].out_features == 6
    assert model[3].bias is None
    assert model.act == "gelu"
    assert model(torch.zeros(2, *SIZE)).shape == (2, 5)


def test_a_function_of_a_module_on_the_path_works(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.rename(file.with_name("my_own_models.py"))
    monkeypatch.syspath_prepend(str(file.parent))
    assert make("my_own_models:build", {"width": 4})[1].out_features == 4


def test_a_class_and_free_settings_and_image_size_work(file: Path) -> None:
    assert make(f"{file}:Net", {"scale": "0.5"}).scale == 0.5
    assert make(f"{file}:sized")[1].in_features == 16
    assert make(f"{file}:free", {"anything": 3}).settings == {"anything": 3}


def test_the_seed_decides_the_weights_also_at_the_first_import(file: Path) -> None:
    before = torch.get_rng_state()
    first, again, other = (make(f"{file}:build", seed=seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["1.weight"], other["1.weight"])


def test_the_description_holds_the_settings_as_read_and_the_source(file: Path) -> None:
    description = ModelSpec(f"{file}:build", {"width": "6"}).describe()
    assert json.loads(json.dumps(description)) == description
    assert description["settings"] == {"width": 6}
    assert ModelSpec(description["name"], description["settings"]).describe() == description


def test_an_edited_file_changes_description_and_model(file: Path) -> None:
    spec = ModelSpec(f"{file}:build")
    before = spec.describe()
    file.write_text(TEXT.replace("width: int = 8", "width: int = 9"))
    assert spec.describe() != before
    assert make(spec.name)[1].out_features == 9


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("no_such_module:build", ["'no_such_module'", "no_such_module.py:function"]),
        ("{folder}/none.py:build", ["{folder}/none.py"]),
        ("{file}:", ["{file}:", "module:function"]),
        ("{file}:biuld", ["'biuld'", "'build'"]),
        ("{file}:NUMBER", ["NUMBER", "int", "function"]),
        ("{file}:text", ["text", "str", "torch.nn.Module"]),
        ("{file}:no_classes", ["no_classes", "width", "num_classes"]),
        ("{file}:fails", ["fails", "ValueError"]),
        ("{file}:leaves", ["leaves", "SystemExit", 0]),
        ("{file}:needs", ["needs", "'width'"]),
        ("{file}:one_too_many", ["one_too_many", 6, 5]),
        ("{file}:other_input", ["other_input", "RuntimeError", 4]),
        ("{file}:returns_pair", ["Pair", "tuple", "logits"]),
    ],
)
def test_mistakes_are_explained(name: str, names: list[object], file: Path) -> None:
    with error(RegunError, *(str(one).format(file=file, folder=file.parent) for one in names)):
        make(name.format(file=file, folder=file.parent))


def test_wrong_settings_are_reported_together(file: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        make(f"{file}:build", {"widht": 3, "width": "wide"})
    assert len(caught.value.problems) == 2
    assert "Did you mean 'width'?" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("import not_there_either", ["ModuleNotFoundError", "'not_there_either'"]),
        ("x = (", ["SyntaxError"]),
        ("import sys; sys.exit(0)", ["SystemExit", 0]),
    ],
)
def test_a_file_that_cannot_be_run_is_explained(
    body: str, names: list[object], tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "spoiled.py").write_text(body)
    with error(RegunError, tmp_path / "spoiled.py", *names):
        make(f"{tmp_path / 'spoiled.py'}:build")
    (tmp_path / "spoiled.py").rename(tmp_path / f"spoiled_{len(body)}.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    with error(RegunError, f"spoiled_{len(body)}", *names):
        make(f"spoiled_{len(body)}:build")


def test_a_function_without_source_is_refused() -> None:
    with error(RegunError, "sqrt"):
        ModelSpec("math:sqrt").describe()


# ---------------------------------------------------------------------------------------------- what goes with a model


@pytest.mark.parametrize(
    ("name", "family", "recipe", "pipeline"),
    [
        ("resnet18", "resnet", "resnet18", "resnet"),
        ("resnet34", "resnet", "resnet18", "resnet"),
        ("swin-t", "swin", "swin-t", "swin"),
        ("swin-nano", "swin", "swin-small", "swin-small"),
        ("vit", "swin", "swin-small", "swin-small"),
        ("cnn", "resnet", "digits", "resnet"),
        ("mlp", "resnet", "digits", "resnet"),
        ("hf:any/thing", "swin", "swin-small", "resnet"),
        ("{file}:build", "resnet", "resnet18-small", "resnet"),
        ("{file}:no_such", "resnet", "resnet18-small", "resnet"),
        ("resnet81", "resnet", "resnet18-small", "resnet"),
        ("", "resnet", "resnet18-small", "resnet"),
    ],
)
def test_every_model_says_what_goes_with_it(name: str, family: str, recipe: str, pipeline: str, file: Path) -> None:
    name = name.format(file=file)
    assert (family_of(name), default_recipe(name), default_pipeline(name, "cifar10")) == (family, recipe, pipeline)


def test_every_record_names_what_there_is() -> None:
    for record in CATALOGUE.values():
        assert record.defaults.recipe in RECIPES
        assert record.defaults.pipeline in PIPELINES
        assert record.defaults.family in ("resnet", "swin")


def test_a_file_may_say_what_goes_with_its_models_and_a_function_say_otherwise(file: Path) -> None:
    said = 'FAMILY = "swin"\nRECIPE = "swin-small,epochs=7"\nNet.RECIPE = "digits"\nbuild.PIPELINE = "swin-small"\n'
    file.write_text(TEXT + said)
    assert defaults_of(f"{file}:build") == Defaults("swin", "swin-small,epochs=7", "swin-small")
    assert defaults_of(f"{file}:Net") == Defaults("swin", "digits", "resnet")
    assert read_recipe(default_recipe(f"{file}:build")).epochs == 7


@pytest.mark.parametrize(
    ("line", "names"),
    [("FAMILY = 'resnt'", ["build", "FAMILY", "'resnt'", "resnet", "swin"]), ("RECIPE = 3", ["build", "RECIPE", 3])],
)
def test_wrong_attributes_of_a_file_are_refused(line: str, names: list[object], file: Path) -> None:
    file.write_text(f"{TEXT}\n{line}\n")
    with error(SettingsError, *names):
        ModelSpec(f"{file}:build").describe()
