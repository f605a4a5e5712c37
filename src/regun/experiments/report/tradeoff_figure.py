"""The trade-off figure of a study: utility against forgetting, as a matplotlib object."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regun.experiments.study.tradeoff import TradeOff, TradeOffPoint
from regun.render.figure_style import INK, MUTED, NOISE, UNIT, Series, label_of, look, series

Window = tuple[tuple[float, float], tuple[float, float]]
"""Limits of forgetting, then of utility."""


def tradeoff_figure(tradeoff: TradeOff) -> Figure:
    """Utility against forgetting: a curve over w for each method that has one, and Retrain with its noise box.

    Markers grow with w and the ends of a curve carry its value. If some points lie far away, a second panel shows the
    surroundings of Retrain.
    """
    near = _near(tradeoff)
    with look():
        figure = Figure(figsize=((760 if near else 500) * UNIT, 400 * UNIT), layout="constrained")
        panels: Sequence[Axes] = [figure.add_subplot(1, 2 if near else 1, k + 1) for k in range(2 if near else 1)]
        for axes in panels:
            _draw(axes, tradeoff, near if axes is panels[0] else None)
            axes.set_xlabel("forgetting: RMIA AUC (%)")
        panels[0].set_ylabel("utility: test accuracy (%)")
        if near:
            panels[0].set_title("everything", loc="left", fontsize=10.5, color=MUTED)
            panels[1].set_title("around Retrain", loc="left", fontsize=10.5, color=MUTED)
            panels[1].set(xlim=near[0], ylim=near[1])
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4 if near else 3, columnspacing=1.6)
    return figure


def _draw(axes: Axes, tradeoff: TradeOff, crowded: Window | None) -> None:
    """All of it; ends of curves are not labelled in the `crowded` window, which the second panel shows."""
    axes.grid(True)
    axes.set_axisbelow(True)
    axes.margins(0.09)
    retrain = tradeoff.retrain
    if tradeoff.noise is not None:
        utility, forgetting = tradeoff.noise
        corner = (retrain.forgetting - forgetting, retrain.utility - utility)
        style: dict[str, Any] = {"facecolor": NOISE, "alpha": 0.18, "edgecolor": NOISE, "lw": 0.8}
        axes.add_patch(Rectangle(corner, 2 * forgetting, 2 * utility, **style, label="noise floor", zorder=1))
    for number, (title, points) in enumerate(tradeoff.curves.items()):
        _curve(axes, label_of(title), points, series(number), crowded)
    for number, (title, point) in enumerate(tradeoff.fixed.items(), start=len(tradeoff.curves)):
        _single(axes, label_of(title), point, series(number).colour, series(number).marker, 7)
    _single(axes, "Base", tradeoff.base, INK, "s", 8, face="white")
    _single(axes, "Retrain", retrain, INK, "*", 15)


def _curve(axes: Axes, title: str, points: Sequence[TradeOffPoint], style: Series, crowded: Window | None) -> None:
    shown = [p for p in points if _finite(p)]
    if not shown:
        return
    x, y = [p.forgetting for p in shown], [p.utility for p in shown]
    _spreads(axes, shown, style.colour)
    look_of: dict[str, Any] = {"color": style.colour, "linestyle": style.dashes, "marker": style.marker}
    axes.plot(x, y, **look_of, markersize=6, markevery=[], label=title, zorder=3)  # the legend shows the marker
    sizes = [9.0 + 40.0 * (k + 1) / len(shown) for k in range(len(shown))]
    axes.scatter(x, y, s=sizes, color=style.colour, marker=style.marker, linewidths=0, zorder=4)
    path = shown if len(shown) > 1 else [*shown, *shown]
    for end, inner in ((path[0], path[1]), (path[-1], path[-2])):
        if end.w is None or _inside(end, crowded):
            continue
        right = end.forgetting >= inner.forgetting  # the side away from the rest of the curve
        axes.annotate(
            f"w={end.w:g}",
            (end.forgetting, end.utility),
            xytext=(7 if right else -7, 4 if end.utility >= inner.utility else -10),
            textcoords="offset points",
            ha="left" if right else "right",
            fontsize=8.5,
            color=MUTED,
            annotation_clip=True,
            zorder=6,
        )


def _single(
    axes: Axes, title: str, point: TradeOffPoint, colour: str, marker: str, size: float, *, face: str | None = None
) -> None:
    if not _finite(point):
        return
    _spreads(axes, [point], colour)
    axes.plot(
        [point.forgetting],
        [point.utility],
        linestyle="none",
        marker=marker,
        markersize=size,
        markerfacecolor=face or colour,
        markeredgecolor=colour,
        markeredgewidth=1.6 if face else 0.0,
        label=title,
        zorder=5,
    )


def _spreads(axes: Axes, points: Sequence[TradeOffPoint], colour: str) -> None:
    """A thin cross of one sample deviation over seeds, or over the runs of one seed, both ways."""
    for p in points:
        spread: dict[str, Any] = {"xerr": p.forgetting_std, "yerr": p.utility_std}
        axes.errorbar(p.forgetting, p.utility, **spread, fmt="none", ecolor=colour, elinewidth=0.8, alpha=0.55)


def _inside(point: TradeOffPoint, window: Window | None) -> bool:
    if window is None:
        return False
    (left, right), (low, high) = window
    return left <= point.forgetting <= right and low <= point.utility <= high


def _near(tradeoff: TradeOff) -> Window | None:
    """Limits of the surroundings of Retrain, or None where they are most of the picture already."""
    everything = [p for curve in tradeoff.curves.values() for p in curve] + list(tradeoff.fixed.values())
    points = [p for p in everything if _finite(p)]
    centre, (up, across) = tradeoff.retrain, tradeoff.noise or (0.0, 0.0)
    if not points or not _finite(centre):
        return None
    reach = [
        1.25 * max(abs(tradeoff.base.forgetting - centre.forgetting), 2 * across, 4.0),
        1.25 * max(abs(tradeoff.base.utility - centre.utility), 2 * up, 4.0),
    ]
    extent = [
        max(abs(p.forgetting - centre.forgetting) for p in points),
        max(abs(p.utility - centre.utility) for p in points),
    ]
    if all(far <= 3.0 * close for far, close in zip(extent, reach, strict=True)):
        return None
    x, y = centre.forgetting, centre.utility
    return (x - reach[0], x + reach[0]), (y - reach[1], y + reach[1])


def _finite(point: TradeOffPoint) -> bool:
    return math.isfinite(point.utility) and math.isfinite(point.forgetting)
