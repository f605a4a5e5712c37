"""`regun train`."""

import argparse
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from regun.artifacts import Artifact
from regun.artifacts.audits import cached_predictions
from regun.artifacts.trainings import Training, train_model
from regun.auditing.metrics import accuracy
from regun.cli.arguments import WRONG
from regun.cli.options import Place, Problems, load, open_place, read_setup, splits_of
from regun.cli.terminal import emit
from regun.data.examples import Examples
from regun.errors import NotFiniteError
from regun.forget_spec import ForgetSpec
from regun.render.numbers import duration, fixed, many
from regun.render.tables import table
from regun.training.job import Budget
from regun.types import Indices


def run(args: argparse.Namespace) -> int:
    problems = Problems()
    setup = problems.attempt(lambda: read_setup(args))
    request = problems.attempt(lambda: ForgetSpec.parse(args.without)) if args.without else None
    budget = problems.attempt(lambda: Budget(steps=args.max_steps)) if args.max_steps is not None else None
    place = open_place(args, "train", problems)
    problems.stop_if_any()
    if setup is None or place is None:
        return WRONG
    data, kept = load(setup, place.display)
    asked = splits_of(request, None, setup, data, kept, place).retain if request else kept.base
    training = Training(
        data=data, trained_on=asked, model=setup.model, recipe=setup.recipe, seed=args.seed, budget=budget
    )
    store, device = place.store, place.device
    known = store.has("model", store.key("model", training.inputs(device)))
    about = {"role": "base" if request is None else "retrain", "without": args.without, **setup.about()}
    artifact = train_model(training, store, device, about=about, watch=place.display.watch())
    place.display.close()
    parts = {"train": (data.train, training.trained_on), "val": (data.train, kept.val), "test": (data.test, None)}
    accuracies = accuracies_of(artifact, parts, place) if budget is None else {}
    result = _summary(artifact, known, accuracies)
    emit(result) if args.json else _print(result)
    return 0


def accuracies_of(
    model: Artifact, parts: Mapping[str, tuple[Examples, Indices | None]], place: Place
) -> dict[str, float | None]:
    """Accuracies by part (all examples where no indices are named); None where the answers are not finite."""
    found: dict[str, float | None] = {}
    for name, (examples, indices) in parts.items():
        rows = np.arange(len(examples.labels)) if indices is None else indices
        if len(rows):
            try:
                found[name] = accuracy(cached_predictions(model, examples, rows, place.store, place.device))
            except NotFiniteError:
                found[name] = None
    return found


def accuracy_text(value: float | None) -> str:
    """An accuracy as a table shows it."""
    return fixed(math.nan if value is None else value)


def _summary(artifact: Artifact, known: bool, accuracies: dict[str, float | None]) -> dict[str, Any]:
    """What a trained model is, what it cost and where it lies."""
    return {
        "key": artifact.key,
        "path": str(artifact.path),
        "found": known,
        "model": artifact.inputs["model"]["name"],
        "data": artifact.info["data_name"],
        **{name: artifact.info[name] for name in ("weights", "parameters", "examples", "epochs", "cost")},
        "accuracy": accuracies,
    }


def _print(result: dict[str, Any]) -> None:
    cost, epochs = result["cost"], result["epochs"]
    state = "found in the store" if result["found"] else "trained"
    size = f"{many(result['parameters'], 'parameter')}, {many(result['examples'], 'example')}"
    print(f"{result['model']} on {result['data']}: {state}, {size}")
    loss = f", last loss {fixed(epochs[-1]['loss'], 4)}" if epochs else ""
    print(f"{many(cost['steps'], 'step')} in {duration(cost['seconds'])}{loss}")
    if result["accuracy"]:
        print(table(["accuracy", "%"], [[name, accuracy_text(value)] for name, value in result["accuracy"].items()]))
    print(f"key   {result['key'][:12]}\npath  {result['path']}")
