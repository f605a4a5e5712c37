"""The cost figure of a study: the gap to Retrain against the cost per request, as a matplotlib object."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from regun.experiments.study.cost import CostPanel, CostPoint
from regun.render.figure_style import INK, MUTED, NOISE, UNIT, label_of, look, series
from regun.render.numbers import shortened

TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
LEAST = 0.01
"""Cheaper methods are drawn at this share of a retraining, in percent."""


def cost_figure(panels: Sequence[CostPanel]) -> Figure:
    """Draw every method at its cost per request, retraining cut short as a curve, the noise floor as a band.

    The first panel shows the gap to Retrain; a second one, where relearning was run, forget accuracy after relearning.
    """
    titles = list(dict.fromkeys(point.title for panel in panels for point in panel.methods))
    styles = {title: series(number) for number, title in enumerate(titles)}
    with look():
        height = max(340, 60 + 17 * (len(titles) + 4))
        figure = Figure(figsize=((390 * len(panels) + 210) * UNIT, height * UNIT), layout="constrained")
        for number, panel in enumerate(panels):
            axes = figure.add_subplot(1, len(panels), number + 1)
            _anchors(axes, panel)
            for point in panel.methods:
                style = styles[point.title]
                _spread(axes, point, style.colour)
                once = "" if point.once is None else f" (once {point.once:.3g} %)"
                axes.plot(
                    [max(point.share, LEAST)],
                    [point.value],
                    linestyle="none",
                    marker=style.marker,
                    markersize=7.5,
                    color=style.colour,
                    label=shortened(label_of(point.title), 30) + once,
                    zorder=5,
                )
            _axes(axes, panel)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", labelspacing=0.35, handletextpad=0.6)
    return figure


def _anchors(axes: Axes, panel: CostPanel) -> None:
    """The noise floor, the base, and retraining: cut short and in full."""
    if panel.band is not None:
        axes.axhspan(*panel.band, color=NOISE, alpha=0.17, lw=0, label="noise floor", zorder=1)
    if panel.base is not None:
        axes.axhline(panel.base, color=MUTED, lw=1.1, linestyle=(0, (1.2, 1.6)), label="Base", zorder=2)
    curve: Sequence[CostPoint] = (*panel.shortened, panel.retrain)
    axes.plot(
        [point.share for point in curve],
        [point.value for point in curve],
        color=INK,
        lw=1.2,
        linestyle=(0, (4, 2)),
        marker="s",
        markersize=4.5,
        markevery=list(range(len(panel.shortened))),
        label="Retraining cut short" if panel.shortened else "_nolegend_",
        zorder=3,
    )
    for point in panel.shortened:
        _spread(axes, point, INK)
        note: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8.5, "color": MUTED, "ha": "center"}
        note["bbox"] = {"facecolor": "white", "alpha": 0.6, "linewidth": 0, "pad": 0.5}
        axes.annotate(f"{point.share:.0f} %", (point.share, point.value), xytext=(0, -14), **note)
    where = ([panel.retrain.share], [panel.retrain.value])
    axes.plot(*where, linestyle="none", marker="*", markersize=14, color=INK, label=label_of(panel.retrain.title))


def _spread(axes: Axes, point: CostPoint, colour: str) -> None:
    """A thin line of one sample deviation over seeds, or over the runs of one seed."""
    if point.std is not None:
        x = max(point.share, LEAST)
        axes.errorbar(x, point.value, yerr=point.std, fmt="none", ecolor=colour, elinewidth=0.9, alpha=0.55)


def _axes(axes: Axes, panel: CostPanel) -> None:
    shares = [max(point.share, LEAST) for point in (*panel.methods, *panel.shortened, panel.retrain)]
    low, high = 0.7 * min(shares), 1.4 * max(shares)
    axes.set(xscale="log", xlim=(low, high))
    ticks = [tick for tick in TICKS if low <= tick <= high]
    if len(ticks) > 9:
        ticks = [tick for tick in ticks if f"{tick:g}".strip("0.") == "1"]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("cost per request (% of retraining, log axis)")
    unit = "%" if panel.metric.endswith("_acc") else "points"
    axes.set_ylabel(f"{panel.label[:1].upper()}{panel.label[1:]} ({unit})")
    if unit == "points":
        axes.set_ylim(bottom=0)
    axes.grid(True)
    axes.set_axisbelow(True)
