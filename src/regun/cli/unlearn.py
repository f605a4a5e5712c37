"""`regun unlearn`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from regun.cli.arguments import (
    BAD_INPUT,
    BUDGET,
    FORGET,
    Commands,
    add_machine,
    add_number,
    add_options,
    add_setup,
    command,
    location_options,
    whole,
)
from regun.cli.terminal import emit, print_table
from regun.errors import RegunError
from regun.render.numbers import duration, fixed, many, settings_text

if TYPE_CHECKING:
    from regun.artifacts import Artifact
    from regun.artifacts.setup import Setup
    from regun.artifacts.unlearnings import Unlearning
    from regun.cli.options import RunContext
    from regun.data.examples import Data
    from regun.experiments.search import SearchResult, Space
    from regun.methods import Method


def add_unlearn(commands: Commands) -> None:
    parser = command(
        commands,
        "unlearn",
        "remove the influence of training examples from a trained model",
        "unlearn:run",
        "regun unlearn --base 3f2a --forget 0.1 --method regun,w=0.3,lr=0.01",
    )
    from_file = "a safetensors file (then give --data, --model and the split)"
    add_options(
        parser,
        {
            "--base KEY|FILE": f"the trained model: its key in the store, or {from_file}",
            "--forget FORGET": f"what to forget: {FORGET}",
        },
        required=True,
    )
    parser.add_argument(
        "--method",
        default="auto",
        metavar="NAME[@PRESET][,KEY=VALUE...]",
        help="method (see `regun methods`); default auto, which chooses its settings",
    )
    add_options(parser, {"--settings FILE": "settings written by `regun tune --out`; those in --method override them"})
    tune = "try N settings and return the best; needs unseen examples, but no retrained model"
    add_number(parser, "--tune N", whole(high=100_000), None, tune)
    add_options(parser, {BUDGET: "run an iterative method to exactly this budget"})
    parser.add_argument(
        "--keep",
        default="last",
        metavar="last|best[:CRITERION]",
        help="epoch to return: last (default), or best by val_accuracy (default), val_loss or unseen_error (errors on "
        "forgotten examples closest to those on unseen ones)",
    )
    teacher = "a model trained without the records, for the methods auto and regun,source=given"
    add_options(parser, {"--teacher KEY": teacher})
    add_number(parser, "--seed N", whole(), 0, "seed of the unlearning run (default 0)")
    add_options(parser, {"--out FILE": "also write the weights to this safetensors file"})
    add_setup(parser)
    add_machine(parser)


def run(args: argparse.Namespace) -> int:
    from regun.artifacts import write_weights
    from regun.artifacts.setup import family_of
    from regun.artifacts.unlearnings import Unlearning
    from regun.cli.display import show_notes
    from regun.cli.options import Problems, read_start
    from regun.methods import MethodSpec

    problems = Problems()
    start = read_start(args, f"unlearn {args.method.partition(',')[0]}", problems)
    family = family_of(start.setup.model.name if start else "")
    recipe = start.base.inputs.get("recipe") if start and start.base else None
    tuned = problems.attempt(lambda: _read_settings(args)) if args.settings else None
    spec = problems.attempt(lambda: MethodSpec.parse(args.method))
    chosen = problems.attempt(lambda: (spec.method, spec.configure(family, recipe, tuned))) if spec else None
    space = problems.attempt(lambda: _space(args, chosen, family)) if args.tune is not None else None
    keep, _, criterion = args.keep.partition(":")
    if keep not in ("last", "best") or (criterion and keep == "last"):
        problems.add(f"--keep is {args.keep!r}; give last, best or best:CRITERION.")
    problems.stop_if_any()
    if start is None or chosen is None:
        return BAD_INPUT
    (method, config), context, setup = chosen, start.context, start.setup
    base, data, splits = start.load(args.base)
    run = Unlearning(
        base=base,
        data=setup.data_for(method, data),
        splits=splits,
        method=method,
        config=config,
        seed=args.seed,
        budget=start.budget,
        keep=keep,
        criterion=criterion or "val_accuracy",
        teacher=start.teacher,
    )
    about = {**setup.about(), "request": args.forget, "split_digest": splits.digest}
    with show_notes(context.display):
        artifact, tuning = _unlearn(args, run, space, about, context)
    context.display.close()
    if args.out:
        write_weights(Path(args.out), artifact.tensors("weights"))
    result = _summary(run, artifact, data, context)
    if tuning is not None:
        result["tuning"] = tuning.to_json()
    emit(result) if args.json else _print(result, setup, tuning, location_options(args))
    return 0


def _read_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that a file of `regun tune` holds for this forget set and method."""

    from regun.experiments.search.settings_file import read_settings, settings_for

    return settings_for(read_settings(args.settings), args.forget, args.method, args.settings)


