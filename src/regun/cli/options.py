"""From arguments to objects, every mistake collected before anything is reported."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from regun.cli.terminal import Display
from regun.data.catalogue import DATA_SETS, USERS, DataSpec
from regun.data.examples import Data
from regun.data.presets import pipeline
from regun.errors import RegunError, SettingsError
from regun.models import ModelSpec
from regun.runs.setup import (
    Setup,
    checked_model,
    default_model,
    default_preset,
    default_recipe,
    read_recipe,
    unlearning_preset,
)
from regun.settings import parse_spec
from regun.splits import Reserve
from regun.store import Artefact, Store
from regun.training.recipes import Recipe

T = TypeVar("T")


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


def read_setup(args: argparse.Namespace, problems: Problems) -> Setup | None:
    """Data, model, recipe and input pipeline; None when one of them is wrong."""
    data = problems.attempt(lambda: _data(args))
    named = problems.attempt(lambda: parse_spec(args.model)) if args.model else None
    name = named[0] if named else default_model(data.name if data else "")
    model = problems.attempt(lambda: checked_model(name, named[1] if named else {}))
    recipe = problems.attempt(lambda: read_recipe(args.recipe or default_recipe(name)))
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
    preset: str = args.augment or unlearning_preset(about["preset"])
    model = ModelSpec(base.inputs["model"]["name"], base.inputs["model"]["settings"])
    split = (about["split_seed"], about["heldout"], about["val"], about["stratified"])
    return Setup(spec, model, Recipe(), preset, *split)


def read_origin(
    args: argparse.Namespace, store: Store | None, problems: Problems
) -> tuple[Artefact | None, Setup | None]:
    """What --base names: a model of the store with the setup it was trained with, or a file and what else is said."""
    if args.base.endswith(".safetensors"):
        return None, read_setup(args, problems)
    found = problems.attempt(lambda: find_base(args.base, store)) if store else None
    return found, problems.attempt(lambda: setup_of(found, args)) if found is not None else None


def find_base(text: str, store: Store) -> Artefact:
    """A trained model of the store."""
    if Path(text).is_file():
        raise RegunError(
            f"--base is the file {text}; only .safetensors files are read, because pickled weights can run code. "
            f"Save them with safetensors.torch.save_file."
        )
    found = store.find(text, "model")
    if "trained_on" not in found.inputs:
        raise RegunError(
            f"{found.key[:12]} is itself an unlearned model; give the model it came from ({found.info['base'][:12]}) "
            f"and name all that is to be forgotten in one request."
        )
    return found


def load(setup: Setup, display: Display) -> tuple[Data, Reserve]:
    """The setup's data and what is set aside of them, with progress."""
    found = setup.load(display.counter("reading images"))
    display.close()
    return found


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


def _data(args: argparse.Namespace) -> DataSpec:
    name, values = parse_spec("digits" if args.data is None else args.data)
    if name in DATA_SETS and name != "digits" and args.data_dir:
        values = {"root": args.data_dir, **values}
    return DataSpec.read(name, values)


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
