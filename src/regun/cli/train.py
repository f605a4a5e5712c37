"""`regun train`."""

import argparse
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from regun.artifacts import Artifact
from regun.artifacts.audits import cached_predictions
from regun.artifacts.setup import read_budget
from regun.artifacts.trainings import Training, train_model
from regun.auditing.metrics import accuracy
from regun.cli.arguments import BAD_INPUT
from regun.cli.options import RunContext, load, open_run_context, read_setup, splits_of
from regun.cli.terminal import emit, print_table
from regun.data.examples import Examples
from regun.errors import NotFiniteError, Problems
from regun.forget_spec import ForgetSpec
from regun.render.numbers import duration, fixed, many
from regun.types import Indices


def run(args: argparse.Namespace) -> int:
    problems = Problems()
    setup = problems.attempt(lambda: read_setup(args))
    forget = problems.attempt(lambda: ForgetSpec.parse(args.without)) if args.without else None
    budget = problems.attempt(lambda: read_budget(args.budget)) if args.budget else None
    context = open_run_context(args, "train", problems)
    problems.stop_if_any()
    if setup is None or context is None:
        return BAD_INPUT
    data, reserved = load(setup, context.display)
    trained_on = splits_of(forget, None, setup, data, reserved, context).retain if forget else reserved.base
    training = Training(
        data=data, trained_on=trained_on, model=setup.model, recipe=setup.recipe, seed=args.seed, budget=budget
    )
    store, device = context.store, context.device
    stored = store.has("model", store.key("model", training.inputs(device)))
    about = {"role": "base" if forget is None else "retrain", "without": args.without, **setup.about()}
    artifact = train_model(training, store, device, about=about, watch=context.display.callbacks())
    context.display.close()
    parts = {"train": (data.train, training.trained_on), "val": (data.train, reserved.val), "test": (data.test, None)}
    result = {
        "key": artifact.key,
        "path": str(artifact.path),
        "in_store": stored,
        "model": artifact.inputs["model"]["name"],
        "data": artifact.info["data_name"],
        **{name: artifact.info[name] for name in ("weights", "parameters", "examples", "epochs", "cost")},
        "accuracy": accuracies_of(artifact, parts, context) if budget is None else {},
    }
    emit(result) if args.json else _print(result)
    return 0


def accuracies_of(
    model: Artifact, parts: Mapping[str, tuple[Examples, Indices | None]], context: RunContext
) -> dict[str, float | None]:
    """Return the accuracy per part (all examples if no indices are given); None where predictions are not finite."""
    accuracies: dict[str, float | None] = {}
    for name, (examples, indices) in parts.items():
        rows = np.arange(len(examples.labels)) if indices is None else indices
        if len(rows):
            try:
                accuracies[name] = accuracy(cached_predictions(model, examples, rows, context.store, context.device))
            except NotFiniteError:
                accuracies[name] = None
    return accuracies


def accuracy_text(value: float | None) -> str:
    """Return an accuracy as tables show it."""
    return fixed(math.nan if value is None else value)


def _print(result: dict[str, Any]) -> None:
    cost, epochs = result["cost"], result["epochs"]
    state = "in the store" if result["in_store"] else "trained"
    size = f"{many(result['parameters'], 'parameter')}, {many(result['examples'], 'example')}"
    print(f"{result['model']} on {result['data']}: {state}, {size}")
    loss = f", last loss {fixed(epochs[-1]['loss'], 4)}" if epochs else ""
    print(f"{many(cost['steps'], 'step')} in {duration(cost['seconds'])}{loss}")
    if result["accuracy"]:
        print_table(["accuracy", "%"], [[name, accuracy_text(value)] for name, value in result["accuracy"].items()])
    print(f"key   {result['key'][:12]}\npath  {result['path']}")
