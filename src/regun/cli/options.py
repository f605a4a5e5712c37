"""From arguments to objects; all problems are collected before any is reported."""

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regun.artifacts import Artifact, Store, reading
from regun.artifacts.selection import resolve
from regun.artifacts.setup import (
    Setup,
    checked_model,
    default_model,
    default_pipeline,
    default_recipe,
    family_of,
    read_budget,
    read_data,
    read_split,
)
from regun.artifacts.trainings import Training, find_retrained, import_model
from regun.cli.display import Display, open_display
from regun.data.examples import Data
from regun.data.registry import get_pipeline
from regun.devices import as_device
from regun.errors import Problems, RegunError, SettingsError
from regun.forget_spec import ForgetSpec
from regun.plugins import is_code
from regun.settings import parse_spec
from regun.splits import Reserve, Splits, make_splits
from regun.training.job import Budget
from regun.training.recipes import read_recipe

MAX_THREADS = 1024
FIXED_BY_MODEL = ("data", "model", "recipe", "split")
"""Options that a stored model already determines."""


@dataclass(frozen=True)
class RunContext:
    """Store, device and progress display of a command."""

    store: Store
    device: torch.device
    display: Display


def open_run_context(args: argparse.Namespace, title: str, problems: Problems) -> RunContext | None:
    """Return the context of --store, --device, --threads and --quiet; None if there is no such store."""
    store = problems.attempt(lambda: open_store(args))
    device = problems.attempt(lambda: as_device(args.device))
    problems.attempt(lambda: use_threads(args.threads))
    # a wrong device is reported with the others; the store is opened so that all problems are found at once
    return RunContext(store, device or as_device("cpu"), open_display(args, title)) if store else None


def open_store(args: argparse.Namespace) -> Store:
    """Return the store of --store; it may run the code that the command line names. Damage is reported once."""
    reported: set[str] = set()

    def report(problem: str) -> None:
        if problem not in reported:
            reported.add(problem)
            print(f"regun: left out: {problem}", file=sys.stderr, flush=True)

    texts = [getattr(args, name, None) or "" for name in ("model", "data", "method", "target")]
    names = [text.partition(",")[0].partition("@")[0].strip() for text in texts]
    trusted = tuple(name for name in names if is_code(name))
    key = getattr(args, "base", None) or getattr(args, "target", None)
    opened = Store.existing if key and not Path(key).suffix else Store  # a key needs an existing store
    return opened(args.store, snapshot_seconds=args.snapshot_seconds, trusted=trusted, on_damage=report)


def read_setup(args: argparse.Namespace) -> Setup:
    """Return data, model, recipe, input pipeline and split of the arguments."""
    problems = Problems()
    data = problems.attempt(lambda: read_data("digits" if args.data is None else args.data, args.data_dir))
    named = problems.attempt(lambda: parse_spec(args.model)) if args.model else None
    name = named[0] if named else default_model(data.name if data else "")
    model = problems.attempt(lambda: checked_model(name, named[1] if named else {}))
    recipe = problems.attempt(lambda: read_recipe(args.recipe or default_recipe(name)))
    data_name = data.name if data else "folder"
    chosen = args.pipeline or default_pipeline(name, data_name)
    problems.attempt(lambda: get_pipeline(chosen, data_name))
    split = problems.attempt(lambda: read_split(args.split))
    if data is None or model is None or recipe is None or split is None or problems.texts:
        raise SettingsError(problems.texts)
    return Setup(data=data, model=model, recipe=recipe, pipeline=chosen, split=split)


def setup_of(artifact: Artifact, args: argparse.Namespace) -> Setup:
    """Return the setup of a stored model; --data-dir and --pipeline may differ, and code must be named to run."""
    with reading(artifact):
        of_code = {"model": artifact.inputs["model"]["name"], "data": artifact.info["data_name"]}
        settled = [name for name in FIXED_BY_MODEL if not is_code(of_code.get(name, ""))]
        conflicting = sorted(name for name in settled if getattr(args, name) is not None)
        if not conflicting:
            return Setup.of(artifact, data_dir=args.data_dir, pipeline=args.pipeline)
    flags = ", ".join(f"--{name.replace('_', '-')}" for name in conflicting)
    raise SettingsError([f"{flags}: the stored model {artifact.key[:12]} determines this; leave it out."])


