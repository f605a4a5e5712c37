"""The relearning checks of a study: the numbers of every audited model, and the curves for the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regun.artifacts.relearnings import stored_curve
from regun.auditing.durability import Relearned, RelearningCurve, RelearningPoint, points, relearn_floor, relearned
from regun.auditing.floor import NoiseFloor
from regun.auditing.predictions import FloatArray
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.tasks import Evaluate, Model, Relearn


@dataclass(frozen=True)
class RelearnCurves:
    """How forgotten examples come back while models train on retained ones, by row name; and in the references.

    A curve is an array with one row each of steps, forget accuracies and attack AUCs; `attack` is rmia or smia.
    """

    curves: Mapping[str, FloatArray]
    references: tuple[FloatArray, ...]
    attack: str

    @property
    def limits(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The ends of the axes of accuracy and AUC that all curves share."""
        ends = [(c[1:].min(axis=1), c[1:].max(axis=1)) for c in (*self.curves.values(), *self.references)]
        low, high = np.min([e[0] for e in ends], axis=0), np.max([e[1] for e in ends], axis=0)
        margin = 0.06 * (high - low) + 0.5
        acc, auc = zip(low - margin, np.minimum(high + margin, 101.0), strict=True)
        return (float(acc[0]), float(acc[1])), (float(auc[0]), float(auc[1]))


class RelearnChecks:
    """The checks of one study; each curve is read and each noise floor computed once."""

    def __init__(self, opened: OpenStudy) -> None:
        self.opened = opened
        self._tasks = {(task.model, task.forget, task.split): task for task in opened.plan.of_type(Relearn)}
        self._curves: dict[Relearn, RelearningCurve | None] = {}
        self._floors: dict[tuple[str, tuple[Model, ...]], NoiseFloor] = {}

    def of(self, task: Evaluate) -> Relearned | None:
        """Return the check of an audited model; None until it and those of the retrained models are done."""
        target, *retrained = (self._curve(task, model) for model in (task.model, *task.retrained))
        finished = [curve for curve in retrained if curve is not None]
        if target is None or len(finished) < len(retrained):
            return None
        retrain, *references = finished
        models = (task.forget, task.retrained)
        if len(references) > 1 and models not in self._floors:
            self._floors[models] = relearn_floor(retrain, references)
        before = None if task.model is task.retrained[0] else self._curve(task, task.base)  # Retrain is not unlearned
        return relearned(target, retrain, references, self._floors.get(models), before=before)

    def curves(self, tasks: Sequence[Evaluate]) -> RelearnCurves | None:
        """Return the curves of the models that these tasks audit; None without those of Retrain."""
        curves = {task.name: check.curve for task in tasks if (check := self.of(task)) is not None}
        if "retrain" not in curves:
            return None
        references = [c for model in tasks[0].retrained[1:] if (c := self._curve(tasks[0], model)) is not None]
        # a model does not sit in its own denominator
        shown = [points(curve, [other for other in references if other is not curve]) for curve in references]
        attack = "smia" if curves["retrain"][-1].rmia_auc is None else "rmia"
        arrays = {name: _array(curve) for name, curve in curves.items()}
        return RelearnCurves(arrays, tuple(map(_array, shown)), attack)

    def _curve(self, task: Evaluate, model: Model) -> RelearningCurve | None:
        check = self._tasks.get((model, task.forget, task.split))
        if check is None:
            return None
        if check not in self._curves:
            artifact = check.result(self.opened)
            finite = artifact is not None and "not_finite" not in artifact.info
            self._curves[check] = stored_curve(artifact) if artifact is not None and finite else None
        return self._curves[check]


def _array(curve: Sequence[RelearningPoint]) -> FloatArray:
    points = [(p.steps, p.forget_acc, p.smia_auc if p.rmia_auc is None else p.rmia_auc) for p in curve]
    return np.array(points, dtype=float).T
