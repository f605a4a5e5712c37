"""What people see: progress on standard error, tables on standard output."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from regun.training.job import Epoch, Progress


class Display:
    """One line of progress: rewritten in place on a terminal, otherwise a line now and then."""

    def __init__(self, title: str, quiet: bool = False) -> None:
        self.title, self.quiet = title, quiet
        self.live = sys.stderr.isatty()
        self._printed = 0.0

    def progress(self, p: Progress) -> None:
        where = f"epoch {p.epoch}/{p.epochs}  step {p.step}/{p.steps}"
        self._show(f"{where}  loss {p.loss:.4f}  {p.images_per_second:,.0f} images/s  {duration(p.seconds_left)} left")

    def epoch(self, e: Epoch) -> None:
        speed, left = f"{e.images_per_second:,.0f} images/s", duration((e.epochs - e.number) * e.seconds)
        line = f"epoch {e.number}/{e.epochs}  loss {e.loss:.4f}  lr {e.lr:.3g}  {speed}  {left} left"
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


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns that line up: the first to the left, numbers to the right."""
    cells = [list(head), *[list(r) for r in rows]]
    widths = [max(len(r[i]) for r in cells) for i in range(len(head))]
    numeric = [all(_is_number(r[i]) for r in rows) and bool(rows) for i in range(len(head))]
    lines = [
        "  ".join(c.rjust(w) if n else c.ljust(w) for c, w, n in zip(r, widths, numeric, strict=True)).rstrip()
        for r in cells
    ]
    return "\n".join([lines[0], "-" * min(120, max(map(len, lines))), *lines[1:]])


def emit(value: Any) -> None:
    """JSON for machines, on standard output."""
    print(json.dumps(value, indent=2, allow_nan=False))


def _is_number(text: str) -> bool:
    return bool(text) and text.strip("-+±%., ").replace(",", "").replace(".", "", 1).split(" ")[0].isdigit()
