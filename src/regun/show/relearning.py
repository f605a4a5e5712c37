"""Curves of the relearning check: what comes back in each model while it trains on retained examples alone."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regun.evaluate.relearning import Point
from regun.show.charts import ROLES, ROLES_METHOD
from regun.show.look import MUTED, UNIT, look
from regun.show.numbers import fixed
from regun.show.panels import Panel, Panels, line_key
from regun.show.svg import Gallery
from regun.study.closeup import Closeup
from regun.study.results import Block, Row

Curve = tuple[Point, ...]
_SIZE = (190, 236)
_OTHERS = (MUTED, "-")


def relearning(block: Block, closeup: Closeup, gallery: Gallery) -> Panels | None:
    """Forget accuracy and attack AUC over the steps, of every method next to Retrain and the references."""
    found = closeup.relearning
    if found is None:
        return None
    retrain, base = found.curves["retrain"], found.curves.get("base")
    rows = [row for row in block.methods if row.name in found.curves]
    shown = [curve for curve in (retrain, base, *found.references, *(found.curves[r.name] for r in rows)) if curve]

    def panel(row: Row) -> Panel:
        own = found.curves[row.name]
        figure = relearn_figure(own, retrain, base, found.references, (_ends(shown, "acc"), _ends(shown, "auc")))
        told = f"{fixed(own[0].forget_acc, 1)} to {fixed(own[-1].forget_acc, 1)} %"
        aucs = f"AUC {fixed(_auc(own[0]), 1)} to {fixed(_auc(own[-1]), 1)} %"
        svg = gallery.embed(figure, f"Relearning of {row.title}: forget accuracy from {told}, {aucs}")
        return Panel(row.title, f"{fixed(own[0].forget_acc, 0)} → {fixed(own[-1].forget_acc, 0)} %", svg)

    attack = "RMIA" if retrain[0].rmia_auc is not None else "the loss attack"
    text = (
        f"Every model goes on training on retained examples alone, {retrain[-1].steps:,} small steps. Above: how many "
        f"forgotten examples it then gets right; below: the AUC of {attack} against unseen ones. A retrained model "
        "stays where it is. A method that hid the examples brings them back: its line climbs above Retrain's."
    )
    used = {"this method": ROLES_METHOD, "Retrain": ROLES["retrain"], "Base": ROLES["base"], "references": _OTHERS}
    title = f"Relearning (first run of seed {closeup.seed})"
    return Panels(title, text, line_key(used, gallery), tuple(map(panel, rows)))


def relearn_figure(
    own: Curve,
    retrain: Curve,
    base: Curve | None,
    references: Sequence[Curve],
    limits: tuple[tuple[float, float], tuple[float, float]],
) -> Figure:
    """Forget accuracy above, attack AUC below, over the steps."""
    width, height = _SIZE
    lines: list[tuple[Curve, str]] = [(curve, "reference") for curve in references]
    lines += [(base, "base")] if base else []
    lines += [(retrain, "retrain"), (own, "method")]
    with look():
        figure = Figure(figsize=(width * UNIT, height * UNIT))
        room = (width - 42 - 8) / width
        above = figure.add_axes((42 / width, 139 / height, room, 90 / height))
        below = figure.add_axes((42 / width, 37 / height, room, 90 / height))
        for axes, name, ends in ((above, "forget acc. (%)", limits[0]), (below, "AUC (%)", limits[1])):
            for curve, role in lines:
                _line(axes, curve, role, auc=axes is below)
            axes.set(ylim=ends)
            axes.set_ylabel(name, labelpad=2, fontsize=9.5)
            axes.tick_params(length=2.5, pad=2.5, labelsize=9.5)
            axes.locator_params(axis="y", nbins=4)
            axes.locator_params(axis="x", nbins=4, integer=True)
            axes.grid(True, axis="y")
        above.tick_params(labelbottom=False)
        below.set_xlabel("steps on retained examples", labelpad=3, fontsize=9.5)
    return figure


def _line(axes: Axes, curve: Curve, role: str, *, auc: bool) -> None:
    styles: Mapping[str, tuple[str, object]] = {**ROLES, "method": ROLES_METHOD, "reference": _OTHERS}
    colour, dashes = styles[role]
    values = [_auc(point) if auc else point.forget_acc for point in curve]
    thin = role == "reference"
    axes.plot(
        [point.steps for point in curve],
        values,
        color=colour,
        linestyle=dashes,  # pyright: ignore[reportArgumentType]
        lw=0.8 if thin else 1.5,
        alpha=0.6 if thin else 1.0,
    )


def _auc(point: Point) -> float:
    return point.smia_auc if point.rmia_auc is None else point.rmia_auc


def _ends(curves: Sequence[Curve], what: str) -> tuple[float, float]:
    """One axis for all panels: all values and a little room."""
    values = [point.forget_acc if what == "acc" else _auc(point) for curve in curves for point in curve]
    room = 0.06 * (max(values) - min(values)) + 0.5
    return min(values) - room, min(max(values) + room, 101.0)
