"""A study that is open for work: its context and its plan together."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from regun.artifacts import Store
from regun.experiments.study.context import Location, StudyContext
from regun.experiments.study.plan import StudyPlan, plan_study
from regun.experiments.study.spec import Study, merged
from regun.experiments.study.tasks import Evaluate, NotMadeError, Task, Tune


@dataclass(frozen=True)
class OpenStudy:
    """A study with its context (data, splits, store) and its plan (tasks)."""

    ctx: StudyContext
    plan: StudyPlan

    @classmethod
    def at(cls, study: Study, location: Location) -> "OpenStudy":
        """Load the data of a study and plan it."""
        return cls._of(StudyContext(study, location))

    @classmethod
    def _of(cls, ctx: StudyContext) -> "OpenStudy":
        return cls(ctx, plan_study(ctx.study, ctx.data.train.labels, len(ctx.data.test.labels)))

    @property
    def study(self) -> Study:
        return self.ctx.study

    @property
    def store(self) -> Store:
        return self.ctx.store

    def variant(self, study: Study) -> "OpenStudy":
        """Open another study at the same place; the same data are not read again."""
        same = all(getattr(study, key) == getattr(self.study, key) for key in ("data", "model", "pipeline"))
        return self._of(StudyContext(study, self.ctx.location, self.ctx.data if same else None))

    def done(self, task: Task) -> bool:
        """Return True if the store has all that the task makes."""
        return task.done(self.ctx)

    def sizes(self, forget: str) -> dict[str, int]:
        """Return the examples by split, of the first seed: planned numbers until the examples are selected."""
        planned = self.plan.sizes[forget]
        task = next(task for task in self.plan.of_type(Evaluate) if task.forget == forget)
        try:
            splits = task.splits(self.ctx)
        except NotMadeError:
            return dict(planned)
        return {name: len(getattr(splits, name)) for name in planned}

    def with_found_settings(self) -> Study:
        """Return the study with the settings that its searches found written into it, and nothing left to search."""
        found: dict[str, dict[str, Mapping[str, Any]]] = {}
        for task in self.plan.of_type(Tune):
            if task.done(self.ctx):
                found.setdefault(task.forget, {})[task.row.name] = task.found(self.ctx).settings
        return replace(self.study, settings=merged(self.study.settings, found), tune={})
