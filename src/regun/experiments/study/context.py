"""A study opened to work on: its data, store and plan, and what of it has been made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from regun.artifacts import Artifact, Store
from regun.artifacts.audits import Auditing, model_before
from regun.artifacts.relearnings import Relearning, stored_curve
from regun.artifacts.selection import resolved_ids
from regun.artifacts.setup import Setup
from regun.artifacts.trainings import Training
from regun.artifacts.unlearnings import Unlearning
from regun.auditing.durability import Curve
from regun.data.examples import Data
from regun.errors import RegunError
from regun.experiments.search import SearchResult
from regun.experiments.study.forget_sets import select_id
from regun.experiments.study.planning import StudyPlan, plan_study
from regun.experiments.study.spec import Study, merged
from regun.experiments.study.tasks import Task, Tune
from regun.forget_spec import ForgetSpec
from regun.methods import Method, get_method
from regun.splits import Reserve, Splits, make_splits


@dataclass(frozen=True)
class Location:
    """Where a study runs: its store, the folder of its data sets, the device."""

    store: str
    data_dir: str | None = None
    device: str = "cpu"
    snapshot_seconds: float = 20.0


class StudyContext:
    """A study's data, store and plan, opened once a process."""

    def __init__(self, study: Study, place: Location, data: Data | None = None) -> None:
        self.study, self.place = study, place
        self.store = Store(place.store, snapshot_seconds=place.snapshot_seconds, trusted=study.code())
        self.device = torch.device(place.device)
        self.data = data if data is not None else self.setup(study.seeds[0]).load()[0]
        self._reserves: dict[int, Reserve] = {}
        self._splits: dict[tuple[int, str], Splits] = {}
        self._seen: dict[str, Data] = {}
        self._keys: dict[str, list[tuple[str, str]]] = {}
        self._models: dict[str, Artifact] = {}

    def beside(self, study: Study) -> "StudyContext":
        """The workshop of another study on the same data, which are not read again."""
        same = (study.data, study.model, study.augment) == (self.study.data, self.study.model, self.study.augment)
        return StudyContext(study, self.place, self.data if same else None)

    @cached_property
    def plan(self) -> StudyPlan:
        return plan_study(self.study, self.data.train.labels, len(self.data.test.labels))

    def setup(self, split: int) -> Setup:
        return self.study.setup(split, self.place.data_dir)

    def about(self, task: Task) -> dict[str, Any]:
        """What a task's manifests remember, so that data and split can be loaded again."""
        return self.setup(task.split).about()

    def reserve(self, split: int) -> Reserve:
        if split not in self._reserves:
            self._reserves[split] = self.study.reserve(self.data.train.labels, split)
        return self._reserves[split]

    def splits(self, split: int, forget: str) -> Splits:
        if (split, forget) not in self._splits:
            asked = self._asked(split, forget)
            self._splits[split, forget] = make_splits(self.data.train.labels, asked, self.reserve(split))
        return self._splits[split, forget]

    def sizes(self, forget: str) -> dict[str, int]:
        """Examples by split, of the first seed: as planned until models have answered which they are."""
        planned = dict(self.plan.sizes[forget])
        try:
            splits = self.splits(self.study.split_of(self.study.seeds[0]), forget)
        except RegunError:
            return planned
        return {name: len(getattr(splits, name)) for name in planned}

    def _asked(self, split: int, forget: str) -> ForgetSpec:
        """The request; one that models answer as the ids they named, which must be in the store."""
        asked = self.study.request(forget)
        if not asked.needs_model:
            return asked
        found = self.made(self.plan.tasks[select_id(forget, split)])
        if found is None:
            raise RegunError(f"which examples {forget} means is not in the store {self.store.root} yet; run the study.")
        return resolved_ids(found)

    def base_training(self, split: int) -> Training:
        """How the base model of a split is trained, from the seed of the split."""
        study = self.study
        return Training(
            data=self.data,
            trained_on=self.reserve(split).base,
            model=study.model_spec,
            recipe=study.recipe_value,
            seed=split,
        )

    def keys(self, task: Task) -> list[tuple[str, str]] | None:
        """Kinds and keys of what a task makes, computed once; None while something that decides them is missing."""
        if task.id not in self._keys:
            try:
                makes = task.makes(self)
            except RegunError:  # what cannot even be set up says so when it is done
                makes = None
            if makes is None:
                return None
            self._keys[task.id] = [(kind, self.store.key(kind, inputs)) for kind, inputs in makes]
        return self._keys[task.id]

    def done(self, task: Task) -> bool:
        """Whether the store has what the task makes; False also while something it needs is missing."""
        keys = self.keys(task)
        return keys is not None and all(self.store.has(*key) for key in keys)

    def made(self, task: Task) -> Artifact | None:
        """What the task made, if it is there."""
        keys = self.keys(task)
        return self.store.load(*keys[0]) if keys is not None and self.store.has(*keys[0]) else None

    def model(self, task_id: str) -> Artifact | None:
        """The model that a task makes, if it is there."""
        if task_id not in self._models:
            found = self.made(self.plan.tasks[task_id])
            if found is None:
                return None
            self._models[task_id] = found
        return self._models[task_id]

    def models(self, task_ids: Sequence[str]) -> list[Artifact] | None:
        """All of these models, or None if one is missing."""
        found = [self.model(name) for name in task_ids]
        there = [model for model in found if model is not None]
        return there if len(there) == len(found) else None

    def needed(self, task_id: str) -> Artifact:
        found = self.model(task_id)
        if found is None:
            raise RegunError(f"the model of {task_id!r} is not in the store {self.store.root}; make it first.")
        return found

    def tuned(self, task: Task) -> SearchResult | None:
        """What a search found, if it is over."""
        found = self.made(task)
        return None if found is None else SearchResult.from_json(found.info["tuned"])

    def searched(self, task_id: str) -> Mapping[str, Any] | None:
        """The settings that a search found: none if there is nothing to search, None while it is not over."""
        if not task_id:
            return {}
        found = self.tuned(self.plan.tasks[task_id])
        return None if found is None else found.best_values

    def unlearning(
        self,
        entry: str,
        split: int,
        forget: str,
        base: Artifact,
        values: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> Unlearning:
        """The run of a row's method on one request, with the settings `values` over its own."""
        method, config = self.study.resolve(self.study.entries()[entry], forget, values)
        return Unlearning(
            base=base,
            data=self._seen_by(split, method),
            splits=self.splits(split, forget),
            method=method,
            config=config,
            seed=seed,
            budget=self.study.budget_value,
        )

    def audit(self, task: Task, model: str, judges: Sequence[str]) -> Auditing | None:
        """The audit of a model by Retrain and the references, once all of them are there."""
        target, others = self.model(model), self.models(judges)
        if target is None or others is None:
            return None
        study, splits = self.study, self.splits(task.split, task.forget)
        return Auditing(
            target=target,
            data=self.data,
            splits=splits,
            before=model_before(target, splits, self.store),
            retrain=others[0],
            references=tuple(others[1:]),
            attacks=study.audit_attacks,
            metrics=study.audit_metrics,
            bootstrap=study.bootstrap,
        )

    def relearning(self, task: Task, model: str, base: str) -> Relearning | None:
        """The relearning check of a model, once it and the base whose recipe it follows are there."""
        models = self.models((model, base))
        if models is None:
            return None
        seen = self._seen_by(task.split, get_method("finetune"))
        return Relearning.of(models[0], seen, self.splits(task.split, task.forget), models[1])

    def curve(self, task_id: str) -> Curve | None:
        """What a relearning check found, if it is over and the model gave finite answers."""
        kept = self.made(self.plan.tasks[task_id]) if task_id in self.plan.tasks else None
        return None if kept is None or "not_finite" in kept.info else stored_curve(kept)

    def _seen_by(self, split: int, method: Method) -> Data:
        """The data as a method sees them, made once."""
        if method.name not in self._seen:
            self._seen[method.name] = self.setup(split).data_for(method, self.data)
        return self._seen[method.name]

    def frozen(self) -> Study:
        """The study with the settings that its searches found written into it, and nothing left to search."""
        found: dict[str, dict[str, Mapping[str, Any]]] = {}
        for task in self.plan.tasks.values():
            tuned = self.tuned(task) if isinstance(task, Tune) else None
            if tuned is not None and isinstance(task, Tune):
                found.setdefault(task.forget, {})[task.entry] = tuned.settings
        return replace(self.study, settings=merged(self.study.settings, found), tune={})
