"""`regun study list|show|run|table|report|figure`."""

from __future__ import annotations

import argparse
import sys
from importlib import resources
from pathlib import Path

from regun.cli.arguments import (
    FOLDER,
    Commands,
    add_chosen_study,
    add_engine,
    add_json,
    add_options,
    add_study_name,
    command,
)
from regun.cli.terminal import emit, print_table, write
from regun.errors import RegunError, SettingsError, unknown


def add_study(commands: Commands) -> None:
    parser = commands.add_parser(
        "study",
        help="whole grids: plan, run, tables, report",
        description="Whole grids of models, methods, forget sets and seeds: the paper's, and your own.",
        epilog="Example:\n  regun study run digits",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_json(command(actions, "list", "list the built-in studies", "study:list_studies", "regun study list"))
    help = "print a study's file, and what it stands for"
    shown = command(actions, "show", help, "study:show", "regun study show digits")
    add_study_name(shown)
    add_json(shown)
    help = "say what a study takes, before anything runs"
    planned = command(actions, "plan", help, "plan:run", "regun study plan resnet18-cifar10")
    add_chosen_study(planned)
    add_options(planned, {"--probe": "run a few training steps to estimate the time"})
    help = "train base, Retrain and references, and say whether methods can be told apart by them"
    example = "regun study power resnet18-cifar10-small --data-dir ~/data --workers 2 --forget 0.1"
    powered = command(actions, "power", help, "power:run", example)
    add_chosen_study(powered)
    add_engine(powered)
    help = "make what a study lacks, then its tables and report; run it again after an interruption"
    example = "regun study run resnet18-cifar10-small --data-dir ~/data --workers 2"
    made = command(actions, "run", help, "study:run", example)
    add_chosen_study(made)
    add_engine(made)
    made.add_argument("--out", dest="folder", metavar="DIR", help=f"where tables, report and metrics go {FOLDER}")
    _add_table(actions)
    _add_figure(actions)
    help = "write the HTML report of what has been made"
    reported = command(actions, "report", help, "study:report", "regun study report digits")
    add_chosen_study(reported)
    reported.add_argument(
        "--out", dest="file", metavar="FILE", help="the page (default STORE/studies/NAME/report.html)"
    )


def _add_figure(actions: Commands) -> None:
    help = "draw what has been made: result against cost per request, or utility against forgetting"
    drawn = command(actions, "figure", help, "study:draw", "regun study figure digits --out cost.png")
    add_chosen_study(drawn)
    add_options(drawn, {"--kind NAME": "cost (default) or tradeoff"})
    drawn.add_argument("--out", dest="file", metavar="FILE", required=True, help="a .png, .svg or .pdf file")


def _add_table(actions: Commands) -> None:
    help = "print the table of what has been made"
    tabled = command(actions, "table", help, "study:show_table", "regun study table digits --wide")
    add_chosen_study(tabled)
    tabled.add_argument(
        "--format",
        default="terminal",
        metavar="NAME",
        help="terminal (default), markdown, latex, latex-document, csv, json",
    )
    add_options(
        tabled,
        {
            "--wide": "all of the paper's columns",
            "--columns NAMES": "these numbers and no others, by name, separated by commas (docs/metrics.md)",
        },
    )
    tabled.add_argument(
        "--layout",
        default="requests",
        metavar="NAME",
        help="requests (a table for each; default), or fractions (the requests side by side)",
    )
    add_options(
        tabled,
        {
            "--paper": "put the paper's numbers beside ours",
            "--as-study NAME": "with --paper: the built-in study to compare with",
        },
    )
    tabled.add_argument("--out", dest="file", metavar="FILE", help="write to a file")


def list_studies(args: argparse.Namespace) -> int:
    """The built-in studies."""

    from regun.experiments.study import builtin_names, read_study

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
    print_table(["study", "what", "forget", "seeds", "methods"], rows)
    print("\nregun study show NAME > mine.toml gives you one to change; regun study run mine.toml runs it.")
    return 0


def show(args: argparse.Namespace) -> int:
    """A study's file as it is, and as comments what it stands for."""

    from regun.experiments.study import builtin_names, read_study
    from regun.experiments.study.resolved import as_comments, resolved, without_comments

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

    from regun.cli.study_runs import finish, folder_of, open_context, run_study

    opened = open_context(args)
    out = folder_of(args, opened)
    return finish(opened, run_study(args, opened, out), out, as_json=args.json)


def show_table(args: argparse.Namespace) -> int:
    """The table of what has been made so far."""

    from regun.artifacts import Store
    from regun.cli.study_runs import open_context, selected_study
    from regun.experiments.report.formats import render
    from regun.experiments.study.collect import collect
    from regun.experiments.study.paper import paper_numbers

    study = selected_study(args)
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

    from regun.artifacts import Store
    from regun.cli.study_runs import folder_of, open_context, report_parts
    from regun.experiments.report.page import build_report  # brings matplotlib, which no other action needs
    from regun.experiments.study.collect import collect

    Store.existing(args.store)
    opened = open_context(args)
    results, out = collect(opened), folder_of(args, opened)
    page = build_report(results, *report_parts(opened, results, out))
    path = write(Path(args.file) if args.file else out / "report.html", page)
    emit({"report": str(path)}) if args.json else print(path)
    return 0


def draw(args: argparse.Namespace) -> int:
    """A figure of what has been made so far; with several requests, one file for each."""

    from regun.artifacts import Store
    from regun.cli.study_runs import open_context
    from regun.experiments.report.cost_figure import cost_figure
    from regun.experiments.report.files import safe_name
    from regun.experiments.report.tradeoff_figure import tradeoff_figure
    from regun.experiments.study.collect import collect
    from regun.experiments.study.cost import cost_comparisons
    from regun.experiments.study.tradeoff import tradeoffs
    from regun.render.figure_style import figure_bytes

    kind = args.kind or "cost"
    if kind not in ("cost", "tradeoff"):
        raise SettingsError([unknown("kind of figure", kind, ("cost", "tradeoff"))])
    Store.existing(args.store)
    results = collect(open_context(args))
    if kind == "cost":
        figures = {one.label: cost_figure(one) for one in cost_comparisons(results)}
    else:
        figures = {one.label: tradeoff_figure(one) for one in tradeoffs(results)}
    if not figures:
        raise RegunError(f"nothing to draw yet; run `regun study run {args.study}` first.")
    out, paths = Path(args.file), list[str]()
    for label, figure in figures.items():
        path = out if len(figures) == 1 else out.with_stem(f"{out.stem}-{safe_name(label)}")
        paths.append(str(write(path, figure_bytes(figure, out.suffix))))
    emit({"figures": paths}) if args.json else print("\n".join(paths))
    return 0
