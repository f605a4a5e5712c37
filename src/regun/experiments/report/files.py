"""What a study leaves in its folder, as names and contents: report, tables in every format, plain rows and figures."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from regun.experiments.report.cost_figure import cost_figure
from regun.experiments.report.formats import render
from regun.experiments.report.page import build_report
from regun.experiments.report.tradeoff_figure import tradeoff_figure
from regun.experiments.search.trials import SearchResult
from regun.experiments.study.cost import cost_panels
from regun.experiments.study.details import RequestDetails
from regun.experiments.study.results import Results
from regun.experiments.study.tradeoff import TradeOff
from regun.render.figure_style import figure_bytes
from regun.render.tables import csv_of

TABLES = {"markdown": "table.md", "latex": "table.tex", "csv": "table.csv", "json": "table.json"}
FIGURES = (".png", ".svg", ".pdf")


def study_files(
    results: Results,
    details: Sequence[RequestDetails],
    tradeoffs: Sequence[TradeOff],
    searches: Sequence[tuple[str, Mapping[str, SearchResult]]],
) -> dict[str, bytes]:
    """Return names and contents of everything a study shows, the report first."""
    texts = {"report.html": build_report(results, details, tradeoffs, searches)}
    texts |= {name: render(results, format, wide=True) for format, name in TABLES.items()}
    texts["rows.csv"] = csv_of(results.rows())
    panels = {block.label: panels for block in results.blocks if (panels := cost_panels(results, block))}
    costs = figure_files("cost", {label: cost_figure(parts) for label, parts in panels.items()})
    return {name: text.encode() for name, text in texts.items()} | tradeoff_files(tradeoffs) | costs


def tradeoff_files(tradeoffs: Sequence[TradeOff]) -> dict[str, bytes]:
    """Return the trade-off figure of every forget request, in every format."""
    return figure_files("tradeoff", {one.label: tradeoff_figure(one) for one in tradeoffs})


def figure_files(kind: str, figures: Mapping[str, Figure]) -> dict[str, bytes]:
    """Return figures by the label of their request, in every format; one alone needs no label in its name."""
    return {
        (kind if len(figures) == 1 else f"{kind}-{safe_name(label)}") + suffix: figure_bytes(figure, suffix)
        for label, figure in figures.items()
        for suffix in FIGURES
    }


def safe_name(label: str) -> str:
    """A label as part of a file name.

    >>> safe_name("10 % of class 3")
    '10-of-class-3'
    """
    return "-".join("".join(c if c.isalnum() else " " for c in label).split())
