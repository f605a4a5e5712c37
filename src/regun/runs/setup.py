"""What a run is about, from text: data, model, recipe, input pipeline, split, request, budget."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regun.data.catalogue import DataSpec, load_data
from regun.data.examples import Data
from regun.errors import SettingsError, SplitError, unknown
from regun.models import ModelSpec
from regun.settings import bind, parse_spec
from regun.splits import Indices, Request, Reserve, make_splits, reserve
from regun.training.job import Budget
from regun.training.recipes import RECIPES, Recipe

UNLEARN_PRESET = {"swin": "swin-unlearn", "swin-small": "resnet"}
"""The paper unlearns without the strong augmentation it trains with."""

DEFAULT_MODEL = {"digits": "cnn", "tiny-imagenet": "swin-t"}
DEFAULT_RECIPE = {"resnet18": "resnet18", "resnet34": "resnet18", "swin-t": "swin-t", "cnn": "digits", "mlp": "digits"}


@dataclass(frozen=True)
class Setup:
    """What the arguments of a run describe, checked but not yet loaded."""

    data: DataSpec
    model: ModelSpec
    recipe: Recipe
    preset: str
    split_seed: int
    heldout: float
    val: float
    stratified: bool

    def about(self) -> dict[str, Any]:
        """What a manifest should remember of it, so that the same data and split can be loaded again."""
        return {
            "data_name": self.data.name,
            "data_settings": vars(self.data.settings),
            "preset": self.preset,
            "split_seed": self.split_seed,
            "heldout": self.heldout,
            "val": self.val,
            "stratified": self.stratified,
        }

    def load(self, on_progress: Callable[[int, int], None] | None = None) -> tuple[Data, Reserve]:
        """The data, and what is set aside of them."""
        data = load_data(self.data, self.preset, on_progress)
        kept = reserve(
            data.train.labels, self.split_seed, heldout=self.heldout, val=self.val, stratified=self.stratified
        )
        return data, kept


def unlearning_preset(trained_with: str) -> str:
    """The input pipeline for unlearning from a model that was trained with this one."""
    return UNLEARN_PRESET.get(trained_with, trained_with)


def default_model(data: str) -> str:
    """The model of a data set unless one is named."""
    return DEFAULT_MODEL.get(data, "resnet18")


def default_recipe(model: str) -> str:
    """The recipe of a model unless one is named."""
    small = "swin-small" if model in ("swin-nano", "vit") or model.startswith("hf:") else "resnet18-small"
    return DEFAULT_RECIPE.get(model, small)


def checked_model(name: str, values: Mapping[str, Any]) -> ModelSpec:
    """The model's definition; complains about anything wrong in it."""
    spec = ModelSpec(name, values)
    spec.describe()
    return spec


def read_recipe(text: str) -> Recipe:
    """`name,key=value,...`."""
    name, values = parse_spec(text)
    if name not in RECIPES:
        try:
            bind(Recipe, values, "recipe")
        except SettingsError as fault:
            raise SettingsError([unknown("recipe", name, RECIPES), *fault.problems]) from None
        raise SettingsError([unknown("recipe", name, RECIPES)])
    return bind(Recipe, values, "recipe", RECIPES[name])


def family_of(model: str) -> str:
    """Whose settings of the paper a model takes: those for ResNets or those for transformers."""
    return "swin" if model.startswith(("swin", "vit", "hf:")) else "resnet"


def read_budget(text: str) -> Budget:
    """`steps=N` or `samples=N`."""
    name, _, number = text.partition("=")
    if name not in ("steps", "samples") or not number.isdecimal():
        raise SettingsError([f"--budget is {text!r}; give steps=N or samples=N with a whole number N."])
    return Budget(**{name: int(number)})


def default_preset(model: str, data: str) -> str:
    """The input pipeline a model and data set are used with unless one is named."""
    if data == "digits":
        return "digits"
    return {"swin-t": "swin", "swin-nano": "swin-small", "vit": "swin-small"}.get(model, "resnet")


def read_request(text: str) -> Request:
    """`0.1`, `stratified:0.1`, `class:3/5`, `class:3=0.5`, `ids:FILE`."""
    kind, _, rest = text.partition(":")
    try:
        if not rest:
            return Request.random(float(kind))
        if kind == "stratified":
            return Request.stratified(float(rest))
        if kind == "class" and "=" in rest:
            pairs = [(int(c), float(f)) for c, f in (p.split("=") for p in rest.split("/"))]
            if len(dict(pairs)) < len(pairs):
                raise SplitError(f"{text!r} names a class twice; give each once.")
            return Request.of_class_fractions(dict(pairs))
        if kind == "class":
            return Request.of_classes([int(c) for c in rest.split("/")])
    except ValueError:
        raise SplitError(
            f"cannot read {text!r} as a request; write 0.1, stratified:0.1, class:3/5, class:3=0.5 or ids:FILE."
        ) from None
    if kind == "ids":
        return Request.of_ids(read_ids(Path(rest)))
    raise SplitError(unknown("kind of request", kind, ("stratified", "class", "ids")))


def read_ids(path: Path) -> list[int]:
    """Ids of a text file (one a line) or a JSON list."""
    try:
        text = path.read_text()
        items: list[Any] = json.loads(text) if text.lstrip().startswith("[") else text.split()
    except (OSError, ValueError) as fault:
        raise SplitError(f"cannot read the ids of {path}: {fault}. Give a text file with one id a line.") from None
    bad = next((i for i in items if not re.fullmatch("-?[0-9]{1,18}", str(i))), None)
    if bad is not None:
        raise SplitError(f"{path} holds {bad!r}, which is not an id; ids are whole numbers, one a line.")
    return [int(i) for i in items]


def trained_on(data: Data, kept: Reserve, request: Request | None) -> Indices:
    """What a base model trains on or, with a request, a retrained one."""
    return kept.base if request is None else make_splits(data.train.labels, request, kept).retain
