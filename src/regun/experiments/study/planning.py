"""From a study to the tasks it takes, before anything runs: a pure function of the study and its training labels."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regun.artifacts.selection import EARLY, EARLY_EPOCHS, EARLY_SHARE
from regun.experiments.search import Space
from regun.experiments.study.forget_sets import relearn_id, request_label, select_id, sizes_of
from regun.experiments.study.spec import FIRST_REFERENCE, Study
from regun.experiments.study.tasks import (
    KINDS,
    Answer,
    Judge,
    MeasureFloor,
    Relearn,
    Select,
    Task,
    Train,
    TrainEarly,
    Tune,
    Unlearn,
)
from regun.methods import Method, Work
from regun.relearning import RETAINED, relearn_points, relearn_updates
from regun.splits import Indices, Reserve
from regun.training.recipes import shorten

FORWARD = 1 / 3
"""What a sample's forward pass costs, as a share of forward and backward together."""


@dataclass(frozen=True)
class StudyPlan:
    """A study's tasks in an order in which they can be done."""

    study: Study
    tasks: Mapping[str, Task]
    sizes: Mapping[str, Mapping[str, int]]
    """By request, of the first seed: examples in retain, forget, heldout, val."""

    def counts(self) -> dict[str, int]:
        """How many tasks of each kind."""
        found = Counter(task.kind for task in self.tasks.values())
        return {kind.kind: found[kind.kind] for kind in KINDS if found[kind.kind]}

    def steps(self, kind: str) -> int:
        """Optimizer steps of all tasks of a kind, as far as their methods tell."""
        return sum(task.work.steps for task in self.tasks.values() if task.kind == kind and task.work)

    def samples(self) -> int:
        """Samples through backward passes, forward passes counted by their share."""
        return sum(task.work.samples for task in self.tasks.values() if task.work)

    def judged(self) -> list[Judge]:
        return [task for task in self.tasks.values() if isinstance(task, Judge)]


def plan_study(study: Study, labels: Indices, test: int = 0) -> StudyPlan:
    """Every task of the study; `labels` are those of the training set, `test` counts the test examples."""
    planner = _Planner(study, labels, test)
    sizes: dict[str, Mapping[str, int]] = {}
    for seed in study.seeds:
        for forget in study.forget:
            sizes.setdefault(forget, planner.sizes(seed, forget))
            planner.request(seed, forget)
    return StudyPlan(study, {task.id: task for task in _in_order(planner.tasks)}, sizes)


