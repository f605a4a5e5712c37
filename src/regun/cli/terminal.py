"""What a command leaves: progress and complaints on standard error, JSON on standard output, files."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from regun.errors import RegunError
from regun.progress import ProgressLine
from regun.render.numbers import duration, fixed, settings_text
from regun.render.tables import plain

if TYPE_CHECKING:
    from regun.experiments.search import Trial
    from regun.training.job import Callbacks, Epoch, Progress

LONGEST_LINE = 2000
"""Letters of a complaint: whoever gives a name of a megabyte need not read it again."""


class Display:
    """One line of progress: rewritten in place on a terminal, otherwise a line now and then."""

    def __init__(self, title: str, quiet: bool = False) -> None:
        self.title, self.quiet = title, quiet
        self.line = ProgressLine(title, duration)

    @property
    def live(self) -> bool:
        return self.line.live

    def progress(self, p: Progress) -> None:
        if not self.quiet:
            self.line.progress(p)

    def epoch(self, e: Epoch) -> None:
        if not self.quiet:
            self.line.epoch(e)

    def watch(self) -> Callbacks:
        """Shows a run of the room `runs`: its epochs, its steps, and where it goes on."""
        from regun.training.job import Callbacks

        return Callbacks(
            lambda epoch, _: self.epoch(epoch),
            self.progress,
            lambda epoch, step: self.note(f"going on at epoch {epoch + 1}, step {step + 1}"),
        )

    def note(self, text: str) -> None:
        if not self.quiet:
            self.close()
            print(f"{self.title}: {text}", file=sys.stderr, flush=True)

    def counter(self, what: str) -> Callable[[int, int], None]:
        """A callback (done, total) for work that is counted."""

        def count(done: int, total: int) -> None:
            if not self.quiet:
                self.line.show(f"{what} {done:,}/{total:,}", last=done == total)

        return count

    def trials(self, total: int) -> Callable[[Trial], None]:
        """A callback for the trials of a search, each as it ends."""

        def tell(trial: Trial) -> None:
            state = "  DIVERGED" if trial.diverged else ""
            score, values = f"score {fixed(trial.score)}{state}", settings_text(trial.values)
            self.note(f"trial {trial.number + 1}/{total}  {score}  {values}  {duration(trial.seconds)}")

        return tell

    def close(self) -> None:
        if not self.quiet:
            self.line.close()


@contextmanager
def show_notes(display: Display) -> Generator[None]:
    """Inside, what a method says of its plans and findings is shown as notes."""
    handler = _Notes(display)
    ours, plans = logging.getLogger("regun"), logging.getLogger("regun.auto")
    level = plans.level
    ours.addHandler(handler)
    plans.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        plans.setLevel(level)


class _Notes(logging.Handler):
    """Plans as notes of a display; warnings are in the result, which the command shows."""

    def __init__(self, display: Display) -> None:
        super().__init__(logging.INFO)
        self.display = display

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "regun.auto":
            self.display.note(record.getMessage())


def emit(value: Any) -> None:
    """JSON for machines, on standard output."""
    print(json.dumps(value, indent=2, allow_nan=False))


def write(path: Path, content: str | bytes) -> Path:
    """A file that is there whole or not at all; its folder is made."""
    from regun.artifacts import write_file

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise RegunError(f"cannot write {path}: {fault.strerror or fault}. Name a folder you may write.") from None
    write_file(path, content.encode() if isinstance(content, str) else content)
    return path


def print_error(text: str) -> None:
    """Say it without what a terminal would obey, and shorten what nobody would read; the advice is at the end."""
    lines = [plain(line) for line in text.split("\n")]
    lines = [line if len(line) <= LONGEST_LINE else f"{line[:1000]} ... {line[-500:]}" for line in lines]
    print("regun: " + "\n".join(lines), file=sys.stderr, flush=True)


class SafeStream:
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
