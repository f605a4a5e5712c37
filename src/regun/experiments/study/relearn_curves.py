"""The relearning checks of a study: the numbers of every audited model, and the curves for the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regun.artifacts.relearnings import stored_curve
from regun.auditing.durability import Relearned, RelearningCurve, RelearningPoint, points, relearn_floor, relearned
from regun.auditing.floor import NoiseFloor
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.tasks import Evaluate, Model, Relearn


@dataclass(frozen=True)
class RelearnCurves:
    """How forgotten examples come back while models train on retained ones, by row name; and in the references."""

    curves: Mapping[str, tuple[RelearningPoint, ...]]
    references: tuple[tuple[RelearningPoint, ...], ...]


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
        known = [curve for curve in retrained if curve is not None]
        if target is None or len(known) < len(retrained):
            return None
        before = None if task.model is task.retrained[0] else self._curve(task, task.base)  # Retrain is not unlearned
        return relearned(target, known[0], known[1:], self._floor(task, known), before=before)

    def curves(self, tasks: Sequence[Evaluate]) -> RelearnCurves | None:
        """Return the curves of the models that these tasks audit; None without those of Retrain."""
        curves = {task.name: check.curve for task in tasks if (check := self.of(task)) is not None}
        if "retrain" not in curves:
            return None
        references = [c for model in tasks[0].retrained[1:] if (c := self._curve(tasks[0], model)) is not None]
        # a model does not sit in its own denominator
        shown = [points(curve, [other for other in references if other is not curve]) for curve in references]
        return RelearnCurves(curves, tuple(shown))

    def _curve(self, task: Evaluate, model: Model) -> RelearningCurve | None:
        check = self._tasks.get((model, task.forget, task.split))
        if check is None:
            return None
        if check not in self._curves:
            artifact = check.result(self.opened)
            finite = artifact is not None and "not_finite" not in artifact.info
            self._curves[check] = stored_curve(artifact) if artifact is not None and finite else None
        return self._curves[check]

    def _floor(self, task: Evaluate, retrained: list[RelearningCurve]) -> NoiseFloor | None:
        key = (task.forget, task.retrained)
        if len(retrained) > 2 and key not in self._floors:
            self._floors[key] = relearn_floor(retrained[0], retrained[1:])
        return self._floors.get(key)
