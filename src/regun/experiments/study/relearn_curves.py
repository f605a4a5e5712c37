"""What the relearning checks of a study found: the numbers of every judged model, and curves for the report."""

from collections.abc import Sequence

from regun.auditing.durability import Curve, Relearned, points, relearn_floor, relearned
from regun.auditing.floor import NoiseFloor
from regun.experiments.study.context import StudyContext
from regun.experiments.study.details import RelearnCurves
from regun.experiments.study.forget_sets import relearn_id
from regun.experiments.study.tasks import Judge


class RelearnBook:
    """The checks of one study, each curve read and each noise floor computed once."""

    def __init__(self, ctx: StudyContext) -> None:
        self.ctx = ctx
        self._curves: dict[str, Curve | None] = {}
        self._floors: dict[tuple[str, ...], NoiseFloor] = {}

    def found(self, task: Judge) -> Relearned | None:
        """What the check of a judged model found; None until it and those of its judges are over."""
        target, judges = self._curve(task, task.model), [self._curve(task, judge) for judge in task.judges]
        others = [curve for curve in judges if curve is not None]
        if target is None or len(others) < len(judges):
            return None
        floor = self._floor(task, others)
        before = None if task.model == task.judges[0] else self._curve(task, task.base)  # Retrain is not unlearned
        return relearned(target, others[0], others[1:], floor, before=before)

    def curves(self, tasks: Sequence[Judge]) -> RelearnCurves | None:
        """The curves of the models that these tasks judge; None without those of Retrain."""
        found = {task.entry: one.curve for task in tasks if (one := self.found(task)) is not None}
        if "retrain" not in found:
            return None
        judges = [c for judge in tasks[0].judges[1:] if (c := self._curve(tasks[0], judge)) is not None]
        return RelearnCurves(found, tuple(points(curve, _others(judges, curve)) for curve in judges))

    def _curve(self, task: Judge, model: str) -> Curve | None:
        name = relearn_id(model, task.forget, task.split)
        if name not in self._curves:
            self._curves[name] = self.ctx.curve(name)
        return self._curves[name]

    def _floor(self, task: Judge, judges: list[Curve]) -> NoiseFloor | None:
        who = (task.forget, *task.judges)
        if len(judges) > 2 and who not in self._floors:
            self._floors[who] = relearn_floor(judges[0], judges[1:])
        return self._floors.get(who)


def _others(curves: Sequence[Curve], one: Curve) -> list[Curve]:
    """All but this one: a model does not sit in its own denominator."""
    return [curve for curve in curves if curve is not one]
