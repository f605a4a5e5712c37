"""Every command with its arguments. Imports nothing heavy, so that help is quick; `run` names what a command calls."""

import argparse
import os
from importlib.metadata import version

from regun.cli.arguments import (
    EXIT_CODES,
    JSON,
    QUIET,
    Commands,
    Option,
    Parser,
    command,
    data_dir_option,
    machine_options,
    number,
    store_option,
    whole,
)
from regun.cli.deletion_parser import add_current, add_forget, add_prepare, add_verify
from regun.cli.new import add_new

BUDGET = "--budget steps=N|samples=N"
FORGET = (
    "0.1 (a random fraction), stratified:0.1, class:3 or class:3/5, class:3=0.5 (half of class 3), "
    "ids:FILE (one id per line), hard:0.1 or easy:0.1 (by the loss early in training), like:17,50 (50 examples like "
    "example 17), cluster:1/8 (the largest of 8 clusters), subclass:3/2/4 (the second largest of 4 in class 3)"
)
"""How to write a forget set."""
RETRAINED = (
    "retrained models, separated by commas: first Retrain, then references; default: those in the store that were "
    "trained like the base, on the retain set"
)
OUT = "(default STORE/studies/NAME)"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    codes = "\n".join(f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES.items())
    parser = Parser(
        prog="regun",
        description="Remove the influence of chosen training examples from a trained classifier; measure the result.",
        epilog=f"Exit codes:\n{codes}\n\nExample:\n  regun demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"regun {version('regun')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        *(add_demo, add_new, add_train, add_unlearn, add_tune, add_audit),
        *(add_prepare, add_forget, add_current, add_verify, add_study, add_tradeoff, add_store, add_lists),
    ):
        add(commands)
    return parser


def add_demo(commands: Commands) -> None:
    parser = command(
        commands,
        "demo",
        "train, unlearn with every method and audit, on embedded data",
        "study:demo",
        "regun demo",
        store_option(),
        Option("--out DIR", f"where report, figures and tables go {OUT}"),
        JSON,
        QUIET,
    )
    parser.set_defaults(study="digits", seeds=None, forget=None, data_dir=None, device="cpu", snapshot_seconds=20.0)
    workers = 2 if (os.cpu_count() or 1) > 1 else 1
    parser.set_defaults(engine="local", track=None, workers=workers, threads=1)  # tiny: a second thread only costs


def add_train(commands: Commands) -> None:
    seed = "training seed: initial weights, order, augmentation (default 0)"
    command(
        commands,
        "train",
        "train a model on a data set, or load it from the store",
        "train:run",
        "regun train --data cifar10,limit=5000 --data-dir ~/data --model resnet18,width=16 --recipe resnet18-small",
        *_setup_options(),
        Option("--without FORGET", f"train without these examples, as Retrain does: {FORGET}"),
        Option("--seed N", seed, whole(), 0),
        Option(BUDGET, "stop after this many steps or samples, to try a configuration"),
        *machine_options(),
    )


def add_unlearn(commands: Commands) -> None:
    method = "method (see `regun methods`); default auto, which chooses its settings"
    keep = (
        "epoch to return: last (default), or best by val_accuracy (default), val_loss or unseen_error (errors on "
        "forgotten examples closest to those on unseen ones)"
    )
    command(
        commands,
        "unlearn",
        "remove the influence of training examples from a trained model",
        "unlearn:run",
        "regun unlearn --base 3f2a --forget 0.1 --method regun,w=0.3,lr=0.01",
        *REQUEST,
        Option("--method NAME[@PRESET][,KEY=VALUE...]", method, default="auto"),
        Option("--settings FILE", "settings written by `regun tune --out`; those in --method override them"),
        Option(BUDGET, "run an iterative method to exactly this budget"),
        Option("--keep last|best[:CRITERION]", keep, default="last"),
        Option("--teacher KEY", "a model trained without the records, for the methods auto and regun,source=given"),
        Option("--prepared FILE", "a table of regun prepare --base, for the methods crossfit and auto"),
        Option("--seed N", "seed of the unlearning run (default 0)", whole(), 0),
        Option("--out FILE", "also write the weights to this safetensors file"),
        *_setup_options(),
        *machine_options(),
    )


def add_tune(commands: Commands) -> None:
    methods = "methods separated by commas, each NAME[@PRESET][,KEY=VALUE...]; settings in it stay fixed"
    objective = (
        "gap: distance to Retrain on validation, needs retrained models (default); "
        "reference: forgotten examples look unseen, with little loss of accuracy; needs none"
    )
    command(
        commands,
        "tune",
        "search the settings of unlearning methods, with a retrained model or without; test data are never used",
        "tune:run",
        "regun tune --base 3f2a --forget 0.1 --methods regun,finetune --trials 20 --objective reference --out tuned",
        *REQUEST,
        Option("--methods NAMES", f"{methods}; default: all but retrain"),
        Option("--trials N", "settings to try per method (default 20)", whole(high=100_000), 20),
        Option("--objective NAME", objective, default="gap"),
        Option("--retrained KEYS", f"objective gap: {RETRAINED}"),
        Option(BUDGET, "the same budget for every iterative method"),
        Option("--seed N", "seed of the search and of its runs (default 0)", whole(), 0),
        Option("--out DIR", "write tuned.toml, all trials, figures and a report to this folder"),
        *_setup_options(),
        *machine_options(),
    )


def add_audit(commands: Commands) -> None:
    target = "any model of the store, a safetensors file, or a function that returns a trained model"
    forget = "the forget set; default: the one recorded with an unlearned or retrained model of the store"
    out_models = (
        "without retrained models: train N on the retain set for a quarter of the epochs (4 work well), to estimate "
        "how much influence is left"
    )
    shadows = "also run U-LiRA with N shadow trainings and unlearning runs (unlearned models of the store; costly)"
    command(
        commands,
        "audit",
        "measure how well a model has forgotten, with intervals and, given retrained models, a noise floor",
        "audit:run",
        "regun audit 9c41 --risks risks.csv",
        Option("target KEY|FILE|MODULE:FUNCTION", target),
        Option(
            "--base KEY", "the model before unlearning; default: the one recorded with an unlearned model of the store"
        ),
        Option("--forget FORGET", f"{forget}: {FORGET}"),
        Option("--retrained KEYS|none", RETRAINED),
        Option("--attacks NAMES", "attacks, separated by commas: names or file.py:function; default: all that can run"),
        Option("--metrics NAMES", "further numbers, separated by commas: names or file.py:function"),
        Option("--method FILE", "with --shadows: your own method, where the model was unlearned with one"),
        Option("--relearn", "also fine-tune the models on retained examples, and measure how much is relearned"),
        Option("--risks FILE", "write risks of forgotten and of exposed retained examples to this .csv or .json file"),
        Option("--all", "show every number, not only the main ones"),
        Option("--out-models N", out_models, whole(0, 100), 0),
        Option("--bootstrap N", "resamples for the intervals (default 1000)", whole(0, 1_000_000), 1000),
        Option("--shadows N", shadows, whole(0, 10_000), 0),
        *_setup_options(),
        *machine_options(),
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
    command(actions, "list", "list the built-in studies", "study:list_all", "regun study list", JSON)
    help = "print a study's file, and its resolved settings as comments"
    command(actions, "show", help, "study:show", "regun study show digits", STUDY, JSON)
    help, probe = "print what a study needs, before anything runs", "run a few training steps to estimate the time"
    example = "regun study plan resnet18-cifar10"
    planned = command(actions, "plan", help, "plan:run", example, *_study_options(), Option("--probe", probe))
    help = "train base, Retrain and references, and print whether methods can differ significantly"
    example = "regun study power resnet18-cifar10-small --data-dir ~/data --workers 2 --forget 0.1"
    powered = command(actions, "power", help, "power:run", example, *_study_options(), *ENGINE)
    for action in (planned, powered):
        action.set_defaults(out=None)
    out = Option("--out DIR", f"where tables, figures and report go {OUT}")
    help = "run the missing tasks of a study, then write tables, figures and report; run again after an interruption"
    example = "regun study run resnet18-cifar10-small --data-dir ~/data --workers 2"
    command(actions, "run", help, "study:run", example, *_study_options(), *ENGINE, out)
    help = "write tables, figures and report of the finished tasks"
    command(actions, "report", help, "study:report", "regun study report digits", *_study_options(), out)
    _add_table(actions)


def _add_table(actions: Commands) -> None:
    columns = (
        "paper (all of the paper's columns), or only these numbers, by name, separated by commas (docs/metrics.md)"
    )
    layout = "requests (a table for each; default), or fractions (the requests side by side)"
    parser = command(
        actions,
        "table",
        "print the table of the finished tasks",
        "study:show_table",
        "regun study table digits --columns paper",
        *_study_options(),
        Option("--format NAME", "terminal (default), markdown, latex, latex-document, csv, json", default="terminal"),
        Option("--columns NAMES", columns),
        Option("--out FILE", "write to a file"),
        Option("--layout NAME", layout, default="requests"),
    )
    paper = "add the paper's numbers: of this study, or of a built-in study"
    parser.add_argument("--paper", nargs="?", const="", metavar="STUDY", help=paper)


def add_tradeoff(commands: Commands) -> None:
    command(
        commands,
        "tradeoff",
        "sweep the weight w of a study's methods and draw utility against forgetting",
        "tradeoff:run",
        "regun tradeoff digits --w 0.1,0.5,0.9,0.97",
        *_study_options(),
        *ENGINE,
        Option("--w NUMBERS", "weights of the retain loss (default 0.1,0.2,...,0.9)"),
        Option("--out DIR", f"where the figures and sweep.csv go {OUT}"),
    )


def add_store(commands: Commands) -> None:
    parser = command(commands, "store", "list, check and clean up the store", "store:list_all", "regun store verify")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    shared = (store_option(), JSON)
    help = "list the entries; exit code 1 if one is damaged"
    command(actions, "list", help, "store:list_all", "regun store list --json", *shared)
    key = Option("key", "the key, or enough of its first digits")
    command(actions, "show", "print the manifest of one entry", "store:show", "regun store show 3f2a", key, *shared)
    help = "read all files and list damaged ones; exit code 1 if there are any"
    quick = Option("--quick", "check manifests and sizes only")
    command(actions, "verify", help, "store:verify", "regun store verify --store ~/models", quick, *shared)
    help = "remove temporary files and snapshots of finished runs"
    dry_run = Option("--dry-run", "only print what would be removed")
    partial = Option("--partial-days D", "also drop snapshots of unfinished runs older than D days", number(low=0))
    command(actions, "gc", help, "store:gc", "regun store gc --dry-run", dry_run, partial, *shared)


def add_lists(commands: Commands) -> None:
    for name, help in (
        ("data", "list the data sets and their settings"),
        ("models", "list the models and their settings"),
        ("recipes", "list the training recipes and their settings"),
    ):
        command(commands, name, help, f"lists:{name}", f"regun {name}", JSON)
    help = "list the unlearning methods, or one with its settings and ranges"
    parser = command(commands, "methods", help, "lists:methods", "regun methods regun", JSON)
    parser.add_argument("name", nargs="?", help="show one method in full")


STUDY = Option("study", "a built-in study (see `regun study list`) or FILE.toml")
BASE = "the trained model: its key in the store, or a safetensors file (then give --data, --model and --split)"
REQUEST = (
    Option("--base KEY|FILE", BASE, required=True),
    Option("--forget FORGET", f"what to forget: {FORGET}", required=True),
)
"""The model to unlearn from and what to forget."""
ENGINE = (
    Option(
        "--engine local|ray[:ADDRESS]",
        "where tasks run: local (default), ray (a cluster on this machine), or ray:ADDRESS (an existing cluster)",
        default="local",
    ),
    Option("--workers N", "tasks at a time, each with its share of threads (default 1)", whole()),
    Option("--track NAMES", "also log to: tensorboard, mlflow, wandb (separated by commas)"),
)
"""How a study is executed."""
SPLIT = (
    "seed of the held-out, validation and forget draws (seed=0), fraction never trained on (heldout=0.1), fraction of "
    "the rest for validation (val=0.1), draws class by class (stratified=false)"
)


def _setup_options() -> tuple[Option, ...]:
    """Return data, model, recipe and split; without defaults, so that an option that is not given is None."""
    return (
        data_dir_option(),
        Option("--data NAME[,KEY=VALUE...]", "data set (see `regun data`); default digits"),
        Option("--model NAME[,KEY=VALUE...]", "model (see `regun models`); default by data set"),
        Option("--recipe NAME[,KEY=VALUE...]", "recipe (see `regun recipes`); default by model"),
        Option("--pipeline NAME", "input pipeline: none, resnet, swin, ...; default by model and data"),
        Option("--split KEY=VALUE[,...]", SPLIT),
    )


def _study_options() -> tuple[Option, ...]:
    """Return a study or a part of it, and where it runs."""
    return (
        STUDY,
        Option("--seeds LIST", "only these seeds, as in 0,1"),
        Option("--forget LIST", "only these forget sets, as in 0.01,0.1"),
        data_dir_option(),
        *machine_options(),
    )
