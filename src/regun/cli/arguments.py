"""Arguments that several commands share; imports nothing heavy so that `regun --help` is quick."""

import argparse
import os
from typing import Any

Commands = Any  # argparse keeps the type of its sub-parsers to itself

REQUEST_HELP = (
    "what to forget: 0.1 (a random fraction), stratified:0.1, class:3 or class:3/5, class:3=0.5 (half of class 3), "
    "ids:FILE (one id a line)"
)


def command(commands: Commands, name: str, help: str, run: str, example: str) -> argparse.ArgumentParser:
    """A command that `regun.cli` runs as `module:function`; its help ends in a real command."""
    parser = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=f"Example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_setup(parser: argparse.ArgumentParser) -> None:
    """Data, model, recipe and split; none has a default here, so that what was said can be told from what was not."""
    parser.add_argument("--data", metavar="NAME[,KEY=VALUE...]", help="data set (see `regun data`); default digits")
    add_data_dir(parser)
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


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        default=os.environ.get("REGUN_DATA"),
        help="folder of the data sets (or $REGUN_DATA)",
    )


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
