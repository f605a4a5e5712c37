"""Details of one request: from the predictions of its models to ROC curves, confidences and risky examples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regun.auditing import ATTACKS, UNSEEN, Predictions, Risk, risk_list
from regun.auditing.attack_results import attack_scores, offline_a
from regun.auditing.predictions import FloatArray
from regun.auditing.roc import Contrast, roc_curve
from regun.experiments.study.relearn_curves import RelearnCurves
from regun.experiments.study.results import Row

POINTS = 160
"""Points of a drawn ROC curve, half of them evenly in log FPR: more than a small figure has pixels."""
BINS = 24
"""Bins of a histogram of confidences."""
RISKY = 25
_EXTREME = 18.0  # logit of 1 - 1.5e-8: beyond it confidences differ by rounding only


@dataclass(frozen=True)
class RequestDetails:
    """Predictions of the models of one forget request, first seed and run: for curves, histograms and risk lists."""

    forget: str
    seed: int
    predictions: Mapping[str, Mapping[str, Predictions]]
    """Row name -> split (retain, forget, test, val, heldout) -> predictions."""
    references: Sequence[Mapping[str, Predictions]]
    """Of each reference model: split -> predictions."""
    relearning: RelearnCurves | None = None

    @property
    def attack(self) -> str:
        """The attack of the curves and the risk list."""
        return "rmia" if self.references else "smia"

    @property
    def unseen(self) -> str | None:
        """The unseen split that forgotten examples are compared with, the first that every model has."""
        every = [*self.predictions.values(), *self.references]
        return next((split for split in UNSEEN if all(split in splits for splits in every)), None)


@dataclass(frozen=True)
class RocCurve:
    """The ROC curve of the attack on one model."""

    fpr: FloatArray
    tpr: FloatArray
    auc: float
    tpr1: float


@dataclass(frozen=True)
class RiskyExample:
    """A forgotten example that looks like a member; the label's probability in the model and in the references."""

    risk: Risk
    confidence: float
    expected: float | None


@dataclass(frozen=True)
class RiskTable:
    """The most member-like forgotten examples of one model, and how many stand out."""

    rows: tuple[RiskyExample, ...]
    forgotten: int
    unseen: int
    above: int
    """Forgotten examples that score above 99 % of unseen ones; 1 % of them would by chance."""


def roc_curves(details: RequestDetails) -> dict[str, RocCurve]:
    """Return the ROC curve of every model, by row name."""
    split = details.unseen
    if split is None:
        return {}
    attack, a = ATTACKS[details.attack], offline_a(details.references)
    references = [_scored(reference, split) for reference in details.references]
    curves: dict[str, RocCurve] = {}
    for name, predictions in details.predictions.items():
        by_split = attack_scores([attack], _scored(predictions, split), references, a)[attack.name]
        contrast = Contrast.of(by_split["forget"], by_split[split])
        fpr, tpr = roc_curve(contrast, POINTS)
        auc, tpr1 = (float(v) for v in contrast.statistics()[:2, 0])
        curves[name] = RocCurve(fpr, tpr, 100 * auc, 100 * tpr1)
    return curves


def true_logits(predictions: Mapping[str, Predictions]) -> dict[str, FloatArray]:
    """Return log(p / (1 - p)) of the true label on forgotten, held-out and test examples."""
    splits = [split for split in ("heldout", "test", "forget") if split in predictions]
    return {split: np.clip(predictions[split].true_logit, -_EXTREME, _EXTREME) for split in splits}


def common_limits(groups: Sequence[Mapping[str, FloatArray]]) -> tuple[float, float]:
    """Return the axis that all models share: the middle 98 % of their logits, at least from 10 % to 99 % confidence."""
    pooled = np.concatenate([values for group in groups for values in group.values()])
    low, high = np.quantile(pooled, [0.01, 0.99])
    return min(float(low), -2.2), max(float(high), 4.7)


def histogram(values: FloatArray, limits: tuple[float, float]) -> FloatArray:
    """Return the percent of values in each bin; those beyond the limits count in the outermost bins."""
    counts, _ = np.histogram(np.clip(values, *limits), bins=np.linspace(*limits, BINS + 1))
    return 100.0 * counts / max(1, len(values))


def median_confidence(values: FloatArray) -> float:
    """Return the median probability of the true label from its logits."""
    return 1.0 / (1.0 + math.exp(-sorted(values)[len(values) // 2]))


def learning_curves(row: Row) -> list[tuple[list[float], list[float]]]:
    """Return number and loss of every epoch with a finite loss, run by run."""
    runs = [[epoch for epoch in run.epochs if math.isfinite(epoch.get("loss", math.nan))] for run in row.runs]
    return [
        ([float(e.get("number", k + 1)) for k, e in enumerate(epochs)], [float(e["loss"]) for e in epochs])
        for epochs in runs
        if epochs
    ]


def risky(details: RequestDetails, name: str) -> RiskTable:
    """Return the forgotten examples of one model that look most like members."""
    predictions, split = details.predictions[name], details.unseen or "test"
    references = [_scored(reference, split) for reference in details.references]
    risks = risk_list(_scored(predictions, split), references, attack=details.attack)
    forget = predictions["forget"]
    positions = {int(index): position for position, index in enumerate(forget.indices)}
    confidence = np.exp(forget.true_log_prob)
    by_reference = [np.exp(reference["forget"].true_log_prob) for reference in references]
    expected = np.mean(by_reference, axis=0) if by_reference else None
    rows: list[RiskyExample] = []
    for risk in risks[:RISKY]:
        at = positions[risk.index]
        rows.append(RiskyExample(risk, float(confidence[at]), None if expected is None else float(expected[at])))
    return RiskTable(tuple(rows), len(risks), len(predictions[split]), sum(risk.percentile > 99.0 for risk in risks))


def _scored(splits: Mapping[str, Predictions], split: str) -> dict[str, Predictions]:
    return {"forget": splits["forget"], split: splits[split]}
