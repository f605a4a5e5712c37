"""What a study leaves in its folder: tables in every format, the report, the figure, the study itself."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from regun.errors import RegunError
from regun.page.frame import Extra
from regun.page.look import save_figure
from regun.study.collect import closeup
from regun.study.figure import tradeoff_figure
from regun.study.formats import render
from regun.study.plan import request_label
from regun.study.report import build_report
from regun.study.results import Results, TradeOff
from regun.study.table import Table
from regun.study.workshop import Workshop
from regun.tune.report import sections

TABLES = {"markdown": "table.md", "latex": "table.tex", "csv": "table.csv", "json": "table.json"}
FIGURES = (".png", ".svg", ".pdf")


def write_tables(table: Table, out: Path) -> list[Path]:
    """The table in every format that has a file."""
    return [write_text(out / name, render(table, format, wide=True)) for format, name in TABLES.items()]


def write_report(workshop: Workshop, results: Results, found: Sequence[TradeOff], path: Path) -> Path:
    """The HTML report with close-ups of every forget request."""
    closeups = [closeup(workshop, forget) for forget in workshop.study.forget]
    return write_text(path, build_report(results, [c for c in closeups if c is not None], found, _searches(workshop)))


def write_figures(found: Sequence[TradeOff], out: Path) -> list[Path]:
    """The trade-off figure of every forget request, in every format."""
    paths: list[Path] = []
    for tradeoff in found:
        stem = "tradeoff" if len(found) == 1 else f"tradeoff-{safe_name(tradeoff.label)}"
        figure = tradeoff_figure(tradeoff)
        paths += [_whole(out / f"{stem}{suffix}", lambda p, f=figure: save_figure(f, p)) for suffix in FIGURES]
    return paths


def _searches(workshop: Workshop) -> list[Extra]:
    """How the settings of a study that tunes were found, request by request."""
    parts: list[Extra] = []
    for forget in workshop.study.forget:
        tasks = [t for t in workshop.plan.tasks.values() if t.kind == "tune" and t.forget == forget]
        over = {workshop.study.title_of(task.entry): workshop.tuned(task) for task in tasks}
        found = {title: tuned for title, tuned in over.items() if tuned is not None}
        parts += sections(found, f"Search of settings, {request_label(forget)}") if found else []
    return parts


def safe_name(label: str) -> str:
    """A label as part of a file name."""
    return "".join(c if c.isalnum() else "-" for c in label).strip("-").replace("--", "-")


def write_text(path: Path, text: str) -> Path:
    """A text file that is there whole or not at all."""
    return _whole(path, lambda p: p.write_text(text, encoding="utf-8"))


def _whole(path: Path, write: Callable[[Path], object]) -> Path:
    temporary = path.with_name(f".new-{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as fault:
        raise RegunError(f"cannot write {path}: {fault.strerror or fault}. Name a folder you may write.") from None
    return path
