"""The command line: arguments to the rooms below and back."""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from typing import Any, TextIO, cast

from regun.cli.parser import build_parser
from regun.errors import RegunError, SettingsError

STEADY = ("forget", "verify")
"""Commands whose work and exit code matter also when nobody reads what they print."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 = done, 1 = a check failed, 2 = bad input, 130 = interrupted."""
    args = build_parser().parse_args(argv)
    try:
        return _run(args)
    except SettingsError as fault:
        count = len(fault.problems)
        _complain(
            "\n".join([f"{count} settings are wrong:", *(f"  - {p}" for p in fault.problems)])
            if count > 1
            else str(fault)
        )
        return 2
    except RegunError as fault:
        _complain(str(fault))
        return 2
    except KeyboardInterrupt:
        _complain("interrupted; what was finished is kept. Run the same command again to go on.")
        return 130
    except BrokenPipeError:  # the reader of our output, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(args: argparse.Namespace) -> int:
    module, _, function = args.run.partition(":")
    with ExitStack() as stack:
        if module in STEADY:
            stack.enter_context(redirect_stdout(cast(TextIO, _Steady(sys.stdout))))
            stack.enter_context(redirect_stderr(cast(TextIO, _Steady(sys.stderr))))
        code = getattr(importlib.import_module(f"regun.cli.{module}"), function)(args)
        sys.stdout.flush()  # so that a reader who is gone shows here, not when Python ends
    return code


class _Steady:
    """A stream that goes on when its reader is gone: what is not read is lost, and nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._kept(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._kept(self._stream.flush)

    def _kept(self, show: Callable[[], object]) -> None:
        try:
            show()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def _complain(text: str) -> None:
    with suppress(BrokenPipeError):  # nobody reads it; the exit code still says it
        print(f"regun: {text}", file=sys.stderr, flush=True)
