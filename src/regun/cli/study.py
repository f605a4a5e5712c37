"""`regun study list|show|run|table|report`."""

import argparse
import sys
from importlib import resources
from pathlib import Path

from regun.artifacts import Store
from regun.cli.terminal import emit, write
from regun.cli.workshop import carried_out, chosen, finish, folder_of, open_context, shown_with
from regun.experiments.report.formats import render
from regun.experiments.study import builtin_names, read_study
from regun.experiments.study.collect import collect
from regun.experiments.study.paper import paper_numbers
from regun.experiments.study.resolved import as_comments, resolved, without_comments
from regun.render.tables import table


def list_studies(args: argparse.Namespace) -> int:
    """The built-in studies."""
    found = {name: read_study(name) for name in builtin_names()}
    if args.json:
        emit({name: study.to_json() for name, study in found.items()})
        return 0
    rows = [
        [
            name,
            study.title,
            ", ".join(spec.label for spec in study.requests.values()),
            str(len(study.seeds)),
            str(len(study.methods)),
        ]
        for name, study in found.items()
    ]
    print(table(["study", "what", "forget", "seeds", "methods"], rows))
    print("\nregun study show NAME > mine.toml gives you one to change; regun study run mine.toml runs it.")
    return 0


def show(args: argparse.Namespace) -> int:
    """A study's file as it is, and as comments what it stands for."""
    study = read_study(args.study)
    if args.json:
        emit({**study.to_json(), "resolved": resolved(study)})
        return 0
    own = args.study not in builtin_names()
    path = (
        Path(args.study).expanduser()
        if own
        else resources.files("regun.experiments.study") / "builtin" / f"{args.study}.toml"
    )
    print(f"{without_comments(path.read_text()).rstrip()}\n\n{as_comments(study)}", end="")
    return 0


def run(args: argparse.Namespace) -> int:
    """Make what is missing, then the tables and the report; the exit code is 1 unless everything is there."""
    opened = open_context(args)
    out = folder_of(args, opened)
    return finish(opened, carried_out(args, opened, out), out, as_json=args.json)


def show_table(args: argparse.Namespace) -> int:
    """The table of what has been made so far."""
    study = chosen(args)
    Store.existing(args.store)
    paper = paper_numbers(args.as_study or study.name) if args.paper else None
    results = collect(open_context(args, study), paper=paper)
    columns = args.columns.split(",") if args.columns else None
    text = render(results, "json" if args.json else args.format, wide=args.wide, columns=columns, layout=args.layout)
    if args.file:
        print(write(Path(args.file), text), file=sys.stderr)
    else:
        print(text, end="")
    return 0


def report(args: argparse.Namespace) -> int:
    """The report of what has been made so far."""
    from regun.experiments.report.page import build_report  # brings matplotlib, which no other action needs

    Store.existing(args.store)
    opened = open_context(args)
    results, out = collect(opened), folder_of(args, opened)
    page = build_report(results, *shown_with(opened, results, out))
    path = write(Path(args.file) if args.file else out / "report.html", page)
    emit({"report": str(path)}) if args.json else print(path)
    return 0
