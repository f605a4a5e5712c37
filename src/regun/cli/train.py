"""`regun train`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from regun.cli.arguments import REQUEST_HELP, Commands, add_machine, add_setup, command, whole
from regun.cli.options import Problems, load, open_store, read_device, read_setup, splits_of, use_threads
from regun.cli.terminal import Display, emit
from regun.show.numbers import duration, fixed, many
from regun.show.text import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from regun.data.examples import Examples, Indices
    from regun.store import Artefact, Store


def add_train(commands: Commands) -> None:
    parser = command(
        commands,
        "train",
        "train a model on a data set, or find it in the store",
        "train:run",
        "regun train --data cifar10,limit=5000 --data-dir ~/data --model resnet18,width=16 --recipe resnet18-small",
    )
    add_setup(parser)
    parser.add_argument(
        "--without", metavar="REQUEST", help=f"leave these out of training, as a retrained model does; {REQUEST_HELP}"
    )
    parser.add_argument(
        "--seed", type=whole(), default=0, help="training seed: initial weights, order, augmentation (default 0)"
    )
    parser.add_argument("--max-steps", type=whole(), metavar="N", help="stop after N steps, to try a configuration")
    add_machine(parser)


def run(args: argparse.Namespace) -> int:
    from regun.runs.setup import read_request
    from regun.runs.training import Training, Watch, train_model
    from regun.training.job import Budget

    problems = Problems()
    setup = read_setup(args, problems)
    request = problems.attempt(lambda: read_request(args.without)) if args.without else None
    device = problems.attempt(lambda: read_device(args.device))
    budget = problems.attempt(lambda: Budget(steps=args.max_steps)) if args.max_steps is not None else None
    problems.attempt(lambda: use_threads(args.threads))
    store = problems.attempt(lambda: open_store(args))
    problems.stop_if_any()
    if setup is None or device is None or store is None:
        return 2
    display = Display("train", args.quiet)
    data, kept = load(setup, display)
    asked = splits_of(request, None, setup, data, kept, store, device, display).retain if request else kept.base
    training = Training(
        data=data,
        trained_on=asked,
        model=setup.model,
        recipe=setup.recipe,
        seed=args.seed,
        budget=budget,
    )
    known = store.has("model", store.key("model", training.inputs(device)))
    about = {"role": "base" if request is None else "retrain", "without": args.without, **setup.about()}
    watch = Watch(
        lambda epoch, _: display.epoch(epoch),
        display.progress,
        lambda epoch, step: display.note(f"going on at epoch {epoch + 1}, step {step + 1}"),
    )
    artefact = train_model(training, store, device, about=about, watch=watch)
    display.close()
    parts = {"train": (data.train, training.trained_on), "val": (data.train, kept.val), "test": (data.test, None)}
    accuracies = accuracies_of(artefact, parts, store, device) if budget is None else {}
    result = _summary(artefact, known, accuracies)
    emit(result) if args.json else _print(result)
    return 0


def accuracies_of(
    model: Artefact, parts: Mapping[str, tuple[Examples, Indices | None]], store: Store, device: torch.device
) -> dict[str, float | None]:
    """Accuracies by part (all examples where no indices are named); None where the answers are not finite."""
    import numpy as np

    from regun.errors import NotFiniteError
    from regun.evaluate.metrics import accuracy
    from regun.runs.audit import cached_signals

    found: dict[str, float | None] = {}
    for name, (examples, indices) in parts.items():
        rows = np.arange(len(examples.labels)) if indices is None else indices
        if len(rows):
            try:
                found[name] = accuracy(cached_signals(model, examples, rows, store, device))
            except NotFiniteError:
                found[name] = None
    return found


def percent(value: float | None) -> str:
    """An accuracy as a table shows it."""
    return "not finite" if value is None else fixed(value)


def _summary(artefact: Artefact, known: bool, accuracies: dict[str, float | None]) -> dict[str, Any]:
    """What a trained model is, what it cost and where it lies."""
    return {
        "key": artefact.key,
        "path": str(artefact.path),
        "found": known,
        "model": artefact.inputs["model"]["name"],
        "data": artefact.info["data_name"],
        **{name: artefact.info[name] for name in ("weights", "parameters", "examples", "epochs", "cost")},
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
        print(table(["accuracy", "%"], [[name, percent(value)] for name, value in result["accuracy"].items()]))
    print(f"key   {result['key'][:12]}\npath  {result['path']}")