@dataclass
class _Planner:
    study: Study
    labels: Indices
    test: int
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    kept: dict[int, Reserve] = field(default_factory=dict[int, Reserve])
    known: dict[tuple[int, str], dict[str, int]] = field(default_factory=dict[tuple[int, str], dict[str, int]])

    def add(self, task: Task) -> str:
        return self.tasks.setdefault(task.id, task).id

    def sizes(self, seed: int, forget: str) -> dict[str, int]:
        split = self.study.split_of(seed)
        if split not in self.kept:
            self.kept[split] = self.study.reserve(self.labels, split)
        if (split, forget) not in self.known:
            self.known[split, forget] = sizes_of(self.labels, self.study.request(forget), self.kept[split])
        return self.known[split, forget]

    def request(self, seed: int, forget: str) -> None:
        """Everything that one request of one seed takes."""
        study, split = self.study, self.study.split_of(seed)
        base = self.train("", seed, seed)
        self.select(seed, forget)
        retrain = self.train(forget, seed, seed)
        judges = (retrain, *(self.train(forget, seed, other) for other in study.reference_seeds()))
        answers = {model: self.answer(model, seed, forget) for model in (base, *judges)}
        where = f"{request_label(forget)}, seed {seed}"
        floor: tuple[str, ...] = ()
        if len(judges) > 2:
            found = MeasureFloor(
                id=f"floor, {forget}, seed {seed}",
                label=f"noise floor, {where}",
                split=split,
                seed=seed,
                forget=forget,
                judges=judges,
                needs=tuple(answers[model] for model in judges),
            )
            floor = (self.add(found),)
        models = [("retrain", 0, retrain), ("base", 0, base)]
        for name in study.entries():
            for repeat in range(study.repeats):
                model = self.unlearn(name, repeat, seed, forget, base)
                answers[model] = self.answer(model, seed, forget)
                models.append((name, repeat, model))
        for model in (*judges, *(model for _, _, model in models)) if study.relearn else ():
            self.relearn(model, seed, forget, base)
        for name, repeat, model in models:
            known = (model, *judges) if model == retrain else (model, base, *judges)  # what could the audit have seen?
            needs = dict.fromkeys(answers[other] for other in known)
            self.add(
                Judge(
                    id=f"evaluate {name}, {forget}, seed {seed}{_run(repeat)}",
                    label=f"judge {study.title_of(name)}, {where}{_run(repeat)}",
                    split=split,
                    seed=seed,
                    forget=forget,
                    entry=name,
                    repeat=repeat,
                    model=model,
                    base=base,
                    judges=judges,
                    needs=(*needs, *floor),
                )
            )

    def train(self, forget: str, seed: int, training_seed: int) -> str:
        """A base model (nothing to forget) or a retrained one."""
        study, sizes = self.study, self.sizes(seed, forget or self.study.forget[0])
        split, recipe = study.split_of(seed), study.recipe_value
        examples = sizes["retain"] + (0 if forget else sizes["forget"])
        role = "base" if not forget else "retrain" if training_seed < FIRST_REFERENCE else "reference"
        number = f" {training_seed - FIRST_REFERENCE + 1}" if role == "reference" else ""
        what = f"without {forget}" if forget else "base"
        return self.add(
            Train(
                id=f"train {what}, split {split}, seed {training_seed}",
                label=f"{role}{number}, {request_label(forget)}, seed {seed}" if forget else f"base, seed {seed}",
                split=split,
                seed=training_seed,
                forget=forget,
                role=role,
                needs=self._chosen(split, forget),
                work=Work(recipe.epochs * -(-examples // recipe.batch_size), recipe.epochs * examples),
            )
        )

    def select(self, seed: int, forget: str) -> None:
        """The models that say which examples a request means, and their answer; nothing where it says so itself."""
        split, asked = self.study.split_of(seed), self.study.request(forget)
        if not asked.needs_model or select_id(forget, split) in self.tasks:
            return
        if asked.needs_early_models:
            models = tuple(self.train_early(split, number, seed) for number in range(EARLY))
        else:
            models = (self.train("", seed, split),)
        samples = sum(self.sizes(seed, forget).values()) * len(models)
        self.add(
            Select(
                id=select_id(forget, split),
                label=f"which examples {request_label(forget)} are, split {split}",
                split=split,
                seed=split,
                forget=forget,
                models=models,
                needs=models,
                work=Work(0, round(FORWARD * samples)),
            )
        )

    def train_early(self, split: int, number: int, seed: int) -> str:
        recipe, examples = shorten(self.study.recipe_value, EARLY_SHARE, EARLY_EPOCHS), len(self.kept[split].pool)
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

    def _chosen(self, split: int, forget: str) -> tuple[str, ...]:
        """What must have been answered before the examples of a request are known."""
        name = select_id(forget, split)
        return (name,) if name in self.tasks else ()

    def unlearn(self, name: str, repeat: int, seed: int, forget: str, base: str) -> str:
        study, sizes = self.study, self.sizes(seed, forget)
        method, config = study.resolve(study.entries()[name], forget)
        search = self.tune(name, forget) if study.tuning and method.search.get(study.family) else ""
        return self.add(
            Unlearn(
                id=f"unlearn {name}, {forget}, seed {seed}{_run(repeat)}",
                label=f"{study.title_of(name)}, {request_label(forget)}, seed {seed}{_run(repeat)}",
                split=study.split_of(seed),
                seed=seed,
                forget=forget,
                entry=name,
                repeat=repeat,
                base=base,
                search=search,
                needs=(base, *((search,) if search else ()), *self._chosen(study.split_of(seed), forget)),
                work=self._planned(method, config, sizes),
            )
        )

    def _planned(self, method: Method, config: Any, sizes: Mapping[str, int]) -> Work | None:
        study = self.study
        return method.planned(config, sizes["forget"], sizes["retain"], study.budget_value, study.recipe_value)

    def tune(self, name: str, forget: str) -> str:
        """The search for a method's settings: once for each request, on one seed, frozen for all."""
        study, how, task_id = self.study, self.study.tuning, f"tune {name}, {forget}"
        if task_id in self.tasks or how is None:
            return task_id
        seed = study.tuned_on
        sizes = self.sizes(seed, forget)
        self.select(seed, forget)
        models = [self.train("", seed, seed)]
        if how.objective == "gap":
            models += [self.train(forget, seed, other) for other in (seed, *study.reference_seeds())]
        method, config = study.resolve(study.entries()[name], forget)
        one = self._planned(method, config, sizes)
        fixed = tuple(study.spec(study.entries()[name]).settings)
        trials = min(how.trials, Space.of(method, config, study.family, fixed).size or how.trials)
        return self.add(
            Tune(
                id=task_id,
                label=f"tune {study.title_of(name)}, {request_label(forget)}",
                split=study.split_of(seed),
                seed=seed,
                forget=forget,
                entry=name,
                models=tuple(models),
                trials=trials,
                needs=(*models, *self._chosen(study.split_of(seed), forget)),
                work=Work(trials * one.steps, trials * one.samples) if one else None,
            )
        )

    def relearn(self, model: str, seed: int, forget: str, base: str) -> str:
        study, sizes = self.study, self.sizes(seed, forget)
        updates = relearn_updates(study.recipe_value)
        points = relearn_points(updates, sizes["retain"])
        looked_at = sizes["forget"] + (self.test or sizes["heldout"]) + min(RETAINED, sizes["retain"])
        samples = updates.epochs * sizes["retain"] + round(FORWARD * len(points) * looked_at)
        return self.add(
            Relearn(
                id=relearn_id(model, forget, study.split_of(seed)),
                label=f"relearning of {self._who(model, seed, forget)}",
                split=study.split_of(seed),
                seed=seed,
                forget=forget,
                model=model,
                base=base,
                needs=tuple(dict.fromkeys((model, base, *self._chosen(study.split_of(seed), forget)))),
                work=Work(points[-1], samples),
            )
        )

    def _who(self, model: str, seed: int, forget: str) -> str:
        """A model in the label of a task about it."""
        title, _, rest = self.tasks[model].label.partition(",")
        run = rest[rest.find(", run ") :] if ", run " in rest else ""
        return f"{title}, {request_label(forget)}, seed {seed}{run}"

    def answer(self, model: str, seed: int, forget: str) -> str:
        split, samples = self.study.split_of(seed), sum(self.sizes(seed, forget).values()) + self.test
        return self.add(
            Answer(
                id=f"signals of {model}: {forget}, split {split}",
                label=f"answers of {self._who(model, seed, forget)}",
                split=split,
                seed=seed,
                forget=forget,
                model=model,
                needs=(model, *self._chosen(split, forget)),
                work=Work(0, round(FORWARD * samples)),
            )
        )


def _run(repeat: int) -> str:
    return f", run {repeat + 1}" if repeat else ""


def _in_order(tasks: Mapping[str, Task]) -> Iterator[Task]:
    """Needs first, otherwise in the order in which they were planned."""
    done: set[str] = set()

    def visit(task: Task) -> Iterator[Task]:
        if task.id not in done:
            done.add(task.id)
            for need in task.needs:
                yield from visit(tasks[need])
            yield task

    for task in tasks.values():
        yield from visit(task)


def labels_of_size(total: int) -> Indices:
    """Stand-in labels for planning random requests on a data set that is not here: only their number matters."""
    return np.zeros(total, dtype=np.int64)
