"""`regun train`."""

import argparse
import sys
from typing import Any

import numpy as np

from regun.cli.options import Problems, load, read_device, read_setup, use_threads
from regun.cli.terminal import Display, duration, emit, table
from regun.data.examples import Data
from regun.evaluate.metrics import accuracy
from regun.runs.audit import cached_signals
from regun.runs.setup import read_request, trained_on
from regun.runs.training import Training, Watch, train_model
from regun.splits import Reserve
from regun.store import Artefact, Store
from regun.training.job import Budget


def run(args: argparse.Namespace) -> int:
    problems = Problems()
    setup = read_setup(args, problems)
    request = problems.attempt(lambda: read_request(args.without)) if args.without else None
    device = problems.attempt(lambda: read_device(args.device))
    budget = problems.attempt(lambda: Budget(steps=args.max_steps)) if args.max_steps is not None else None
    problems.attempt(lambda: use_threads(args.threads))
    store = problems.attempt(lambda: Store(args.store, snapshot_seconds=args.snapshot_seconds))
    problems.stop_if_any()
    if setup is None or device is None or store is None:
        return 2
    display = Display("train", args.quiet)
    data, kept = load(setup, display)
    training = Training(data, trained_on(data, kept, request), setup.model, setup.recipe, args.seed, budget)
    known = store.has("model", store.key("model", training.inputs(device)))
    role = "base" if request is None else "retrain"
    about = {"role": role, "without": args.without, **setup.about()}
    watch = Watch(
        lambda epoch, _: display.epoch(epoch),
        display.progress,
        lambda epoch, step: display.note(f"going on at epoch {epoch + 1}, step {step + 1}"),
    )
    artefact = train_model(training, store, device, about=about, watch=watch)
    display.close()
    result = summary(artefact, data, kept, training.trained_on, store, device, known, measure=budget is None)
    emit(result) if args.json else _print(result)
    return 0


def summary(
    artefact: Artefact,
    data: Data,
    kept: Reserve,
    trained: Any,
    store: Store,
    device: Any,
    known: bool,
    *,
    measure: bool,
) -> dict[str, Any]:
    """The numbers of a trained model: accuracies (if it is worth measuring them), cost, and where it is."""
    everything = np.arange(len(data.test.labels))
    parts = {"train": (data.train, trained), "val": (data.train, kept.val), "test": (data.test, everything)}
    accuracies = {
        name: accuracy(cached_signals(artefact, examples, indices, store, device))
        for name, (examples, indices) in parts.items()
        if measure and len(indices)
    }
    return {
        "key": artefact.key,
        "path": str(artefact.path),
        "weights": artefact.info["weights"],
        "found": known,
        "model": artefact.inputs["model"]["name"],
        "data": artefact.info["data_name"],
        "parameters": artefact.info["parameters"],
        "examples": artefact.info["examples"],
        "epochs": artefact.info["epochs"],
        "cost": artefact.info["cost"],
        "accuracy": accuracies,
    }


def _print(result: dict[str, Any]) -> None:
    cost, epochs = result["cost"], result["epochs"]
    state = "found in the store" if result["found"] else "trained"
    size = f"{result['parameters']:,} parameters, {result['examples']:,} examples"
    print(f"{result['model']} on {result['data']}: {state}, {size}")
    print(
        f"{cost['steps']:,} steps in {duration(cost['seconds'])}"
        + (f", last loss {epochs[-1]['loss']:.4f}" if epochs else "")
    )
    if result["accuracy"]:
        print(table(["accuracy", "%"], [[name, f"{value:.2f}"] for name, value in result["accuracy"].items()]))
    print(f"key   {result['key'][:12]}\npath  {result['path']}", file=sys.stdout)
