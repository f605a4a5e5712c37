"""Every command with its arguments. Imports nothing heavy, so that help is quick; `run` names what a command calls."""

import argparse
import os
from importlib.metadata import version

from regun.cli.arguments import (
    EXIT_CODES,
    JSON,
    Commands,
    add_data_dir,
    add_machine,
    add_number,
    add_options,
    add_store_option,
    command,
    number,
    whole,
)
from regun.cli.current import add_current
from regun.cli.forget import add_forget
from regun.cli.new import add_new
from regun.cli.prepare import add_prepare
from regun.cli.verify import add_verify

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
    parser = argparse.ArgumentParser(
        prog="regun",
        description="Remove the influence of chosen training examples from a trained classifier, and show how well.",
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
    help = "train, unlearn with every method and audit, on embedded data"
    parser = command(commands, "demo", help, "study:demo", "regun demo")
    add_store_option(parser)
    add_options(parser, {"--out DIR": f"where report, figures and tables go {OUT}", "--json": JSON})
    add_options(parser, {"--quiet": "no progress"})
    parser.set_defaults(study="digits", seeds=None, forget=None, data_dir=None, device="cpu", snapshot_seconds=20.0)
    workers = 2 if (os.cpu_count() or 1) > 1 else 1
    parser.set_defaults(engine="local", track=None, workers=workers, threads=1)  # tiny: a second thread only costs


def add_train(commands: Commands) -> None:
    parser = command(
        commands,
        "train",
        "train a model on a data set, or load it from the store",
        "train:run",
        "regun train --data cifar10,limit=5000 --data-dir ~/data --model resnet18,width=16 --recipe resnet18-small",
    )
    _add_setup(parser)
    add_options(parser, {"--without FORGET": f"train without these examples, as Retrain does: {FORGET}"})
    add_number(parser, "--seed N", whole(), 0, "training seed: initial weights, order, augmentation (default 0)")
    add_options(parser, {BUDGET: "stop after so many steps or samples, to try a configuration"})
    add_machine(parser)


def add_unlearn(commands: Commands) -> None:
    parser = command(
        commands,
        "unlearn",
        "remove the influence of training examples from a trained model",
        "unlearn:run",
        "regun unlearn --base 3f2a --forget 0.1 --method regun,w=0.3,lr=0.01",
    )
    _add_request(parser)
    parser.add_argument(
        "--method",
        default="auto",
        metavar="NAME[@PRESET][,KEY=VALUE...]",
        help="method (see `regun methods`); default auto, which chooses its settings",
    )
    add_options(
        parser,
        {
            "--settings FILE": "settings written by `regun tune --out`; those in --method override them",
            BUDGET: "run an iterative method to exactly this budget",
        },
    )
    parser.add_argument(
        "--keep",
        default="last",
        metavar="last|best[:CRITERION]",
        help="epoch to return: last (default), or best by val_accuracy (default), val_loss or unseen_error (errors on "
        "forgotten examples closest to those on unseen ones)",
    )
    teacher = "a model trained without the records, for the methods auto and regun,source=given"
    table = "a table of regun prepare --base, for the methods crossfit and auto"
    add_options(parser, {"--teacher KEY": teacher, "--prepared FILE": table})
    add_number(parser, "--seed N", whole(), 0, "seed of the unlearning run (default 0)")
    add_options(parser, {"--out FILE": "also write the weights to this safetensors file"})
    _add_setup(parser)
    add_machine(parser)


def add_tune(commands: Commands) -> None:
    parser = command(
        commands,
        "tune",
        "search the settings of unlearning methods, with a retrained model or without; test data are never used",
        "tune:run",
        "regun tune --base 3f2a --forget 0.1 --methods regun,finetune --trials 20 --objective reference --out tuned",
    )
    _add_request(parser)
    methods = "methods separated by commas, each NAME[@PRESET][,KEY=VALUE...]; settings in it stay fixed"
    add_options(parser, {"--methods NAMES": f"{methods}; default: all but retrain"})
    add_number(parser, "--trials N", whole(high=100_000), 20, "settings to try per method (default 20)")
    parser.add_argument(
        "--objective",
        default="gap",
        metavar="NAME",
        help="gap: distance to Retrain on validation, needs retrained models (default); "
        "reference: forgotten examples look unseen, with little loss of accuracy; needs none",
    )
    same = "the same budget for every iterative method"
    add_options(parser, {"--retrained KEYS": f"objective gap: {RETRAINED}", BUDGET: same})
    add_number(parser, "--seed N", whole(), 0, "seed of the search and of its runs (default 0)")
    add_options(parser, {"--out DIR": "write tuned.toml, all trials, figures and a report to this folder"})
    _add_setup(parser)
    add_machine(parser)


def add_audit(commands: Commands) -> None:
    parser = command(
        commands,
        "audit",
        "measure how well a model has forgotten, with intervals and, given retrained models, a noise floor",
        "audit:run",
        "regun audit 9c41 --risks risks.csv",
    )
    parser.add_argument(
        "target",
        metavar="KEY|FILE|MODULE:FUNCTION",
        help="any model of the store, a safetensors file, or a function that returns a trained model",
    )
    forget = "what should be forgotten (recorded for unlearned and retrained models of the store)"
    add_options(
        parser,
        {
            "--base KEY": "the model before unlearning (recorded for unlearned models of the store)",
            "--forget FORGET": f"{forget}: {FORGET}",
            "--retrained KEYS|none": RETRAINED,
            "--attacks NAMES": "attacks, separated by commas: names or file.py:function; default: all that can run",
            "--metrics NAMES": "further numbers, separated by commas: names or file.py:function",
            "--method FILE": "with --shadows: your own method, where the model was unlearned with one",
            "--relearn": "also fine-tune the models on retained examples, and measure what returns",
            "--risks FILE": "write risks of forgotten and of exposed retained examples to this .csv or .json file",
            "--all": "show every number, not only the main ones",
        },
    )
    out_models = (
        "without retrained models: train N on the retain set for a quarter of the epochs (4 do well), to estimate how "
        "much influence is left"
    )
    shadows = "also run U-LiRA with N shadow trainings and unlearning runs (unlearned models of the store; costly)"
    add_number(parser, "--out-models N", whole(0, 100), 0, out_models)
    add_number(parser, "--bootstrap N", whole(0, 1_000_000), 1000, "resamples for the intervals (default 1000)")
    add_number(parser, "--shadows N", whole(0, 10_000), 0, shadows)
    _add_setup(parser)
    add_machine(parser)


def add_study(commands: Commands) -> None:
    parser = commands.add_parser(
        "study",
        help="run grids of models, methods, forget sets and seeds",
        description="Run grids of models, methods, forget sets and seeds: the built-in ones and your own.",
        epilog="Example:\n  regun study run digits",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = command(actions, "list", "list the built-in studies", "study:list_all", "regun study list")
    help = "print a study's file, and its resolved settings as comments"
    shown = command(actions, "show", help, "study:show", "regun study show digits")
    shown.add_argument("study", help="a built-in study (see `regun study list`) or FILE.toml")
    for action in (listed, shown):
        add_options(action, {"--json": JSON})
    help = "print what a study needs, before anything runs"
    planned = command(actions, "plan", help, "plan:run", "regun study plan resnet18-cifar10")
    _add_study(planned)
    add_options(planned, {"--probe": "run a few training steps to estimate the time"})
    help = "train base, Retrain and references, and print whether they suffice to compare methods"
    example = "regun study power resnet18-cifar10-small --data-dir ~/data --workers 2 --forget 0.1"
    powered = command(actions, "power", help, "power:run", example)
    _add_study(powered)
    _add_engine(powered)
    help = "run the missing tasks of a study, then write tables, figures and report; repeat after an interruption"
    example = "regun study run resnet18-cifar10-small --data-dir ~/data --workers 2"
    made = command(actions, "run", help, "study:run", example)
    _add_study(made)
    _add_engine(made)
    help = "write tables, figures and report of the finished tasks"
    reported = command(actions, "report", help, "study:report", "regun study report digits")
    _add_study(reported)
    for action in (made, reported):
        add_options(action, {"--out DIR": f"where tables, figures and report go {OUT}"})
    _add_table(actions)


def _add_table(actions: Commands) -> None:
    help = "print the table of the finished tasks"
    parser = command(actions, "table", help, "study:show_table", "regun study table digits --columns paper")
    _add_study(parser)
    parser.add_argument(
        "--format",
        default="terminal",
        metavar="NAME",
        help="terminal (default), markdown, latex, latex-document, csv, json",
    )
    add_options(
        parser,
        {
            "--columns NAMES": "paper (all of the paper's columns), or only these numbers, by name, separated by "
            "commas (docs/metrics.md)",
            "--out FILE": "write to a file",
        },
    )
    parser.add_argument(
        "--layout",
        default="requests",
        metavar="NAME",
        help="requests (a table for each; default), or fractions (the requests side by side)",
    )
    paper = "add the paper's numbers: of this study, or of a built-in study"
    parser.add_argument("--paper", nargs="?", const="", metavar="STUDY", help=paper)


def add_tradeoff(commands: Commands) -> None:
    help = "sweep the weight w of a study's methods and draw utility against forgetting"
    parser = command(commands, "tradeoff", help, "tradeoff:run", "regun tradeoff digits --w 0.1,0.5,0.9,0.97")
    _add_study(parser)
    _add_engine(parser)
    add_options(
        parser,
        {
            "--w NUMBERS": "weights of the retain loss (default 0.1,0.2,...,0.9)",
            "--out DIR": f"where the figures and sweep.csv go {OUT}",
        },
    )


def add_store(commands: Commands) -> None:
    parser = command(commands, "store", "list, check and clean up the store", "store:list_all", "regun store verify")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = "list the entries; exit code 1 if one is damaged"
    listed = command(actions, "list", listing, "store:list_all", "regun store list --json")
    manifest = "print the manifest of one entry"
    shown = command(actions, "show", manifest, "store:show", "regun store show 3f2a")
    shown.add_argument("key", help="the key, or enough of its first digits")
    verify = "read all files and list damaged ones; exit code 1 if there are any"
    verified = command(actions, "verify", verify, "store:verify", "regun store verify --store ~/models")
    add_options(verified, {"--quick": "check manifests and sizes only"})
    collect = "remove temporary files and snapshots of finished runs"
    collected = command(actions, "gc", collect, "store:gc", "regun store gc --dry-run")
    add_options(collected, {"--dry-run": "only print what would be removed"})
    partial = "also drop snapshots of unfinished runs older than D days"
    add_number(collected, "--partial-days D", number(low=0), None, partial)
    for action in (listed, shown, verified, collected):
        add_store_option(action)
        add_options(action, {"--json": JSON})


def add_lists(commands: Commands) -> None:
    for name, help in (
        ("data", "list the data sets and their settings"),
        ("models", "list the models and their settings"),
        ("recipes", "list the training recipes and their settings"),
    ):
        add_options(command(commands, name, help, f"lists:{name}", f"regun {name}"), {"--json": JSON})
    help = "list the unlearning methods, or one with its settings and ranges"
    parser = command(commands, "methods", help, "lists:methods", "regun methods regun")
    parser.add_argument("name", nargs="?", help="show one method in full")
    add_options(parser, {"--json": JSON})


def _add_request(parser: argparse.ArgumentParser) -> None:
    """Add the model to unlearn from and what to forget."""
    from_file = "a safetensors file (then give --data, --model and --split)"
    base = f"the trained model: its key in the store, or {from_file}"
    add_options(parser, {"--base KEY|FILE": base, "--forget FORGET": f"what to forget: {FORGET}"}, required=True)


def _add_setup(parser: argparse.ArgumentParser) -> None:
    """Add data, model, recipe and split; without defaults, so that an option that is not given is None."""
    add_data_dir(parser)
    add_options(
        parser,
        {
            "--data NAME[,KEY=VALUE...]": "data set (see `regun data`); default digits",
            "--model NAME[,KEY=VALUE...]": "model (see `regun models`); default by data set",
            "--recipe NAME[,KEY=VALUE...]": "recipe (see `regun recipes`); default by model",
            "--pipeline NAME": "input pipeline: none, resnet, swin, ...; default by model and data",
            "--split KEY=VALUE[,...]": "seed of the held-out, validation and forget draws (seed=0), fraction never "
            "trained on (heldout=0.1), fraction of the rest for validation (val=0.1), draws class by class "
            "(stratified=false)",
        },
    )


def _add_study(parser: argparse.ArgumentParser) -> None:
    """Add a study or a part of it, and where it runs."""
    parser.add_argument("study", help="a built-in study (see `regun study list`) or FILE.toml")
    add_options(
        parser,
        {"--seeds LIST": "only these seeds, as in 0,1", "--forget LIST": "only these forget sets, as in 0.01,0.1"},
    )
    add_data_dir(parser)
    add_machine(parser)
    parser.set_defaults(out=None)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    """Add how a study is executed."""
    engine = "where tasks run: local (default), ray (a cluster on this machine), or ray:ADDRESS (an existing cluster)"
    parser.add_argument("--engine", default="local", metavar="local|ray[:ADDRESS]", help=engine)
    add_number(parser, "--workers N", whole(), None, "tasks at a time, each with its share of threads (default 1)")
    add_options(parser, {"--track NAMES": "also log to: tensorboard, mlflow, wandb (separated by commas)"})
