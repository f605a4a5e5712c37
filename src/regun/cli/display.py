"""Progress of one command on standard error: a bar on a terminal, otherwise a plain line every few seconds."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from regun.progress import ProgressLine
from regun.render.numbers import duration, fixed, settings_text
from regun.render.tables import plain
from regun.training import job

if TYPE_CHECKING:
    from regun.experiments.search import Trial


class Display(ProgressLine):
    """Shows epochs, steps, counts and notes of one command; nothing if `quiet`."""

    def __init__(self, title: str, quiet: bool = False) -> None:
        super().__init__(title)
        self.quiet, self.live = quiet, sys.stderr.isatty()
        self.fraction = 0.0
        self.bar: Progress | None = None

    def progress(self, p: job.Progress) -> None:
        self.fraction = (p.epoch - 1 + p.step / p.steps) / p.epochs
        super().progress(p)

    def epoch(self, e: job.Epoch) -> None:
        self.fraction = e.number / e.epochs
        super().epoch(e)

    def callbacks(self) -> job.Callbacks:
        """Return callbacks that show the epochs and steps of a run, and where it resumes."""
        return job.Callbacks(
            lambda epoch, _: self.epoch(epoch),
            self.progress,
            lambda epoch, step: self.note(f"resuming at epoch {epoch + 1}, step {step + 1}"),
        )

    def counter(self, name: str) -> Callable[[int, int], None]:
        """Return a callback (done, total) for work that is counted."""

        def count(done: int, total: int) -> None:
            self.fraction = done / total
            self.show(f"{name} {done:,}/{total:,}", last=done == total)

        return count

    def trials(self, total: int) -> Callable[[Trial], None]:
        """Return a callback for the trials of a search."""

        def on_trial(trial: Trial) -> None:
            score = fixed(trial.score) + ("  DIVERGED" if trial.diverged else "")
            settings, seconds = settings_text(trial.values), duration(trial.seconds)
            self.note(f"trial {trial.number + 1}/{total}  score {score}  {settings}  {seconds}")

        return on_trial

    def show(self, text: str, last: bool = False) -> None:
        """Show the state of the work; the last state stays on the screen."""
        if self.quiet:
            return
        if not self.live:
            super().show(text, last)
            return
        if self.bar is None:
            self.bar = progress_bars(stderr_console())
            self.bar.add_task(self.title, total=1.0, text="")
            self.bar.start()
        self.bar.update(self.bar.task_ids[0], completed=self.fraction, text=text)
        if last:
            self.close()

    def note(self, text: str, *, always: bool = False) -> None:
        """Write a line above the bar; with `always` also if the display is quiet."""
        if always or not self.quiet:
            write_line(self.bar.console if self.bar else stderr_console(), f"{self.title}: {text}")

    def close(self) -> None:
        """Stop the bar and give the terminal back."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def open_display(args: argparse.Namespace, title: str) -> Display:
    """Return the display of a command; it closes when the command ends, however it ends."""
    display = Display(title, args.quiet)
    args.on_exit.callback(display.close)
    return display


def stderr_console() -> Console:
    """Return a console that prints text as it is: no markup, no colored numbers."""
    return Console(stderr=True, markup=False, highlight=False, emoji=False)


def progress_bars(console: Console) -> Progress:
    """Return bars with a description before and the field `text` after each; standard output is left alone."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[text]}", markup=False),
    )
    return Progress(*columns, console=console, redirect_stdout=False)


def write_line(console: Console, text: str) -> None:
    """Write one line: above the bars on a terminal, and as plain text elsewhere."""
    if sys.stderr.isatty():
        console.print(Text(plain(text)), soft_wrap=True)
    else:
        print(plain(text), file=sys.stderr, flush=True)


@contextmanager
def show_notes(display: Display) -> Generator[None]:
    """Inside, show what `regun.auto` logs of its plan and results; warnings are part of a command's result."""
    handler = logging.Handler(logging.INFO)
    handler.addFilter(lambda record: record.name == "regun.auto")
    handler.emit = lambda record: display.note(record.getMessage())
    package, plans = logging.getLogger("regun"), logging.getLogger("regun.auto")
    level = plans.level
    package.addHandler(handler)
    plans.setLevel(logging.INFO)
    try:
        yield
    finally:
        package.removeHandler(handler)
        plans.setLevel(level)
