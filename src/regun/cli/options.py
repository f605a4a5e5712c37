"""From arguments to objects, every mistake collected before anything is reported."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from regun.errors import RegunError, SettingsError
from regun.plugins import is_code

if TYPE_CHECKING:
    import torch

    from regun.cli.terminal import Display
    from regun.data.examples import Data
    from regun.runs.choices import Selection
    from regun.runs.setup import Setup
    from regun.splits import Request, Reserve, Splits
    from regun.store import Artefact, Store

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


def open_store(args: argparse.Namespace) -> Store:
    """The store of --store; it may run the code that the command line names, and damage in it is told once."""
    from regun.store import Store

    told: set[str] = set()

    def tell(problem: str) -> None:
        if problem not in told:
            told.add(problem)
            print(f"regun: left out: {problem}", file=sys.stderr, flush=True)

    said = [getattr(args, name, None) or "" for name in ("model", "data", "method", "target")]
    named = [text.partition(",")[0].partition("@")[0].strip() for text in said]
    trusted = tuple(name for name in named if is_code(name))
    return Store(args.store, snapshot_seconds=args.snapshot_seconds, trusted=trusted, on_damage=tell)


def read_setup(args: argparse.Namespace, problems: Problems) -> Setup | None:
    """Data, model, recipe and input pipeline; None when one of them is wrong."""
    from regun.data.catalogue import pipeline
    from regun.runs.setup import (
        Setup,
        checked_model,
        default_model,
        default_preset,
        default_recipe,
        read_data,
        read_recipe,
    )
    from regun.settings import parse_spec

    data = problems.attempt(lambda: read_data("digits" if args.data is None else args.data, args.data_dir))
    named = problems.attempt(lambda: parse_spec(args.model)) if args.model else None
    name = named[0] if named else default_model(data.name if data else "")
    model = problems.attempt(lambda: checked_model(name, named[1] if named else {}))
    recipe = problems.attempt(lambda: read_recipe(args.recipe or default_recipe(name)))
    data_name = data.name if data else "folder"
    preset = args.augment or default_preset(name, data_name)
    problems.attempt(lambda: pipeline(preset, data_name))
    split = {"heldout": args.heldout, "val": args.val}
    problems.found += [
        f"--{part} is {value}; give a number from 0 up to, not including, 1."
        for part, value in split.items()
        if value is not None and not 0 <= value < 1
    ]
    if data is None or model is None or recipe is None:
        return None
    given = {part: value for part, value in split.items() if value is not None}
    split_seed, stratified = args.split_seed or 0, args.stratified
    return Setup(
        data=data, model=model, recipe=recipe, preset=preset, split_seed=split_seed, stratified=stratified, **given
    )


def setup_of(artefact: Artefact, args: argparse.Namespace) -> Setup:
    """What a model of the store is about; --data-dir and --augment may differ, and code must be named to be run."""
    from regun.runs.setup import Setup
    from regun.store import reading

    with reading(artefact):
        of_code = {"model": artefact.inputs["model"]["name"], "data": artefact.info["data_name"]}
        settled = [name for name in SETTLED if not is_code(of_code.get(name, ""))]
        said = sorted(name for name in settled if getattr(args, name) not in (None, False))
        if not said:
            return Setup.of(artefact, data_dir=args.data_dir, augment=args.augment)
    flags = ", ".join(f"--{name.replace('_', '-')}" for name in said)
    raise SettingsError([f"{flags}: the model {artefact.key[:12]} of the store settles this itself; leave it out."])


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
    if is_file(text):
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


def is_file(text: str) -> bool:
    """Whether there is a file of that name; a text that can be no name is none."""
    try:
        return Path(text).is_file()
    except OSError:
        return False


def is_dir(text: str) -> bool:
    """Whether there is a folder of that name; a text that can be no name is none."""
    try:
        return Path(text).is_dir()
    except OSError:
        return False


def load(setup: Setup, display: Display) -> tuple[Data, Reserve]:
    """The setup's data and what is set aside of them, with progress."""
    found = setup.load(display.counter("reading images"))
    display.close()
    return found


def splits_of(
    asked: Request | Selection,
    base: Artefact | None,
    setup: Setup,
    data: Data,
    kept: Reserve,
    store: Store,
    device: torch.device,
    display: Display,
) -> Splits:
    """The splits of a request; models that must answer it first are found in the store, or trained."""
    from regun.runs.selection import resolve
    from regun.runs.training import Training, Watch
    from regun.splits import make_splits

    if base is not None and "recipe" not in base.inputs:
        by: Training | Artefact = base
    elif base is not None:
        by = Training.of(base, data, trained_on=kept.base, seed=setup.split_seed)
    else:
        by = Training(data=data, trained_on=kept.base, model=setup.model, recipe=setup.recipe, seed=setup.split_seed)
    watch = Watch(lambda epoch, _: display.epoch(epoch), display.progress)
    request = resolve(asked, by, data, kept, store, device, about=setup.about(), watch=watch)
    return make_splits(data.train.labels, request, kept)


def read_device(text: str) -> torch.device:
    import torch

    if text == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(text)
        torch.empty(1, device=device).tolist()  # `meta` makes tensors, but they hold nothing
    except (RuntimeError, AssertionError, ImportError, ValueError) as fault:
        reason = f"{fault}".splitlines()[0].split(". ")[0] if f"{fault}" else type(fault).__name__
        raise RegunError(f"device {text[:80]!r} cannot be used ({reason[:200]}); use cpu or auto.") from None
    return device


def use_threads(count: int | None) -> None:
    import torch

    if count is not None:
        if not 1 <= count <= MOST_THREADS:
            limit = "at least 1" if count < 1 else f"at most {MOST_THREADS:,}"
            raise SettingsError([f"--threads is {count}; give {limit}."])
        torch.set_num_threads(count)
