"""The kinds of tasks of a study: what each makes, whether that can be told yet, and making it.

Whatever a task needs is taken from the store by its content, so any process that can read the store can do any task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from regun.errors import NotFiniteError, RegunError
from regun.methods import Work
from regun.runs.audit import Audit, audit_model, audited_parts, cached_signals, floor_of, signals_inputs
from regun.runs.relearn import Relearning, relearn_model
from regun.runs.selection import early_trainings, select, selection_inputs
from regun.runs.training import Training, Watch, train_model
from regun.runs.unlearning import Unlearning, unlearn_model
from regun.settings import parse_spec
from regun.splits import Request
from regun.store import Artefact
from regun.training.job import Epoch, Progress
from regun.tune import Search, Space, Tried, search

if TYPE_CHECKING:
    from regun.study.workshop import Workshop

Tell = Callable[[Mapping[str, Any]], None]
"""Receives what happens while a task is done: resumed, step, epoch, trial."""
Makes = list[tuple[str, Mapping[str, Any]]]
"""Kinds and inputs of artefacts."""


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """One thing to make. Its id says all that decides it within the study, so equal needs meet in one task."""

    kind: ClassVar[str]
    id: str
    label: str
    split: int
    seed: int
    forget: str = ""
    needs: tuple[str, ...] = ()
    work: Work | None = None

    @abstractmethod
    def makes(self, shop: Workshop) -> Makes | None:
        """The artefacts it makes; None while something that decides them is missing."""

    @abstractmethod
    def do(self, shop: Workshop, tell: Tell) -> str:
        """Make them, or find them: the key, or why a diverged model has no answers to look at."""


@dataclass(frozen=True, kw_only=True)
class Train(Task):
    """A base model (nothing to forget), a retrained one, or a reference."""

    kind = "train"
    role: str

    def run(self, shop: Workshop) -> Training:
        kept = shop.splits(self.split, self.forget).retain if self.forget else shop.reserve(self.split).base
        return replace(shop.base_training(self.split), trained_on=kept, seed=self.seed)

    def makes(self, shop: Workshop) -> Makes | None:
        return [("model", self.run(shop).inputs(shop.device))]

    def do(self, shop: Workshop, tell: Tell) -> str:
        about = {"role": self.role, "without": self.forget or None, **shop.about(self)}
        return train_model(self.run(shop), shop.store, shop.device, about=about, watch=_watch(tell)).key


@dataclass(frozen=True, kw_only=True)
class TrainEarly(Task):
    """A short training, whose loss says how hard an example is."""

    kind = "train"
    number: int

    def run(self, shop: Workshop) -> Training:
        return early_trainings(shop.base_training(self.split))[self.number]

    def makes(self, shop: Workshop) -> Makes | None:
        return [("model", self.run(shop).inputs(shop.device))]

    def do(self, shop: Workshop, tell: Tell) -> str:
        about = {"role": "early", **shop.about(self)}
        return train_model(self.run(shop), shop.store, shop.device, about=about, watch=_watch(tell)).key


@dataclass(frozen=True, kw_only=True)
class Select(Task):
    """The ids of a request that models answer, once for each split."""

    kind = "select"
    models: tuple[str, ...]

    def makes(self, shop: Workshop) -> Makes | None:
        models, asked = shop.models(self.models), shop.study.request(self.forget)
        if models is None or isinstance(asked, Request):
            return None
        return [("selection", selection_inputs(asked, models, shop.data, shop.reserve(self.split)))]

    def do(self, shop: Workshop, tell: Tell) -> str:
        models, asked = shop.models(self.models), shop.study.request(self.forget)
        if models is None or isinstance(asked, Request):
            raise _waits(self, shop, "models that are not")
        reserved = shop.reserve(self.split)
        select(asked, models, shop.data, reserved, shop.store, shop.device)
        return shop.store.key("selection", selection_inputs(asked, models, shop.data, reserved))


@dataclass(frozen=True, kw_only=True)
class Tune(Task):
    """The search for a method's settings: once for each request, on one seed, frozen for all."""

    kind = "tune"
    entry: str
    models: tuple[str, ...]
    """The base and, where the objective needs them, Retrain and the references."""
    trials: int

    def run(self, shop: Workshop) -> Search | None:
        """The search, once the models it looks at are there."""
        how, models = shop.study.tuning, shop.models(self.models)
        if how is None or models is None:
            return None
        run = shop.unlearning(self.entry, self.split, self.forget, models[0], seed=self.seed)
        fixed = tuple(parse_spec(shop.study.entries()[self.entry])[1])
        return Search(
            run=run,
            space=Space.of(run.method, run.config, shop.study.family, fixed),
            objective=how.objective,
            trials=how.trials,
            seed=how.seed,
            retrain=models[1] if len(models) > 1 else None,
            references=tuple(models[2:]),
            fixed=fixed,
        )

    def makes(self, shop: Workshop) -> Makes | None:
        found = self.run(shop)
        return None if found is None else [("tuning", found.inputs())]

    def do(self, shop: Workshop, tell: Tell) -> str:
        found = self.run(shop)
        if found is None:
            raise _waits(self, shop, "models that are not")

        def trial(done: Tried) -> None:
            tell({"event": "trial", "number": done.number, "trials": found.wanted, "score": done.score})

        search(found, shop.store, shop.device, about=shop.about(self), watch=_watch(tell), on_trial=trial)
        return found.key()


