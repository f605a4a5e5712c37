"""The figures of the page: gaps against the noise floor, relearning, ROC curves, confidence, learning curves."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from regun.auditing.predictions import FloatArray
from regun.experiments.study.details import BINS
from regun.experiments.study.results import Floor, Row
from regun.render.figure_style import ACCENT, COLOURS, INK, MUTED, NOISE, UNIT, label_of, look
from regun.render.numbers import fixed, shortened


class LineStyle(NamedTuple):
    """What a line is called, its colour and its dashes."""

    name: str
    colour: str
    dashes: Any


SPLIT_LINES = {
    "forget": LineStyle("forgotten", ACCENT, "-"),
    "heldout": LineStyle("held out", COLOURS[1], (0, (4, 1.6))),
    "test": LineStyle("test", INK, (0, (1.2, 1.3))),
}
"""The three groups of examples whose confidence is shown."""
ROLE_LINES = {
    "guessing": LineStyle("guessing", MUTED, (0, (1, 2.2))),
    "reference": LineStyle("references", MUTED, "-"),
    "base": LineStyle("Base", COLOURS[1], (0, (4, 1.6))),
    "retrain": LineStyle("Retrain", INK, (0, (1.2, 1.3))),
    "method": LineStyle("this method", ACCENT, "-"),
}
"""Curves by whose they are, in the order in which they are drawn."""
_CONFIDENCES = (50, 99, 1, 99.99, 0.01, 90, 10)
"""Ticks of a confidence axis in percent, the most useful first."""


def gap_figure(rows: Sequence[Row], gap: str, floor: Floor | None, label: str) -> Figure:
    """Draw the distance of every row to Retrain, in this order, run by run; the band is the noise floor."""
    with look():
        longest = max((len(row.title) for row in rows), default=0)
        left = min(161.0, 20.0 + 6.4 * longest)
        height = 62 + 24 * len(rows)
        figure = Figure(figsize=(400 * UNIT, height * UNIT))
        axes = figure.add_axes((left / 400, 44 / height, (400 - 48 - left) / 400, (height - 54) / height))
        axes.tick_params(labelsize=11.5)
        axes.xaxis.label.set_fontsize(11.5)
        cells = [row.cells[gap] for row in rows]
        values = [v for cell in cells for v in (cell.mean, *(one.value for one in cell.by_run)) if math.isfinite(v)]
        positive = [v for v in (*values, floor.largest if floor else 0.0) if v > 0]
        logarithmic = bool(positive) and max(positive) > 6 * float(np.median(positive))
        if logarithmic:
            axes.set_xscale("log")
        if floor is not None:
            axes.axvspan(1e-9 if logarithmic else 0, floor.largest, color=NOISE, alpha=0.17, lw=0)
            axes.axvline(floor.mean, color=NOISE, lw=1.3, linestyle=(0, (4, 2)))
            if floor.limit > floor.largest:
                axes.axvspan(floor.largest, floor.limit, color=NOISE, alpha=0.07, lw=0)
        for place, row in enumerate(rows):
            _draw_row(axes, place, row, gap)
        axes.set(ylim=(len(rows) - 0.4, -0.6), xlabel=f"{label} (points{', log axis' if logarithmic else ''})")
        _gap_limits(axes, values, floor, logarithmic)
        axes.set_yticks(range(len(rows)), [shortened(label_of(row.title), 22, tail=5) for row in rows])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.spines["left"].set_visible(False)
        axes.grid(True, axis="x")
        axes.set_axisbelow(True)
    return figure


def _gap_limits(axes: Axes, values: Sequence[float], floor: Floor | None, logarithmic: bool) -> None:
    top = max([*values, floor.limit if floor else 0.0, 1e-6])
    if not logarithmic:
        axes.set_xlim(0, 1.06 * top)
        return
    low = min(v for v in (*values, floor.mean if floor else top) if v > 0)
    axes.set_xlim(low / 2, 1.5 * top)
    ticks = [m * 10.0**e for e in range(-6, 7) for m in (1, 2, 5) if low / 2 <= m * 10.0**e <= 1.5 * top]
    step = -(-len(ticks) // 7)
    axes.xaxis.set_major_locator(FixedLocator(ticks[::step]))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{t:g}" for t in ticks[::step]]))
    axes.xaxis.set_minor_locator(NullLocator())


def _draw_row(axes: Axes, place: int, row: Row, gap: str) -> None:
    mean, runs = row.cells[gap].mean, [one.value for one in row.cells[gap].by_run]
    if not math.isfinite(mean):
        return
    method = row.kind == "method"
    colour = ACCENT if method else MUTED
    if axes.get_xscale() == "linear":  # a log axis has no zero to start from
        axes.plot([0.0, mean], [place, place], color=colour, lw=1.1, alpha=0.45)
    if len(runs) > 1:
        axes.plot(runs, [place] * len(runs), "|", color=colour, markersize=8, alpha=0.8)
    axes.plot(
        [mean],
        [place],
        "o" if method else "s",
        color=colour,
        markersize=7.5,
        markerfacecolor=colour if method else "white",
        label=label_of(row.title),
    )
    axes.annotate(
        fixed(mean),
        (max(mean, *runs), place),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        fontsize=11,
        color=INK,
        annotation_clip=False,
        bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.6},
    )


def roc_figure(curves: Mapping[str, tuple[FloatArray, FloatArray]], nonmembers: int) -> Figure:
    """Draw ROC curves on log axes, by role; rates between 0 and 1, those below the first visible one at the edge."""
    low = 10.0 ** math.floor(math.log10(1.0 / max(nonmembers, 10)))
    with look():
        figure, axes = _panel((190, 186), left=42, bottom=37)
        dots = np.geomspace(low, 1.0, 2)
        guessing = ROLE_LINES["guessing"]
        axes.plot(dots, dots, color=guessing.colour, linestyle=guessing.dashes, lw=1.0)
        for role in sorted(curves, key=list(ROLE_LINES).index):
            _, colour, dashes = ROLE_LINES[role]
            fpr, tpr = (np.clip(side, low, 1.0) for side in curves[role])
            axes.plot(fpr, tpr, color=colour, linestyle=dashes, lw=1.5, drawstyle="steps-post", label=role)
        axes.set(xscale="log", yscale="log", xlim=(low, 1.15), ylim=(low, 1.15))
        axes.set_xlabel("false positive rate (%)", labelpad=3)
        axes.set_ylabel("true positive rate (%)", labelpad=2)
        for axis in (axes.xaxis, axes.yaxis):
            ticks = [10.0**e for e in range(round(math.log10(low)), 1)]
            axis.set_major_locator(FixedLocator(ticks))
            axis.set_major_formatter(FixedFormatter([f"{100 * t:g}" for t in ticks]))
            axis.set_minor_locator(NullLocator())
        axes.grid(True)
    return figure


def histogram_figure(shares: Mapping[str, FloatArray], limits: tuple[float, float], top: float) -> Figure:
    """Draw the confidence in the true label: percent of the examples of each split per bin, on a logit axis."""
    with look():
        figure, axes = _panel((190, 142), left=38, bottom=37)
        edges = np.linspace(*limits, BINS + 1)
        for split, values in shares.items():
            _, colour, dashes = SPLIT_LINES[split]
            axes.stairs(values, edges, color=colour, linestyle=dashes, lw=1.5, label=split)
            if split == "forget":
                axes.stairs(values, edges, color=colour, alpha=0.2, fill=True, lw=0)
        ticks: dict[float, str] = {}  # places and texts of as many confidences as fit
        for confidence in _CONFIDENCES:
            place = math.log(confidence / (100 - confidence))
            far = all(abs(place - other) > 0.19 * (limits[1] - limits[0]) for other in ticks)
            if far and limits[0] <= place <= limits[1]:
                ticks[place] = f"{confidence:.6g}"
        axes.set(xlim=limits, ylim=(0, 1.06 * top))
        axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
        axes.xaxis.set_major_formatter(FixedFormatter(list(ticks.values())))
        axes.set_xlabel("confidence (%)", labelpad=3)
        axes.set_ylabel("share (%)", labelpad=2)
        axes.locator_params(axis="y", nbins=4, integer=True)
        axes.grid(True, axis="y")
        axes.set_axisbelow(True)
    return figure


def learning_figure(runs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Draw the loss of every epoch, one line per run; epochs without a finite loss are left out."""
    with look():
        figure, axes = _panel((190, 138), left=42, bottom=37)
        for number, (epochs, losses) in enumerate(runs):
            points = [(e, loss) for e, loss in zip(epochs, losses, strict=True) if math.isfinite(loss)]
            x, y = [e for e, _ in points], [loss for _, loss in points]
            marker = "o" if len(points) < 3 else ""
            alpha = 1.0 if number == 0 else 0.45
            axes.plot(x, y, color=ACCENT, lw=1.5, alpha=alpha, marker=marker, markersize=4)
        axes.set_xlabel("epoch", labelpad=3)
        axes.locator_params(axis="y", nbins=4)
        axes.locator_params(axis="x", nbins=5, integer=True)
        axes.grid(True, axis="y")
    return figure


