"""`regun demo`: the whole job on data that ships with a dependency."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from regun.cli.arguments import Commands, add_store_option, command

if TYPE_CHECKING:
    from regun.study import Workshop


def add_demo(commands: Commands) -> None:
    parser = command(
        commands, "demo", "train, unlearn with every method and audit, on embedded data", "demo:run", "regun demo"
    )
    add_store_option(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="where report, figure and tables go (default STORE/studies/digits)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(args: argparse.Namespace) -> int:
    """The study `digits`, with what to do next."""
    from regun.cli.options import use_threads
    from regun.cli.study import carried_out, finish
    from regun.study import open_study
    from regun.study.engines import InProcess, Processes

    shop = open_study("digits", store=args.store)
    out = Path(args.out) if args.out else Path(args.store) / "studies" / shop.study.name
    use_threads(1)  # the model is tiny: a second thread only costs, a second worker does not
    engine = Processes(shop, 2, 1) if (os.cpu_count() or 1) > 1 else InProcess(shop)
    ran = carried_out(shop, engine, out, quiet=args.quiet)
    if not args.json:
        sizes = shop.plan.sizes[shop.study.forget[0]]
        print(
            f"\n{sizes['forget']} of {sizes['forget'] + sizes['retain']:,} training digits are to be forgotten. How "
            f"far is each method from a model that never saw them (Retrain)?\n"
        )
    code = finish(shop, ran, out, as_json=args.json)
    if not args.json:
        _next(shop, args.store)
    return code


def _next(shop: Workshop, store: str) -> None:
    task = next(task for task in shop.plan.tasks.values() if task.kind == "unlearn")
    model = shop.model(task.id)
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
