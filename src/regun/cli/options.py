"""From arguments to objects, every mistake collected before anything is reported."""

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from regun.artifacts import Artifact, Store, reading
from regun.artifacts.selection import resolve
from regun.artifacts.setup import (
    Setup,
    checked_model,
    default_model,
    default_pipeline,
    default_recipe,
    read_budget,
    read_data,
)
from regun.artifacts.trainings import Training, find_retrained, import_model
from regun.cli.terminal import Display
from regun.data.examples import Data
from regun.data.registry import pipeline
from regun.errors import RegunError, SettingsError
from regun.forget_spec import ForgetSpec
from regun.inputs import as_device
from regun.plugins import is_code
from regun.settings import parse_spec
from regun.splits import Reserve, Splits, make_splits
from regun.training.job import Budget
from regun.training.recipes import read_recipe

T = TypeVar("T")

MOST_THREADS = 1024
SETTLED = ("data", "model", "recipe", "split_seed", "heldout", "val", "stratified")
"""Options that a model of the store settles itself."""


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
class Place:
    """Where a command works, and where it shows how far it is."""

    store: Store
    device: torch.device
    display: Display


def open_place(args: argparse.Namespace, title: str, problems: Problems) -> Place | None:
    """The place that --store, --device, --threads and --quiet name; None where there is no such store."""
    store = problems.attempt(lambda: open_store(args))
    device = problems.attempt(lambda: read_device(args.device))
    problems.attempt(lambda: use_threads(args.threads))
    # a wrong device is a problem, but no reason not to look for models and find more problems
    return Place(store, device or read_device("cpu"), Display(title, args.quiet)) if store else None


def open_store(args: argparse.Namespace) -> Store:
    """The store of --store; it may run the code that the command line names, and damage in it is told once."""
    told: set[str] = set()

    def tell(problem: str) -> None:
        if problem not in told:
            told.add(problem)
            print(f"regun: left out: {problem}", file=sys.stderr, flush=True)

    said = [getattr(args, name, None) or "" for name in ("model", "data", "method", "target")]
    named = [text.partition(",")[0].partition("@")[0].strip() for text in said]
    trusted = tuple(name for name in named if is_code(name))
    wanted = getattr(args, "base", None) or getattr(args, "target", None)
    opened = Store.existing if wanted and not Path(wanted).suffix else Store  # a key is looked for where a store is
    return opened(args.store, snapshot_seconds=args.snapshot_seconds, trusted=trusted, on_damage=tell)


def read_setup(args: argparse.Namespace) -> Setup:
    """Data, model, recipe and input pipeline."""
    problems = Problems()
    data = problems.attempt(lambda: read_data("digits" if args.data is None else args.data, args.data_dir))
    named = problems.attempt(lambda: parse_spec(args.model)) if args.model else None
    name = named[0] if named else default_model(data.name if data else "")
    model = problems.attempt(lambda: checked_model(name, named[1] if named else {}))
    recipe = problems.attempt(lambda: read_recipe(args.recipe or default_recipe(name)))
    data_name = data.name if data else "folder"
    chosen = args.augment or default_pipeline(name, data_name)
    problems.attempt(lambda: pipeline(chosen, data_name))
    split = {"heldout": args.heldout, "val": args.val}
    problems.found += [
        f"--{part} is {value}; give a number from 0 up to, not including, 1."
        for part, value in split.items()
        if value is not None and not 0 <= value < 1
    ]
    if data is None or model is None or recipe is None or problems.found:
        raise SettingsError(problems.found)
    given = {part: value for part, value in split.items() if value is not None}
    split_seed, stratified = args.split_seed or 0, args.stratified
    return Setup(
        data=data, model=model, recipe=recipe, pipeline=chosen, split_seed=split_seed, stratified=stratified, **given
    )


def setup_of(artifact: Artifact, args: argparse.Namespace) -> Setup:
    """What a model of the store is about; --data-dir and --augment may differ, and code must be named to be run."""
    with reading(artifact):
        of_code = {"model": artifact.inputs["model"]["name"], "data": artifact.info["data_name"]}
        settled = [name for name in SETTLED if not is_code(of_code.get(name, ""))]
        said = sorted(name for name in settled if getattr(args, name) not in (None, False))
        if not said:
            return Setup.of(artifact, data_dir=args.data_dir, pipeline=args.augment)
    flags = ", ".join(f"--{name.replace('_', '-')}" for name in said)
    raise SettingsError([f"{flags}: the model {artifact.key[:12]} of the store settles this itself; leave it out."])


