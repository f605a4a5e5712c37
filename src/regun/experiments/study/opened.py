"""A study that is open for work: its data, splits and store, and its plan."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regun.data.examples import Data
from regun.experiments.study.context import Location, StudyContext
from regun.experiments.study.plan import plan_study
from regun.experiments.study.spec import Study, merged
from regun.experiments.study.tasks import Evaluate, NotMadeError, Tune


class OpenStudy(StudyContext):
    """The context of a study, which its tasks read, together with the plan of its tasks."""

    def __init__(self, study: Study, location: Location, data: Data | None = None) -> None:
        super().__init__(study, location, data)
        self.plan = plan_study(study, self.data.train.labels, len(self.data.test.labels))

    def variant(self, study: Study) -> "OpenStudy":
        """Open another study at the same place; the same data are not read again."""
        same = all(getattr(study, key) == getattr(self.study, key) for key in ("data", "model", "pipeline"))
        return OpenStudy(study, self.location, self.data if same else None)

    def sizes(self, forget: str) -> dict[str, int]:
        """Return the examples by split, of the first seed: planned numbers until the examples are selected."""
        planned = self.plan.sizes[forget]
        task = next(task for task in self.plan.of_type(Evaluate) if task.forget == forget)
        try:
            splits = task.splits(self)
        except NotMadeError:
            return dict(planned)
        return {name: len(getattr(splits, name)) for name in planned}

    def with_searched_settings(self) -> Study:
        """Return the study with the settings of its finished searches written into it, and nothing left to search."""
        settings: dict[str, dict[str, Mapping[str, Any]]] = {}
        for task in self.plan.of_type(Tune):
            if task.done(self):
                settings.setdefault(task.forget, {})[task.row.name] = task.search_result(self).settings
        return replace(self.study, settings=merged(self.study.settings, settings), tune={}, untuned=())
