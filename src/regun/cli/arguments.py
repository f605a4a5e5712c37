"""Arguments that several commands share; imports nothing heavy so that `regun --help` is quick."""

import argparse
import math
import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from regun.settings import LIMIT, shown

Commands = Any  # argparse keeps the type of its sub-parsers to itself

FAILED, WRONG, CRASHED, UNTOLD, INTERRUPTED = 1, 2, 3, 4, 130
EXIT_CODES = {
    0: "done; a request was accepted",
    FAILED: "a check failed, a request was rejected, or a study is not whole",
    WRONG: "bad input, or surroundings that you can put right: one sentence says what",
    CRASHED: "an unexpected error; --traceback, or REGUN_TRACEBACK=1, shows where",
    UNTOLD: "nobody can tell whether a request has worked: the tests had no power; its model was not taken",
    INTERRUPTED: "interrupted; what was finished is kept",
}

REQUESTS = (
    "0.1 (a random fraction), stratified:0.1, class:3 or class:3/5, class:3=0.5 (half of class 3), "
    "ids:FILE (one id a line), hard:0.1 or easy:0.1 (by the loss early in training), like:17,50 (50 examples like "
    "number 17), cluster:1/8 (the largest of 8 clusters), subclass:3/2/4 (of class 3 the second largest of 4)"
)
"""How examples to forget can be named."""


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
    # no default, so that a command below another does not take back what was said above
    parser.add_argument(
        "--traceback", action="store_true", default=argparse.SUPPRESS, help="show where in the code an error arose"
    )
    return parser


def whole(low: int = 1 - LIMIT, high: int = LIMIT - 1) -> Callable[[str], int]:
    """The type of an argument that is a whole number within bounds."""

    def read(text: str) -> int:
        number = int(text) if re.fullmatch("[+-]?[0-9]{1,19}", text) else LIMIT
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"give a whole number{_bounds(low, high)}, not {shown(text)}")
        return number

    return read


def said(text: str) -> str:
    """The type of an argument that must not be empty: `--received "$UNSET"` must not pass for no `--received`."""
    if not text.strip():
        raise argparse.ArgumentTypeError("there is nothing in it; give a text, or leave it out")
    return text


def number(low: float = -math.inf, high: float = math.inf) -> Callable[[str], float]:
    """The type of an argument that is a number within bounds."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"give a number{_bounds(low, high)}, not {shown(text)}")
        return value

    return read


def add_options(parser: argparse.ArgumentParser, options: Mapping[str, str], *, required: bool = False) -> None:
    """Options with their help: `--out DIR` takes a text, `--all` stands for itself."""
    for usage, help in options.items():
        name, _, metavar = usage.partition(" ")
        if metavar:
            parser.add_argument(name, metavar=metavar, help=help, required=required)
        else:
            parser.add_argument(name, action="store_true", help=help)


def add_number(
    parser: argparse.ArgumentParser, usage: str, kind: Callable[[str], float], default: float | None, help: str
) -> None:
    """An option that takes a number: `--trials N`."""
    name, _, metavar = usage.partition(" ")
    parser.add_argument(name, type=kind, default=default, metavar=metavar, help=help)


def add_setup(parser: argparse.ArgumentParser) -> None:
    """Data, model, recipe and split; none has a default here, so that what was said can be told from what was not."""
    add_options(parser, {"--data NAME[,KEY=VALUE...]": "data set (see `regun data`); default digits"})
    add_data_dir(parser)
    add_options(
        parser,
        {
            "--model NAME[,KEY=VALUE...]": "model (see `regun models`); default by data set",
            "--recipe NAME[,KEY=VALUE...]": "recipe (see `regun recipes`); default by model",
            "--augment NAME": "input pipeline: none, resnet, swin, ...; default by model and data",
        },
    )
    add_number(parser, "--split-seed N", whole(), None, "seed of the held-out, validation and forget draws (default 0)")
    add_number(parser, "--heldout SHARE", float, None, "share of the data kept unseen, for reference (default 0.1)")
    add_number(parser, "--val SHARE", float, None, "share of the rest for validation (default 0.1)")
    add_options(parser, {"--stratified": "draw held-out and validation examples class by class"})


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        default=_usual_data(),
        help="folder of the data sets (or $REGUN_DATA)",
    )


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Where and how to run, and how to report."""
    add_store_option(parser)
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda, cuda:1 (default auto)")
    add_number(parser, "--threads N", whole(), None, "threads for tensor arithmetic (default: all cores)")
    add_number(
        parser, "--snapshot-seconds S", float, 20.0, "seconds between the snapshots a killed run goes on from (20)"
    )
    add_json(parser)
    add_quiet(parser)


def add_json(parser: argparse.ArgumentParser) -> None:
    add_options(parser, {"--json": "print the result as JSON; progress stays on standard error"})


def add_quiet(parser: argparse.ArgumentParser) -> None:
    add_options(parser, {"--quiet": "no progress"})


def same_place(args: argparse.Namespace) -> str:
    """The options with which a further command finds store and data where this one did, to be added to it."""
    given = (("--store", args.store, _usual_store()), ("--data-dir", args.data_dir, _usual_data()))
    return "".join(f" {option} {shlex.quote(value)}" for option, value, usual in given if value != usual)


def _usual_store() -> str:
    return os.environ.get("REGUN_STORE", "regun-store")


def _usual_data() -> str | None:
    return os.environ.get("REGUN_DATA")


def add_store_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        default=_usual_store(),
        metavar="DIR",
        help="where models and results are kept (or $REGUN_STORE; default ./regun-store)",
    )


def _bounds(low: float, high: float) -> str:
    lowest = "" if low <= 1 - LIMIT else f" from {low:,}"
    return lowest + ("" if high >= LIMIT - 1 else f" up to {high:,}" if not lowest else f" to {high:,}")
