"""From a study to the tasks it takes, before anything runs."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from regun.methods import Work
from regun.settings import parse_spec
from regun.splits import Indices, Reserve, make_splits, reserve
from regun.study.spec import FIRST_REFERENCE, Study
from regun.tune import Space

Kind = Literal["train", "tune", "unlearn", "signals", "floor", "evaluate"]
KINDS: tuple[Kind, ...] = ("train", "tune", "unlearn", "signals", "floor", "evaluate")
FORWARD = 1 / 3
"""What a sample's forward pass costs, as a share of forward and backward together."""


@dataclass(frozen=True)
class Task:
    """One thing to make. Its id says all that decides it within the study, so equal needs meet in one task."""

    id: str
    kind: Kind
    label: str
    split: int
    seed: int
    forget: str = ""
    entry: str = ""
    models: tuple[str, ...] = ()
    """signals: the model; floor: Retrain and the references; evaluate: the model, Retrain and the references."""
    needs: tuple[str, ...] = ()
    work: Work | None = None


@dataclass(frozen=True)
class Plan:
    """A study's tasks in an order in which they can be done."""

    study: Study
    tasks: Mapping[str, Task]
    sizes: Mapping[str, Mapping[str, int]]
    """By request, of the first seed: examples in retain, forget, heldout, val."""

    def counts(self) -> dict[str, int]:
        """How many tasks of each kind."""
        found = Counter(task.kind for task in self.tasks.values())
        return {kind: found[kind] for kind in KINDS if found[kind]}

    def steps(self, kind: Kind) -> int:
        """Optimizer steps of all tasks of a kind, as far as their methods tell."""
        return sum(task.work.steps for task in self.tasks.values() if task.kind == kind and task.work)

    def samples(self) -> int:
        """Samples through backward passes, forward passes counted by their share."""
        return sum(task.work.samples for task in self.tasks.values() if task.work)


@dataclass
class _Planner:
    study: Study
    labels: Indices
    test: int
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    kept: dict[int, Reserve] = field(default_factory=dict[int, Reserve])
    known: dict[tuple[int, str], dict[str, int]] = field(default_factory=dict[tuple[int, str], dict[str, int]])

    def add(self, task: Task) -> str:
        self.tasks.setdefault(task.id, task)
        return task.id

    def sizes(self, seed: int, forget: str) -> dict[str, int]:
        study, split = self.study, self.study.split_of(seed)
        if split not in self.kept:
            self.kept[split] = reserve(
                self.labels, split, heldout=study.heldout, val=study.val, stratified=study.stratified
            )
        if (split, forget) not in self.known:
            splits = make_splits(self.labels, self.study.request(forget), self.kept[split])
            names = ("retain", "forget", "heldout", "val")
            self.known[split, forget] = {name: len(getattr(splits, name)) for name in names}
        return self.known[split, forget]


def plan_study(study: Study, labels: Indices, test: int = 0) -> Plan:
    """Every task of the study; `labels` are those of the training set, `test` counts the test examples."""
    planner = _Planner(study, labels, test)
    sizes: dict[str, dict[str, int]] = {}
    for seed in study.seeds:
        for forget in study.forget:
            found = planner.sizes(seed, forget)
            sizes.setdefault(forget, found)
            _plan_request(planner, seed, forget, found)
    return Plan(study, {task.id: task for task in _in_order(planner.tasks)}, sizes)


def _plan_request(planner: _Planner, seed: int, forget: str, sizes: Mapping[str, int]) -> None:
    """Everything that one request of one seed takes."""
    study = planner.study
    base = _train(planner, "", seed, seed, sizes)
    retrain = _train(planner, forget, seed, seed, sizes)
    references = [_train(planner, forget, seed, other, sizes) for other in study.reference_seeds()]
    judges = (retrain, *references)
    signals = {model: _signals(planner, model, seed, forget, sizes) for model in (base, *judges)}
    floor: tuple[str, ...] = ()
    if len(references) >= 2:
        label = f"noise floor, {request_label(forget)}, seed {seed}"
        split = study.split_of(seed)
        needs = tuple(signals[m] for m in judges)
        floor = (
            planner.add(Task(f"floor, {forget}, seed {seed}", "floor", label, split, seed, forget, "", judges, needs)),
        )
    models = {"retrain": retrain, "base": base}
    for name in study.entries():
        models[name] = _unlearn(planner, name, seed, forget, sizes, base)
        signals[models[name]] = _signals(planner, models[name], seed, forget, sizes, study.title_of(name))
    for name, model in models.items():
        title = study.title_of(name) if name in study.entries() else name.capitalize()
        needs = (*dict.fromkeys((signals[model], *(signals[m] for m in judges))), *floor)
        planner.add(
            Task(
                f"evaluate {name}, {forget}, seed {seed}", "evaluate",
                f"judge {title}, {request_label(forget)}, seed {seed}",
                study.split_of(seed), seed, forget, name, (model, *judges), needs,
            )
        )  # fmt: skip


