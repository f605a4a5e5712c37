"""A progress line: rewritten in place in a terminal or a notebook, otherwise a new line every few seconds."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from regun.render.numbers import duration

if TYPE_CHECKING:
    from regun.training.job import Epoch, Progress

INTERVAL = 5.0
"""Seconds between two lines where a line cannot be rewritten."""


class ProgressLine:
    """Writes to standard error: `title: epoch 3/20  step 7/15  loss 0.4210  812 examples/s  14 s left`."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.notebook = "ipykernel" in sys.modules
        self.live = sys.stderr.isatty() or self.notebook
        self._shown, self._width = 0.0, 0

    def progress(self, p: Progress) -> None:
        where = f"epoch {p.epoch}/{p.epochs}  step {p.step}/{p.steps}"
        speed, left = f"{p.images_per_second:,.0f} examples/s", duration(p.seconds_left)
        self.show(f"{where}  loss {p.loss:.4f}  {speed}  {left} left")

    def epoch(self, e: Epoch) -> None:
        speed, left = f"{e.images_per_second:,.0f} examples/s", duration((e.epochs - e.number) * e.seconds)
        line = f"epoch {e.number}/{e.epochs}  loss {e.loss:.4f}  lr {e.lr:.3g}  {speed}  {left} left"
        self.show(line, last=e.number == e.epochs)

    def show(self, text: str, last: bool = False) -> None:
        """Write the line; the last one is not rewritten."""
        now = time.monotonic()
        if not self.live and not last and now - self._shown < INTERVAL:
            return
        line = f"{self.title}: {text}"
        if not self.live:
            sys.stderr.write(f"{line}\n")
        elif self.notebook:  # where no escape code empties a line
            sys.stderr.write(f"\r{line:<{self._width}}" + ("\n" if last else ""))
        else:
            sys.stderr.write(f"\r\033[K{line}" + ("\n" if last else ""))
        sys.stderr.flush()
        self._shown = 0.0 if self.live and last else now
        self._width = 0 if last else len(line)

    def close(self) -> None:
        """End a line that was being rewritten."""
        if self.live and self._shown:
            sys.stderr.write("\n")
            sys.stderr.flush()
        self._shown, self._width = 0.0, 0
