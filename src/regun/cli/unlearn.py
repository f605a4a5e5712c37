"""`regun unlearn`."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regun.auditing import cached_signals
from regun.cli.options import (
    Problems,
    Setup,
    family_of,
    read_budget,
    read_device,
    read_request,
    read_setup,
    setup_of,
    use_threads,
)
from regun.cli.terminal import Display, duration, emit, table
from regun.data.examples import Data, Examples, Indices
from regun.errors import AuditError, RegunError
from regun.evaluate.metrics import accuracy
from regun.methods import read_method
from regun.pipeline import Unlearning, Watch, import_model, unlearn_model
from regun.splits import Splits, make_splits
from regun.store import Artefact, Store, write_weights


def run(args: argparse.Namespace) -> int:
    problems = Problems()
    store = problems.attempt(lambda: Store(args.store, snapshot_seconds=args.snapshot_seconds))
    from_file = args.base.endswith(".safetensors")
    found = problems.attempt(lambda: _find_base(args.base, store)) if store and not from_file else None
    setup = None
    if from_file:
        setup = read_setup(args, problems)
    elif found is not None:
        setup = problems.attempt(lambda: setup_of(found, args))
    request = problems.attempt(lambda: read_request(args.forget))
    budget = problems.attempt(lambda: read_budget(args.budget)) if args.budget else None
    device = problems.attempt(lambda: read_device(args.device))
    reference = problems.attempt(lambda: store.find(args.reference, "model")) if store and args.reference else None
    problems.attempt(lambda: use_threads(args.threads))
    family = family_of(setup.model.name if setup else "")
    recipe = found.inputs.get("recipe") if found else None
    chosen = problems.attempt(lambda: read_method(args.method, family, recipe))
    problems.stop_if_any()
    if setup is None or request is None or device is None or store is None or chosen is None:
        return 2
    display = Display(f"unlearn {chosen[0].name}", args.quiet)
    data, kept = setup.load(display)
    splits = make_splits(data.train.labels, request, kept)
    base = found or import_model(Path(args.base), data, kept.base, setup.model, store, about=setup.about())
    unlearning = Unlearning(base, data, splits, *chosen, args.seed, budget, args.keep, args.criterion, reference)
    about = {**setup.about(), "request": args.forget, "split_digest": splits.digest}
    watch = Watch(lambda epoch, _: display.epoch(epoch), display.progress)
    artefact = unlearn_model(unlearning, store, device, about=about, watch=watch)
    display.close()
    if args.out:
        write_weights(Path(args.out), artefact.tensors("weights"))
    result = summary(base, artefact, data, splits, store, device)
    emit(result) if args.json else _print(result, setup)
    return 0


def _find_base(text: str, store: Store) -> Artefact:
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
    """The accuracy, or None where a diverged model's finite weights no longer give finite answers."""
    try:
        return accuracy(cached_signals(model, examples, indices, store, device))
    except AuditError:
        if not model.info.get("diverged"):
            raise
        return None


def _print(result: dict[str, Any], setup: Setup) -> None:
    cost = result["cost"]
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


def _percent(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.2f}"
