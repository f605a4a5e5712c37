"""The kinds of tasks of a study: what each makes, whether that can be told yet, and making it.

Whatever a task needs is taken from the store by its content, so any process that can read the store can do any task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from regun.artifacts import Artifact
from regun.artifacts.audits import Audit, audit_model, audited_parts, cached_predictions, floor_of, predictions_inputs
from regun.artifacts.relearnings import Relearning, relearn_model
from regun.artifacts.selection import early_trainings, select, selection_inputs
from regun.artifacts.trainings import Training, train_model
from regun.artifacts.unlearnings import Unlearning, unlearn_model
from regun.errors import NotFiniteError, RegunError
from regun.experiments.search import Search, Space, Trial, search
from regun.methods import Work
from regun.training.job import Callbacks, Epoch, Progress

if TYPE_CHECKING:
    from regun.experiments.study.context import StudyContext

Tell = Callable[[Mapping[str, Any]], None]
"""Receives what happens while a task is done: resumed, step, epoch, trial."""
Makes = list[tuple[str, Mapping[str, Any]]]
"""Kinds and inputs of artifacts."""


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
    def makes(self, ctx: StudyContext) -> Makes | None:
        """The artifacts it makes; None while something that decides them is missing."""

    @abstractmethod
    def do(self, ctx: StudyContext, tell: Tell) -> str:
        """Make them, or find them: the key, or why a diverged model has no answers to look at."""


@dataclass(frozen=True, kw_only=True)
class Train(Task):
    """A base model (nothing to forget), a retrained one, or a reference."""

    kind = "train"
    role: str

    def run(self, ctx: StudyContext) -> Training:
        kept = ctx.splits(self.split, self.forget).retain if self.forget else ctx.reserve(self.split).base
        return replace(ctx.base_training(self.split), trained_on=kept, seed=self.seed)

    def makes(self, ctx: StudyContext) -> Makes | None:
        return [("model", self.run(ctx).inputs(ctx.device))]

    def do(self, ctx: StudyContext, tell: Tell) -> str:
        about = {"role": self.role, "without": self.forget or None, **ctx.about(self)}
        return train_model(self.run(ctx), ctx.store, ctx.device, about=about, watch=_watch(tell)).key


@dataclass(frozen=True, kw_only=True)
class TrainEarly(Task):
    """A short training, whose loss says how hard an example is."""

    kind = "train"
    number: int

    def run(self, ctx: StudyContext) -> Training:
        return early_trainings(ctx.base_training(self.split))[self.number]

    def makes(self, ctx: StudyContext) -> Makes | None:
        return [("model", self.run(ctx).inputs(ctx.device))]

    def do(self, ctx: StudyContext, tell: Tell) -> str:
        about = {"role": "early", **ctx.about(self)}
        return train_model(self.run(ctx), ctx.store, ctx.device, about=about, watch=_watch(tell)).key


@dataclass(frozen=True, kw_only=True)
class Select(Task):
    """The ids of a request that models answer, once for each split."""

    kind = "select"
    models: tuple[str, ...]

    def makes(self, ctx: StudyContext) -> Makes | None:
        models, asked = ctx.models(self.models), ctx.study.request(self.forget)
        if models is None or not asked.needs_model:
            return None
        return [("selection", selection_inputs(asked, models, ctx.data, ctx.reserve(self.split)))]

    def do(self, ctx: StudyContext, tell: Tell) -> str:
        models, asked = ctx.models(self.models), ctx.study.request(self.forget)
        if models is None or not asked.needs_model:
            raise _waits(self, ctx, "models that are not")
        reserved = ctx.reserve(self.split)
        select(asked, models, ctx.data, reserved, ctx.store, ctx.device)
        return ctx.store.key("selection", selection_inputs(asked, models, ctx.data, reserved))


@dataclass(frozen=True, kw_only=True)
class Tune(Task):
    """The search for a method's settings: once for each request, on one seed, frozen for all."""

    kind = "tune"
    entry: str
    models: tuple[str, ...]
    """The base and, where the objective needs them, Retrain and the references."""
    trials: int

    def run(self, ctx: StudyContext) -> Search | None:
        """The search, once the models it looks at are there."""
        how, models = ctx.study.tuning, ctx.models(self.models)
        if how is None or models is None:
            return None
        run = ctx.unlearning(self.entry, self.split, self.forget, models[0], seed=self.seed)
        fixed = tuple(ctx.study.spec(ctx.study.entries()[self.entry]).settings)
        return Search(
            run=run,
            space=Space.of(run.method, run.config, ctx.study.family, fixed),
            objective=how.objective,
            trials=how.trials,
            seed=how.seed,
            retrain=models[1] if len(models) > 1 else None,
            references=tuple(models[2:]),
            fixed=fixed,
        )

    def makes(self, ctx: StudyContext) -> Makes | None:
        found = self.run(ctx)
        return None if found is None else [("tuning", found.inputs())]

    def do(self, ctx: StudyContext, tell: Tell) -> str:
        found = self.run(ctx)
        if found is None:
            raise _waits(self, ctx, "models that are not")

        def trial(done: Trial) -> None:
            tell({"event": "trial", "number": done.number, "trials": found.wanted, "score": done.score})

        search(found, ctx.store, ctx.device, about=ctx.about(self), watch=_watch(tell), on_trial=trial)
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

    def run(self, ctx: StudyContext) -> Unlearning | None:
        base, values = ctx.model(self.base), ctx.searched(self.search)
        if base is None or values is None:
            return None
        seed = ctx.study.unlearning_seed(self.seed, self.repeat)
        return ctx.unlearning(self.entry, self.split, self.forget, base, values, seed)

    def makes(self, ctx: StudyContext) -> Makes | None:
        found = self.run(ctx)
        return None if found is None else [("model", found.inputs())]

    def do(self, ctx: StudyContext, tell: Tell) -> str:
        found = self.run(ctx)
        if found is None:
            raise _waits(self, ctx, "a model or settings that are not")
        about = {**ctx.about(self), "request": self.forget, "repeat": self.repeat, "split_digest": found.splits.digest}
        return unlearn_model(found, ctx.store, ctx.device, about=about, watch=_watch(tell)).key