def _train(planner: _Planner, forget: str, seed: int, training_seed: int, sizes: Mapping[str, int]) -> str:
    """A base model (nothing to forget) or a retrained one."""
    study = planner.study
    split, recipe = study.split_of(seed), study.recipe_value
    examples = sizes["retain"] + (0 if forget else sizes["forget"])
    what = f"without {forget}" if forget else "base"
    work = Work(recipe.epochs * -(-examples // recipe.batch_size), recipe.epochs * examples)
    role = "retrain" if training_seed == seed else f"reference {training_seed - FIRST_REFERENCE + 1}"
    label = f"{role}, {request_label(forget)}, seed {seed}" if forget else f"base, seed {seed}"
    task_id = f"train {what}, split {split}, seed {training_seed}"
    return planner.add(Task(task_id, "train", label, split, training_seed, forget, work=work))


def _unlearn(planner: _Planner, name: str, seed: int, forget: str, sizes: Mapping[str, int], base: str) -> str:
    study = planner.study
    method, config = study.resolve(study.entries()[name], forget)
    work = method.planned(config, sizes["forget"], sizes["retain"], study.budget_value)
    label = f"{study.title_of(name)}, {request_label(forget)}, seed {seed}"
    task_id = f"unlearn {name}, {forget}, seed {seed}"
    tuned = _tune(planner, name, forget) if study.tuning and method.search.get(study.family) else ()
    return planner.add(
        Task(task_id, "unlearn", label, study.split_of(seed), seed, forget, name, (base,), (base, *tuned), work)
    )


def _tune(planner: _Planner, name: str, forget: str) -> tuple[str, ...]:
    """The search for a method's settings: once for each request, on one seed, frozen for all."""
    task_id = f"tune {name}, {forget}"
    if task_id in planner.tasks:
        return (task_id,)
    study, tuning = planner.study, planner.study.tuning
    assert tuning is not None
    seed = study.tuned_on
    sizes = planner.sizes(seed, forget)
    needs = [_train(planner, "", seed, seed, sizes)]
    if tuning.objective == "gap":
        needs += [_train(planner, forget, seed, other, sizes) for other in (seed, *study.reference_seeds())]
    method, config = study.resolve(study.entries()[name], forget)
    one = method.planned(config, sizes["forget"], sizes["retain"], study.budget_value)
    fixed = tuple(parse_spec(study.entries()[name])[1])
    trials = min(tuning.trials, Space.of(method, config, study.family, fixed).size or tuning.trials)
    work = Work(trials * one.steps, trials * one.samples) if one else None
    label = f"tune {study.title_of(name)}, {request_label(forget)}"
    split = study.split_of(seed)
    task = Task(task_id, "tune", label, split, seed, forget, name, tuple(needs), tuple(needs), work)
    return (planner.add(task),)


def _signals(planner: _Planner, model: str, seed: int, forget: str, sizes: Mapping[str, int], title: str = "") -> str:
    study = planner.study
    samples = round(FORWARD * (sum(sizes.values()) + planner.test))
    label = f"answers of {title or planner.tasks[model].label.partition(',')[0]}, {request_label(forget)}, seed {seed}"
    task_id = f"signals of {model}: {forget}, split {study.split_of(seed)}"
    split = study.split_of(seed)
    return planner.add(Task(task_id, "signals", label, split, seed, forget, "", (model,), (model,), Work(0, samples)))


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


def request_label(forget: str) -> str:
    """A request for people: `10 %`, `class 3`.

    >>> request_label("0.1"), request_label("class:3/5")
    ('10 %', 'class 3/5')
    """
    try:
        return f"{100 * float(forget):g} %"
    except ValueError:
        kind, _, rest = forget.partition(":")
        return f"{kind} {rest}"


def labels_of_size(total: int) -> Indices:
    """Stand-in labels for planning random requests on a data set that is not here: only their number matters."""
    return np.zeros(total, dtype=np.int64)
