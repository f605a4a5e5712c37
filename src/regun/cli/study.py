"""Arguments of `regun study list|show|plan|power|run|table|report|figure`."""

from __future__ import annotations

import argparse

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


def add_study(commands: Commands) -> None:
    parser = commands.add_parser(
        "study",
        help="run grids of models, methods, forget sets and seeds",
        description="Run grids of models, methods, forget sets and seeds: the built-in ones and your own.",
        epilog="Example:\n  regun study run digits",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_json(command(actions, "list", "list the built-in studies", "study_runs:list_studies", "regun study list"))
    help = "print a study's file, and its resolved settings as comments"
    shown = command(actions, "show", help, "study_runs:show", "regun study show digits")
    add_study_name(shown)
    add_json(shown)
    help = "print what a study needs, before anything runs"
    planned = command(actions, "plan", help, "plan:run", "regun study plan resnet18-cifar10")
    add_chosen_study(planned)
    add_options(planned, {"--probe": "run a few training steps to estimate the time"})
    help = "train base, Retrain and references, and print whether they suffice to compare methods"
    example = "regun study power resnet18-cifar10-small --data-dir ~/data --workers 2 --forget 0.1"
    powered = command(actions, "power", help, "power:run", example)
    add_chosen_study(powered)
    add_engine(powered)
    help = "run the missing tasks of a study, then write tables and report; repeat after an interruption"
    example = "regun study run resnet18-cifar10-small --data-dir ~/data --workers 2"
    made = command(actions, "run", help, "study_runs:run", example)
    add_chosen_study(made)
    add_engine(made)
    made.add_argument("--out", dest="folder", metavar="DIR", help=f"where tables, report and metrics go {FOLDER}")
    _add_table(actions)
    help = "draw the finished tasks: gap against cost per request, or utility against forgetting"
    drawn = command(actions, "figure", help, "study_runs:draw", "regun study figure digits --out cost.png")
    add_chosen_study(drawn)
    add_options(drawn, {"--kind NAME": "cost (default) or tradeoff"})
    drawn.add_argument("--out", dest="file", metavar="FILE", required=True, help="a .png, .svg or .pdf file")
    help = "write the HTML report of the finished tasks"
    reported = command(actions, "report", help, "study_runs:report", "regun study report digits")
    add_chosen_study(reported)
    reported.add_argument(
        "--out", dest="file", metavar="FILE", help="the page (default STORE/studies/NAME/report.html)"
    )


def _add_table(actions: Commands) -> None:
    help = "print the table of the finished tasks"
    tabled = command(actions, "table", help, "study_runs:show_table", "regun study table digits --wide")
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
            "--columns NAMES": "only these numbers, by name, separated by commas (docs/metrics.md)",
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
            "--paper": "add the paper's numbers",
            "--as-study NAME": "with --paper: the built-in study to compare with",
        },
    )
    tabled.add_argument("--out", dest="file", metavar="FILE", help="write to a file")
