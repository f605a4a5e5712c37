"""The arguments of every command, as argparse objects; imports nothing heavy so that `regun --help` is quick."""

import argparse
from importlib.metadata import version

from regun.cli.arguments import REQUEST_HELP, Commands, add_machine, add_setup, add_store_option, command
from regun.cli.request_parser import add_forget, add_verify
from regun.cli.study_parser import add_study, add_tradeoff, add_tune


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
    add_tune(commands)
    _add_audit(commands)
    add_forget(commands)
    add_verify(commands)
    add_study(commands)
    add_tradeoff(commands)
    _add_store(commands)
    _add_lists(commands)
    return parser


def _add_demo(commands: Commands) -> None:
    parser = command(
        commands, "demo", "train, unlearn with every method and audit, on embedded data", "demo:run", "regun demo"
    )
    add_store_option(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="where report, figure and tables go (default STORE/studies/digits)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def _add_train(commands: Commands) -> None:
    parser = command(
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
    parser = command(
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


def _add_audit(commands: Commands) -> None:
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


def _add_store(commands: Commands) -> None:
    parser = command(
        commands, "store", "look into the store, check it, clean it up", "store:list", "regun store verify"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, help, example in (
        ("list", "one line an artefact", "regun store list --json"),
        ("show", "the manifest of one artefact", "regun store show 3f2a"),
        ("verify", "read everything and name what is damaged", "regun store verify --store ~/models"),
        ("gc", "remove temporary files and snapshots of finished runs", "regun store gc --dry-run"),
    ):
        action = command(actions, name, help, f"store:{name}", example)
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
        parser = command(commands, name, help, f"lists:{name}", f"regun {name}")
        parser.add_argument("--json", action="store_true", help="print JSON")

    parser = command(
        commands,
        "methods",
        "list the unlearning methods, or one with its settings and ranges",
        "lists:methods",
        "regun methods regun",
    )
    parser.add_argument("name", nargs="?", help="a method, to see all of it")
    parser.add_argument("--json", action="store_true", help="print JSON")
