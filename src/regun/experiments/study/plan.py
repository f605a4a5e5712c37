"""From a study to its tasks, before anything runs: a pure function of the study and the training labels."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from regun.artifacts.out_of_fold import FOLDS, REPEATS
from regun.artifacts.selection import EARLY, early_recipe
from regun.experiments.search import Space
from regun.experiments.study.spec import MethodRow, Study
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
    return StudyPlan(study, planner.tasks, sizes)


@dataclass
class _Planner:
    """Adds tasks, each after those that it needs; a task whose id was planned before is that task."""

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
            request = Request(split, forget, sizes)
            selection = self.select(request, spec, seed) if spec and spec.needs_model else None
            self.requests[split, forget] = replace(request, selection=selection)
        return self.requests[split, forget]

    def add_request(self, seed: int, forget: str) -> None:
        """Add everything that one request of one seed takes."""
        study, request = self.study, self.request(seed, forget)
        base, retrain = self.train_base(seed), self.retrain(request, seed)
        retrained = (retrain, *(self.retrain(request, other) for other in study.reference_seeds))
        predictions: dict[Model, Predict] = {m: self.predict(m, seed, request) for m in (base, *retrained)}
        floor = None
        if study.references > 1:
            predicted = tuple(predictions[model] for model in retrained)
            floor = self.add(MeasureFloor(request=request, seed=seed, retrained=retrained, predictions=predicted))
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
        return self.retrain(self.request(seed), seed if training_seed is None else training_seed)

    def retrain(self, request: Request, training_seed: int) -> Train:
        """Add a model trained without the forget set: Retrain, from the study's seed, or a reference."""
        work = _training_work(self.study.recipe_value, request.sizes["retain"])
        return self.add(Train(request=request, seed=training_seed, work=work))

    def select(self, request: Request, spec: ForgetSpec, seed: int) -> Select:
        """Add the models that decide which examples a request means, and their selection."""
        if spec.needs_early_models:
            base, recipe = self.request(seed), early_recipe(self.study.recipe_value)
            work = _training_work(recipe, base.sizes["retain"])
            models = [self.add(Train(request=base, seed=seed, early=number, work=work)) for number in range(EARLY)]
        else:
            models = [self.train_base(seed, request.split)]
        work = Work(0, round(FORWARD * sum(request.sizes.values()) * len(models)))
        return self.add(Select(request=request, seed=request.split, models=tuple(models), work=work))

    def cross_fit(self, seed: int) -> CrossFit:
        """Add the out-of-fold predictions of a seed's split: a short training per fold, and the table of them."""
        request, recipe = self.request(seed), shorten(self.study.recipe_value, self.study.table_share)
        split, examples = request.split, request.sizes["retain"]
        work = _training_work(recipe, examples - round(examples / FOLDS))
        folds = [
            self.add(FitFold(request=request, seed=split, number=number, repeat=repeat, work=work))
            for repeat in range(REPEATS)
            for number in range(FOLDS)
        ]
        return self.add(CrossFit(request=request, seed=split, folds=tuple(folds)))

    def unlearn(self, row: MethodRow, repeat: int, seed: int, request: Request, base: Train) -> Unlearn:
        study = self.study
        method, config = study.resolve(row.text, request.forget)
        table = self._table(method, config, seed, request)
        searched = study.tuning and method.search.get(study.family) and row.text not in study.untuned
        tune = self.tune(row, request.forget) if searched else None
        work = self._method_work(method, config, request, table is not None)
        task = Unlearn(request=request, seed=seed, row=row, repeat=repeat, base=base, tune=tune, table=table, work=work)
        return self.add(task)

    def tune(self, row: MethodRow, forget: str) -> Tune:
        """Add the search for a method's settings: once for each request, on one seed, used for all seeds."""
        study, tuning, seed = self.study, self.study.tuning, self.study.tuned_on
        assert tuning is not None
        request = self.request(seed, forget)
        retrained_from = (seed, *study.reference_seeds) if tuning.objective == "gap" else ()
        method, config = study.resolve(row.text, forget)
        trials = Space.of(method, config, study.family, tuple(row.spec.settings)).at_most(tuning.trials)
        table = self._table(method, config, seed, request)
        one = self._method_work(method, config, request, table is not None)
        return self.add(
            Tune(
                request=request,
                seed=seed,
                row=row,
                base=self.train_base(seed),
                retrained=tuple(self.retrain(request, training_seed) for training_seed in retrained_from),
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
        return self.add(Relearn(request=request, seed=seed, model=model, base=base, work=Work(points[-1], samples)))

    def predict(self, model: Model, seed: int, request: Request) -> Predict:
        work = Work(0, round(FORWARD * (sum(request.sizes.values()) + self.test)))
        return self.add(Predict(request=request, seed=seed, model=model, work=work))

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


def labels_of_size(total: int) -> Indices:
    """Return stand-in labels for planning random requests on data that are not here: only their number matters."""
    return np.zeros(total, dtype=np.int64)
