"""What people see: progress on standard error, and JSON for machines on standard output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from regun.show.numbers import duration, fixed

if TYPE_CHECKING:
    from regun.training.job import Epoch, Progress


class Display:
    """One line of progress: rewritten in place on a terminal, otherwise a line now and then."""

    def __init__(self, title: str, quiet: bool = False) -> None:
        self.title, self.quiet = title, quiet
        self.live = sys.stderr.isatty()
        self._printed = 0.0

    def progress(self, p: Progress) -> None:
        where = f"epoch {p.epoch}/{p.epochs}  step {p.step}/{p.steps}"
        speed, left = f"{fixed(p.images_per_second, 0)} images/s", duration(p.seconds_left)
        self._show(f"{where}  loss {fixed(p.loss, 4)}  {speed}  {left} left")

    def epoch(self, e: Epoch) -> None:
        speed, left = f"{fixed(e.images_per_second, 0)} images/s", duration((e.epochs - e.number) * e.seconds)
        line = f"epoch {e.number}/{e.epochs}  loss {fixed(e.loss, 4)}  lr {e.lr:.3g}  {speed}  {left} left"
        self._show(line, last=e.number == e.epochs)

    def note(self, text: str) -> None:
        if not self.quiet:
            self.close()
            print(f"{self.title}: {text}", file=sys.stderr, flush=True)

    def counter(self, what: str) -> Callable[[int, int], None]:
        """A callback (done, total) for work that is counted."""
        return lambda done, total: self._show(f"{what} {done:,}/{total:,}", last=done == total)

    def close(self) -> None:
        if self.live and self._printed and not self.quiet:
            print(file=sys.stderr)
        self._printed = 0.0

    def _show(self, line: str, last: bool = False) -> None:
        now = time.monotonic()
        if self.quiet or (not self.live and not last and now - self._printed < 5.0):
            return
        text = f"{self.title}: {line}"
        if self.live:
            print(f"\r\033[K{text}", end="\n" if last else "", file=sys.stderr, flush=True)
            self._printed = 0.0 if last else now
        else:
            print(text, file=sys.stderr, flush=True)
            self._printed = now


def emit(value: Any) -> None:
    """JSON for machines, on standard output."""
    print(json.dumps(value, indent=2, allow_nan=False))
