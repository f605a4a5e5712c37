"""`regun unlearn`."""

import argparse
from pathlib import Path
from typing import Any, cast

from regun.artifacts import Artifact, write_weights
from regun.artifacts.out_of_fold import stored_table
from regun.artifacts.setup import Setup
from regun.artifacts.unlearnings import Unlearning, unlearn_model
from regun.cli.arguments import BAD_INPUT, for_shell, location_options
from regun.cli.display import show_notes
from regun.cli.options import RunContext, Start, read_start
from regun.cli.terminal import emit, print_table
from regun.cli.train import accuracies_of, accuracy_text
from regun.data.examples import Data
from regun.errors import Problems
from regun.experiments.search.settings_file import read_settings, settings_for
from regun.methods import MethodSpec
from regun.prepared import Prepared
from regun.render.numbers import duration, many, settings_text
from regun.unlearning import Price


def run(args: argparse.Namespace) -> int:
    problems = Problems()
    start = read_start(args, f"unlearn {args.method.partition(',')[0]}", problems)
    configuration = problems.attempt(lambda: _read_method(args, start))
    keep, _, criterion = args.keep.partition(":")
    if keep not in ("last", "best") or (criterion and keep == "last"):
        problems.add(f"--keep is {args.keep!r}; give last, best or best:CRITERION.")
    if configuration is not None and args.prepared is None:
        spec, config = configuration
        if spec.method.needs_of(config).out_of_fold:
            problems.add(
                f"{spec.title} needs --prepared FILE, a prepared table; make it with regun prepare --base {args.base} "
                f"--out FILE."
            )
    table = problems.attempt(lambda: Prepared.load(args.prepared)) if args.prepared is not None else None
    problems.stop_if_any()
    if start is None or configuration is None:
        return BAD_INPUT
    (spec, config), context, setup = configuration, start.context, start.setup
    base, data, splits = start.load(args.base)
    run = Unlearning(
        base=base,
        data=setup.data_for(spec.method, data),
        splits=splits,
        method=spec.method,
        config=config,
        seed=args.seed,
        budget=start.budget,
        keep=keep,
        criterion=criterion or "val_accuracy",
        teacher=start.teacher,
        out_of_fold=stored_table(table, base, data, context.store) if table is not None else None,
    )
    about = {**setup.about(), "request": args.forget, "split_digest": splits.digest}
    with show_notes(context.display):
        after = unlearn_model(run, context.store, context.device, about=about, watch=context.display.callbacks())
    context.display.close()
    if args.out:
        write_weights(Path(args.out), after.tensors("weights"))
    result = _result(run, after, data, context)
    emit(result) if args.json else _print(result, setup, args)
    return 0


def _read_method(args: argparse.Namespace, start: Start | None) -> tuple[MethodSpec, Any]:
    """Return the method and its settings: those of --method override those of --settings, these the family's."""
    settings = None
    if args.settings:
        settings = settings_for(read_settings(args.settings), args.forget, args.method, args.settings)
    spec = MethodSpec.parse(args.method)
    return spec, spec.configure(start.family if start else "resnet", start.recipe if start else None, settings)


def _result(run: Unlearning, after: Artifact, data: Data, context: RunContext) -> dict[str, Any]:
    """Return what --json prints: keys of the models, accuracies before and after, and facts of the run."""
    parts = {
        "retain": (data.train, run.splits.retain),
        "forget": (data.train, run.splits.forget),
        "val": (data.train, run.splits.val),
        "test": (data.test, None),
    }
    keys = ("method", "config", "cost", "diverged", "notes", "warnings", "from_scratch", "forgotten", "weights")
    models = {"before": run.base, "after": after}
    return {
        "key": after.key,
        "path": str(after.path),
        "base": run.base.key,
        "accuracy": {name: accuracies_of(model, parts, context) for name, model in models.items()},
        **{key: after.info[key] for key in keys},
    }


def _print(result: dict[str, Any], setup: Setup, args: argparse.Namespace) -> None:
    cost, before, after = result["cost"], result["accuracy"]["before"], result["accuracy"]["after"]
    forgotten = many(result["forgotten"], "example")
    print(f"{result['method']} on {setup.model.name}, {setup.data.name}: {forgotten} forgotten")
    if result["diverged"]:
        broken = result["diverged"].startswith("the weights")  # there are no finite weights
        print(f"DIVERGED: {result['diverged']}{'' if broken else '; the last finite weights are stored'}")
    samples = f"{cost['forward']:,} forward and {cost['backward']:,} backward samples"
    print(f"{many(cost['steps'], 'step')}, {samples}, {duration(cost['seconds'])}")
    notes = dict(result["notes"])
    if "price" in notes:
        price = Price(cost["backward"], cost["seconds"], retrained=result["from_scratch"], **notes.pop("price"))
        print(f"price: {price}{f'. {price.advice}' if price.advice else ''}")
    for name, value in notes.items():
        text = settings_text(cast("dict[str, Any]", value)) if isinstance(value, dict) else value
        print(f"{name}: {text}")
    rows = [[name, accuracy_text(before[name]), accuracy_text(after[name])] for name in before]
    print_table(["accuracy, %", "before", "after"], rows)
    for sentence in result["warnings"]:
        print(f"WARNING: {for_shell(sentence, args)}")
    print(f"key   {result['key'][:12]}\npath  {result['path']}")
    print(f"next  regun audit {result['key'][:12]}{location_options(args)}")