@dataclass(frozen=True, kw_only=True)
class Answer(Task):
    """What a model says about every split, once."""

    kind = "signals"
    model: str

    def makes(self, ctx: StudyContext) -> Makes | None:
        model = ctx.model(self.model)
        if model is None:
            return None
        parts = audited_parts(ctx.data, ctx.splits(self.split, self.forget)).values()
        return [("signals", predictions_inputs(model, *part)) for part in parts]

    def do(self, ctx: StudyContext, tell: Tell) -> str:
        model, faults = ctx.needed(self.model), list[str]()
        for examples, indices in audited_parts(ctx.data, ctx.splits(self.split, self.forget)).values():
            try:
                cached_predictions(model, examples, indices, ctx.store, ctx.device)
            except NotFiniteError as fault:  # kept as such, split by split
                faults.append(str(fault))
        return _told(model, faults[0]) if faults else model.key


@dataclass(frozen=True, kw_only=True)
class MeasureFloor(Task):
    """How far Retrain and the references are from each other."""

    kind = "floor"
    judges: tuple[str, ...]
    """Retrain and the references."""

    def run(self, ctx: StudyContext) -> Audit | None:
        return ctx.audit(self, self.judges[0], self.judges)

    def makes(self, ctx: StudyContext) -> Makes | None:
        found = self.run(ctx)
        return None if found is None else [("floor", found.floor_inputs())]

    def do(self, ctx: StudyContext, tell: Tell) -> str:
        found = self.run(ctx)
        if found is None:
            raise _waits(self, ctx, "models that are not")
        floor_of(found, ctx.store, ctx.device)
        return ctx.store.key("floor", found.floor_inputs())


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

    def run(self, ctx: StudyContext) -> Audit | None:
        return ctx.audit(self, self.model, self.judges)

    def makes(self, ctx: StudyContext) -> Makes | None:
        found = self.run(ctx)
        return None if found is None else [("evaluation", found.inputs())]

    def do(self, ctx: StudyContext, tell: Tell) -> str:
        found = self.run(ctx)
        if found is None:
            raise _waits(self, ctx, "models that are not")
        try:
            audit_model(found, ctx.store, ctx.device)
        except NotFiniteError as fault:
            return _told(found.target, str(fault))
        return ctx.store.key("evaluation", found.inputs())


@dataclass(frozen=True, kw_only=True)
class Relearn(Task):
    """What comes back in one model when it goes on training on the retain set."""

    kind = "relearn"
    model: str
    base: str

    def run(self, ctx: StudyContext) -> Relearning | None:
        return ctx.relearning(self, self.model, self.base)

    def makes(self, ctx: StudyContext) -> Makes | None:
        found = self.run(ctx)
        return None if found is None else [("relearned", found.inputs())]

    def do(self, ctx: StudyContext, tell: Tell) -> str:
        found = self.run(ctx)
        if found is None:
            raise _waits(self, ctx, "models that are not")
        try:
            relearn_model(found, ctx.store, ctx.device, _watch(tell))
        except NotFiniteError as fault:
            return _told(found.target, str(fault))
        return ctx.store.key("relearned", found.inputs())


KINDS: tuple[type[Task], ...] = (Train, Select, Tune, Unlearn, Answer, MeasureFloor, Judge, Relearn)


def _told(model: Artifact, fault: str) -> str:
    """A method may ruin a model, which is its result; a trained model without finite answers is an error."""
    if "method" not in model.info:
        raise NotFiniteError(fault)
    return f"no finite answers: {fault}"


def _waits(task: Task, ctx: StudyContext, what: str) -> RegunError:
    return RegunError(f"{task.label} waits for {what} in the store {ctx.store.root}; make them first.")


def _watch(tell: Tell) -> Callbacks:
    def epoch(done: Epoch, model: Any) -> None:
        tell({"event": "epoch", **vars(done)})

    def progress(p: Progress) -> None:
        tell({"event": "step", **vars(p)})

    def resume(epoch: int, step: int) -> None:
        tell({"event": "resumed", "epoch": epoch + 1, "step": step + 1})

    return Callbacks(epoch, progress, resume)
