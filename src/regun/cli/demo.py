"""`regun demo`: the whole job on data that ships with a dependency."""

import argparse
import os
from pathlib import Path

from regun.cli.options import use_threads
from regun.cli.study import carry_out, write_all
from regun.study.collect import collect
from regun.study.engines import Engine, InProcess, Processes
from regun.study.formats import render
from regun.study.reading import read_study
from regun.study.results import Results
from regun.study.table import make_table
from regun.study.tradeoff import points_only
from regun.study.workshop import Place, Workshop


def run(args: argparse.Namespace) -> int:
    """The study `digits`, with what to do next."""
    study = read_study("digits")
    out = Path(args.out) if args.out else Path(args.store) / "studies" / study.name
    workshop = Workshop(study, Place(str(Path(args.store).resolve())))
    ran = carry_out(workshop, _engine(workshop), out, quiet=args.quiet)
    results = collect(workshop, ran.failed)
    paths = write_all(workshop, results, points_only(results), out)
    made = make_table(results)
    if args.json:
        print(render(made, "json"), end="")
        return 1 if ran.failed else 0
    _explain(results)
    print(render(made))
    print(f"report  {paths[0]}")
    print(f"figure  {out / 'tradeoff.svg'}")
    _next(results, args.store)
    return 1 if ran.failed else 0


def _engine(workshop: Workshop) -> Engine:
    use_threads(1)  # the model is tiny: a second thread only costs, a second worker does not
    return Processes(workshop, 2, 1) if (os.cpu_count() or 1) > 1 else InProcess(workshop)


def _explain(results: Results) -> None:
    sizes = results.blocks[0].sizes
    print(
        f"\n{sizes['forget']} of {sizes['forget'] + sizes['retain']:,} training digits are to be forgotten. How far is "
        f"each method from a model that never saw them (Retrain)?\n"
    )


def _next(results: Results, store: str) -> None:
    regun = next(entry for entry in results.blocks[0].entries if entry.kind == "method")
    lines = {
        f"regun audit {regun.runs[0].key[:12]} --store {store}": "every number with its interval and meaning",
        f"regun tradeoff digits --store {store}": "sweep the weight of the retain loss",
        "regun study show digits > mine.toml": "a study of your own to change and run",
        "regun methods regun": "what can be set",
        "README.md": "how to use it on your own model",
    }
    width = max(map(len, lines))
    print("\nNext:\n" + "\n".join(f"  {command.ljust(width)}  {what}" for command, what in lines.items()))