def _space(args: argparse.Namespace, chosen: tuple[Method, Any] | None, family: str) -> Space | None:
    """Return the search space of --tune."""

    from regun.experiments.search import need_optuna, searchable
    from regun.methods import MethodSpec

    need_optuna()
    if args.tune < 1:
        raise RegunError(f"--tune is {args.tune}; give at least 1 trial.")
    return searchable(*chosen, family, MethodSpec.parse(args.method).settings) if chosen else None


def _unlearn(
    args: argparse.Namespace, run: Unlearning, space: Space | None, about: dict[str, Any], context: RunContext
) -> tuple[Artifact, SearchResult | None]:
    """Return the unlearned model and, with --tune, the search that it is the best of."""

    from regun.artifacts.unlearnings import unlearn_model
    from regun.experiments.search import Search, search
    from regun.methods import MethodSpec

    store, device, callbacks = context.store, context.device, context.display.callbacks()
    if space is None:
        return unlearn_model(run, store, device, about=about, watch=callbacks), None
    fixed = tuple(MethodSpec.parse(args.method).settings)
    plan = Search(run=run, space=space, objective="reference", trials=args.tune, seed=args.seed, fixed=fixed)
    on_trial = context.display.trials(plan.wanted)
    result = search(plan, store, device, about=about, watch=callbacks, on_trial=on_trial)
    return store.load("model", str(result.best.model)), result


def _summary(run: Unlearning, after: Artifact, data: Data, context: RunContext) -> dict[str, Any]:
    """Return accuracies before and after, cost, and the base model."""

    from regun.cli.train import accuracies_of

    splits = run.splits
    parts = {
        "retain": (data.train, splits.retain),
        "forget": (data.train, splits.forget),
        "val": (data.train, splits.val),
        "test": (data.test, None),
    }
    models = {"before": run.base, "after": after}
    keys = ("method", "config", "cost", "diverged", "notes", "warnings", "from_scratch", "forgotten", "weights")
    return {
        "key": after.key,
        "path": str(after.path),
        "base": run.base.key,
        "accuracy": {when: accuracies_of(model, parts, context) for when, model in models.items()},
        **{k: after.info[k] for k in keys},
    }


def _print(result: dict[str, Any], setup: Setup, tuning: SearchResult | None, context: str) -> None:
    from regun.cli.train import accuracy_text

    cost, before, after = result["cost"], result["accuracy"]["before"], result["accuracy"]["after"]
    if tuning is not None:
        _print_trials(tuning)
    forgotten = many(result["forgotten"], "example")
    print(f"{result['method']} on {setup.model.name}, {setup.data.name}: {forgotten} forgotten")
    if result["diverged"]:
        broken = result["diverged"].startswith("the weights")  # there are no finite weights
        print(f"DIVERGED: {result['diverged']}{'' if broken else '; the last finite weights are stored'}")
    samples = f"{cost['forward']:,} forward and {cost['backward']:,} backward samples"
    print(f"{many(cost['steps'], 'step')}, {samples}, {duration(cost['seconds'])}")
    for name, value in result["notes"].items():
        text = settings_text(cast("dict[str, Any]", value)) if isinstance(value, dict) else value
        print(f"{name}: {text}")
    rows = [[name, accuracy_text(before[name]), accuracy_text(after[name])] for name in before]
    print_table(["accuracy, %", "before", "after"], rows)
    for sentence in result["warnings"]:
        print(f"WARNING: {sentence}")
    print(f"key   {result['key'][:12]}\npath  {result['path']}")
    print(f"next  regun audit {result['key'][:12]}{context}")


def _print_trials(tuning: SearchResult) -> None:
    from regun.experiments.search import OBJECTIVES

    rows = [
        [
            str(t.number),
            fixed(t.score),
            "diverged" if t.diverged else settings_text(t.values),
            "best" if t == tuning.best else "default" if t.number == 0 else "",
        ]
        for t in tuning.trials
    ]
    print_table(["trial", "score", "settings", ""], rows)
    note = f" {tuning.note}." if tuning.note else ""
    print(f"Score: {OBJECTIVES[tuning.objective]}. In points; good is 0.{note}\n")
