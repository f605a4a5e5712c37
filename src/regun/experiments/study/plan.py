"""From a study to its tasks, before anything runs: a pure function of the study and the training labels."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from regun.artifacts.out_of_fold import FOLDS, REPEATS, SHARE
from regun.artifacts.selection import EARLY, EARLY_EPOCHS, EARLY_SHARE
from regun.experiments.search import Space
from regun.experiments.study.spec import FIRST_REFERENCE, MethodRow, Study
from regun.experiments.study.tasks import (
    KINDS,
    CrossFit,
    Evaluate,
    FitFold,
    MeasureFloor,
    Model,
    Predict,
    Relearn,
    Select,
    Task,
    Train,
    TrainEarly,
    Tune,
    Unlearn,
)
from regun.forget_spec import ForgetSpec
from regun.methods import Method, Work
from regun.relearning import RETAINED, relearn_updates, relearning_checkpoints
from regun.splits import Reserve, make_splits
from regun.training.recipes import shorten
from regun.types import Indices

FORWARD = 1 / 3
"""The cost of a sample's forward pass, as a share of forward and backward together."""

AnyTask = TypeVar("AnyTask", bound=Task)


@dataclass(frozen=True)
class StudyPlan:
    """The tasks of a study by id, in an order in which they can be done."""

    study: Study
    tasks: Mapping[str, Task]
    sizes: Mapping[str, Mapping[str, int]]
    """By request, of the first seed: examples in retain, forget, heldout, val."""

    def of_type(self, kind: type[AnyTask]) -> list[AnyTask]:
        """Return the tasks of a class."""
        return [task for task in self.tasks.values() if isinstance(task, kind)]

    def counts(self) -> dict[str, int]:
        """Return the number of tasks of each kind."""
        counted = Counter(task.kind for task in self.tasks.values())
        return {kind: counted[kind] for kind in KINDS if counted[kind]}

    def steps(self, kind: str) -> int:
        """Return the optimizer steps of all tasks of a kind, of methods that state them."""
        return sum(task.work.steps for task in self.tasks.values() if task.kind == kind and task.work)

    def samples(self) -> int:
        """Return the samples through backward passes, forward passes counted by their share."""
        return sum(task.work.samples for task in self.tasks.values() if task.work)

    def request_share(self, name: str, forget: str) -> float | None:
        """Return the planned cost of one request in percent of a retraining; None for a method that does not state it.

        Costs are samples through backward passes.
        """
        task = next(task for task in self.of_type(Unlearn) if (task.row.name, task.forget) == (name, forget))
        return 100.0 * task.work.samples / self._retraining(forget) if task.work else None

    def once_share(self, name: str, forget: str) -> float | None:
        """Return the planned cost of the method's table in percent of a retraining; None without a table."""
        task = next(task for task in self.of_type(Unlearn) if (task.row.name, task.forget) == (name, forget))
        if task.table is None:
            return None
        return 100.0 * sum(fold.work.samples for fold in task.table.folds if fold.work) / self._retraining(forget)

    def _retraining(self, forget: str) -> int:
        return next(task.work.samples for task in self.of_type(Train) if task.forget == forget and task.work)


def plan_study(study: Study, labels: Indices, test: int = 0) -> StudyPlan:
    """Plan every task of the study; `labels` are those of the training set, `test` counts the test examples."""
    planner = _Planner(study, labels, test)
    for seed in study.seeds:
        for forget in study.forget:
            planner.add_request(seed, forget)
    sizes = {forget: planner.sizes(study.seeds[0], forget) for forget in study.forget}
    return StudyPlan(study, {task.id: task for task in _in_order(planner.tasks.values())}, sizes)


