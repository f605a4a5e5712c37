"""`regun unlearn`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regun.cli.options import Problems, load, read_device, read_origin, use_threads
from regun.cli.terminal import Display, duration, emit, table
from regun.data.examples import Data, Examples, Indices
from regun.errors import NotFiniteError, RegunError
from regun.evaluate.metrics import accuracy
from regun.methods import Method, read_method
from regun.runs.audit import cached_signals
from regun.runs.setup import Setup, family_of, read_budget, read_request
from regun.runs.training import Unlearning, Watch, import_model, unlearn_model
from regun.settings import parse_spec
from regun.splits import Splits, make_splits
from regun.store import Artefact, Store, write_weights
from regun.tune import OBJECTIVES, Space, Trial, Tuned, Tuning, need_optuna, searchable, tune
from regun.tune.settings_file import read_settings, settings_for


def run(args: argparse.Namespace) -> int:
    problems = Problems()
    store = problems.attempt(lambda: Store(args.store, snapshot_seconds=args.snapshot_seconds))
    found, setup = read_origin(args, store, problems)
    request = problems.attempt(lambda: read_request(args.forget))
    budget = problems.attempt(lambda: read_budget(args.budget)) if args.budget else None
    device = problems.attempt(lambda: read_device(args.device))
    reference = problems.attempt(lambda: store.find(args.reference, "model")) if store and args.reference else None
    problems.attempt(lambda: use_threads(args.threads))
    family = family_of(setup.model.name if setup else "")
    recipe = found.inputs.get("recipe") if found else None
    tuned = problems.attempt(lambda: _from_file(args)) if args.settings else None
    chosen = problems.attempt(lambda: read_method(args.method, family, recipe, tuned))
    space = problems.attempt(lambda: _space(args, chosen, family)) if args.tune is not None else None
    problems.stop_if_any()
    if setup is None or request is None or device is None or store is None or chosen is None:
        return 2
    display = Display(f"unlearn {chosen[0].name}", args.quiet)
    data, kept = load(setup, display)
    splits = make_splits(data.train.labels, request, kept)
    base = found or import_model(Path(args.base), data, kept.base, setup.model, store, about=setup.about())
    unlearning = Unlearning(base, data, splits, *chosen, args.seed, budget, args.keep, args.criterion, reference)
    about = {**setup.about(), "request": args.forget, "split_digest": splits.digest}
    watch = Watch(lambda epoch, _: display.epoch(epoch), display.progress)
    search = None
    if space is None:
        artefact = unlearn_model(unlearning, store, device, about=about, watch=watch)
    else:
        trials: int = args.tune or 0
        tell = trial_teller(display, min(trials, space.size or trials))
        tuning = Tuning(unlearning, space, "reference", trials, args.seed)
        search = tune(tuning, store, device, about=about, watch=watch, on_trial=tell)
        artefact = store.load("model", str(search.best.judged.model))
    display.close()
    if args.out:
        write_weights(Path(args.out), artefact.tensors("weights"))
    result = summary(base, artefact, data, splits, store, device)
    if search is not None:
        result["tuning"] = search.to_json()
    emit(result) if args.json else _print(result, setup, search)
    return 0


def _from_file(args: argparse.Namespace) -> dict[str, Any]:
    """The settings a file of `regun tune` holds for this request and method."""
    return settings_for(read_settings(args.settings), args.forget, args.method, args.settings)


def _space(args: argparse.Namespace, chosen: tuple[Method, Any] | None, family: str) -> Space | None:
    """Where --tune may look."""
    need_optuna()
    if args.tune < 1:
        raise RegunError(f"--tune is {args.tune}; give at least 1 trial.")
    return searchable(*chosen, family, parse_spec(args.method)[1]) if chosen else None


def trial_teller(display: Display, trials: int) -> Callable[[Trial], None]:
    """Shows each trial of a search as it ends."""

    def tell(trial: Trial) -> None:
        values = " ".join(f"{name}={value}" for name, value in trial.values.items())
        state = "  DIVERGED" if trial.judged.diverged else ""
        took = duration(trial.judged.seconds)
        display.note(f"trial {trial.number + 1}/{trials}  score {trial.score:.2f}{state}  {values}  {took}")

    return tell


def summary(
    base: Artefact, after: Artefact, data: Data, splits: Splits, store: Store, device: torch.device
) -> dict[str, Any]:
    """Accuracies before and after, cost, lineage."""
    parts = {
        "retain": (data.train, splits.retain),
        "forget": (data.train, splits.forget),
        "val": (data.train, splits.val),
        "test": (data.test, np.arange(len(data.test.labels))),
    }
    accuracies = {
        who: {
            name: _accuracy(model, examples, indices, store, device)
            for name, (examples, indices) in parts.items()
            if len(indices)
        }
        for who, model in (("before", base), ("after", after))
    }
    keys = ("method", "config", "cost", "diverged", "notes", "forgotten", "weights")
    return {
        "key": after.key,
        "path": str(after.path),
        "base": base.key,
        "accuracy": accuracies,
        **{k: after.info[k] for k in keys},
    }


def _accuracy(
    model: Artefact, examples: Examples, indices: Indices, store: Store, device: torch.device
) -> float | None:
    """The accuracy, or None where finite weights no longer give finite answers."""
    try:
        return accuracy(cached_signals(model, examples, indices, store, device))
    except NotFiniteError:
        return None


def _print(result: dict[str, Any], setup: Setup, search: Tuned | None) -> None:
    cost = result["cost"]
    if search is not None:
        _print_search(search)
    print(f"{result['method']} on {setup.model.name}, {setup.data.name}: {result['forgotten']:,} examples forgotten")
    if result["diverged"]:
        print(f"DIVERGED: {result['diverged']}; the last finite weights are kept")
    samples = f"{cost['forward']:,} forward and {cost['backward']:,} backward samples"
    print(f"{cost['steps']:,} steps, {samples}, {duration(cost['seconds'])}")
    for name, value in result["notes"].items():
        print(f"{name}: {value}")
    rows = [
        [name, _percent(before), _percent(result["accuracy"]["after"][name])]
        for name, before in result["accuracy"]["before"].items()
    ]
    print(table(["accuracy, %", "before", "after"], rows))
    print(f"key   {result['key'][:12]}\npath  {result['path']}")
    print(f"next  regun audit {result['key'][:12]}")


def _print_search(search: Tuned) -> None:
    rows = [
        [
            str(t.number),
            f"{t.score:.2f}",
            "diverged" if t.judged.diverged else " ".join(f"{k}={v}" for k, v in t.values.items()),
            "best" if t == search.best else "default" if t.number == 0 else "",
        ]
        for t in search.trials
    ]
    print(table(["trial", "score", "settings", ""], rows))
    print(f"Score: {OBJECTIVES[search.objective]}. In points; good is 0." + (f" {search.note}." if search.note else ""))
    print()


def _percent(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.2f}"
