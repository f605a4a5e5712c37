"""What a study leaves in its folder, as names and contents: report, tables in every format, plain rows and figures."""

from collections.abc import Mapping, Sequence

from regun.show.formats import render
from regun.show.look import figure_bytes
from regun.show.report import build_report
from regun.show.text import csv_of
from regun.show.tradeoff import tradeoff_figure
from regun.study.closeup import Closeup
from regun.study.results import Results
from regun.study.tradeoff import TradeOff
from regun.tune.outcome import Tuned

TABLES = {"markdown": "table.md", "latex": "table.tex", "csv": "table.csv", "json": "table.json"}
FIGURES = (".png", ".svg", ".pdf")


def study_files(
    results: Results,
    closeups: Sequence[Closeup],
    tradeoffs: Sequence[TradeOff],
    searches: Sequence[tuple[str, Mapping[str, Tuned]]],
) -> dict[str, bytes]:
    """Everything a study shows, the report first."""
    texts = {"report.html": build_report(results, closeups, tradeoffs, searches)}
    texts |= {name: render(results, format, wide=True) for format, name in TABLES.items()}
    texts["rows.csv"] = csv_of(results.rows())
    return {name: text.encode() for name, text in texts.items()} | figure_files(tradeoffs)


def figure_files(tradeoffs: Sequence[TradeOff]) -> dict[str, bytes]:
    """The trade-off figure of every forget request, in every format."""
    files: dict[str, bytes] = {}
    for found in tradeoffs:
        stem = "tradeoff" if len(tradeoffs) == 1 else f"tradeoff-{safe_name(found.label)}"
        figure = tradeoff_figure(found)
        files |= {f"{stem}{suffix}": figure_bytes(figure, suffix) for suffix in FIGURES}
    return files


def safe_name(label: str) -> str:
    """A label as part of a file name.

    >>> safe_name("10 % of class 3")
    '10-of-class-3'
    """
    return "-".join("".join(c if c.isalnum() else " " for c in label).split())