def relearning_figure(curves: Sequence[tuple[str, FloatArray]], limits: Sequence[tuple[float, float]]) -> Figure:
    """Draw relearning over the steps: forget accuracy above, attack AUC below.

    A curve is a role and, one row each, steps, accuracies and AUCs; `limits` are the ends of the two upright axes.
    """
    with look():
        figure, below = _panel((190, 236), left=42, bottom=37, top=127)
        above = _small_axes(figure, left=42, bottom=139, top=229)
        for axes, values, name in ((above, 1, "forget acc. (%)"), (below, 2, "AUC (%)")):
            for role, curve in curves:
                _, colour, dashes = ROLE_LINES[role]
                width, alpha = (0.8, 0.6) if role == "reference" else (1.5, 1.0)
                axes.plot(curve[0], curve[values], color=colour, linestyle=dashes, lw=width, alpha=alpha)
            axes.set(ylim=limits[values - 1])
            axes.set_ylabel(name, labelpad=2)
            axes.locator_params(axis="y", nbins=4)
            axes.locator_params(axis="x", nbins=4, integer=True)
            axes.grid(True, axis="y")
        above.tick_params(labelbottom=False)
        below.set_xlabel("steps on retained examples", labelpad=3)
    return figure


def _panel(size: tuple[int, int], *, left: int, bottom: int, top: int | None = None) -> tuple[Figure, Axes]:
    """A small figure with room for ticks and labels at fixed places, so that panels in a row line up."""
    width, height = size
    figure = Figure(figsize=(width * UNIT, height * UNIT))
    return figure, _small_axes(figure, left=left, bottom=bottom, top=top or height - 7)


def _small_axes(figure: Figure, *, left: int, bottom: int, top: int) -> Axes:
    width, height = (float(side) / UNIT for side in figure.get_size_inches())
    axes = figure.add_axes((left / width, bottom / height, (width - left - 6) / width, (top - bottom) / height))
    axes.tick_params(length=2.5, pad=2.5, labelsize=9.5)
    axes.xaxis.label.set_fontsize(9.5)
    axes.yaxis.label.set_fontsize(9.5)
    return axes
