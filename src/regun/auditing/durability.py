"""The relearning check: does forgetting last when a model goes on training on retained examples alone?

A method may hide examples instead of forgetting them. A few steps of fine-tuning on the retain set then bring them
back, although these steps hold no information on the forgotten examples. A retrained model has nothing to bring back.
So the model, Retrain and the references take the same small steps, and their predictions are compared afterwards. The
model before unlearning takes them too, where it is known: it shows whether the comparison has power.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from regun.auditing.estimates import Metric
from regun.auditing.evaluation import Evaluation
from regun.auditing.floor import NoiseFloor
from regun.auditing.gaps import Gap, judge_gaps
from regun.auditing.intervals import Estimate, auc_interval, share
from regun.auditing.predictions import LOG_FLOOR, UNSEEN, FloatArray
from regun.auditing.roc import Contrast
from regun.errors import AuditError

BoolArray = npt.NDArray[np.bool_]

RELEARN_METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("relearn_forget_acc", "relearned forget", "%", "forgotten examples right after relearning"),
        Metric("relearn_smia_auc", "relearned loss attack", "%", "AUC of the loss attack after relearning", "50"),
        Metric("relearn_rmia_auc", "relearned RMIA", "%", "AUC of RMIA after relearning"),
        Metric(
            "regained_acc", "acc. regained", "points",
            "how far forget accuracy climbed above Retrain's (or above that on unseen examples) by relearning",
            "0 or less: what only comes up to Retrain was damage, not memory",
        ),
        Metric(
            "regained_auc", "AUC regained", "points",
            "how far the attack's AUC (RMIA's, or the loss attack's without references) climbed above Retrain's (or "
            "above 50) by relearning",
            "0 or less",
        ),
    )
}  # fmt: skip
"""The numbers of the relearning check, by name."""
REGAINED = ("regained_acc", "regained_auc")
"""Of these a model before unlearning has nothing to show: it hid nothing. So no model is called inside by them."""


@dataclass(frozen=True, eq=False)
class RelearningCurve:
    """Predictions of one model on its way: log p_y (points, n) and whether it is right (points, n), by split.

    `steps` are those taken at each point, the first 0. Splits are forget, one that no model saw, and a part of retain.
    """

    steps: tuple[int, ...]
    log_probs: Mapping[str, FloatArray]
    right: Mapping[str, BoolArray]

    def __post_init__(self) -> None:
        shapes = {name: values.shape for name, values in self.log_probs.items()}
        if shapes != {name: values.shape for name, values in self.right.items()}:
            raise AuditError("a relearning curve needs log p_y and hits of the same splits and examples.")
        if self.unseen is None or "forget" not in shapes or any(s[0] != len(self.steps) for s in shapes.values()):
            raise AuditError(
                f"a relearning curve has {len(self.steps)} points and splits {shapes}; give forget, one of "
                f"{', '.join(UNSEEN)}, and a row per point."
            )

    @property
    def unseen(self) -> str | None:
        """The split that no model saw."""
        return next((name for name in UNSEEN if name in self.log_probs), None)

    def accuracy(self, split: str, point: int) -> float:
        return 100.0 * float(self.right[split][point].mean())


@dataclass(frozen=True)
class RelearningPoint:
    """One model after so many steps, in percent; `retain_acc` is of a part of the retain set."""

    steps: int
    forget_acc: float
    unseen_acc: float
    retain_acc: float | None
    smia_auc: float
    rmia_auc: float | None


@dataclass(frozen=True)
class Relearned:
    """The outcome of the check: numbers with intervals, those of the model before unlearning where it is known,
    Retrain's own, distances next to the noise floor, curves."""

    numbers: Mapping[str, Estimate]
    before: Mapping[str, Estimate]
    retrain: Mapping[str, float]
    gaps: Mapping[str, Gap]
    curve: tuple[RelearningPoint, ...]
    retrain_curve: tuple[RelearningPoint, ...] = ()

    def values(self) -> dict[str, float]:
        """Return the numbers without their intervals."""
        return {name: number.value for name, number in self.numbers.items()}

    def to_json(self) -> dict[str, Any]:
        return {
            "numbers": {name: number.to_json() for name, number in self.numbers.items()},
            "before": {name: number.to_json() for name, number in self.before.items()},
            "retrain": dict(self.retrain),
            "gaps": {name: vars(gap) for name, gap in self.gaps.items()},
            "curve": [vars(point) for point in self.curve],
            "retrain_curve": [vars(point) for point in self.retrain_curve],
        }


