"""The cost of a request against its result: every method by its share of a retraining, next to retraining cut short."""

import math
from dataclasses import dataclass

from regun.experiments.study.results import Block, Results

RELEARNED = "relearn_forget_acc"


@dataclass(frozen=True)
class CostPoint:
    """A method: cost per request and, with a prepared table, cost once, both in percent of Retrain's samples."""

    title: str
    share: float
    value: float
    std: float | None = None
    once: float | None = None


@dataclass(frozen=True, kw_only=True)
class CostPanel:
    """One number against the cost per request."""

    metric: str
    label: str
    methods: tuple[CostPoint, ...]
    shortened: tuple[CostPoint, ...]
    """Retraining cut short, the shortest first."""
    retrain: CostPoint
    """Retraining in full; its gap is the mean distance of two retrained models."""
    base: float | None
    """The value of the model before unlearning."""
    band: tuple[float, float] | None
    """The noise floor: values that retrained models have."""


def cost_panels(results: Results, block: Block) -> list[CostPanel]:
    """Return the main gap and, where measured, relearned accuracy against the cost of one request.

    Empty where nothing was retrained.
    """
    metrics = [name for name in (block.main_gap, RELEARNED) if name in results.metrics]
    return [panel for name in metrics if name and (panel := _panel(results, block, name)) is not None]


def _panel(results: Results, block: Block, metric: str) -> CostPanel | None:
    methods, shortened = list[CostPoint](), list[CostPoint]()
    for row in block.methods:
        cell, share = row.cells.get(metric), row.request_share
        if cell is not None and share is not None and math.isfinite(cell.mean):
            std = cell.repeat_std if cell.std is None else cell.std
            point = CostPoint(row.title, share, cell.mean, std, row.once_share)
            # `retrain,epochs=...` and its presets: from scratch on the retain set, with all layers
            cut_short = row.name.partition(",")[0].partition("@")[0] == "retrain" and "layers=" not in row.name
            (shortened if cut_short else methods).append(point)
    anchors = {row.kind: row for row in block.rows if row.kind != "method" and metric in row.cells}
    if "retrain" not in anchors or not (methods or shortened):
        return None
    floor, full = block.floors.get(metric), anchors["retrain"]
    truth, is_gap = full.cells[metric].mean, metric == block.main_gap
    value = floor.mean if floor and is_gap else truth
    band = (0.0 if is_gap else truth - floor.largest, truth + floor.largest) if floor else None
    return CostPanel(
        metric=metric,
        label=results.metrics[metric].label,
        methods=tuple(sorted(methods, key=lambda point: point.share)),
        shortened=tuple(sorted(shortened, key=lambda point: point.share)),
        retrain=CostPoint(full.title, 100.0, value),
        base=anchors["base"].cells[metric].mean if "base" in anchors else None,
        band=band,
    )
