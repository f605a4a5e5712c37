"""The figures of one request with their captions, keys and explanations, drawn into the page's gallery."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from regun.auditing.durability import Point
from regun.experiments.report import charts
from regun.experiments.report.summary import attack_label
from regun.experiments.report.tradeoff_figure import tradeoff_figure
from regun.experiments.study.details import Curve, RowDetails, against, attack_of, common_limits, curves, logits
from regun.experiments.study.results import Block, Results, Row
from regun.experiments.study.tradeoff import TradeOff
from regun.render.audit_text import attack_auc
from regun.render.figure_style import colour_names
from regun.render.numbers import duration, fixed, many
from regun.render.svg import Gallery

_WORDS = {"forget": "forgotten", "heldout": "held out", "test": "test", "val": "validation"}
_WHOSE = {
    "method": "this method",
    "retrain": "Retrain",
    "base": "Base",
    "reference": "references",
    "guessing": "guessing",
}


@dataclass(frozen=True)
class Drawing:
    """A figure with its caption; a wide one is shown larger on a phone, in a box to scroll in."""

    svg: Markup
    caption: str
    wide: bool = False


@dataclass(frozen=True)
class Panel:
    """A small figure of one row."""

    title: str
    remark: str
    svg: Markup


@dataclass(frozen=True)
class Panels:
    """Small figures with what they show, and which line is which: words and the style classes of their lines."""

    title: str
    text: str
    key: tuple[tuple[str, str], ...]
    panels: tuple[Panel, ...]


def gaps(results: Results, block: Block, gallery: Gallery) -> Drawing | None:
    """How far every method is from Retrain, run by run, next to the noise floor."""
    gap = block.main_gap
    if gap is None:
        return None
    rows = [row for row in block.rows if row.kind != "retrain" and gap in row.cells]
    rows.sort(key=lambda row: row.cells[gap].mean)
    bars = [
        charts.Bar(row.title, row.cells[gap].mean, [one.value for one in row.cells[gap].by_run], row.kind == "method")
        for row in rows
    ]
    noise, label = block.floors.get(gap), results.metrics[gap].label
    figure = charts.gap_figure(bars, noise, f"{label}: distance to Retrain")
    says = f"{label} of {many(len(bars), 'model')}: " + ", ".join(f"{b.title} {fixed(b.value)}" for b in bars)
    caption = "Left is better. "
    if any(len(bar.runs) > 1 for bar in bars):
        caption += "A tick is a run, the dot their mean. "
    if noise is not None:
        caption += (
            f"Green: as far as two retrained models are apart ({fixed(noise.mean)} on average, dashed; up to "
            f"{fixed(noise.largest)}); paler, what one more could show (up to {fixed(noise.limit)})."
        )
    return Drawing(gallery.embed(figure, says), caption)


def tradeoff(found: TradeOff, gallery: Gallery) -> Drawing:
    """Utility against forgetting over w."""
    figure = tradeoff_figure(found)
    swept = f"{many(len(found.curves), 'method')} over w, {many(len(found.fixed), 'fixed method')}"
    drawing = gallery.embed(figure, f"Test accuracy against RMIA AUC, forget {found.label}: {swept}, Base and Retrain")
    caption = "The star is the target: the nearer, the better."
    if found.noise is not None:
        caption += " Green: as far as two retrained models are apart."
    if found.curves:
        caption += " Along a curve markers grow with w, the weight on keeping what was learned against forgetting."
    return Drawing(drawing, caption, figure.get_figwidth() > 9)


def relearning(block: Block, closeup: RowDetails, gallery: Gallery) -> Panels | None:
    """Forget accuracy and attack AUC over the steps, of every method next to Retrain and the references."""
    found = closeup.relearning
    if found is None:
        return None
    curves = {name: _values(curve) for name, curve in found.curves.items()}
    others = [("reference", _values(curve)) for curve in found.references]
    others += [(role, curves[role]) for role in ("base", "retrain") if role in curves]
    rows = [row for row in block.methods if row.name in curves]
    drawn = [curve for _, curve in others] + [curves[row.name] for row in rows]
    limits = [_ends([curve[which] for curve in drawn]) for which in (1, 2)]

    def panel(row: Row) -> Panel:
        own = curves[row.name]
        figure = charts.relearning_figure([*others, ("method", own)], limits)
        acc, auc = (f"{fixed(values[0], 1)} to {fixed(values[-1], 1)} %" for values in own[1:])
        svg = gallery.embed(figure, f"Relearning of {row.title}: forget accuracy from {acc}, AUC {auc}")
        return Panel(row.title, f"{fixed(own[1][0], 0)} → {fixed(own[1][-1], 0)} %", svg)

    last = found.curves["retrain"][-1]
    attack = "the loss attack" if last.rmia_auc is None else "RMIA"
    text = (
        f"Every model goes on training on retained examples alone, {last.steps:,} small steps. Above: how many "
        f"forgotten examples it then gets right; below: the AUC of {attack} against unseen ones. A retrained model "
        "stays where it is. A method that hid the examples brings them back: its line climbs above Retrain's."
    )
    key = _role_key(gallery, "method", "retrain", "base", "reference")
    return Panels(f"Relearning ({_whose(closeup)})", text, key, tuple(map(panel, rows)))


def _values(curve: Sequence[Point]) -> npt.NDArray[np.float64]:
    """Steps, forget accuracies and attack AUCs of a curve."""
    return np.array([(p.steps, p.forget_acc, attack_auc(p)) for p in curve], dtype=float).T


def _ends(values: Sequence[npt.NDArray[np.float64]]) -> tuple[float, float]:
    """One axis for all panels: all values and a little room."""
    low, high = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    room = 0.06 * (high - low) + 0.5
    return low - room, min(high + room, 101.0)


def roc(block: Block, closeup: RowDetails, gallery: Gallery) -> Panels:
    """ROC curves of every method next to Retrain and Base."""
    found = curves(closeup)
    split = against(closeup) or "test"
    size = len(next(iter(closeup.signals.values()))[split])
    anchors: dict[str, Curve] = {
        row.kind: found[row.name] for row in block.rows if row.kind != "method" and row.name in found
    }

    def panel(row: Row) -> Panel:
        own = found[row.name]
        shown = {role: (curve.fpr, curve.tpr) for role, curve in (anchors | {"method": own}).items()}
        says = f"ROC curve of {row.title}: AUC {fixed(own.auc)} %, {fixed(own.tpr1)} % found at 1 % false alarms"
        return Panel(row.title, f"AUC {fixed(own.auc, 1)} %", gallery.embed(charts.roc_figure(shown, size), says))

    text = (
        f"How many forgotten examples the {attack_label(attack_of(closeup))} attack finds (up) when so many "
        f"{_WORDS[split]} examples are wrongly accused (right), on log axes. Good is Retrain's curve; guessing is the "
        "diagonal. Only the left end shows examples that give themselves away for certain."
    )
    key = _role_key(gallery, "method", "retrain", "base", "guessing")
    shown = [row for row in block.methods if row.name in found]
    return Panels(f"ROC curves ({_whose(closeup)})", text, key, tuple(map(panel, shown)))


def confidence(block: Block, closeup: RowDetails, gallery: Gallery) -> Panels:
    """Histograms of the confidence in the true label for Base, Retrain and every method."""
    rows = [row for row in block.rows if row.name in closeup.signals]
    groups = {row.name: logits(closeup.signals[row.name]) for row in rows}
    limits = common_limits(list(groups.values()))
    top = max(float(charts.shares(v, limits).max()) for group in groups.values() for v in group.values())

    def panel(row: Row) -> Panel:
        medians = {split: _median(values) for split, values in groups[row.name].items()}
        said = ", ".join(f"{value} on {_WORDS[split]} examples" for split, value in medians.items())
        drawn = charts.histogram_figure(groups[row.name], limits, top)
        svg = gallery.embed(drawn, f"True-label confidence of {row.title}: median {said}")
        return Panel(row.title, f"median {medians['forget']}", svg)

    text = (
        "How sure each model is of the true label. A model that forgot treats forgotten examples as ones it never saw: "
        "the filled shape then follows the two lines as it does for Retrain. The axis is stretched towards 0 and "
        "100 %; the median is that of forgotten examples."
    )
    key = _line_key({_WORDS[name]: look for name, look in charts.SPLITS.items()}, gallery)
    return Panels(f"Confidence in the true label ({_whose(closeup)})", text, key, tuple(map(panel, rows)))


def learning(block: Block, gallery: Gallery) -> Panels | None:
    """The loss over epochs of every model that was trained step by step."""

    def panel(row: Row, losses: list[tuple[list[float], list[float]]]) -> Panel:
        says = f"Loss of {row.title} over {many(max(len(epochs) for epochs, _ in losses), 'epoch')}"
        time = duration(row.costs["seconds"]) if "seconds" in row.costs else ""
        return Panel(row.title, time, gallery.embed(charts.learning_figure(losses), says))

    found = [(row, losses) for row in block.rows if (losses := _losses(row))]
    text = "The loss each method lowers is its own, so compare shapes and not heights. One line a run."
    return Panels("Learning curves", text, (), tuple(panel(*one) for one in found)) if found else None


def _losses(row: Row) -> list[tuple[list[float], list[float]]]:
    """Number and loss of every epoch that has a finite one, run by run."""
    runs = [[epoch for epoch in run.epochs if math.isfinite(epoch.get("loss", math.nan))] for run in row.runs]
    return [
        ([float(e.get("number", k + 1)) for k, e in enumerate(epochs)], [float(e["loss"]) for e in epochs])
        for epochs in runs
        if epochs
    ]


def _median(values: Iterable[float]) -> str:
    ordered = sorted(values)
    share = 100.0 / (1.0 + math.exp(-ordered[len(ordered) // 2]))
    return f"{share:.4g} %" if share < 99.995 else "over 99.99 %"


def _whose(closeup: RowDetails) -> str:
    return f"first run of seed {closeup.seed}"


def _role_key(gallery: Gallery, *roles: str) -> tuple[tuple[str, str], ...]:
    return _line_key({_WHOSE[role]: charts.ROLES[role] for role in roles}, gallery)


def _line_key(used: Mapping[str, tuple[str, Any]], gallery: Gallery) -> tuple[tuple[str, str], ...]:
    """Which line is which: a word and the class of its line."""

    def style(colour: str, dashes: Any) -> str:
        dotted = "" if isinstance(dashes, str) else ";stroke-dasharray:" + " ".join(str(1.5 * d) for d in dashes[1])
        return gallery.style(f"stroke:var(--{colour_names()[colour]}){dotted};stroke-width:2.2")

    return tuple((word, style(*look)) for word, look in used.items())
