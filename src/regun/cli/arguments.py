"""Arguments that several commands share; imports nothing heavy, so that `regun --help` is quick."""

import argparse
import math
import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from regun.settings import LIMIT, shown

Commands = Any  # argparse keeps the type of its sub-parsers to itself

FAILED, BAD_INPUT, CRASHED, INCONCLUSIVE, INTERRUPTED = 1, 2, 3, 4, 130
EXIT_CODES = {
    0: "done; a request was accepted",
    FAILED: "a check failed, a request was rejected, or a study is incomplete",
    BAD_INPUT: "bad input, or an environment that you can fix; the message says what to do",
    CRASHED: "an unexpected error; --traceback or REGUN_TRACEBACK=1 shows where",
    INCONCLUSIVE: "a request is inconclusive: the tests had no power; its model was not accepted",
    INTERRUPTED: "interrupted; finished work is stored",
}

BUDGET = "--budget steps=N|samples=N"
FOLDER = "(default STORE/studies/NAME)"
FORGET = (
    "0.1 (a random fraction), stratified:0.1, class:3 or class:3/5, class:3=0.5 (half of class 3), "
    "ids:FILE (one id per line), hard:0.1 or easy:0.1 (by the loss early in training), like:17,50 (50 examples like "
    "example 17), cluster:1/8 (the largest of 8 clusters), subclass:3/2/4 (the second largest of 4 in class 3)"
)
"""How to write a forget set."""


def command(commands: Commands, name: str, help: str, run: str, example: str) -> argparse.ArgumentParser:
    """Add a command that `regun.cli` runs as `module:function`; its help ends with an example."""
    parser = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=f"Example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    # no default: a subcommand must not overwrite the option of its parent
    parser.add_argument(
        "--traceback", action="store_true", default=argparse.SUPPRESS, help="show where in the code an error arose"
    )
    return parser


def whole(low: int = 1 - LIMIT, high: int = LIMIT - 1) -> Callable[[str], int]:
    """Return the argparse type of a whole number within bounds."""

    def read(text: str) -> int:
        number = int(text) if re.fullmatch("[+-]?[0-9]{1,19}", text) else LIMIT
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"give a whole number{_bounds(low, high)}, not {shown(text)}")
        return number

    return read


def non_empty(text: str) -> str:
    """Parse text that must not be empty: `--received "$UNSET"` must not count as no `--received`."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; give a text, or leave the option out")
    return text


def number(low: float = -math.inf, high: float = math.inf) -> Callable[[str], float]:
    """Return the argparse type of a number within bounds."""

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
    """Add options with their help: `--out DIR` takes a text, `--all` is a flag."""
    for usage, help in options.items():
        name, _, metavar = usage.partition(" ")
        if metavar:
            parser.add_argument(name, metavar=metavar, help=help, required=required)
        else:
            parser.add_argument(name, action="store_true", help=help)


def add_number(
    parser: argparse.ArgumentParser, usage: str, kind: Callable[[str], float], default: float | None, help: str
) -> None:
    """Add an option that takes a number: `--trials N`."""
    name, _, metavar = usage.partition(" ")
    parser.add_argument(name, type=kind, default=default, metavar=metavar, help=help)


def add_setup(parser: argparse.ArgumentParser) -> None:
    """Add data, model, recipe and split; without defaults, so that an option that was not given is None."""
    add_options(parser, {"--data NAME[,KEY=VALUE...]": "data set (see `regun data`); default digits"})
    add_data_dir(parser)
    add_options(
        parser,
        {
            "--model NAME[,KEY=VALUE...]": "model (see `regun models`); default by data set",
            "--recipe NAME[,KEY=VALUE...]": "recipe (see `regun recipes`); default by model",
            "--pipeline NAME": "input pipeline: none, resnet, swin, ...; default by model and data",
        },
    )
    add_number(parser, "--split-seed N", whole(), None, "seed of the held-out, validation and forget draws (default 0)")
    add_number(parser, "--heldout FRACTION", float, None, "fraction of the data never trained on (default 0.1)")
    add_number(parser, "--val FRACTION", float, None, "fraction of the rest for validation (default 0.1)")
    add_options(parser, {"--stratified": "draw held-out and validation examples class by class"})


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        default=_default_data(),
        help="folder of the data sets (or $REGUN_DATA)",
    )


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Add where and how to run, and how to report."""
    add_store_option(parser)
    parser.add_argument(
        "--device",
        default="auto",
        metavar="NAME",
        help="auto, cpu, cuda, cuda:1, xpu or mps (default: auto, the first of cuda, xpu, mps and cpu)",
    )
    add_number(parser, "--threads N", whole(), None, "threads for tensor arithmetic (default: all cores)")
    add_number(
        parser,
        "--snapshot-seconds S",
        float,
        20.0,
        "seconds between snapshots of a run (default 20)",
    )
    add_json(parser)
    add_quiet(parser)


def add_json(parser: argparse.ArgumentParser) -> None:
    add_options(parser, {"--json": "print the result as JSON; progress stays on standard error"})


def add_quiet(parser: argparse.ArgumentParser) -> None:
    add_options(parser, {"--quiet": "no progress"})


def location_options(args: argparse.Namespace) -> str:
    """Return the options with which another command finds the same store and data."""
    options = (("--store", args.store, _default_store()), ("--data-dir", args.data_dir, _default_data()))
    return "".join(f" {option} {shlex.quote(value)}" for option, value, usual in options if value != usual)


def _default_store() -> str:
    return os.environ.get("REGUN_STORE", "regun-store")


def _default_data() -> str | None:
    return os.environ.get("REGUN_DATA")


def add_store_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        default=_default_store(),
        metavar="DIR",
        help="folder of models and results (or $REGUN_STORE; default ./regun-store)",
    )


def _bounds(low: float, high: float) -> str:
    lowest = "" if low <= 1 - LIMIT else f" from {low:,}"
    return lowest + ("" if high >= LIMIT - 1 else f" up to {high:,}" if not lowest else f" to {high:,}")


def add_chosen_study(parser: argparse.ArgumentParser) -> None:
    """Add a study or a part of it, and where it runs; --out becomes `folder` or `file`."""
    add_study_name(parser)
    add_options(
        parser,
        {"--seeds LIST": "only these seeds, as in 0,1", "--forget LIST": "only these forget sets, as in 0.01,0.1"},
    )
    add_data_dir(parser)
    add_machine(parser)
    parser.set_defaults(folder=None, file=None)


def add_study_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", help="a built-in study (see `regun study list`) or FILE.toml")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add how a study is executed."""
    engine = "where tasks run: local (default), ray (a cluster on this machine), or ray:ADDRESS (an existing cluster)"
    parser.add_argument("--engine", default="local", metavar="local|ray[:ADDRESS]", help=engine)
    add_number(parser, "--workers N", int, None, "tasks at a time, each with its share of threads (default 1)")
    add_options(parser, {"--track NAMES": "also log to: tensorboard, mlflow, wandb (separated by commas)"})
