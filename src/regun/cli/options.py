"""From arguments to objects, every mistake collected before anything is reported."""

import argparse
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from regun.cli.terminal import Display
from regun.data.catalogue import DATA_SETS, USERS, DataSpec, load_data
from regun.data.examples import Data
from regun.data.presets import pipeline
from regun.errors import RegunError, SettingsError, SplitError, unknown
from regun.job import Budget
from regun.models import ModelSpec
from regun.recipes import RECIPES, Recipe
from regun.settings import bind, parse_spec
from regun.splits import Indices, Request, Reserve, make_splits, reserve
from regun.store import Artefact

T = TypeVar("T")

DEFAULT_MODEL = {"digits": "cnn", "tiny-imagenet": "swin-t"}
DEFAULT_RECIPE = {"resnet18": "resnet18", "resnet34": "resnet18", "swin-t": "swin-t", "cnn": "digits", "mlp": "digits"}


class Problems:
    """Collects mistakes so that a user sees them all at once."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def attempt(self, function: Callable[[], T]) -> T | None:
        try:
            return function()
        except SettingsError as fault:
            self.found += fault.problems
        except RegunError as fault:
            self.found.append(str(fault))
        return None

    def stop_if_any(self) -> None:
        if self.found:
            raise SettingsError(self.found)


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

    def load(self, display: Display) -> tuple[Data, Reserve]:
        data = load_data(self.data, self.preset, display.counter("reading images"))
        display.close()
        kept = reserve(
            data.train.labels, self.split_seed, heldout=self.heldout, val=self.val, stratified=self.stratified
        )
        return data, kept


def read_setup(args: argparse.Namespace, problems: Problems) -> Setup | None:
    """Data, model, recipe and input pipeline; None when one of them is wrong."""
    data = problems.attempt(lambda: _data(args))
    named = problems.attempt(lambda: parse_spec(args.model)) if args.model else None
    name = named[0] if named else DEFAULT_MODEL.get(data.name if data else "", "resnet18")
    model = problems.attempt(lambda: _model(name, named[1] if named else {}))
    recipe = problems.attempt(lambda: _recipe(args.recipe or DEFAULT_RECIPE.get(name, _fallback_recipe(name))))
    data_name = data.name if data else "folder"
    preset = args.augment or default_preset(name, data_name)
    problems.attempt(lambda: pipeline(preset, data_name))
    problems.attempt(lambda: _fractions(args))
    if data is None or model is None or recipe is None:
        return None
    heldout, val = _fraction(args.heldout), _fraction(args.val)
    return Setup(data, model, recipe, preset, args.split_seed or 0, heldout, val, args.stratified)


def setup_of(base: Artefact, args: argparse.Namespace) -> Setup:
    """The setup a stored model was trained with, from its manifest; --data-dir and --augment may differ."""
    about = base.info
    settled = {"data", "model", "recipe", "split_seed", "heldout", "val", "stratified"}
    said = sorted(name for name in settled if getattr(args, name) not in (None, False))
    if said:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in said)
        raise SettingsError([f"{flags}: the model {base.key[:12]} of the store settles this itself; leave it out."])
    settings = dict(about["data_settings"])
    if args.data_dir and about["data_name"] in USERS["root"]:
        settings["root"] = args.data_dir
    spec = DataSpec.read(about["data_name"], settings)
    trained_with: str = about["preset"]
    preset: str = args.augment or ("swin-unlearn" if trained_with == "swin" else trained_with)
    model = ModelSpec(base.inputs["model"]["name"], base.inputs["model"]["settings"])
    split = (about["split_seed"], about["heldout"], about["val"], about["stratified"])
    return Setup(spec, model, Recipe(), preset, *split)


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


def read_device(text: str) -> torch.device:
    if text == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(text)
        torch.empty(1, device=device).tolist()  # `meta` makes tensors, but they hold nothing
    except (RuntimeError, AssertionError, ImportError) as fault:
        reason = f"{fault}".splitlines()[0].split(". ")[0]
        raise RegunError(f"device {text!r} cannot be used ({reason}); use cpu or auto.") from None
    return device


def use_threads(count: int | None) -> None:
    if count is not None:
        if count < 1:
            raise SettingsError([f"--threads is {count}; give at least 1."])
        torch.set_num_threads(count)


def trained_on(data: Data, kept: Reserve, request: Request | None) -> Indices:
    """What a base model trains on or, with a request, a retrained one."""
    return kept.base if request is None else make_splits(data.train.labels, request, kept).retain


def _data(args: argparse.Namespace) -> DataSpec:
    name, values = parse_spec("digits" if args.data is None else args.data)
    if name in DATA_SETS and name != "digits" and args.data_dir:
        values = {"root": args.data_dir, **values}
    return DataSpec.read(name, values)


def _model(name: str, values: dict[str, str]) -> ModelSpec:
    spec = ModelSpec(name, values)
    spec.describe()  # complains about anything wrong
    return spec


def _recipe(text: str) -> Recipe:
    name, values = parse_spec(text)
    if name not in RECIPES:
        try:
            bind(Recipe, values, "recipe")
        except SettingsError as fault:
            raise SettingsError([unknown("recipe", name, RECIPES), *fault.problems]) from None
        raise SettingsError([unknown("recipe", name, RECIPES)])
    return bind(Recipe, values, "recipe", RECIPES[name])


def _fallback_recipe(model: str) -> str:
    return "swin-small" if model in ("swin-nano", "vit") or model.startswith("hf:") else "resnet18-small"


def _fractions(args: argparse.Namespace) -> None:
    problems = [
        f"--{name} is {value}; give a number from 0 up to, not including, 1."
        for name, value in (("heldout", args.heldout), ("val", args.val))
        if value is not None and not 0 <= value < 1
    ]
    if problems:
        raise SettingsError(problems)


def _fraction(given: float | None) -> float:
    return 0.1 if given is None else given
