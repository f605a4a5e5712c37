"""Finished searches for settings: a table, three figures, a page, and the files of `regun tune --out`."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regun.experiments.search.objectives import OBJECTIVES
from regun.experiments.search.settings_file import format_settings
from regun.experiments.search.trials import SearchResult
from regun.render.figure_style import ACCENT, COLOURS, MUTED, UNIT, figure_bytes, label_of, look
from regun.render.numbers import fixed, settings_text
from regun.render.svg import Gallery
from regun.render.tables import csv_of
from regun.render.template import render

PACKAGE = "regun.experiments.report"
OTHER = COLOURS[1]
HEAD = ("method", "default", "best", "trials", "settings", "")


def tuning_files(results: Mapping[str, SearchResult], request: str, about: str) -> dict[str, bytes]:
    """Return names and contents of tuned.toml, trials.csv, trials.json, report.html and three figures."""
    remarks: dict[tuple[str, str], str] = {}
    for name, tuned in results.items():
        scores = f"score {fixed(tuned.best_score)}, default {fixed(tuned.default_score)}, {len(tuned.trials)} trials"
        remarks[request, name] = "\n".join(filter(None, (about, scores, tuned.note)))
    block = format_settings({request: {name: tuned.settings for name, tuned in results.items()}}, remarks)
    texts = {
        "tuned.toml": block,
        "trials.csv": trials_csv(results),
        "trials.json": json.dumps(
            {name: tuned.to_json() for name, tuned in results.items()}, indent=1, allow_nan=False
        ),
        "report.html": page(results, about, block),
    }
    figures = {f"{name}.svg": figure_bytes(draw(results), ".svg") for name, draw in FIGURES.items()}
    return {name: text.encode() for name, text in texts.items()} | figures


def page(results: Mapping[str, SearchResult], about: str, block: str) -> str:
    """Return the page of a search: a table, three figures, and the text of the settings file."""
    gallery = Gallery()
    view = searches_view(results, gallery)
    return render("tuning.html", PACKAGE, figures=gallery.css(), about=about, view=view, block=block)


def searches_view(
    results: Mapping[str, SearchResult], gallery: Gallery, *, title: str = "Search", link: str = "search"
) -> dict[str, Any]:
    """Return what the template `_searches.html` shows of searches with one objective."""
    objective = next(iter(results.values())).objective
    figures = {name: gallery.embed(draw(results), f"{title}: {name}") for name, draw in FIGURES.items()}
    rows = {"head": HEAD, "rows": summary_rows(results)}
    return {"link": link, "title": title, "objective": OBJECTIVES[objective], **rows, "figures": figures}


def summary_rows(results: Mapping[str, SearchResult]) -> list[list[str]]:
    """Return one row per method: score of the default, best score, trials, best settings, a remark."""
    return [
        [
            name,
            fixed(tuned.default_score),
            fixed(tuned.best_score),
            str(len(tuned.trials)),
            settings_text(tuned.settings) or "-",
            tuned.note or ("the default is kept" if tuned.best.number == 0 else ""),
        ]
        for name, tuned in results.items()
    ]


def trials_csv(results: Mapping[str, SearchResult]) -> str:
    """Return all trials of several methods as one table; settings and parts that a method lacks stay empty."""
    plain = ("score", "forgetting", "utility", "diverged", "model", "steps", "seconds")
    trials = [(name, trial) for name, tuned in results.items() for trial in tuned.trials]
    return csv_of(
        [
            {"method": name, "trial": t.number, **t.values, **{key: getattr(t, key) for key in plain}, **t.parts}
            for name, t in trials
        ]
    )


def history(results: Mapping[str, SearchResult]) -> Figure:
    """Draw the score of every trial and the best so far, one panel per method."""

    def draw(axes: Axes, tuned: SearchResult) -> None:
        numbers, scores = [t.number for t in tuned.trials], [t.score for t in tuned.trials]
        best = [min(scores[: k + 1]) for k in range(len(scores))]
        axes.scatter(numbers, scores, s=14, color=MUTED, label="trial")
        axes.step(numbers, best, where="post", color=ACCENT, label="best so far")
        axes.axhline(tuned.default_score, color=OTHER, linewidth=1.0, linestyle="--", label="default")
        finite = [t.score for t in tuned.trials if not t.diverged] or scores
        axes.set_ylim(0, 1.1 * max(*finite, 1.0))
        axes.set_xlabel("trial")

    return _panels(results, draw, "score (good: 0)")


def importance_bars(results: Mapping[str, SearchResult]) -> Figure:
    """Draw how much of the score's variation each setting explains, one panel per method."""
    from regun.experiments.search.tpe import importance  # an extra: Optuna

    def draw(axes: Axes, tuned: SearchResult) -> None:
        shares = importance(tuned)
        axes.barh(list(shares), list(shares.values()), color=ACCENT)
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of variation")
        if not shares:
            axes.set_yticks([])

    return _panels(results, draw, "")


def front(results: Mapping[str, SearchResult]) -> Figure:
    """Draw forgetting against utility, both best when small; the line joins the Pareto front."""

    def draw(axes: Axes, tuned: SearchResult) -> None:
        shown = [t for t in tuned.trials if not t.diverged] or list(tuned.trials)
        axes.scatter([t.utility for t in shown], [t.forgetting for t in shown], s=14, color=MUTED)
        line = [t for t in tuned.front if not t.diverged]
        axes.plot([t.utility for t in line], [t.forgetting for t in line], "o-", ms=4, color=ACCENT)
        axes.plot(tuned.best.utility, tuned.best.forgetting, "*", ms=12, color=OTHER)
        axes.set_xlabel("utility lost")

    return _panels(results, draw, "not forgotten")


FIGURES: dict[str, Callable[[Mapping[str, SearchResult]], Figure]] = {
    "history": history,
    "importance": importance_bars,
    "front": front,
}


def _panels(results: Mapping[str, SearchResult], draw: Callable[[Axes, SearchResult], None], ylabel: str) -> Figure:
    columns = min(4, len(results))
    rows = math.ceil(len(results) / columns)
    with look():
        figure = Figure(figsize=(210 * columns * UNIT, 180 * rows * UNIT), layout="constrained")
        grid: Any = figure.subplots(rows, columns, squeeze=False)
        for place, (name, tuned) in enumerate(results.items()):
            axes: Axes = grid[place // columns][place % columns]
            draw(axes, tuned)
            axes.set_title(label_of(name), loc="left")
            if place % columns == 0:
                axes.set_ylabel(ylabel)
        for place in range(len(results), rows * columns):
            grid[place // columns][place % columns].set_axis_off()
    return figure
