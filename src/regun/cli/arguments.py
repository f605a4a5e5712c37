"""Arguments that several commands share; imports nothing heavy, so that `regun --help` is quick."""

import argparse
import math
import os
import re
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

from regun.errors import unknown
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


class Option(NamedTuple):
    """An argument of a command: `--out DIR` takes a text, `--all` is a flag, `target KEY` has a place."""

    usage: str
    help: str
    type: Callable[[str], Any] | None = None
    default: Any = None
    required: bool = False


JSON = Option("--json", "print the result as JSON; progress stays on standard error")
QUIET = Option("--quiet", "no progress")


class Parser(argparse.ArgumentParser):
    """A parser that suggests the nearest name for one that does not exist."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(None, unknown(action.dest, str(value), map(str, action.choices)))


def command(
    commands: Commands, name: str, help: str, run: str, example: str, *options: Option
) -> argparse.ArgumentParser:
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
    for option in options:
        flag, _, metavar = option.usage.partition(" ")
        if not flag.startswith("--"):
            parser.add_argument(flag, metavar=metavar or None, help=option.help)
        elif metavar:
            parser.add_argument(
                flag,
                metavar=metavar,
                help=option.help,
                type=option.type,
                default=option.default,
                required=option.required,
            )
        else:
            parser.add_argument(flag, action="store_true", help=option.help)
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


def store_option() -> Option:
    """Return the option of the store."""
    return Option(
        "--store DIR", "folder of models and results (or $REGUN_STORE; default ./regun-store)", default=_default_store()
    )


def data_dir_option() -> Option:
    """Return the option of the data sets' folder."""
    return Option("--data-dir DIR", "folder of the data sets (or $REGUN_DATA)", default=_default_data())


def machine_options() -> tuple[Option, ...]:
    """Return where and how to run, and how to report."""
    device = "auto, cpu, cuda, cuda:1, xpu or mps (default: auto, the first of cuda, xpu, mps and cpu)"
    return (
        store_option(),
        Option("--device NAME", device, default="auto"),
        Option("--threads N", "threads for tensor arithmetic (default: all cores)", whole()),
        Option("--snapshot-seconds S", "seconds between snapshots of a run (default 20)", float, 20.0),
        JSON,
        QUIET,
    )


def location_options(args: argparse.Namespace) -> str:
    """Return the options with which another command finds the same store and data."""
    options = (("--store", args.store, _default_store()), ("--data-dir", args.data_dir, _default_data()))
    return "".join(f" {option} {shlex.quote(value)}" for option, value, usual in options if value != usual)


def _default_store() -> str:
    return os.environ.get("REGUN_STORE", "regun-store")


def _default_data() -> str | None:
    return os.environ.get("REGUN_DATA")


def _bounds(low: float, high: float) -> str:
    lowest = "" if low <= 1 - LIMIT else f" from {low:,}"
    return lowest + ("" if high >= LIMIT - 1 else f" up to {high:,}" if not lowest else f" to {high:,}")
