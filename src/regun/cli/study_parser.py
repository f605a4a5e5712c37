"""The arguments of `regun study`, `regun tradeoff` and `regun tune`."""

import argparse

from regun.cli.arguments import REQUEST_HELP, Commands, add_data_dir, add_machine, add_setup, command


def add_study(commands: Commands) -> None:
    parser = commands.add_parser(
        "study",
        help="whole grids: plan, run, tables, report",
        description="Whole grids of models, methods, forget sets and seeds: the paper's, and your own.",
        epilog="Example:\n  regun study run digits",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = command(actions, "list", "list the built-in studies", "study:list_studies", "regun study list")
    listed.add_argument("--json", action="store_true", help="print JSON")
    shown = command(actions, "show", "print a study's file", "study:show", "regun study show digits")
    shown.add_argument("study", help="a built-in study (see `regun study list`) or FILE.toml")
    shown.add_argument("--json", action="store_true", help="print JSON")
    planned = command(
        actions,
        "plan",
        "say what a study takes, before anything runs",
        "plan:run",
        "regun study plan resnet18-cifar10",
    )
    _add_chosen_study(planned)
    planned.add_argument("--probe", action="store_true", help="run a few training steps to estimate the time")
    made = command(
        actions,
        "run",
        "make what a study lacks, then its tables and report; run it again after an interruption",
        "study:run",
        "regun study run resnet18-cifar10-small --data-dir ~/data --workers 2",
    )
    _add_chosen_study(made)
    _add_engine(made)
    made.add_argument("--out", metavar="DIR", help="where tables, report and metrics go (default STORE/studies/NAME)")
    tabled = command(
        actions, "table", "print the table of what has been made", "study:show_table", "regun study table digits --wide"
    )
    _add_chosen_study(tabled)
    tabled.add_argument("--format", default="terminal", help="terminal, markdown, latex, latex-document, csv, json")
    tabled.add_argument("--wide", action="store_true", help="all columns")
    tabled.add_argument("--columns", metavar="NAMES", help="further numbers, by name (see docs/metrics.md)")
    tabled.add_argument("--paper", action="store_true", help="put the paper's numbers beside ours")
    tabled.add_argument("--as-study", metavar="NAME", help="with --paper: the built-in study to compare with")
    tabled.add_argument("--out", metavar="FILE", help="write to a file")
    reported = command(
        actions, "report", "write the HTML report of what has been made", "study:report", "regun study report digits"
    )
    _add_chosen_study(reported)
    reported.add_argument("--out", metavar="FILE", help="the page (default STORE/studies/NAME/report.html)")


def add_tradeoff(commands: Commands) -> None:
    parser = command(
        commands,
        "tradeoff",
        "sweep the weight w of a study's methods and draw utility against forgetting",
        "study:tradeoff",
        "regun tradeoff digits --w 0.1,0.5,0.9,0.97",
    )
    _add_chosen_study(parser)
    _add_engine(parser)
    parser.add_argument("--w", metavar="NUMBERS", help="weights of the retain loss (default 0.1,0.2,...,0.9)")
    parser.add_argument("--out", metavar="DIR", help="where the figures go (default STORE/studies/NAME)")


def add_tune(commands: Commands) -> None:
    parser = command(
        commands,
        "tune",
        "search the settings of unlearning methods, with a retrained model or without; test data are never used",
        "tune:run",
        "regun tune --base 3f2a --forget 0.1 --methods regun,finetune --trials 20 --objective reference --out tuned",
    )
    parser.add_argument("--base", required=True, metavar="KEY|FILE", help="the trained model, as in `regun unlearn`")
    parser.add_argument("--forget", required=True, metavar="REQUEST", help=REQUEST_HELP)
    parser.add_argument(
        "--methods",
        metavar="NAMES",
        help="methods separated by commas, each NAME[@PRESET][,KEY=VALUE...]; a setting given stays as it is; "
        "default: all but retrain",
    )
    parser.add_argument("--trials", type=int, default=20, metavar="N", help="settings to try for each (default 20)")
    parser.add_argument(
        "--objective",
        default="gap",
        help="gap: distance to Retrain on validation, needs retrained models in the store (default); "
        "reference: forgotten examples look unseen at the least loss of accuracy, needs none",
    )
    parser.add_argument(
        "--pareto", action="store_true", help="search the front of forgetting against utility, not one score"
    )
    parser.add_argument("--retrain", metavar="KEY", help="objective gap: the retrained model; default: found")
    parser.add_argument("--references", metavar="KEYS", help="objective gap: further retrained models; default: found")
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="where trials are kept and shared: sqlite:///FILE, another database URL, journal:FILE; "
        "default: a SQLite file in the store. Give several machines the same one and they share the work",
    )
    parser.add_argument("--budget", metavar="steps=N|samples=N", help="the same budget for every iterative method")
    parser.add_argument("--seed", type=int, default=0, help="seed of the search and of its runs (default 0)")
    parser.add_argument(
        "--out", metavar="DIR", help="write tuned.toml, all trials, figures and a report to this folder"
    )
    add_setup(parser)
    add_machine(parser)


def _add_chosen_study(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", help="a built-in study (see `regun study list`) or FILE.toml")
    parser.add_argument("--seeds", metavar="LIST", help="only these seeds, as in 0,1")
    parser.add_argument("--forget", metavar="LIST", help="only these requests, as in 0.01,0.1")
    add_data_dir(parser)
    add_machine(parser)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", default="local", choices=("local", "ray"), help="where tasks run (default local)")
    parser.add_argument("--workers", type=int, metavar="N", help="tasks at a time, each with its share of threads")
    parser.add_argument("--address", metavar="ADDRESS", help="ray: an existing cluster (default: one on this machine)")
    parser.add_argument("--track", metavar="NAMES", help="also log to: tensorboard, mlflow, wandb")