def relearned(
    target: RelearningCurve,
    retrain: RelearningCurve | None = None,
    references: Sequence[RelearningCurve] = (),
    floor: NoiseFloor | None = None,
    *,
    before: RelearningCurve | None = None,
) -> Relearned:
    """Return what the target regained, next to Retrain and to the noise floor of relearned retrained models.

    `floor` saves computing `relearn_floor(retrain, references)` again. `before` is the model before unlearning: without
    it the comparison has no known power, and nothing is called inside the noise floor.
    """
    for other in (model for model in (retrain, before, *references) if model is not None):
        sizes = [{name: values.shape for name, values in curve.log_probs.items()} for curve in (target, other)]
        if sizes[0] != sizes[1] or target.steps != other.steps:
            raise AuditError(
                f"relearning curves are of different steps or examples ({target.steps}, {sizes[0]} and {other.steps}, "
                f"{sizes[1]}); relearn all models alike."
            )
    numbers = _numbers(target, retrain, references)
    numbers_before = dict(_after(before, references)) if before is not None else {}
    theirs = dict(_after(retrain, references)) if retrain is not None else {}
    noise = floor or (relearn_floor(retrain, references) if retrain is not None and len(references) > 1 else None)
    ours, past = (_distances(each, theirs) if retrain is not None else {} for each in (numbers, numbers_before))
    return Relearned(
        numbers=numbers,
        before=numbers_before,
        retrain={name: number.value for name, number in theirs.items()},
        gaps=judge_gaps(ours, past, noise, RELEARN_METRICS),
        curve=points(target, references),
        retrain_curve=points(retrain, references) if retrain is not None else (),
    )


def relearn_floor(retrain: RelearningCurve, references: Sequence[RelearningCurve]) -> NoiseFloor:
    """Return how far relearned retrained models are from each other: every pair, with the others as references."""
    models = (retrain, *references)
    values: dict[str, list[float]] = {}
    for i, j in combinations(range(len(models)), 2):
        rest = [model for k, model in enumerate(models) if k not in (i, j)]
        left, right = (_numbers(models[a], models[b], rest) for a, b in ((i, j), (j, i)))
        there, back = _distances(left, right), _distances(right, left)
        for name in left:
            values.setdefault(name, []).append(max(there[name], back[name]))
    return NoiseFloor(len(models), {name: tuple(pairs) for name, pairs in values.items()})


def points(curve: RelearningCurve, references: Sequence[RelearningCurve] = ()) -> tuple[RelearningPoint, ...]:
    """Return the numbers of each point of the curve."""
    unseen = curve.unseen or ""
    return tuple(
        RelearningPoint(
            steps=steps,
            forget_acc=curve.accuracy("forget", p),
            unseen_acc=curve.accuracy(unseen, p),
            retain_acc=curve.accuracy("retain", p) if "retain" in curve.right else None,
            smia_auc=100.0 * _contrast(curve, p).auc(),
            rmia_auc=100.0 * _contrast(curve, p, references).auc() if references else None,
        )
        for p, steps in enumerate(curve.steps)
    )


def with_relearning(evaluation: Evaluation, check: Relearned) -> Evaluation:
    """Return the evaluation with the numbers of the relearning check among its own."""
    return replace(
        evaluation,
        numbers={**evaluation.numbers, **check.numbers},
        before={**evaluation.before, **check.before},
        retrain={**evaluation.retrain, **check.retrain},
        gaps={**evaluation.gaps, **check.gaps},
        metrics={**evaluation.metrics, **{name: RELEARN_METRICS[name] for name in check.numbers}},
    )


def _numbers(
    curve: RelearningCurve, retrain: RelearningCurve | None, references: Sequence[RelearningCurve]
) -> dict[str, Estimate]:
    """Return the numbers at the end, and how much farther above the expected level they are there than at the start.

    Expected is Retrain's level at the same point or, without a retrained model, that of unseen examples: their accuracy
    and an AUC of 50. A level below the expected one counts as equal to it.
    """
    numbers = dict(_after(curve, references))
    above: dict[str, list[float]] = {"regained_acc": [], "regained_auc": []}
    for point in (0, -1):
        expected_acc, expected_auc = curve.accuracy(curve.unseen or "", point), 50.0
        if retrain is not None:
            expected_acc = retrain.accuracy("forget", point)
            expected_auc = 100.0 * _contrast(retrain, point, references).auc()
        acc, auc = curve.accuracy("forget", point), 100.0 * _contrast(curve, point, references).auc()
        above["regained_acc"].append(max(0.0, acc - expected_acc))
        above["regained_auc"].append(max(0.0, auc - expected_auc))
    return numbers | {name: Estimate(end - start) for name, (start, end) in above.items()}


def _after(curve: RelearningCurve, references: Sequence[RelearningCurve]) -> Iterator[tuple[str, Estimate]]:
    right = curve.right["forget"][-1]
    yield "relearn_forget_acc", share(float(right.mean()), len(right))
    yield "relearn_smia_auc", auc_interval(_contrast(curve, -1))
    if references:
        yield "relearn_rmia_auc", auc_interval(_contrast(curve, -1, references))


def _contrast(curve: RelearningCurve, point: int, references: Sequence[RelearningCurve] = ()) -> Contrast:
    """Return scores of forgotten against unseen examples: log p_y, or its difference to the references."""

    def score(split: str) -> FloatArray:
        score = np.maximum(curve.log_probs[split][point], LOG_FLOOR)
        if not references:
            return score
        theirs = np.stack([np.maximum(other.log_probs[split][point], LOG_FLOOR) for other in references])
        top = theirs.max(axis=0)
        return score - top - np.log(np.exp(theirs - top).mean(axis=0))

    return Contrast.of(score("forget"), score(curve.unseen or ""))


def _distances(ours: Mapping[str, Estimate], retrain: Mapping[str, Estimate]) -> dict[str, float]:
    """Return how far every number is from Retrain's; what was regained is that far above it already."""
    return {
        name: max(0.0, number.value) if name in REGAINED else abs(number.value - retrain[name].value)
        for name, number in ours.items()
    }
