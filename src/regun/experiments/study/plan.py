"""From a study to its tasks, before anything runs: a pure function of the study and the training labels."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from regun.artifacts.out_of_fold import FOLDS, REPEATS, SHARE
from regun.artifacts.selection import EARLY, early_recipe
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
    Request,
    Select,
    Task,
    Train,
    Tune,
    Unlearn,
)
from regun.forget_spec import ForgetSpec
from regun.methods import Method, Work
from regun.relearning import RETAINED, relearn_updates, relearning_checkpoints
from regun.splits import Reserve, make_splits
from regun.training.recipes import Recipe, shorten
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
    sizes = {forget: planner.request(study.seeds[0], forget).sizes for forget in study.forget}
    return StudyPlan(study, {task.id: task for task in _in_order(planner.tasks.values())}, sizes)


@dataclass
class _Planner:
    """Adds tasks; a task whose id was planned before is that task."""

    study: Study
    labels: Indices
    test: int
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    requests: dict[tuple[int, str], Request] = field(default_factory=dict[tuple[int, str], Request])

    def add(self, task: AnyTask) -> AnyTask:
        planned = self.tasks.setdefault(task.id, task)
        assert isinstance(planned, type(task))
        return planned

    def request(self, seed: int, forget: str = "") -> Request:
        """Return a request on the split of a seed, planned once; without `forget` that of the base."""
        split, spec = self.study.split_of(seed), self.study.requests.get(forget)
        if (split, forget) not in self.requests:
            sizes = _sizes(self.labels, spec, self.study.reserve(self.labels, split))
            request = Request(split, forget, spec.label if spec else "", sizes)
            selection = self.select(request, spec, seed) if spec and spec.needs_model else None
            self.requests[split, forget] = replace(request, selection=selection)
        return self.requests[split, forget]

    def add_request(self, seed: int, forget: str) -> None:
        """Add everything that one request of one seed takes."""
        study, request = self.study, self.request(seed, forget)
        where = f"{request.label}, seed {seed}"
        base, retrain = self.train_base(seed), self.retrain(seed, request, seed)
        retrained = (retrain, *(self.retrain(seed, request, other) for other in study.reference_seeds))
        predictions: dict[Model, Predict] = {m: self.predict(m, seed, request) for m in (base, *retrained)}
        floor = None
        if study.references > 1:
            floor = MeasureFloor(
                id=f"floor, {forget}, seed {seed}",
                label=f"noise floor, {where}",
                request=request,
                seed=seed,
                retrained=retrained,
                predictions=tuple(predictions[model] for model in retrained),
            )
            floor = self.add(floor)
        models: list[tuple[str, int, Model]] = [("retrain", 0, retrain), ("base", 0, base)]
        for row in study.rows.values():
            for repeat in range(study.repeats):
                model = self.unlearn(row, repeat, seed, request, base)
                predictions[model] = self.predict(model, seed, request)
                models.append((row.name, repeat, model))
        for model in (*retrained, *(model for _, _, model in models)) if study.relearn else ():
            self.relearn(model, seed, request, base)
        for name, repeat, model in models:
            compared = (model, *retrained) if model is retrain else (model, base, *retrained)
            self.add(
                Evaluate(
                    id=f"evaluate {name}, {forget}, seed {seed}{_run(repeat)}",
                    label=f"audit of {study.title_of(name)}, {where}{_run(repeat)}",
                    request=request,
                    seed=seed,
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
        request, trained_from = self.request(seed), seed if training_seed is None else training_seed
        task_id = f"train base, split {request.split}, seed {trained_from}"
        work = _training_work(self.study.recipe_value, request.sizes["retain"])
        label = f"base, seed {seed}"
        return self.add(Train(id=task_id, label=label, request=request, seed=trained_from, role="base", work=work))

    def retrain(self, seed: int, request: Request, training_seed: int) -> Train:
        """Add a model trained without the forget set: Retrain, from the study's seed, or a reference."""
        number = training_seed - FIRST_REFERENCE + 1
        role = "reference" if number > 0 else "retrain"
        return self.add(
            Train(
                id=f"train without {request.forget}, split {request.split}, seed {training_seed}",
                label=f"{role}{f' {number}' if number > 0 else ''}, {request.label}, seed {seed}",
                request=request,
                seed=training_seed,
                role=role,
                work=_training_work(self.study.recipe_value, request.sizes["retain"]),
            )
        )

    def select(self, request: Request, spec: ForgetSpec, seed: int) -> Select:
        """Add the models that decide which examples a request means, and their selection."""
        split, base, models = request.split, self.request(seed), list[Train]()
        if not spec.needs_early_models:
            models.append(self.train_base(seed, split))
        for number in range(EARLY) if spec.needs_early_models else ():
            early = Train(
                id=f"train early {number + 1}, split {split}",
                label=f"short training {number + 1} of {EARLY}, split {split}",
                request=base,
                seed=seed,
                role="early",
                early=number,
                work=_training_work(early_recipe(self.study.recipe_value), base.sizes["retain"]),
            )
            models.append(self.add(early))
        return self.add(
            Select(
                id=f"select {request.forget}, split {split}",
                label=f"which examples {request.label} are, split {split}",
                request=request,
                seed=split,
                models=tuple(models),
                work=Work(0, round(FORWARD * sum(request.sizes.values()) * len(models))),
            )
        )

    def cross_fit(self, seed: int) -> CrossFit:
        """Add the out-of-fold predictions of a seed's split: a short training per fold, and the table of them."""
        request, recipe = self.request(seed), shorten(self.study.recipe_value, SHARE)
        split, examples = request.split, request.sizes["retain"]
        folds = [
            FitFold(
                id=f"fold {number + 1}, repeat {repeat + 1}, split {split}",
                label=f"training without fold {number + 1} of {FOLDS}, split {split}{_run(repeat)}",
                request=request,
                seed=split,
                number=number,
                repeat=repeat,
                work=_training_work(recipe, examples - round(examples / FOLDS)),
            )
            for repeat in range(REPEATS)
            for number in range(FOLDS)
        ]
        return self.add(
            CrossFit(
                id=f"table, split {split}",
                label=f"table of out-of-fold predictions, split {split}",
                request=request,
                seed=split,
                folds=tuple(self.add(fold) for fold in folds),
            )
        )

    def unlearn(self, row: MethodRow, repeat: int, seed: int, request: Request, base: Train) -> Unlearn:
        study = self.study
        method, config = study.resolve(row.text, request.forget)
        table = self._table(method, config, seed, request)
        return self.add(
            Unlearn(
                id=f"unlearn {row.name}, {request.forget}, seed {seed}{_run(repeat)}",
                label=f"{row.title}, {request.label}, seed {seed}{_run(repeat)}",
                request=request,
                seed=seed,
                row=row,
                repeat=repeat,
                base=base,
                tune=self.tune(row, request.forget) if study.tuning and method.search.get(study.family) else None,
                table=table,
                work=self._method_work(method, config, request, table is not None),
            )
        )

    def tune(self, row: MethodRow, forget: str) -> Tune:
        """Add the search for a method's settings: once for each request, on one seed, used for all seeds."""
        study, tuning, seed = self.study, self.study.tuning, self.study.tuned_on
        assert tuning is not None
        request = self.request(seed, forget)
        others = (seed, *study.reference_seeds) if tuning.objective == "gap" else ()
        method, config = study.resolve(row.text, forget)
        trials = Space.of(method, config, study.family, tuple(row.spec.settings)).at_most(tuning.trials)
        table = self._table(method, config, seed, request)
        one = self._method_work(method, config, request, table is not None)
        return self.add(
            Tune(
                id=f"tune {row.name}, {forget}",
                label=f"tune {row.title}, {request.label}",
                request=request,
                seed=seed,
                row=row,
                base=self.train_base(seed),
                retrained=tuple(self.retrain(seed, request, other) for other in others),
                trials=trials,
                table=table,
                work=Work(trials * one.steps, trials * one.samples) if one else None,
            )
        )

    def relearn(self, model: Model, seed: int, request: Request, base: Train) -> Relearn:
        sizes, updates = request.sizes, relearn_updates(self.study.recipe_value)
        points = relearning_checkpoints(updates, sizes["retain"])
        predicted = sizes["forget"] + (self.test or sizes["heldout"]) + min(RETAINED, sizes["retain"])
        samples = updates.epochs * sizes["retain"] + round(FORWARD * len(points) * predicted)
        return self.add(
            Relearn(
                id=f"relearn {model.id}: {request.forget}, split {request.split}",
                label=f"relearning of {_model_label(model, seed, request)}",
                request=request,
                seed=seed,
                model=model,
                base=base,
                work=Work(points[-1], samples),
            )
        )

    def predict(self, model: Model, seed: int, request: Request) -> Predict:
        return self.add(
            Predict(
                id=f"predict with {model.id}: {request.forget}, split {request.split}",
                label=f"predictions of {_model_label(model, seed, request)}",
                request=request,
                seed=seed,
                model=model,
                work=Work(0, round(FORWARD * (sum(request.sizes.values()) + self.test))),
            )
        )

    def _table(self, method: Method, config: Any, seed: int, request: Request) -> CrossFit | None:
        """Add the table of out-of-fold predictions if the method would use it."""
        sizes = request.sizes
        uses = method.uses_table(config, sizes["forget"], sizes["retain"], self.study.recipe_value)
        return self.cross_fit(seed) if uses else None

    def _method_work(self, method: Method, config: Any, request: Request, table: bool) -> Work | None:
        sizes, budget, recipe = request.sizes, self.study.budget_value, self.study.recipe_value
        return method.planned(config, sizes["forget"], sizes["retain"], budget, recipe, table)


def _training_work(recipe: Recipe, examples: int) -> Work:
    return Work(recipe.epochs * -(-examples // recipe.batch_size), recipe.epochs * examples)


def _model_label(model: Model, seed: int, request: Request) -> str:
    """Return a model's name for the label of a task about it."""
    name = model.row.title if isinstance(model, Unlearn) else model.label.partition(",")[0]
    run = _run(model.repeat) if isinstance(model, Unlearn) else ""
    return f"{name}, {request.label}, seed {seed}{run}"


def _sizes(labels: Indices, spec: ForgetSpec | None, reserved: Reserve) -> dict[str, int]:
    """Return the number of examples per split; an estimate where models must rank the examples first."""
    if spec is not None and not spec.needs_model:
        splits = make_splits(labels, spec, reserved)
        return {name: len(getattr(splits, name)) for name in ("retain", "forget", "heldout", "val")}
    if spec is None:
        forget = 0
    elif spec.needs_early_models:
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
