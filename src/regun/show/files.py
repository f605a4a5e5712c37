"""What a study leaves in its folder: the report, tables in every format, plain rows and figures."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from regun.errors import RegunError
from regun.show.export import rows_csv
from regun.show.formats import render
from regun.show.look import save_figure
from regun.show.report import build_report
from regun.show.tradeoff import tradeoff_figure
from regun.study.closeup import Closeup
from regun.study.results import Results
from regun.study.tradeoff import TradeOff
from regun.tune.outcome import Tuned

TABLES = {"markdown": "table.md", "latex": "table.tex", "csv": "table.csv", "json": "table.json"}
FIGURES = (".png", ".svg", ".pdf")


def write_study(
    results: Results,
    closeups: Sequence[Closeup],
    tradeoffs: Sequence[TradeOff],
    searches: Sequence[tuple[str, Mapping[str, Tuned]]],
    out: Path,
) -> list[Path]:
    """Everything a study shows, the report first."""
    paths = [write_text(out / "report.html", build_report(results, closeups, tradeoffs, searches))]
    paths += [write_text(out / name, render(results, format, wide=True)) for format, name in TABLES.items()]
    paths.append(write_text(out / "rows.csv", rows_csv(results)))
    return paths + write_figures(tradeoffs, out)


def write_figures(tradeoffs: Sequence[TradeOff], out: Path) -> list[Path]:
    """The trade-off figure of every forget request, in every format."""
    paths: list[Path] = []
    for found in tradeoffs:
        stem = "tradeoff" if len(tradeoffs) == 1 else f"tradeoff-{safe_name(found.label)}"
        figure = tradeoff_figure(found)
        paths += [_whole(out / f"{stem}{suffix}", lambda p, f=figure: save_figure(f, p)) for suffix in FIGURES]
    return paths


def write_text(path: Path, text: str) -> Path:
    """A text file that is there whole or not at all."""
    return _whole(path, lambda p: p.write_text(text, encoding="utf-8", newline=""))


def safe_name(label: str) -> str:
    """A label as part of a file name.

    >>> safe_name("10 % of class 3")
    '10-of-class-3'
    """
    return "-".join("".join(c if c.isalnum() else " " for c in label).split())


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