@dataclass(frozen=True)
class Start:
    """What unlearning starts from, checked but not loaded; `base` is None if --base is a file of weights."""

    context: RunContext
    base: Artifact | None
    setup: Setup
    forget: ForgetSpec
    budget: Budget | None
    teacher: Artifact | None

    @property
    def family(self) -> str:
        """The model family, whose presets and search ranges apply."""
        return family_of(self.setup.model.name)

    @property
    def recipe(self) -> Mapping[str, Any] | None:
        """The recipe that the base was trained with, if it is known."""
        return self.base.inputs.get("recipe") if self.base else None

    def load(self, file: str) -> tuple[Artifact, Data, Splits]:
        """Return the base, which may come from `file`, the data and the splits."""
        setup, store = self.setup, self.context.store
        data, reserved = load(setup, self.context.display)
        base = self.base or import_model(Path(file), data, reserved.base, setup.model, store, about=setup.about())
        return base, data, splits_of(self.forget, base, setup, data, reserved, self.context)


def read_start(args: argparse.Namespace, title: str, problems: Problems) -> Start | None:
    """Return what --base, --forget, --budget and --teacher name; None if there is no such base."""
    context = open_run_context(args, title, problems)
    base, setup = None, None
    if context is not None:
        with problems.collect():
            base = None if args.base.endswith(".safetensors") else find_base(args.base, context.store)
            setup = read_setup(args) if base is None else setup_of(base, args)
    forget = problems.attempt(lambda: ForgetSpec.parse(args.forget))
    budget = problems.attempt(lambda: read_budget(args.budget)) if args.budget else None
    key = getattr(args, "teacher", None)
    teacher = problems.attempt(lambda: context.store.find(key, "model")) if context and key else None
    if context is None or setup is None or forget is None:
        return None
    return Start(context, base, setup, forget, budget, teacher)


def find_base(text: str, store: Store) -> Artifact:
    """Return a trained model of the store."""
    if os.path.isfile(text):
        raise RegunError(
            f"--base is the file {text}; only .safetensors files are read, because pickled weights can run code. "
            f"Save them with safetensors.torch.save_file."
        )
    base = store.find(text, "model")
    if "trained_on" not in base.inputs:
        raise RegunError(
            f"{base.key[:12]} is itself an unlearned model; give the model it came from "
            f"({str(base.info['base'])[:12]}) and name everything to forget at once."
        )
    return base


def retrained_models(
    keys: str | None, base: Artifact | None, splits: Splits, store: Store, target: Artifact | None = None
) -> tuple[Artifact | None, tuple[Artifact, ...]]:
    """Return Retrain and the references: those of `--retrained`, or those that `find_retrained` finds in the store.

    The audited `target` is never one of them.
    """
    if keys == "none":
        return None, ()
    if keys:
        models = [store.find(key, "model") for key in keys.split(",")]
    else:
        models = find_retrained(store, base, splits.retain) if base is not None else []
    models = [model for model in models if target is None or model.key != target.key]
    return next(iter(models), None), tuple(models[1:])


def load(setup: Setup, display: Display) -> tuple[Data, Reserve]:
    """Return the setup's data and the examples set aside, with progress."""
    return setup.load(display.counter("reading images"))


def splits_of(
    spec: ForgetSpec, base: Artifact | None, setup: Setup, data: Data, reserved: Reserve, context: RunContext
) -> Splits:
    """Return the splits of a forget set; models that it needs come from the store or are trained now."""
    if base is not None and "recipe" not in base.inputs:
        ranked_by: Training | Artifact = base
    elif base is not None:
        ranked_by = Training.of(base, data, trained_on=reserved.base, seed=setup.split.seed)
    else:
        ranked_by = Training(
            data=data, trained_on=reserved.base, model=setup.model, recipe=setup.recipe, seed=setup.split.seed
        )
    shown = context.display.callbacks()
    resolved = resolve(spec, ranked_by, data, reserved, context.store, context.device, about=setup.about(), watch=shown)
    return make_splits(data.train.labels, resolved, reserved)


def use_threads(count: int | None) -> None:
    if count is not None:
        if not 1 <= count <= MAX_THREADS:
            raise SettingsError([f"--threads is {count}; give a number from 1 to {MAX_THREADS:,}."])
        torch.set_num_threads(count)