@dataclass(frozen=True)
class Start:
    """What unlearning starts from, checked but not yet loaded; `base` is None where --base is a file of weights."""

    place: Place
    base: Artifact | None
    setup: Setup
    request: ForgetSpec
    budget: Budget | None
    teacher: Artifact | None

    def load(self, file: str) -> tuple[Artifact, Data, Splits]:
        """The base, which may come from `file`, the data, and who forgets and retains what."""
        setup, store = self.setup, self.place.store
        data, kept = load(setup, self.place.display)
        base = self.base or import_model(Path(file), data, kept.base, setup.model, store, about=setup.about())
        return base, data, splits_of(self.request, base, setup, data, kept, self.place)


def read_start(args: argparse.Namespace, title: str, problems: Problems) -> Start | None:
    """What --base, --forget, --budget, --teacher and the place's arguments name; None where there is no such base."""
    place = open_place(args, title, problems)
    origin = problems.attempt(lambda: _origin(args, place.store)) if place else None
    request = problems.attempt(lambda: ForgetSpec.parse(args.forget))
    budget = problems.attempt(lambda: read_budget(args.budget)) if args.budget else None
    teacher = problems.attempt(lambda: place.store.find(args.teacher, "model")) if place and args.teacher else None
    if place is None or origin is None:
        return None
    return Start(
        place, *origin, request or ForgetSpec.parse("0.1"), budget, teacher
    )  # with a problem nothing will start


def _origin(args: argparse.Namespace, store: Store) -> tuple[Artifact | None, Setup]:
    """A model of the store with the setup it was trained with, or none and what else is said."""
    if args.base.endswith(".safetensors"):
        return None, read_setup(args)
    found = find_base(args.base, store)
    return found, setup_of(found, args)


def find_base(text: str, store: Store) -> Artifact:
    """A trained model of the store."""
    if os.path.isfile(text):  # unlike Path, it takes a text that can be no name for none
        raise RegunError(
            f"--base is the file {text}; only .safetensors files are read, because pickled weights can run code. "
            f"Save them with safetensors.torch.save_file."
        )
    found = store.find(text, "model")
    if "trained_on" not in found.inputs:
        raise RegunError(
            f"{found.key[:12]} is itself an unlearned model; give the model it came from "
            f"({str(found.info['base'])[:12]}) and name all that is to be forgotten in one request."
        )
    return found


def retrained_models(
    args: argparse.Namespace, base: Artifact | None, splits: Splits, store: Store, target: Artifact | None = None
) -> tuple[Artifact | None, tuple[Artifact, ...]]:
    """Retrain and the references: those named, or those of the store that were trained like the base on the retain set.

    The `target`, which they are to judge, is none of them.
    """
    found = find_retrained(store, base, splits.retain) if base is not None else []
    others = [model for model in found if target is None or model.key != target.key]
    retrain = store.find(args.retrain, "model") if args.retrain else next(iter(others), None)
    if args.references:
        others = [store.find(key, "model") for key in args.references.split(",")]
    known = {model.key for model in (target, retrain) if model is not None}
    return retrain, tuple(model for model in others if model.key not in known)


def load(setup: Setup, display: Display) -> tuple[Data, Reserve]:
    """The setup's data and what is set aside of them, with progress."""
    found = setup.load(display.counter("reading images"))
    display.close()
    return found


def splits_of(
    asked: ForgetSpec, base: Artifact | None, setup: Setup, data: Data, kept: Reserve, place: Place
) -> Splits:
    """The splits of a request; models that must answer it first are found in the store, or trained."""
    if base is not None and "recipe" not in base.inputs:
        by: Training | Artifact = base
    elif base is not None:
        by = Training.of(base, data, trained_on=kept.base, seed=setup.split_seed)
    else:
        by = Training(data=data, trained_on=kept.base, model=setup.model, recipe=setup.recipe, seed=setup.split_seed)
    watch = place.display.watch()
    request = resolve(asked, by, data, kept, place.store, place.device, about=setup.about(), watch=watch)
    return make_splits(data.train.labels, request, kept)


def read_device(text: str) -> torch.device:
    if text == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return as_device(text)


def use_threads(count: int | None) -> None:
    if count is not None:
        if not 1 <= count <= MOST_THREADS:
            limit = "at least 1" if count < 1 else f"at most {MOST_THREADS:,}"
            raise SettingsError([f"--threads is {count}; give {limit}."])
        torch.set_num_threads(count)