@dataclass(frozen=True, kw_only=True)
class Unlearn(Task):
    """One method on one request, from one unlearning seed."""

    kind = "unlearn"
    entry: str
    repeat: int
    base: str
    search: str = ""
    """The task that searches its settings, if any does."""

    def run(self, shop: Workshop) -> Unlearning | None:
        base, values = shop.model(self.base), shop.searched(self.search)
        if base is None or values is None:
            return None
        seed = shop.study.unlearning_seed(self.seed, self.repeat)
        return shop.unlearning(self.entry, self.split, self.forget, base, values, seed)

    def makes(self, shop: Workshop) -> Makes | None:
        found = self.run(shop)
        return None if found is None else [("model", found.inputs())]

    def do(self, shop: Workshop, tell: Tell) -> str:
        found = self.run(shop)
        if found is None:
            raise _waits(self, shop, "a model or settings that are not")
        about = {**shop.about(self), "request": self.forget, "repeat": self.repeat, "split_digest": found.splits.digest}
        return unlearn_model(found, shop.store, shop.device, about=about, watch=_watch(tell)).key


@dataclass(frozen=True, kw_only=True)
class Answer(Task):
    """What a model says about every split, once."""

    kind = "signals"
    model: str

    def makes(self, shop: Workshop) -> Makes | None:
        model = shop.model(self.model)
        if model is None:
            return None
        parts = audited_parts(shop.data, shop.splits(self.split, self.forget)).values()
        return [("signals", signals_inputs(model, *part)) for part in parts]

    def do(self, shop: Workshop, tell: Tell) -> str:
        model, faults = shop.needed(self.model), list[str]()
        for examples, indices in audited_parts(shop.data, shop.splits(self.split, self.forget)).values():
            try:
                cached_signals(model, examples, indices, shop.store, shop.device)
            except NotFiniteError as fault:  # kept as such, split by split
                faults.append(str(fault))
        return _told(model, faults[0]) if faults else model.key


@dataclass(frozen=True, kw_only=True)
class MeasureFloor(Task):
    """How far Retrain and the references are from each other."""

    kind = "floor"
    judges: tuple[str, ...]
    """Retrain and the references."""

    def run(self, shop: Workshop) -> Audit | None:
        return shop.audit(self, self.judges[0], self.judges)

    def makes(self, shop: Workshop) -> Makes | None:
        found = self.run(shop)
        return None if found is None else [("floor", found.floor_inputs())]

    def do(self, shop: Workshop, tell: Tell) -> str:
        found = self.run(shop)
        if found is None:
            raise _waits(self, shop, "models that are not")
        floor_of(found, shop.store, shop.device)
        return shop.store.key("floor", found.floor_inputs())


@dataclass(frozen=True, kw_only=True)
class Judge(Task):
    """The evaluation of one model next to Retrain and the references."""

    kind = "evaluate"
    entry: str
    repeat: int
    model: str
    base: str
    """The model before unlearning."""
    judges: tuple[str, ...]

    def run(self, shop: Workshop) -> Audit | None:
        return shop.audit(self, self.model, self.judges)

    def makes(self, shop: Workshop) -> Makes | None:
        found = self.run(shop)
        return None if found is None else [("evaluation", found.inputs())]

    def do(self, shop: Workshop, tell: Tell) -> str:
        found = self.run(shop)
        if found is None:
            raise _waits(self, shop, "models that are not")
        try:
            audit_model(found, shop.store, shop.device)
        except NotFiniteError as fault:
            return _told(found.target, str(fault))
        return shop.store.key("evaluation", found.inputs())


@dataclass(frozen=True, kw_only=True)
class Relearn(Task):
    """What comes back in one model when it goes on training on the retain set."""

    kind = "relearn"
    model: str
    base: str

    def run(self, shop: Workshop) -> Relearning | None:
        return shop.relearning(self, self.model, self.base)

    def makes(self, shop: Workshop) -> Makes | None:
        found = self.run(shop)
        return None if found is None else [("relearned", found.inputs())]

    def do(self, shop: Workshop, tell: Tell) -> str:
        found = self.run(shop)
        if found is None:
            raise _waits(self, shop, "models that are not")
        try:
            relearn_model(found, shop.store, shop.device, _watch(tell))
        except NotFiniteError as fault:
            return _told(found.target, str(fault))
        return shop.store.key("relearned", found.inputs())


KINDS: tuple[type[Task], ...] = (Train, Select, Tune, Unlearn, Answer, MeasureFloor, Judge, Relearn)


def _told(model: Artefact, fault: str) -> str:
    """A method may ruin a model, which is its result; a trained model without finite answers is an error."""
    if "method" not in model.info:
        raise NotFiniteError(fault)
    return f"no finite answers: {fault}"


def _waits(task: Task, shop: Workshop, what: str) -> RegunError:
    return RegunError(f"{task.label} waits for {what} in the store {shop.store.root}; make them first.")


def _watch(tell: Tell) -> Watch:
    def epoch(done: Epoch, model: Any) -> None:
        tell({"event": "epoch", **vars(done)})

    def progress(p: Progress) -> None:
        tell({"event": "step", **vars(p)})

    def resume(epoch: int, step: int) -> None:
        tell({"event": "resumed", "epoch": epoch + 1, "step": step + 1})

    return Watch(epoch, progress, resume)
