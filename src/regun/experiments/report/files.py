"""What a study leaves in its folder, as names and contents: report, tables in every format, plain rows and figures."""

from collections.abc import Mapping, Sequence

from regun.experiments.report.cost_figure import cost_figure
from regun.experiments.report.formats import render
from regun.experiments.report.page import build_report
from regun.experiments.report.tradeoff_figure import tradeoff_figure
from regun.experiments.search.trials import SearchResult
from regun.experiments.study.cost import cost_comparisons
from regun.experiments.study.details import RowDetails
from regun.experiments.study.results import Results
from regun.experiments.study.tradeoff import TradeOff
from regun.render.figure_style import figure_bytes
from regun.render.tables import csv_of

TABLES = {"markdown": "table.md", "latex": "table.tex", "csv": "table.csv", "json": "table.json"}
FIGURES = (".png", ".svg", ".pdf")


def study_files(
    results: Results,
    closeups: Sequence[RowDetails],
    tradeoffs: Sequence[TradeOff],
    searches: Sequence[tuple[str, Mapping[str, SearchResult]]],
) -> dict[str, bytes]:
    """Everything a study shows, the report first."""
    texts = {"report.html": build_report(results, closeups, tradeoffs, searches)}
    texts |= {name: render(results, format, wide=True) for format, name in TABLES.items()}
    texts["rows.csv"] = csv_of(results.rows())
    return {name: text.encode() for name, text in texts.items()} | figure_files(tradeoffs) | cost_figure_files(results)


def figure_files(tradeoffs: Sequence[TradeOff]) -> dict[str, bytes]:
    """The trade-off figure of every forget request, in every format."""
    files: dict[str, bytes] = {}
    for found in tradeoffs:
        stem = "tradeoff" if len(tradeoffs) == 1 else f"tradeoff-{safe_name(found.label)}"
        figure = tradeoff_figure(found)
        files |= {f"{stem}{suffix}": figure_bytes(figure, suffix) for suffix in FIGURES}
    return files


def cost_figure_files(results: Results) -> dict[str, bytes]:
    """The cost figure of every forget request, in every format."""
    files: dict[str, bytes] = {}
    found = cost_comparisons(results)
    for one in found:
        stem = "cost" if len(found) == 1 else f"cost-{safe_name(one.label)}"
        figure = cost_figure(one)
        files |= {f"{stem}{suffix}": figure_bytes(figure, suffix) for suffix in FIGURES}
    return files


def safe_name(label: str) -> str:
    """A label as part of a file name.

    >>> safe_name("10 % of class 3")
    '10-of-class-3'
    """
    return "-".join("".join(c if c.isalnum() else " " for c in label).split())
