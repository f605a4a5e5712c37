"""The figures of one forget request, drawn into the page's gallery; their captions are in the page's template."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from regun.auditing.metrics import WORDS
from regun.experiments.report import charts
from regun.experiments.report.charts import ROLE_LINES, SPLIT_LINES, LineStyle
from regun.experiments.report.cost_figure import cost_figure
from regun.experiments.report.tradeoff_figure import tradeoff_figure
from regun.experiments.study.cost import cost_panels
from regun.experiments.study.details import (
    RequestDetails,
    common_limits,
    histogram,
    learning_curves,
    median_confidence,
    roc_curves,
    true_logits,
)
from regun.experiments.study.results import Block, Results, Row
from regun.experiments.study.tradeoff import TradeOff
from regun.render.figure_style import colour_names
from regun.render.numbers import duration, fixed, many
from regun.render.svg import Gallery


class Panel(NamedTuple):
    """A small figure of one row."""

    title: str
    remark: str
    svg: Markup


def gaps(results: Results, block: Block, gallery: Gallery) -> Markup | None:
    """Draw how far every method is from Retrain, run by run, next to the noise floor."""
    gap = block.main_gap
    if gap is None:
        return None
    rows = [row for row in block.rows if row.kind != "retrain" and gap in row.cells]
    rows.sort(key=lambda row: row.cells[gap].mean)
    name = results.metrics[gap].label
    values = ", ".join(f"{row.title} {fixed(row.cells[gap].mean)}" for row in rows)
    figure = charts.gap_figure(rows, gap, block.floors.get(gap), f"{name}: distance to Retrain")
    return gallery.embed(figure, f"{name} of {many(len(rows), 'model')}: {values}")


def tradeoff(sweep: TradeOff, gallery: Gallery) -> Markup:
    """Draw utility against forgetting over w."""
    swept = f"{many(len(sweep.curves), 'method')} over w, {many(len(sweep.fixed), 'fixed method')}"
    label = f"Test accuracy against RMIA AUC, forget {sweep.label}: {swept}, Base and Retrain"
    return gallery.embed(tradeoff_figure(sweep), label)


def costs(results: Results, block: Block, gallery: Gallery) -> Markup | None:
    """Draw the gap to Retrain against the cost per request."""
    parts = cost_panels(results, block)
    if not parts:
        return None
    points = ", ".join(f"{p.title} {fixed(p.value)} at {p.share:.3g} %" for p in parts[0].methods)
    label = f"{parts[0].label} against the cost per request in percent of retraining: {points}"
    return gallery.embed(cost_figure(parts), label)


def relearning(block: Block, details: RequestDetails, gallery: Gallery) -> dict[str, Any] | None:
    """Draw forget accuracy and attack AUC over the steps of every method, next to Retrain and the references."""
    relearned = details.relearning
    if relearned is None:
        return None
    curves, limits = relearned.curves, relearned.limits
    context = [("reference", curve) for curve in relearned.references]
    context += [(role, curves[role]) for role in ("base", "retrain") if role in curves]

    def panel(row: Row) -> Panel:
        curve = curves[row.name]
        figure = charts.relearning_figure([*context, ("method", curve)], limits)
        acc, auc = (f"{fixed(values[0], 1)} to {fixed(values[-1], 1)} %" for values in curve[1:])
        svg = gallery.embed(figure, f"Relearning of {row.title}: forget accuracy from {acc}, AUC {auc}")
        return Panel(row.title, f"{fixed(curve[1][0], 0)} → {fixed(curve[1][-1], 0)} %", svg)

    return {
        "steps": int(curves["retrain"][0][-1]),
        "attack": "the loss attack" if relearned.attack == "smia" else "RMIA",
        "key": _key(gallery, "method", "retrain", "base", "reference"),
        "panels": [panel(row) for row in block.methods if row.name in curves],
    }


def roc(block: Block, details: RequestDetails, gallery: Gallery) -> dict[str, Any]:
    """Draw the ROC curve of every method next to Retrain and Base."""
    curves, split = roc_curves(details), details.unseen or "test"
    size = len(next(iter(details.predictions.values()))[split])
    anchors = {row.kind: curves[row.name] for row in block.rows if row.kind != "method" and row.name in curves}

    def panel(row: Row) -> Panel:
        curve = curves[row.name]
        shown = {role: (one.fpr, one.tpr) for role, one in (anchors | {"method": curve}).items()}
        label = f"ROC curve of {row.title}: AUC {fixed(curve.auc)} %, TPR {fixed(curve.tpr1)} % at 1 % FPR"
        return Panel(row.title, f"AUC {fixed(curve.auc, 1)} %", gallery.embed(charts.roc_figure(shown, size), label))

    return {
        "split": WORDS[split],
        "key": _key(gallery, "method", "retrain", "base", "guessing"),
        "panels": [panel(row) for row in block.methods if row.name in curves],
    }


def confidence(block: Block, details: RequestDetails, gallery: Gallery) -> dict[str, Any]:
    """Draw histograms of the confidence in the true label for Base, Retrain and every method."""
    rows = [row for row in block.rows if row.name in details.predictions]
    groups = {row.name: true_logits(details.predictions[row.name]) for row in rows}
    limits = common_limits(list(groups.values()))
    shares = {name: {split: histogram(v, limits) for split, v in group.items()} for name, group in groups.items()}
    top = max(float(values.max()) for group in shares.values() for values in group.values())

    def panel(row: Row) -> Panel:
        shown = {split: median_confidence(values) for split, values in groups[row.name].items()}
        medians = {s: f"{100 * share:.4g} %" if share < 0.99995 else "over 99.99 %" for s, share in shown.items()}
        texts = ", ".join(f"{value} on {WORDS[split]} examples" for split, value in medians.items())
        figure = charts.histogram_figure(shares[row.name], limits, top)
        svg = gallery.embed(figure, f"True-label confidence of {row.title}: median {texts}")
        return Panel(row.title, f"median {medians['forget']}", svg)

    key = [(line.name, _style(gallery, line)) for line in SPLIT_LINES.values()]
    return {"key": key, "panels": list(map(panel, rows))}


def learning(block: Block, gallery: Gallery) -> list[Panel]:
    """Draw the loss over epochs of every model that was trained step by step."""
    panels: list[Panel] = []
    for row in block.rows:
        runs = learning_curves(row)
        if runs:
            label = f"Loss of {row.title} over {many(max(len(epochs) for epochs, _ in runs), 'epoch')}"
            time = duration(row.costs["seconds"]) if "seconds" in row.costs else ""
            panels.append(Panel(row.title, time, gallery.embed(charts.learning_figure(runs), label)))
    return panels


def _key(gallery: Gallery, *roles: str) -> Sequence[tuple[str, str]]:
    """Return which line is which: a word and the style class of its line."""
    return [(ROLE_LINES[role].name, _style(gallery, ROLE_LINES[role])) for role in roles]


def _style(gallery: Gallery, line: LineStyle) -> str:
    dotted = (
        "" if isinstance(line.dashes, str) else ";stroke-dasharray:" + " ".join(str(1.5 * d) for d in line.dashes[1])
    )
    return gallery.style(f"stroke:var(--{colour_names()[line.colour]}){dotted};stroke-width:2.2")
