"""`regun unlearn`."""

import argparse
from pathlib import Path
from typing import Any, cast

from regun.artifacts import Artifact, write_weights
from regun.artifacts.setup import Setup, family_of
from regun.artifacts.unlearnings import Unlearning, unlearn_model
from regun.cli.arguments import WRONG, same_place
from regun.cli.options import Place, Problems, read_start
from regun.cli.terminal import emit, heard
from regun.cli.train import accuracies_of, accuracy_text
from regun.data.examples import Data
from regun.errors import RegunError
from regun.experiments.search import OBJECTIVES, Search, SearchResult, Space, need_optuna, search, searchable
from regun.experiments.search.settings_file import read_settings, settings_for
from regun.methods import Method, MethodSpec
from regun.render.numbers import duration, fixed, many, settings_text
from regun.render.tables import table


def run(args: argparse.Namespace) -> int:
    problems = Problems()
    start = read_start(args, f"unlearn {args.method.partition(',')[0]}", problems)
    family = family_of(start.setup.model.name if start else "")
    recipe = start.base.inputs.get("recipe") if start and start.base else None
    tuned = problems.attempt(lambda: _from_file(args)) if args.settings else None
    spec = problems.attempt(lambda: MethodSpec.parse(args.method))
    chosen = problems.attempt(lambda: (spec.method, spec.configure(family, recipe, tuned))) if spec else None
    space = problems.attempt(lambda: _space(args, chosen, family)) if args.tune is not None else None
    problems.stop_if_any()
    if start is None or chosen is None:
        return WRONG
    (method, config), place, setup = chosen, start.place, start.setup
    base, data, splits = start.load(args.base)
    wanted = Unlearning(
        base=base,
        data=setup.data_for(method, data),
        splits=splits,
        method=method,
        config=config,
        seed=args.seed,
        budget=start.budget,
        keep=args.keep,
        criterion=args.criterion,
        teacher=start.teacher,
    )
    about = {**setup.about(), "request": args.forget, "split_digest": splits.digest}
    with heard(place.display):
        artifact, tuning = _made(args, wanted, space, about, place)
    place.display.close()
    if args.out:
        write_weights(Path(args.out), artifact.tensors("weights"))
    result = _summary(wanted, artifact, data, place)
    if tuning is not None:
        result["tuning"] = tuning.to_json()
    emit(result) if args.json else _print(result, setup, tuning, same_place(args))
    return 0


def _from_file(args: argparse.Namespace) -> dict[str, Any]:
    """The settings a file of `regun tune` holds for this request and method."""
    return settings_for(read_settings(args.settings), args.forget, args.method, args.settings)


def _space(args: argparse.Namespace, chosen: tuple[Method, Any] | None, family: str) -> Space | None:
    """Where --tune may look."""
    need_optuna()
    if args.tune < 1:
        raise RegunError(f"--tune is {args.tune}; give at least 1 trial.")
    return searchable(*chosen, family, MethodSpec.parse(args.method).settings) if chosen else None


def _made(
    args: argparse.Namespace, wanted: Unlearning, space: Space | None, about: dict[str, Any], place: Place
) -> tuple[Artifact, SearchResult | None]:
    """The unlearned model and, with --tune, the search whose best it is."""
    store, device, watch = place.store, place.device, place.display.watch()
    if space is None:
        return unlearn_model(wanted, store, device, about=about, watch=watch), None
    given = tuple(MethodSpec.parse(args.method).settings)
    # no retrained model is at hand
    order = Search(run=wanted, space=space, objective="reference", trials=args.tune, seed=args.seed, fixed=given)
    tell = place.display.trials(order.wanted)
    found = search(order, store, device, about=about, watch=watch, on_trial=tell)
    return store.load("model", str(found.best.model)), found


def _summary(run: Unlearning, after: Artifact, data: Data, place: Place) -> dict[str, Any]:
    """Accuracies before and after, cost, lineage."""
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
        "accuracy": {when: accuracies_of(model, parts, place) for when, model in models.items()},
        **{k: after.info[k] for k in keys},
    }


def _print(result: dict[str, Any], setup: Setup, tuning: SearchResult | None, place: str) -> None:
    cost, before, after = result["cost"], result["accuracy"]["before"], result["accuracy"]["after"]
    if tuning is not None:
        _print_trials(tuning)
    forgotten = many(result["forgotten"], "example")
    print(f"{result['method']} on {setup.model.name}, {setup.data.name}: {forgotten} forgotten")
    if result["diverged"]:
        broken = result["diverged"].startswith("the weights")  # by a method that has kept none that were finite
        print(f"DIVERGED: {result['diverged']}{'' if broken else '; the last finite weights are kept'}")
    samples = f"{cost['forward']:,} forward and {cost['backward']:,} backward samples"
    print(f"{many(cost['steps'], 'step')}, {samples}, {duration(cost['seconds'])}")
    for name, value in result["notes"].items():
        text = settings_text(cast("dict[str, Any]", value)) if isinstance(value, dict) else value
        print(f"{name}: {text}")
    rows = [[name, accuracy_text(before[name]), accuracy_text(after[name])] for name in before]
    print(table(["accuracy, %", "before", "after"], rows))
    for sentence in result["warnings"]:
        print(f"WARNING: {sentence}")
    print(f"key   {result['key'][:12]}\npath  {result['path']}")
    print(f"next  regun audit {result['key'][:12]}{place}")


def _print_trials(tuning: SearchResult) -> None:
    rows = [
        [
            str(t.number),
            fixed(t.score),
            "diverged" if t.diverged else settings_text(t.values),
            "best" if t == tuning.best else "default" if t.number == 0 else "",
        ]
        for t in tuning.trials
    ]
    print(table(["trial", "score", "settings", ""], rows))
    note = f" {tuning.note}." if tuning.note else ""
    print(f"Score: {OBJECTIVES[tuning.objective]}. In points; good is 0.{note}\n")
