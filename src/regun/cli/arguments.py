"""Arguments that several commands share; imports nothing heavy, so that `regun --help` is quick."""

import argparse
import math
import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from regun.settings import LIMIT, shown

RENAMED = {"pseudonyms": "salt"}
"""Options whose name differs from that of the argument in Python."""
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

JSON = "print the result as JSON; progress stays on standard error"


def command(commands: Commands, name: str, help: str, run: str, example: str) -> argparse.ArgumentParser:
    """Add a command that `regun.cli` runs as `module:function`; its help ends with an example."""
    parser = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=f"Example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, parser=parser)
    # no default: a subcommand must not overwrite the option of its parent
    parser.add_argument(
        "--traceback", action="store_true", default=argparse.SUPPRESS, help="show where in the code an error arose"
    )
    return parser


def for_shell(text: str, args: argparse.Namespace) -> str:
    """Return a message of the library with the options of the command in place of Python's arguments: `out=`, `--out`.

    >>> parser = argparse.ArgumentParser()
    >>> option = parser.add_argument("--out")
    >>> for_shell("name another out=. Give the project val=...", argparse.Namespace(parser=parser))
    'name another --out. Give the project val=...'
    """
    options = set(re.findall(r"--[a-z][a-z-]*", args.parser.format_usage()))

    def option(match: re.Match[str]) -> str:
        name = RENAMED.get(match[1], match[1].replace("_", "-"))
        return f"--{name}" if f"--{name}" in options else match[0]

    return re.sub(r"(?<![\w.(\[-])([a-z][a-z_]*)=(?!\.\.\.)(?=[\s.,;:)]|$)", option, text)


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
    add_options(parser, {"--json": JSON, "--quiet": "no progress"})


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
