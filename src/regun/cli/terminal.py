"""What people see: progress on standard error, and JSON for machines on standard output."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from regun.runs.progress import ProgressLine
from regun.show.numbers import duration

if TYPE_CHECKING:
    from regun.training.job import Epoch, Progress


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

    def close(self) -> None:
        if not self.quiet:
            self.line.close()


@contextmanager
def heard(display: Display) -> Generator[None]:
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