@dataclass
class _Planner:
    """Adds tasks; a task whose id was planned before is that task."""

    study: Study
    labels: Indices
    test: int
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    reserves: dict[int, Reserve] = field(default_factory=dict[int, Reserve])
    _sizes: dict[tuple[int, str], dict[str, int]] = field(default_factory=dict[tuple[int, str], dict[str, int]])

    def add(self, task: AnyTask) -> AnyTask:
        planned = self.tasks.setdefault(task.id, task)
        assert isinstance(planned, type(task))
        return planned

    def sizes(self, seed: int, forget: str) -> dict[str, int]:
        split = self.study.split_of(seed)
        if split not in self.reserves:
            self.reserves[split] = self.study.reserve(self.labels, split)
        if (split, forget) not in self._sizes:
            self._sizes[split, forget] = _sizes(self.labels, self.study.requests[forget], self.reserves[split])
        return self._sizes[split, forget]

    def add_request(self, seed: int, forget: str) -> None:
        """Add everything that one request of one seed takes."""
        study, split = self.study, self.study.split_of(seed)
        where = f"{self.label(forget)}, seed {seed}"
        base, selection = self.train_base(seed), self.select(seed, forget)
        retrain = self.retrain(seed, forget, seed)
        retrained = (retrain, *(self.retrain(seed, forget, other) for other in study.reference_seeds))
        predictions: dict[Model, Predict] = {m: self.predict(m, seed, forget) for m in (base, *retrained)}
        floor = None
        if study.references > 1:
            floor = self.add(
                MeasureFloor(
                    id=f"floor, {forget}, seed {seed}",
                    label=f"noise floor, {where}",
                    split=split,
                    seed=seed,
                    forget=forget,
                    selection=selection,
                    retrained=retrained,
                    predictions=tuple(predictions[model] for model in retrained),
                )
            )
        models: list[tuple[str, int, Model]] = [("retrain", 0, retrain), ("base", 0, base)]
        for row in study.rows.values():
            for repeat in range(study.repeats):
                model = self.unlearn(row, repeat, seed, forget, base)
                predictions[model] = self.predict(model, seed, forget)
                models.append((row.name, repeat, model))
        for model in (*retrained, *(model for _, _, model in models)) if study.relearn else ():
            self.relearn(model, seed, forget, base)
        for name, repeat, model in models:
            compared = (model, *retrained) if model is retrain else (model, base, *retrained)
            self.add(
                Evaluate(
                    id=f"evaluate {name}, {forget}, seed {seed}{_run(repeat)}",
                    label=f"audit of {study.title_of(name)}, {where}{_run(repeat)}",
                    split=split,
                    seed=seed,
                    forget=forget,
                    selection=selection,
                    name=name,
                    repeat=repeat,
                    model=model,
                    base=base,
                    retrained=retrained,
                    predictions=tuple(dict.fromkeys(predictions[other] for other in compared)),
                    floor=floor,
                )
            )

    def train_base(self, seed: int, training_seed: int | None = None) -> Train:
        """Add the base model of a seed's split, trained from that seed or another one."""
        split, own = self.study.split_of(seed), seed if training_seed is None else training_seed
        sizes = self.sizes(seed, self.study.forget[0])
        return self.add(
            Train(
                id=f"train base, split {split}, seed {own}",
                label=f"base, seed {seed}",
                split=split,
                seed=own,
                role="base",
                work=self._epochs(sizes["retain"] + sizes["forget"]),
            )
        )

    def retrain(self, seed: int, forget: str, training_seed: int) -> Train:
        """Add a model trained without the forget set: Retrain, from the study's seed, or a reference."""
        split, number = self.study.split_of(seed), training_seed - FIRST_REFERENCE + 1
        role = "reference" if number > 0 else "retrain"
        return self.add(
            Train(
                id=f"train without {forget}, split {split}, seed {training_seed}",
                label=f"{role}{f' {number}' if number > 0 else ''}, {self.label(forget)}, seed {seed}",
                split=split,
                seed=training_seed,
                forget=forget,
                selection=self.select(seed, forget),
                role=role,
                work=self._epochs(self.sizes(seed, forget)["retain"]),
            )
        )

    def select(self, seed: int, forget: str) -> Select | None:
        """Add the models that decide which examples a request means, and their selection; None if it needs none."""
        split, request = self.study.split_of(seed), self.study.requests[forget]
        if not request.needs_model:
            return None
        task_id = f"select {forget}, split {split}"
        planned = self.tasks.get(task_id)
        if isinstance(planned, Select):
            return planned
        models: tuple[Train | TrainEarly, ...]
        if request.needs_early_models:
            models = tuple(self.train_early(number, seed) for number in range(EARLY))
        else:
            models = (self.train_base(seed, split),)
        samples = sum(self.sizes(seed, forget).values()) * len(models)
        return self.add(
            Select(
                id=task_id,
                label=f"which examples {self.label(forget)} are, split {split}",
                split=split,
                seed=split,
                forget=forget,
                models=models,
                work=Work(0, round(FORWARD * samples)),
            )
        )

    def train_early(self, number: int, seed: int) -> TrainEarly:
        split, recipe = self.study.split_of(seed), shorten(self.study.recipe_value, EARLY_SHARE, EARLY_EPOCHS)
        self.sizes(seed, self.study.forget[0])
        examples = len(self.reserves[split].pool)
        return self.add(
            TrainEarly(
                id=f"train early {number + 1}, split {split}",
                label=f"short training {number + 1} of {EARLY}, split {split}",
                split=split,
                seed=seed,
                number=number,
                work=Work(recipe.epochs * -(-examples // recipe.batch_size), recipe.epochs * examples),
            )
        )

    def cross_fit(self, seed: int) -> CrossFit:
        """Add the out-of-fold predictions of a seed's split: a short training per fold, and the table of them."""
        split, recipe = self.study.split_of(seed), shorten(self.study.recipe_value, SHARE)
        sizes = self.sizes(seed, self.study.forget[0])
        examples = sizes["retain"] + sizes["forget"]
        trained_on = examples - round(examples / FOLDS)
        folds = tuple(
            self.add(
                FitFold(
                    id=f"fold {number + 1}, repeat {repeat + 1}, split {split}",
                    label=f"training without fold {number + 1} of {FOLDS}, split {split}{_run(repeat)}",
                    split=split,
                    seed=split,
                    number=number,
                    repeat=repeat,
                    work=Work(recipe.epochs * -(-trained_on // recipe.batch_size), recipe.epochs * trained_on),
                )
            )
            for repeat in range(REPEATS)
            for number in range(FOLDS)
        )
        return self.add(
            CrossFit(
                id=f"table, split {split}",
                label=f"table of out-of-fold predictions, split {split}",
                split=split,
                seed=split,
                folds=folds,
            )
        )

    def unlearn(self, row: MethodRow, repeat: int, seed: int, forget: str, base: Train) -> Unlearn:
        study = self.study
        method, config = study.resolve(row.text, forget)
        table = self._table(method, config, seed, forget)
        return self.add(
            Unlearn(
                id=f"unlearn {row.name}, {forget}, seed {seed}{_run(repeat)}",
                label=f"{row.title}, {self.label(forget)}, seed {seed}{_run(repeat)}",
                split=study.split_of(seed),
                seed=seed,
                forget=forget,
                selection=self.select(seed, forget),
                row=row,
                repeat=repeat,
                base=base,
                tune=self.tune(row, forget) if study.tuning and method.search.get(study.family) else None,
                table=table,
                work=self._method_work(method, config, self.sizes(seed, forget), table is not None),
            )
        )

    def tune(self, row: MethodRow, forget: str) -> Tune:
        """Add the search for a method's settings: once for each request, on one seed, used for all seeds."""
        study, tuning, task_id = self.study, self.study.tuning, f"tune {row.name}, {forget}"
        planned = self.tasks.get(task_id)
        if isinstance(planned, Tune):
            return planned
        assert tuning is not None
        seed = study.tuned_on
        selection, base = self.select(seed, forget), self.train_base(seed)
        others = (seed, *study.reference_seeds) if tuning.objective == "gap" else ()
        retrained = tuple(self.retrain(seed, forget, other) for other in others)
        method, config = study.resolve(row.text, forget)
        trials = Space.of(method, config, study.family, tuple(row.spec.settings)).at_most(tuning.trials)
        table = self._table(method, config, seed, forget)
        one = self._method_work(method, config, self.sizes(seed, forget), table is not None)
        return self.add(
            Tune(
                id=task_id,
                label=f"tune {row.title}, {self.label(forget)}",
                split=study.split_of(seed),
                seed=seed,
                forget=forget,
                selection=selection,
                row=row,
                base=base,
                retrained=retrained,
                trials=trials,
                table=table,
                work=Work(trials * one.steps, trials * one.samples) if one else None,
            )
        )

    def relearn(self, model: Model, seed: int, forget: str, base: Train) -> Relearn:
        sizes, split = self.sizes(seed, forget), self.study.split_of(seed)
        updates = relearn_updates(self.study.recipe_value)
        points = relearning_checkpoints(updates, sizes["retain"])
        predicted = sizes["forget"] + (self.test or sizes["heldout"]) + min(RETAINED, sizes["retain"])
        samples = updates.epochs * sizes["retain"] + round(FORWARD * len(points) * predicted)
        return self.add(
            Relearn(
                id=f"relearn {model.id}: {forget}, split {split}",
                label=f"relearning of {self._model_label(model, seed, forget)}",
                split=split,
                seed=seed,
                forget=forget,
                selection=self.select(seed, forget),
                model=model,
                base=base,
                work=Work(points[-1], samples),
            )
        )

    def predict(self, model: Model, seed: int, forget: str) -> Predict:
        split, samples = self.study.split_of(seed), sum(self.sizes(seed, forget).values()) + self.test
        return self.add(
            Predict(
                id=f"predict with {model.id}: {forget}, split {split}",
                label=f"predictions of {self._model_label(model, seed, forget)}",
                split=split,
                seed=seed,
                forget=forget,
                selection=self.select(seed, forget),
                model=model,
                work=Work(0, round(FORWARD * samples)),
            )
        )

    def label(self, forget: str) -> str:
        return self.study.requests[forget].label

    def _model_label(self, model: Model, seed: int, forget: str) -> str:
        """Return a model's name for the label of a task about it."""
        name = model.row.title if isinstance(model, Unlearn) else model.label.partition(",")[0]
        run = _run(model.repeat) if isinstance(model, Unlearn) else ""
        return f"{name}, {self.label(forget)}, seed {seed}{run}"

    def _epochs(self, examples: int) -> Work:
        recipe = self.study.recipe_value
        return Work(recipe.epochs * -(-examples // recipe.batch_size), recipe.epochs * examples)

    def _table(self, method: Method, config: Any, seed: int, forget: str) -> CrossFit | None:
        """Add the table of out-of-fold predictions if the method would use it."""
        sizes = self.sizes(seed, forget)
        uses = method.uses_table(config, sizes["forget"], sizes["retain"], self.study.recipe_value)
        return self.cross_fit(seed) if uses else None

    def _method_work(self, method: Method, config: Any, sizes: Mapping[str, int], table: bool) -> Work | None:
        budget, recipe = self.study.budget_value, self.study.recipe_value
        return method.planned(config, sizes["forget"], sizes["retain"], budget, recipe, table)


def _sizes(labels: Indices, spec: ForgetSpec, reserved: Reserve) -> dict[str, int]:
    """Return the number of examples per split; an estimate where models must rank the examples first."""
    if not spec.needs_model:
        splits = make_splits(labels, spec, reserved)
        return {name: len(getattr(splits, name)) for name in ("retain", "forget", "heldout", "val")}
    if spec.needs_early_models:
        forget = round(spec.fraction * (len(reserved.val) + len(reserved.pool)))
    elif spec.kind == "like":
        forget = spec.count
    else:
        members = labels[reserved.pool] == spec.classes[0] if spec.classes else reserved.pool >= 0
        forget = max(1, int(members.sum()) // spec.parts)
    forget = min(forget, len(reserved.pool) - 1)
    retain = len(reserved.pool) - forget
    return {"retain": retain, "forget": forget, "heldout": len(reserved.heldout), "val": len(reserved.val)}


def _run(repeat: int) -> str:
    return f", run {repeat + 1}" if repeat else ""


def _in_order(tasks: Iterable[Task]) -> Iterator[Task]:
    """Yield the tasks, needs first, otherwise in the order in which they were planned."""
    done: set[Task] = set()

    def visit(task: Task) -> Iterator[Task]:
        if task not in done:
            done.add(task)
            for need in task.needs:
                yield from visit(need)
            yield task

    for task in tasks:
        yield from visit(task)


def labels_of_size(total: int) -> Indices:
    """Return stand-in labels for planning random requests on data that are not here: only their number matters."""
    return np.zeros(total, dtype=np.int64)
