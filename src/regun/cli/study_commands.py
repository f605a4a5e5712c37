"""The commands on whole studies, with their arguments and help; imports nothing heavy."""

import argparse
import os

from regun.cli.arguments import (
    Commands,
    add_data_dir,
    add_json,
    add_machine,
    add_number,
    add_options,
    add_quiet,
    add_store_option,
    command,
)

FOLDER = "(default STORE/studies/NAME)"
DIGITS = {
    **{"study": "digits", "seeds": None, "forget": None, "data_dir": None, "device": "cpu", "snapshot_seconds": 20.0},
    **{"engine": "local", "address": None, "silence_minutes": 60.0, "track": None},
}
"""The arguments of `regun study run` that the demo settles."""


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
    _add_study_name(shown)
    add_json(shown)
    help = "say what a study takes, before anything runs"
    planned = command(actions, "plan", help, "plan:run", "regun study plan resnet18-cifar10")
    _add_chosen_study(planned)
    add_options(planned, {"--probe": "run a few training steps to estimate the time"})
    help = "train base, Retrain and references, and say whether methods can be told apart by them"
    example = "regun study power resnet18-cifar10-small --data-dir ~/data --workers 2 --forget 0.1"
    powered = command(actions, "power", help, "power:run", example)
    _add_chosen_study(powered)
    _add_engine(powered)
    help = "make what a study lacks, then its tables and report; run it again after an interruption"
    example = "regun study run resnet18-cifar10-small --data-dir ~/data --workers 2"
    made = command(actions, "run", help, "study:run", example)
    _add_chosen_study(made)
    _add_engine(made)
    made.add_argument("--out", dest="folder", metavar="DIR", help=f"where tables, report and metrics go {FOLDER}")
    _add_table(actions)
    help = "write the HTML report of what has been made"
    reported = command(actions, "report", help, "study:report", "regun study report digits")
    _add_chosen_study(reported)
    reported.add_argument(
        "--out", dest="file", metavar="FILE", help="the page (default STORE/studies/NAME/report.html)"
    )


def add_tradeoff(commands: Commands) -> None:
    help = "sweep the weight w of a study's methods and draw utility against forgetting"
    parser = command(commands, "tradeoff", help, "tradeoff:run", "regun tradeoff digits --w 0.1,0.5,0.9,0.97")
    _add_chosen_study(parser)
    _add_engine(parser)
    add_options(parser, {"--w NUMBERS": "weights of the retain loss (default 0.1,0.2,...,0.9)"})
    parser.add_argument("--out", dest="folder", metavar="DIR", help=f"where the figures and sweep.csv go {FOLDER}")


def _add_table(actions: Commands) -> None:
    help = "print the table of what has been made"
    tabled = command(actions, "table", help, "study:show_table", "regun study table digits --wide")
    _add_chosen_study(tabled)
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


def _add_chosen_study(parser: argparse.ArgumentParser) -> None:
    """A study or a part of it, and where it runs; --out is called `folder` or `file`, by what it names."""
    _add_study_name(parser)
    add_options(
        parser,
        {"--seeds LIST": "only these seeds, as in 0,1", "--forget LIST": "only these requests, as in 0.01,0.1"},
    )
    add_data_dir(parser)
    add_machine(parser)
    parser.set_defaults(folder=None, file=None)


def _add_study_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", help="a built-in study (see `regun study list`) or FILE.toml")


def _add_engine(parser: argparse.ArgumentParser) -> None:
    """How a study is carried out."""
    parser.add_argument("--engine", default="local", choices=("local", "ray"), help="where tasks run (default local)")
    add_number(parser, "--workers N", int, None, "tasks at a time, each with its share of threads (default 1)")
    add_options(parser, {"--address ADDRESS": "ray: an existing cluster (default: one on this machine)"})
    silence = "a worker process that says nothing for so long is replaced (default 60)"
    add_number(parser, "--silence-minutes M", float, 60.0, silence)
    add_options(parser, {"--track NAMES": "also log to: tensorboard, mlflow, wandb (separated by commas)"})
