"""Doing one task of a study: from its description to an artefact of the store."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from regun.data.arrays import ArrayExamples
from regun.data.examples import Data
from regun.data.presets import pipeline
from regun.errors import NotFiniteError, RegunError
from regun.runs.audit import (
    Judging,
    Models,
    audit_models,
    audited_parts,
    cached_floor,
    cached_signals,
    evaluation_inputs,
    floor_inputs,
    signals_inputs,
)
from regun.runs.setup import Setup
from regun.runs.training import Training, Unlearning, Watch, train_model, unlearn_model
from regun.settings import parse_spec
from regun.splits import Reserve, Splits, make_splits, reserve
from regun.store import Artefact, Store
from regun.study.plan import Plan, Task, plan_study
from regun.study.spec import Study, merged
from regun.training.job import Epoch, Progress
from regun.tune import Space, Trial, Tuned, Tuning, tune

Tell = Callable[[Mapping[str, Any]], None]
"""Receives what happens while a task is done: resumed, step, epoch."""


@dataclass(frozen=True)
class Place:
    """Where a study runs: its store, the folder of its data sets, the device."""

    store: str
    data_dir: str | None = None
    device: str = "cpu"
    snapshot_seconds: float = 20.0


class Workshop:
    """A study's data, store and plan, opened once a process."""

    def __init__(self, study: Study, place: Place, data: Data | None = None) -> None:
        self.study, self.place = study, place
        self.store = Store(place.store, snapshot_seconds=place.snapshot_seconds)
        self.device = torch.device(place.device)
        self.data = data if data is not None else study.setup(study.seeds[0], place.data_dir).load()[0]
        self._kept: dict[int, Reserve] = {}
        self._splits: dict[tuple[int, str], Splits] = {}
        self._found: dict[str, Artefact] = {}

    def beside(self, study: Study) -> "Workshop":
        """The workshop of another study on the same data, which are not read again."""
        same = (study.data, study.model, study.augment) == (self.study.data, self.study.model, self.study.augment)
        return Workshop(study, self.place, self.data if same else None)

    @cached_property
    def plan(self) -> Plan:
        return plan_study(self.study, self.data.train.labels, len(self.data.test.labels))

    @cached_property
    def unlearning_data(self) -> Data:
        """The same images, with the augmentation that the paper unlearns with."""
        preset = self.study.setup(self.study.seeds[0], self.place.data_dir, unlearning=True).preset
        train = self.data.train
        if not isinstance(train, ArrayExamples) or preset == train.pipeline.name:
            return self.data
        changed = replace(train, pipeline=pipeline(preset, self.data.name), known_digest=train.digest)
        return replace(self.data, train=changed)

    def splits(self, split: int, forget: str) -> Splits:
        if (split, forget) not in self._splits:
            request = self.study.request(forget)
            self._splits[split, forget] = make_splits(self.data.train.labels, request, self._reserve(split))
        return self._splits[split, forget]

    def done(self, task: Task) -> bool:
        """Whether the store has what the task makes; False also while something it needs is missing."""
        if task.kind in ("train", "unlearn"):
            return self.model(task.id) is not None
        if task.kind == "tune":
            return self.tuned(task) is not None
        models = [self.model(name) for name in task.models]
        if any(m is None for m in models):
            return False
        present = [m for m in models if m is not None]
        return all(self.store.has(kind, self.store.key(kind, inputs)) for kind, inputs in self._makes(task, present))

    def model(self, task_id: str) -> Artefact | None:
        """The model that a task makes, if it is there."""
        if task_id not in self._found:
            task = self.plan.tasks[task_id]
            inputs = self._model_inputs(task)
            if inputs is None or not self.store.has("model", self.store.key("model", inputs)):
                return None
            self._found[task_id] = self.store.load("model", self.store.key("model", inputs))
        return self._found[task_id]

    def tuned(self, task: Task) -> Tuned | None:
        """What a search found, if it is over; one that cannot even be set up says so when it is done."""
        try:
            tuning = self._tuning(task)
        except RegunError:
            return None
        if tuning is None or not self.store.has("tuning", tuning.key()):
            return None
        return Tuned.from_json(self.store.load("tuning", tuning.key()).info["tuned"])

    def frozen(self) -> Study:
        """The study with the settings that its searches found written into it, and nothing left to search."""
        found: dict[str, dict[str, Mapping[str, Any]]] = {}
        for task in self.plan.tasks.values():
            tuned = self.tuned(task) if task.kind == "tune" else None
            if tuned is not None:
                found.setdefault(task.forget, {})[task.entry] = tuned.settings
        return replace(self.study, settings=merged(self.study.settings, found), tune={})

    def do(self, task: Task, tell: Tell) -> str:
        """Make what the task describes, or find it: its key, or why a diverged model has no answers to look at."""
        watch = _watch(tell)
        if task.kind == "train":
            return self._train(task, watch).key
        if task.kind == "unlearn":
            return self._unlearn(task, watch).key
        if task.kind == "tune":
            return self._tune(task, watch, tell)
        models = [self._needed(name) for name in task.models]
        splits = self.splits(task.split, task.forget)
        try:
            if task.kind == "signals":
                return self._ask(models[0], splits)
            elif task.kind == "floor":
                judges = Models(models[0], models[0], tuple(models[1:]))
                cached_floor(judges, self.data, splits, self.store, self.device, self.judging)
            else:
                audit_models(self.judged(models), self.data, splits, self.store, self.device, self.judging)
        except NotFiniteError as fault:
            if "method" not in models[0].info:
                raise
            return f"no finite answers: {fault}"
        kind, inputs = self._makes(task, models)[0]
        return self.store.key(kind, inputs)

    def training(self, task: Task) -> Training:
        """The training that a task describes."""
        trained_on = self.splits(task.split, task.forget).retain if task.forget else self._reserve(task.split).base
        return Training(self.data, trained_on, self.study.model_spec, self.study.recipe_value, task.seed)

    def _ask(self, model: Artefact, splits: Splits) -> str:
        """The model's answers on every split; those that are not finite are kept as such, split by split."""
        faults: list[str] = []
        for examples, indices in audited_parts(self.data, splits).values():
            try:
                cached_signals(model, examples, indices, self.store, self.device)
            except NotFiniteError as fault:
                faults.append(str(fault))
        if faults and "method" not in model.info:
            raise NotFiniteError(faults[0])
        return f"no finite answers: {faults[0]}" if faults else model.key

    @property
    def judging(self) -> Judging:
        return Judging(bootstrap=self.study.bootstrap)

    @staticmethod
    def judged(models: list[Artefact]) -> Models:
        """The model, Retrain and the references, as tasks list them."""
        return Models(models[0], models[1], tuple(models[2:]))

    def _reserve(self, split: int) -> Reserve:
        if split not in self._kept:
            study, labels = self.study, self.data.train.labels
            self._kept[split] = reserve(
                labels, split, heldout=study.heldout, val=study.val, stratified=study.stratified
            )
        return self._kept[split]

    def _needed(self, task_id: str) -> Artefact:
        found = self.model(task_id)
        if found is None:
            raise RegunError(f"the model of {task_id!r} is not in the store {self.store.root}; make it first.")
        return found

    def _unlearning(self, task: Task, base: Artefact, values: Mapping[str, Any] | None = None) -> Unlearning:
        splits = self.splits(task.split, task.forget)
        method, config = self.study.resolve(self.study.entries()[task.entry], task.forget, values)
        return Unlearning(base, self.unlearning_data, splits, method, config, task.seed, self.study.budget_value)

    def _tuning(self, task: Task) -> Tuning | None:
        """The search of a task, once the models it looks at are there."""
        models = [self.model(name) for name in task.models]
        how = self.study.tuning
        present = [model for model in models if model is not None]
        if how is None or len(present) < len(models):
            return None
        run = self._unlearning(task, present[0])
        fixed = tuple(parse_spec(self.study.entries()[task.entry])[1])
        space = Space.of(run.method, run.config, self.study.family, fixed)
        judges = Models(present[0], present[1], tuple(present[2:])) if len(present) > 1 else None
        return Tuning(run, space, how.objective, how.trials, how.seed, models=judges, fixed=fixed)

    def _model_inputs(self, task: Task) -> dict[str, Any] | None:
        if task.kind == "train":
            return self.training(task).inputs(self.device)
        base, values = self.model(task.models[0]), self._tuned_values(task)
        return None if base is None or values is None else self._unlearning(task, base, values).inputs()

    def _tuned_values(self, task: Task) -> Mapping[str, Any] | None:
        """The settings that a search found for this method: none if it is not searched, None while it is not over."""
        searches = [self.plan.tasks[name] for name in task.needs if self.plan.tasks[name].kind == "tune"]
        if not searches:
            return {}
        found = self.tuned(searches[0])
        return None if found is None else found.best_values

    def _makes(self, task: Task, models: list[Artefact]) -> list[tuple[str, dict[str, Any]]]:
        """Kinds and inputs of the artefacts behind a task that looks at finished models."""
        splits = self.splits(task.split, task.forget)
        if task.kind == "signals":
            parts = audited_parts(self.data, splits).values()
            return [("signals", signals_inputs(models[0], *part)) for part in parts]
        if task.kind == "floor":
            judges = Models(models[0], models[0], tuple(models[1:]))
            return [("floor", floor_inputs(judges, self.data, splits, self.judging))]
        return [("evaluation", evaluation_inputs(self.judged(models), self.data, splits, self.judging))]

    def _train(self, task: Task, watch: Watch) -> Artefact:
        about = {"role": task.label.partition(",")[0].split(" ")[0], "without": task.forget or None}
        about |= self._setup(task).about()
        return train_model(self.training(task), self.store, self.device, about=about, watch=watch)

    def _unlearn(self, task: Task, watch: Watch) -> Artefact:
        splits = self.splits(task.split, task.forget)
        about = {**self._setup(task).about(), "request": task.forget, "split_digest": splits.digest}
        values = self._tuned_values(task)
        if values is None:
            raise RegunError(f"{task.label} waits for settings that have not been searched yet.")
        unlearning = self._unlearning(task, self._needed(task.models[0]), values)
        return unlearn_model(unlearning, self.store, self.device, about=about, watch=watch)

    def _tune(self, task: Task, watch: Watch, tell: Tell) -> str:
        tuning = self._tuning(task)
        if tuning is None:
            raise RegunError(f"{task.label} waits for models that are not in the store {self.store.root}.")

        def trial(done: Trial) -> None:
            trials = min(tuning.trials, tuning.space.size or tuning.trials)
            tell({"event": "trial", "number": done.number, "trials": trials, "score": done.score})

        tune(tuning, self.store, self.device, about=self._setup(task).about(), watch=watch, on_trial=trial)
        return tuning.key()

    def _setup(self, task: Task) -> Setup:
        return replace(self.study.setup(task.seed, self.place.data_dir), split_seed=task.split)


def _watch(tell: Tell) -> Watch:
    def epoch(done: Epoch, model: Any) -> None:
        tell({"event": "epoch", **vars(done)})

    def progress(p: Progress) -> None:
        tell({"event": "step", **vars(p)})

    def resume(epoch: int, step: int) -> None:
        tell({"event": "resumed", "epoch": epoch + 1, "step": step + 1})

    return Watch(epoch, progress, resume)
