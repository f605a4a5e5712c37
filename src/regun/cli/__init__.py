"""The command line: arguments to the rooms below and back."""

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from regun.cli.arguments import CRASHED, INTERRUPTED, WRONG
from regun.cli.parser import build_parser
from regun.errors import RegunError, SettingsError

LONGEST_LINE = 2000
"""Letters of a complaint: whoever gives a name of a megabyte need not read it again."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; what its exit code means is in `arguments.EXIT_CODES` and at the end of `regun --help`."""
    out, errors = _Steady(sys.stdout), _Steady(sys.stderr)
    with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, errors)):
        code = _answer(build_parser().parse_args(argv))
        out.flush()  # so that a reader who is gone shows here, not when Python ends
        if out.fault is not None and code == 0:
            _complain(f"standard output cannot be written: {out.fault.strerror or out.fault}.")
            code = CRASHED
    return code


def _answer(args: argparse.Namespace) -> int:
    """The command's own exit code, or that of what it raised."""
    module, _, function = args.run.partition(":")
    try:
        return getattr(importlib.import_module(f"regun.cli.{module}"), function)(args)
    except BaseException as fault:  # sys.exit too: in code of the user's it is no way to succeed
        if "traceback" in args or os.environ.get("REGUN_TRACEBACK", "0") not in ("", "0"):
            traceback.print_exc()
        code, said = _explained(fault)
        _complain(said)
        return code


def _explained(fault: BaseException) -> tuple[int, str]:
    """The exit code of an error, and what to say."""
    if isinstance(fault, SettingsError) and len(fault.problems) > 1:
        listed = (f"  - {problem}" for problem in fault.problems)
        return WRONG, "\n".join([f"{len(fault.problems)} settings are wrong:", *listed])
    if isinstance(fault, RegunError):
        return WRONG, str(fault)
    if isinstance(fault, KeyboardInterrupt):
        return INTERRUPTED, "interrupted; what was finished is kept. Run the same command again to go on."
    said = " ".join(f"{type(fault).__name__}: {fault}".split())
    return CRASHED, f"{said[:1000]} (this should not have happened; --traceback shows where it did)"


def _complain(text: str) -> None:
    """Say it without what a terminal would obey, and shorten what nobody would read; the advice is at the end."""
    from regun.show.text import plain

    lines = [plain(line) for line in text.split("\n")]
    lines = [line if len(line) <= LONGEST_LINE else f"{line[:1000]} ... {line[-500:]}" for line in lines]
    print("regun: " + "\n".join(lines), file=sys.stderr, flush=True)


class _Steady:
    """A stream that goes on when it cannot be written: what is not read is lost, and nothing else.

    A reader who is gone (`head`, say) is no fault; any other is kept in `fault`. Letters that the stream's encoding
    does not have are written as their numbers.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.fault: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._kept(lambda stream: stream.write(_fitting(text, stream.encoding)))
        return len(text)

    def flush(self) -> None:
        self._kept(lambda stream: stream.flush())

    def _kept(self, show: Callable[[TextIO], object]) -> None:
        if self._stream is None:
            return
        try:
            show(self._stream)
        except OSError as fault:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            self.fault = self.fault if isinstance(fault, BrokenPipeError) else fault


def _fitting(text: str, encoding: str | None) -> str:
    known = encoding or "utf-8"
    try:
        text.encode(known)
    except UnicodeEncodeError:
        return text.encode(known, "backslashreplace").decode(known)
    return text
