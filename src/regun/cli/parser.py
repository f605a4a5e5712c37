"""The arguments of every command, as argparse objects; imports nothing heavy so that `regun --help` is quick."""

import argparse
import os
from importlib.metadata import version
from typing import Any

Commands = Any  # argparse keeps the type of its sub-parsers to itself

REQUEST_HELP = (
    "what to forget: 0.1 (a random fraction), stratified:0.1, class:3 or class:3/5, class:3=0.5 (half of class 3), "
    "ids:FILE (one id a line)"
)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regun",
        description="Remove the influence of chosen training examples from a trained classifier, and show how well.",
        epilog="Example:\n  regun demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"regun {version('regun')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_train(commands)
    _add_unlearn(commands)
    _add_tune(commands)
    _add_audit(commands)
    _add_forget(commands)
    _add_verify(commands)
    _add_study(commands)
    _add_tradeoff(commands)
    _add_store(commands)
    _add_lists(commands)
    return parser


def _command(commands: Commands, name: str, help: str, run: str, example: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=f"Example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def _add_demo(commands: Commands) -> None:
    parser = _command(
        commands, "demo", "train, unlearn with every method and audit, on embedded data", "demo:run", "regun demo"
    )
    add_store_option(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="where report, figure and tables go (default STORE/studies/digits)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def _add_train(commands: Commands) -> None:
    parser = _command(
        commands,
        "train",
        "train a model on a data set, or find it in the store",
        "train:run",
        "regun train --data cifar10,limit=5000 --data-dir ~/data --model resnet18,width=16 --recipe resnet18-small",
    )
    add_setup(parser)
    parser.add_argument(
        "--without", metavar="REQUEST", help=f"leave these out of training, as a retrained model does; {REQUEST_HELP}"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="training seed: initial weights, order, augmentation (default 0)"
    )
    parser.add_argument("--max-steps", type=int, metavar="N", help="stop after N steps, to try a configuration")
    add_machine(parser)


def _add_unlearn(commands: Commands) -> None:
    parser = _command(
        commands,
        "unlearn",
        "remove the influence of some training examples from a trained model",
        "unlearn:run",
        "regun unlearn --base 3f2a --forget 0.1 --method regun,w=0.3,lr=0.01",
    )
    parser.add_argument(
        "--base",
        required=True,
        metavar="KEY|FILE",
        help="the trained model: its key in the store, or a safetensors file (then say --data, --model and the split)",
    )
    parser.add_argument("--forget", required=True, metavar="REQUEST", help=REQUEST_HELP)
    parser.add_argument(
        "--method",
        default="regun",
        metavar="NAME[@PRESET][,KEY=VALUE...]",
        help="method (see `regun methods`); default regun",
    )
    parser.add_argument(
        "--settings", metavar="FILE", help="settings by `regun tune --out`; those named in --method win over them"
    )
    parser.add_argument(
        "--tune",
        type=int,
        metavar="N",
        help="try N settings and keep the best; needs no retrained model, but unseen examples to judge by",
    )
    parser.add_argument("--budget", metavar="steps=N|samples=N", help="run an iterative method to exactly this budget")
    parser.add_argument("--keep", default="last", choices=("last", "best"), help="which epoch to keep (default last)")
    parser.add_argument("--criterion", default="val_accuracy", help="with --keep best: val_accuracy or val_loss")
    parser.add_argument("--reference", metavar="KEY", help="model for regun,reference=given (a retrained oracle, say)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the unlearning run (default 0)")
    parser.add_argument("--out", metavar="FILE", help="also write the weights to this safetensors file")
    add_setup(parser)
    add_machine(parser)


def _add_tune(commands: Commands) -> None:
    parser = _command(
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


def _add_audit(commands: Commands) -> None:
    parser = _command(
        commands,
        "audit",
        "measure how well a model has forgotten, with intervals and, given retrained models, a noise floor",
        "audit:run",
        "regun audit 9c41 --risks risks.csv",
    )
    parser.add_argument(
        "target",
        metavar="KEY|FILE|MODULE:FUNCTION",
        help="a model of the store, a safetensors file, or a function that returns a trained model",
    )
    parser.add_argument(
        "--base", metavar="KEY", help="the model it came from (known for unlearned models of the store)"
    )
    parser.add_argument("--forget", metavar="REQUEST", help=f"(known for unlearned models of the store) {REQUEST_HELP}")
    parser.add_argument(
        "--retrain", metavar="KEY", help="the retrained model to compare with; default: found in the store"
    )
    parser.add_argument(
        "--references", metavar="KEYS", help="further retrained models, separated by commas; default: found"
    )
    parser.add_argument("--alone", action="store_true", help="use no retrained models, even if the store has some")
    parser.add_argument(
        "--attacks", metavar="NAMES", help="attacks to run, separated by commas; default: all that can run"
    )
    parser.add_argument(
        "--bootstrap", type=int, default=1000, metavar="N", help="resamples for the intervals (default 1000)"
    )
    parser.add_argument(
        "--shadows",
        type=int,
        default=0,
        metavar="N",
        help="also run U-LiRA with N shadow trainings and unlearning runs (unlearned models of the store; costly)",
    )
    parser.add_argument("--risks", metavar="FILE", help="write the per-example risk list to this .csv or .json file")
    parser.add_argument("--all", action="store_true", help="show every number, not only the main ones")
    add_setup(parser)
    add_machine(parser)


def _add_forget(commands: Commands) -> None:
    parser = _command(
        commands,
        "forget",
        "carry out a deletion request: unlearn, audit, accept or reject, and write a receipt; 1 = rejected",
        "forget:run",
        "regun forget --project app.py:project --ids ids.csv --out deletions --accept 'smia_auc~50, val_drop<1'",
    )
    parser.add_argument("--ids", required=True, metavar="FILE", help=".csv with a column id, .json, or one id a line")
    parser.add_argument("--out", required=True, metavar="DIR", help="holds the ledger, the receipts and the models")
    parser.add_argument("--dry-run", action="store_true", help="only say what would happen")
    _add_project(parser)
    parser.add_argument("--method", metavar="NAME[@PRESET][,KEY=VALUE...]", help="default: the project's, or regun")
    parser.add_argument("--accept", metavar="RULE", help="what must hold; default: smia_auc~50, val_drop<1")
    parser.add_argument(
        "--fallback", metavar="METHOD", help="if rejected, try this instead: retrain[,KEY=VALUE...], say"
    )
    parser.add_argument("--ignore-unknown", action="store_true", help="go on although some ids are unknown")
    parser.add_argument("--check-content", action="store_true", help="also search for overlap by content")
    parser.add_argument("--sign", metavar="FILE", help="sign the receipt with this Ed25519 private key (PEM)")
    for name, help in (
        ("reason", "why, where the file does not say"),
        ("requester", "a reference to who asked (a ticket, not a name), where the file does not say"),
        ("date", "when it was asked, where the file does not say"),
    ):
        parser.add_argument(f"--{name}", default="", metavar="TEXT", help=help)
    parser.add_argument("--seed", type=int, default=0, help="seed of the unlearning run (default 0)")
    parser.add_argument("--bootstrap", type=int, default=1000, metavar="N", help="resamples for intervals (1000)")
    add_machine(parser)


def _add_verify(commands: Commands) -> None:
    parser = _command(
        commands,
        "verify",
        "check a receipt: its sections, files, signature and the ledger's chain; 1 = something was changed",
        "verify:run",
        "regun verify deletions/requests/0001/receipt.json",
    )
    parser.add_argument("receipt", metavar="FILE|DIR", help="a receipt.json, or the folder of a ledger to check it all")
    parser.add_argument("--public-key", metavar="FILE", help="the Ed25519 public key (PEM) that must have signed")
    parser.add_argument("--alone", action="store_true", help="the receipt only, without files and ledger")
    _add_project(parser)
    add_machine(parser)


def _add_project(parser: argparse.ArgumentParser) -> None:
    """Whose model and data; what a stored model settles itself cannot be said."""
    parser.add_argument("--project", metavar="FILE.py:FUNCTION", help="function that returns a regun.Project")
    parser.add_argument("--base", metavar="KEY", help="instead: a model of the store; ids are training indices")
    parser.add_argument("--data-dir", metavar="DIR", default=os.environ.get("REGUN_DATA"), help="with --base")
    parser.add_argument("--augment", metavar="NAME", help="with --base: input pipeline")
    parser.add_argument("--salt", metavar="FILE", help="ids are written as hashes under this secret (>= 16 bytes)")
    settled = dict.fromkeys(("data", "model", "recipe", "split_seed", "heldout", "val", "stratified"))
    parser.set_defaults(**settled)


def _add_study(commands: Commands) -> None:
    parser = commands.add_parser(
        "study",
        help="whole grids: plan, run, tables, report",
        description="Whole grids of models, methods, forget sets and seeds: the paper's, and your own.",
        epilog="Example:\n  regun study run digits",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = _command(actions, "list", "list the built-in studies", "study:list_studies", "regun study list")
    listed.add_argument("--json", action="store_true", help="print JSON")
    shown = _command(actions, "show", "print a study's file", "study:show", "regun study show digits")
    shown.add_argument("study", help="a built-in study (see `regun study list`) or FILE.toml")
    shown.add_argument("--json", action="store_true", help="print JSON")
    planned = _command(
        actions,
        "plan",
        "say what a study takes, before anything runs",
        "plan:run",
        "regun study plan resnet18-cifar10",
    )
    _add_chosen_study(planned)
    planned.add_argument("--probe", action="store_true", help="run a few training steps to estimate the time")
    made = _command(
        actions,
        "run",
        "make what a study lacks, then its tables and report; run it again after an interruption",
        "study:run",
        "regun study run resnet18-cifar10-small --data-dir ~/data --workers 2",
    )
    _add_chosen_study(made)
    _add_engine(made)
    made.add_argument("--out", metavar="DIR", help="where tables, report and metrics go (default STORE/studies/NAME)")
    tabled = _command(
        actions, "table", "print the table of what has been made", "study:show_table", "regun study table digits --wide"
    )
    _add_chosen_study(tabled)
    tabled.add_argument("--format", default="terminal", help="terminal, markdown, latex, latex-document, csv, json")
    tabled.add_argument("--wide", action="store_true", help="all columns")
    tabled.add_argument("--columns", metavar="NAMES", help="further numbers, by name (see docs/metrics.md)")
    tabled.add_argument("--paper", action="store_true", help="put the paper's numbers beside ours")
    tabled.add_argument("--as-study", metavar="NAME", help="with --paper: the built-in study to compare with")
    tabled.add_argument("--out", metavar="FILE", help="write to a file")
    reported = _command(
        actions, "report", "write the HTML report of what has been made", "study:report", "regun study report digits"
    )
    _add_chosen_study(reported)
    reported.add_argument("--out", metavar="FILE", help="the page (default STORE/studies/NAME/report.html)")


def _add_tradeoff(commands: Commands) -> None:
    parser = _command(
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


def _add_chosen_study(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", help="a built-in study (see `regun study list`) or FILE.toml")
    parser.add_argument("--seeds", metavar="LIST", help="only these seeds, as in 0,1")
    parser.add_argument("--forget", metavar="LIST", help="only these requests, as in 0.01,0.1")
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        default=os.environ.get("REGUN_DATA"),
        help="folder of the data sets (or $REGUN_DATA)",
    )
    add_machine(parser)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", default="local", choices=("local", "ray"), help="where tasks run (default local)")
    parser.add_argument("--workers", type=int, metavar="N", help="tasks at a time, each with its share of threads")
    parser.add_argument("--address", metavar="ADDRESS", help="ray: an existing cluster (default: one on this machine)")
    parser.add_argument("--track", metavar="NAMES", help="also log to: tensorboard, mlflow, wandb")


def _add_store(commands: Commands) -> None:
    parser = _command(
        commands, "store", "look into the store, check it, clean it up", "store:list", "regun store verify"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, help, example in (
        ("list", "one line an artefact", "regun store list --json"),
        ("show", "the manifest of one artefact", "regun store show 3f2a"),
        ("verify", "read everything and name what is damaged", "regun store verify --store ~/models"),
        ("gc", "remove temporary files and snapshots of finished runs", "regun store gc --dry-run"),
    ):
        action = _command(actions, name, help, f"store:{name}", example)
        if name == "show":
            action.add_argument("key", help="the key, or enough of its first digits")
        if name == "gc":
            action.add_argument("--dry-run", action="store_true", help="only say what would be removed")
            action.add_argument(
                "--partial-days",
                type=float,
                metavar="D",
                help="also drop snapshots of unfinished runs older than D days",
            )
        add_store_option(action)
        action.add_argument("--json", action="store_true", help="print JSON")


def _add_lists(commands: Commands) -> None:
    for name, help in (
        ("data", "list the data sets and their settings"),
        ("models", "list the models and their settings"),
        ("recipes", "list the training recipes and their settings"),
    ):
        parser = _command(commands, name, help, f"lists:{name}", f"regun {name}")
        parser.add_argument("--json", action="store_true", help="print JSON")

    parser = _command(
        commands,
        "methods",
        "list the unlearning methods, or one with its settings and ranges",
        "lists:methods",
        "regun methods regun",
    )
    parser.add_argument("name", nargs="?", help="a method, to see all of it")
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_setup(parser: argparse.ArgumentParser) -> None:
    """Data, model, recipe and split; none has a default here, so that what was said can be told from what was not."""
    parser.add_argument("--data", metavar="NAME[,KEY=VALUE...]", help="data set (see `regun data`); default digits")
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        default=os.environ.get("REGUN_DATA"),
        help="folder of the data sets (or $REGUN_DATA)",
    )
    parser.add_argument(
        "--model", metavar="NAME[,KEY=VALUE...]", help="model (see `regun models`); default by data set"
    )
    parser.add_argument(
        "--recipe", metavar="NAME[,KEY=VALUE...]", help="recipe (see `regun recipes`); default by model"
    )
    parser.add_argument(
        "--augment", metavar="NAME", help="input pipeline: none, resnet, swin, ...; default by model and data"
    )
    parser.add_argument("--split-seed", type=int, help="seed of the held-out, validation and forget draws (default 0)")
    parser.add_argument("--heldout", type=float, help="fraction set aside as the unseen reference (default 0.1)")
    parser.add_argument("--val", type=float, help="fraction of the rest for validation (default 0.1)")
    parser.add_argument("--stratified", action="store_true", help="draw held-out and validation class by class")


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Where and how to run, and how to report."""
    add_store_option(parser)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (default auto)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads for tensor arithmetic (default: all cores)")
    parser.add_argument(
        "--snapshot-seconds", type=float, default=20.0, metavar="S", help="seconds between snapshots (default 20)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON; progress stays on standard error"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")


def add_store_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        default=os.environ.get("REGUN_STORE", "regun-store"),
        metavar="DIR",
        help="where models and results are kept (or $REGUN_STORE; default ./regun-store)",
    )
