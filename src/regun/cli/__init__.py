"""The command line: its commands and their errors; imports nothing heavy, so that help is quick."""

import argparse
import importlib
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO, cast

from regun.cli.arguments import BAD_INPUT, CRASHED, INTERRUPTED, for_shell
from regun.cli.parser import build_parser
from regun.cli.terminal import SafeStream, print_error
from regun.errors import RegunError, SettingsError

SHARED = ("train", "unlearn", "prepare", "audit")
"""Commands whose work several processes share."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; what its exit code means is in `arguments.EXIT_CODES` and at the end of `regun --help`."""
    out, errors = SafeStream(sys.stdout), SafeStream(sys.stderr)
    with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, errors)), _sigterm_as_interrupt():
        code = _run_command(build_parser().parse_args(argv))
        out.flush()  # so that a reader who is gone shows here, not when Python ends
        if out.fault is not None and code == 0:
            print_error(f"standard output cannot be written: {out.fault.strerror or out.fault}.")
            code = CRASHED
    return code


@contextmanager
def _sigterm_as_interrupt() -> Generator[None]:
    """Treat SIGTERM, by which containers and schedulers end a program, like Ctrl-C: worker processes end too."""
    in_thread = threading.current_thread() is not threading.main_thread()
    if in_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run_command(args: argparse.Namespace) -> int:
    """Return the exit code of the command, or of the error that it raised."""
    module, _, function = args.run.partition(":")
    try:
        with ExitStack() as args.on_exit, _shared(args):  # closes displays before an error is printed
            return getattr(importlib.import_module(f"regun.cli.{module}"), function)(args)
    except BaseException as fault:  # sys.exit too: in a user's code it is not success
        if "traceback" in args or os.environ.get("REGUN_TRACEBACK", "0") not in ("", "0"):
            traceback.print_exc()
        code, text = _explain(fault)
        text = for_shell(text, args)
        rank = os.environ.get("RANK", "0") if _is_launched() else "0"
        print_error(text if rank == "0" else f"process {rank}: {text}")
        return code


def _is_launched() -> bool:
    """Return True if this is one of several processes that `torchrun` started."""
    return "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"


@contextmanager
def _shared(args: argparse.Namespace) -> Generator[None]:
    """Share the work of a command among the processes of `torchrun`; the first alone prints results and progress."""
    if not _is_launched():
        yield
        return
    if args.command not in SHARED:
        raise RegunError(
            f"regun {args.command} runs in one process; start it without torchrun. Commands that several processes "
            f"share: {', '.join(SHARED)}."
        )
    from regun.parallel import is_writer, joined

    with joined(), ExitStack() as output:
        if not is_writer():
            args.quiet = True
            output.enter_context(redirect_stdout(output.enter_context(open(os.devnull, "w"))))
        yield


def _explain(fault: BaseException) -> tuple[int, str]:
    """Return the exit code and the message of an error."""
    if isinstance(fault, SettingsError) and len(fault.problems) > 1:
        listed = (f"  - {problem}" for problem in fault.problems)
        return BAD_INPUT, "\n".join([f"{len(fault.problems)} settings are wrong:", *listed])
    if isinstance(fault, RegunError):
        return BAD_INPUT, str(fault)
    if isinstance(fault, KeyboardInterrupt):
        return INTERRUPTED, "interrupted; finished work is stored. Run the same command again to resume."
    torch_memory = isinstance(fault, RuntimeError) and re.search("allocate memory|out of memory", str(fault))
    if isinstance(fault, MemoryError) or torch_memory:
        return BAD_INPUT, (
            "there is not enough memory; finished work is stored. Close other programs, or use fewer examples, workers "
            "or references or smaller batches, and run the same command again to resume."
        )
    text = " ".join(f"{type(fault).__name__}: {fault}".split())
    return CRASHED, f"{text[:1000]} (unexpected error; --traceback shows where)"
