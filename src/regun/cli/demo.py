"""`regun demo`: the whole job on data that ships with a dependency."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from regun.cli.arguments import Commands, add_json, add_quiet, add_store_option, command

if TYPE_CHECKING:
    from regun.experiments.study import OpenStudy


DIGITS = {
    **{"study": "digits", "seeds": None, "forget": None, "data_dir": None, "device": "cpu", "snapshot_seconds": 20.0},
    **{"engine": "local", "track": None},
}
"""Arguments of `regun study run` that the demo fixes."""


def add_demo(commands: Commands) -> None:
    help = "train, unlearn with every method and audit, on embedded data"
    parser = command(commands, "demo", help, "demo:run", "regun demo")
    add_store_option(parser)
    parser.add_argument(
        "--out", dest="folder", metavar="DIR", help="where report, figure and tables go (default STORE/studies/digits)"
    )
    add_json(parser)
    add_quiet(parser)
    workers = 2 if (os.cpu_count() or 1) > 1 else 1
    parser.set_defaults(**DIGITS, workers=workers, threads=1)  # the model is tiny: a second thread only costs


def run(args: argparse.Namespace) -> int:
    """Run the study `digits` and print what to do next."""
    from regun.cli.options import use_threads
    from regun.cli.study_runs import finish, folder_of, open_context, run_study

    opened = open_context(args)
    out = folder_of(args, opened)
    use_threads(args.threads)
    summary = run_study(args, opened, out)
    if not args.json:
        sizes = opened.plan.sizes[opened.study.forget[0]]
        print(
            f"\n{sizes['forget']} of {sizes['forget'] + sizes['retain']:,} training digits are to be forgotten. How "
            f"far is each method from a model that never saw them (Retrain)?\n"
        )
    code = finish(opened, summary, out, as_json=args.json)
    if not args.json:
        _next(opened, args.store)
    return code


def _next(opened: OpenStudy, store: str) -> None:
    from regun.experiments.study.tasks import Unlearn

    model = opened.plan.of_type(Unlearn)[0].result(opened.ctx)
    key = model.key[:12] if model else "KEY"
    lines = {
        f"regun audit {key} --store {store}": "every number with its interval and meaning",
        f"regun tradeoff digits --store {store}": "sweep the weight of the retain loss",
        "regun study show digits > mine.toml": "a study of your own to change and run",
        "regun methods regun": "what can be set",
        "README.md": "how to use it on your own model",
    }
    width = max(map(len, lines))
    print("\nNext:\n" + "\n".join(f"  {command.ljust(width)}  {what}" for command, what in lines.items()))
