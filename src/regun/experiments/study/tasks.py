"""The tasks of a study. Each knows the tasks it needs, the artifacts it makes, and how to make them.

Tasks refer to each other and read from the context; neither knows the plan or what runs them. All that a task needs
comes from the store by its content key, so any process that can read the store can do any task. A new kind of task
is a class here and a line in `plan.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from regun.artifacts import Artifact
from regun.artifacts.audits import (
    Auditing,
    audit_model,
    audited_parts,
    cached_predictions,
    model_before,
    predictions_inputs,
    stored_noise_floor,
)
from regun.artifacts.out_of_fold import cross_fit, fit_fold
from regun.artifacts.relearnings import Relearning, relearn_model
from regun.artifacts.selection import early_trainings, resolved_ids, select, selection_inputs
from regun.artifacts.trainings import Training, train_model
from regun.artifacts.unlearnings import Unlearning, unlearn_model
from regun.errors import NotFiniteError, RegunError
from regun.experiments.search import Search, SearchResult, Space, Trial, search
from regun.experiments.study.context import StudyContext
from regun.experiments.study.events import OnTaskEvent, TrialDone, training_callbacks
from regun.experiments.study.spec import FIRST_REFERENCE, MethodRow
from regun.methods import Work, get_method
from regun.splits import Splits

Inputs = tuple[str, Mapping[str, Any]]
"""The kind of an artifact, and what decides it."""


class NotMadeError(RegunError):
    """Something that a task needs is not in the store yet."""


@dataclass(frozen=True, eq=False)
class Request:
    """A forget request on one split; the base, which forgets nothing, has the request without a text."""

    split: int
    forget: str
    sizes: Mapping[str, int]
    """Examples in retain, forget, heldout, val; an estimate where models select the examples."""
    selection: "Select | None" = None
    """The task that finds the examples to forget, where models decide which they are."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Task(ABC):
    """One thing to make."""

    kind: ClassVar[str]
    request: Request
    seed: int
    work: Work | None = None

    @property
    @abstractmethod
    def id(self) -> str:
        """All that decides it within the study, for people and events; equal needs meet in one task."""

    @property
    def split(self) -> int:
        return self.request.split

    @property
    def forget(self) -> str:
        return self.request.forget

    @property
    def needs(self) -> "tuple[Task, ...]":
        """The tasks that must be done before this one: all that it refers to."""
        listed: list[Any] = [self.request.selection]
        for field in fields(self):
            value: Any = getattr(self, field.name)
            listed += value if isinstance(value, tuple) else (value,)
        return tuple(dict.fromkeys(one for one in listed if isinstance(one, Task)))

    @abstractmethod
    def makes(self, ctx: StudyContext) -> list[Inputs]:
        """Return the artifacts it makes; raise `NotMadeError` while something that decides them is missing."""

    @abstractmethod
    def make(self, ctx: StudyContext, emit: OnTaskEvent) -> None:
        """Make its artifacts, unless they are in the store."""

    def keys(self, ctx: StudyContext) -> list[tuple[str, str]] | None:
        """Return kind and key of each artifact, computed once; None while something that decides them is missing."""
        if self.id not in ctx.keys:
            try:
                ctx.keys[self.id] = [(kind, ctx.store.key(kind, inputs)) for kind, inputs in self.makes(ctx)]
            except RegunError:  # what cannot even be set up fails with its own message when the task runs
                return None
        return ctx.keys[self.id]

    def done(self, ctx: StudyContext) -> bool:
        """Return True if the store has every artifact of the task."""
        keys = self.keys(ctx)
        return keys is not None and all(ctx.store.has(*key) for key in keys)

    def result(self, ctx: StudyContext) -> Artifact | None:
        """Return the (first) artifact of the task, or None if it is not in the store."""
        if self.id not in ctx.artifacts:
            keys = self.keys(ctx)
            if keys is None or not ctx.store.has(*keys[0]):
                return None
            ctx.artifacts[self.id] = ctx.store.load(*keys[0])
        return ctx.artifacts[self.id]

    def artifact(self, ctx: StudyContext) -> Artifact:
        """Return the (first) artifact of the task; raise `NotMadeError` if it is not in the store."""
        result = self.result(ctx)
        if result is None:
            raise NotMadeError(f"{self.id!r} is not in the store {ctx.store.root}; run the study first.")
        return result

    def splits(self, ctx: StudyContext) -> Splits:
        """Return the examples to forget, to retain and to audit with."""
        selection = self.request.selection
        spec = resolved_ids(selection.artifact(ctx)) if selection else ctx.study.requests[self.forget]
        return ctx.splits(self.split, self.forget, spec)

    def __repr__(self) -> str:
        return f"<{self.id}>"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Train(Task):
    """A base model (nothing to forget), a retrained model, a reference, or a short training that measures hardness."""

    kind = "train"
    early: int | None = None
    """The number of a short training."""

    @property
    def id(self) -> str:
        if self.early is not None:
            return f"train early {self.early + 1}, split {self.split}"
        what = f"without {self.forget}" if self.forget else "base"
        return f"train {what}, split {self.split}, seed {self.seed}"

    @property
    def role(self) -> str:
        """What the model is for: `base`, `retrain`, `reference`, or `early` for a short training."""
        if self.early is not None or not self.forget:
            return "base" if self.early is None else "early"
        return "reference" if self.seed >= FIRST_REFERENCE else "retrain"

    def training(self, ctx: StudyContext) -> Training:
        base = ctx.base_training(self.split)
        if self.early is not None:
            return early_trainings(base)[self.early]
        return replace(base, trained_on=self.splits(ctx).retain if self.forget else base.trained_on, seed=self.seed)

    def makes(self, ctx: StudyContext) -> list[Inputs]:
        return [("model", self.training(ctx).inputs(ctx.device))]

    def make(self, ctx: StudyContext, emit: OnTaskEvent) -> None:
        about = {"role": self.role, "without": self.forget or None, **ctx.setup(self.split).about()}
        callbacks = training_callbacks(self.id, emit)
        train_model(self.training(ctx), ctx.store, ctx.device, about=about, watch=callbacks)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Select(Task):
    """The ids of the examples to forget, where models decide which they are: once for each split."""

    kind = "select"
    models: tuple[Train, ...]

    @property
    def id(self) -> str:
        return f"select {self.forget}, split {self.split}"

    def makes(self, ctx: StudyContext) -> list[Inputs]:
        models = [model.artifact(ctx) for model in self.models]
        return [
            ("selection", selection_inputs(ctx.study.requests[self.forget], models, ctx.data, ctx.reserve(self.split)))
        ]

    def make(self, ctx: StudyContext, emit: OnTaskEvent) -> None:
        models = [model.artifact(ctx) for model in self.models]
        spec, reserved = ctx.study.requests[self.forget], ctx.reserve(self.split)
        select(spec, models, ctx.data, reserved, ctx.store, ctx.device)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FitFold(Task):
    """A short training without one fold of the training set, and what it predicts for that fold."""

    kind = "fold"
    number: int
    repeat: int

    @property
    def id(self) -> str:
        return f"fold {self.number + 1}, repeat {self.repeat + 1}, split {self.split}"

    def makes(self, ctx: StudyContext) -> list[Inputs]:
        return [("fold", ctx.cross_fitting(self.split).fold_inputs(self.repeat, self.number, ctx.device))]

    def make(self, ctx: StudyContext, emit: OnTaskEvent) -> None:
        fitting, callbacks = ctx.cross_fitting(self.split), training_callbacks(self.id, emit)
        fit_fold(fitting, self.repeat, self.number, ctx.store, ctx.device, watch=callbacks)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CrossFit(Task):
    """The table of out-of-fold predictions of a split: one for all of its requests and training seeds."""

    kind = "table"
    folds: tuple[FitFold, ...]

    @property
    def id(self) -> str:
        return f"table, split {self.split}"

    def makes(self, ctx: StudyContext) -> list[Inputs]:
        return [("out_of_fold", ctx.cross_fitting(self.split).inputs(ctx.device))]

    def make(self, ctx: StudyContext, emit: OnTaskEvent) -> None:
        about = ctx.setup(self.split).about()
        cross_fit(ctx.cross_fitting(self.split), ctx.store, ctx.device, about=about)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Tune(Task):
    """The search for a method's settings: once for each request, on one seed, used for all seeds."""

    kind = "tune"
    row: MethodRow
    base: Train
    retrained: tuple[Train, ...]
    """Retrain and the references, where the objective compares with them."""
    trials: int
    table: CrossFit | None = None
    """Out-of-fold predictions, if the method uses them."""

    @property
    def id(self) -> str:
        return f"tune {self.row.name}, {self.forget}"

    def makes(self, ctx: StudyContext) -> list[Inputs]:
        return [("tuning", self._search(ctx).inputs())]

    def make(self, ctx: StudyContext, emit: OnTaskEvent) -> None:
        def on_trial(trial: Trial) -> None:
            emit(TrialDone(task=self.id, number=trial.number, trials=self.trials, score=trial.score))

        about, callbacks = ctx.setup(self.split).about(), training_callbacks(self.id, emit)
        search(self._search(ctx), ctx.store, ctx.device, about=about, watch=callbacks, on_trial=on_trial)

    def search_result(self, ctx: StudyContext) -> SearchResult:
        """Return the finished search; raise `NotMadeError` until it is."""
        return SearchResult.from_json(self.artifact(ctx).info["tuned"])

    def _search(self, ctx: StudyContext) -> Search:
        tuning = ctx.study.tuning
        assert tuning is not None
        run = _unlearning(ctx, self, {}, self.seed)
        retrain, *references = [model.artifact(ctx) for model in self.retrained] or [None]
        return Search(
            run=run,
            space=Space.of(run.method, run.config, ctx.study.family, tuple(self.row.spec.settings)),
            objective=tuning.objective,
            trials=tuning.trials,
            seed=tuning.seed,
            retrain=retrain,
            references=tuple(model for model in references if model is not None),
            fixed=tuple(self.row.spec.settings),
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Unlearn(Task):
    """One method on one request, from one unlearning seed."""

    kind = "unlearn"
    row: MethodRow
    repeat: int
    base: Train
    tune: Tune | None = None
    """The search for its settings, if there is one."""
    table: CrossFit | None = None
    """Out-of-fold predictions, if the method uses them."""

    @property
    def id(self) -> str:
        return f"unlearn {self.row.name}, {self.forget}, seed {self.seed}{_repeat_suffix(self.repeat)}"

    def makes(self, ctx: StudyContext) -> list[Inputs]:
        return [("model", self._run(ctx).inputs())]

    def make(self, ctx: StudyContext, emit: OnTaskEvent) -> None:
        run, setup = self._run(ctx), ctx.setup(self.split)
        more = {"request": self.forget, "repeat": self.repeat, "split_digest": run.splits.digest}
        callbacks = training_callbacks(self.id, emit)
        unlearn_model(run, ctx.store, ctx.device, about={**setup.about(), **more}, watch=callbacks)

    def _run(self, ctx: StudyContext) -> Unlearning:
        values = self.tune.search_result(ctx).best_values if self.tune else {}
        seed = ctx.study.unlearning_seed(self.seed, self.repeat)
        return _unlearning(ctx, self, values, seed)


Model = Train | Unlearn


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Predict(Task):
    """The predictions of a model on every split."""

    kind = "predict"
    model: Model

    @property
    def id(self) -> str:
        return f"predict with {self.model.id}: {self.forget}, split {self.split}"

    def makes(self, ctx: StudyContext) -> list[Inputs]:
        model = self.model.artifact(ctx)
        parts = audited_parts(ctx.data, self.splits(ctx)).values()
        return [("predictions", predictions_inputs(model, *part)) for part in parts]

    def make(self, ctx: StudyContext, emit: OnTaskEvent) -> None:
        model, errors = self.model.artifact(ctx), list[NotFiniteError]()
        for examples, indices in audited_parts(ctx.data, self.splits(ctx)).values():
            try:
                cached_predictions(model, examples, indices, ctx.store, ctx.device)
            except NotFiniteError as error:  # stored as such, split by split
                errors.append(error)
        if errors:
            _check_unlearned(model, errors[0])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MeasureFloor(Task):
    """The noise floor: how far Retrain and the references are from each other."""

    kind = "floor"
    retrained: tuple[Train, ...]
    """Retrain, then the references."""
    predictions: tuple[Predict, ...]

    @property
    def id(self) -> str:
        return f"floor, {self.forget}, seed {self.seed}"

    def makes(self, ctx: StudyContext) -> list[Inputs]:
        return [("floor", self._audit(ctx).floor_inputs())]

    def make(self, ctx: StudyContext, emit: OnTaskEvent) -> None:
        stored_noise_floor(self._audit(ctx), ctx.store, ctx.device)

    def _audit(self, ctx: StudyContext) -> Auditing:
        return _audit(ctx, self, self.retrained[0], self.retrained)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Evaluate(Task):
    """The audit of one model against Retrain and the references."""

    kind = "evaluate"
    name: str
    """The name of its row: `retrain`, `base` or a method of the study."""
    repeat: int
    model: Model
    base: Train
    """The model before unlearning."""
    retrained: tuple[Train, ...]
    """Retrain, then the references."""
    predictions: tuple[Predict, ...]
    floor: MeasureFloor | None

    @property
    def id(self) -> str:
        return f"evaluate {self.name}, {self.forget}, seed {self.seed}{_repeat_suffix(self.repeat)}"

    def makes(self, ctx: StudyContext) -> list[Inputs]:
        return [("evaluation", _audit(ctx, self, self.model, self.retrained).inputs())]

    def make(self, ctx: StudyContext, emit: OnTaskEvent) -> None:
        audit = _audit(ctx, self, self.model, self.retrained)
        try:
            audit_model(audit, ctx.store, ctx.device)
        except NotFiniteError as error:
            _check_unlearned(audit.target, error)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Relearn(Task):
    """The relearning check of one model: what comes back when it continues training on the retain set."""

    kind = "relearn"
    model: Model
    base: Train

    @property
    def id(self) -> str:
        return f"relearn {self.model.id}: {self.forget}, split {self.split}"

    def makes(self, ctx: StudyContext) -> list[Inputs]:
        return [("relearned", self._run(ctx).inputs())]

    def make(self, ctx: StudyContext, emit: OnTaskEvent) -> None:
        run = self._run(ctx)
        try:
            relearn_model(run, ctx.store, ctx.device, training_callbacks(self.id, emit))
        except NotFiniteError as error:
            _check_unlearned(run.target, error)

    def _run(self, ctx: StudyContext) -> Relearning:
        data = ctx.data_for(get_method("finetune"))
        return Relearning.of(self.model.artifact(ctx), data, self.splits(ctx), self.base.artifact(ctx))


KINDS = tuple(dict.fromkeys(
    task.kind for task in (Train, Select, FitFold, CrossFit, Tune, Unlearn, Predict, MeasureFloor, Evaluate, Relearn)
))  # fmt: skip


def _repeat_suffix(repeat: int) -> str:
    return f", run {repeat + 1}" if repeat else ""


def _unlearning(ctx: StudyContext, task: Unlearn | Tune, values: Mapping[str, Any], seed: int) -> Unlearning:
    """Return the run of a task's method on its request, with searched settings `values` over its own."""
    method, config = ctx.study.resolve(task.row.text, task.forget, values)
    return Unlearning(
        base=task.base.artifact(ctx),
        data=ctx.data_for(method),
        splits=task.splits(ctx),
        method=method,
        config=config,
        seed=seed,
        budget=ctx.study.budget_value,
        out_of_fold=task.table.artifact(ctx) if task.table else None,
    )


def _audit(ctx: StudyContext, task: Task, model: Model, retrained: tuple[Train, ...]) -> Auditing:
    study, splits, target = ctx.study, task.splits(ctx), model.artifact(ctx)
    retrain, *references = [one.artifact(ctx) for one in retrained]
    return Auditing(
        target=target,
        data=ctx.data,
        splits=splits,
        before=model_before(target, splits, ctx.store),
        retrain=retrain,
        references=tuple(references),
        attacks=study.audit_attacks,
        metrics=study.audit_metrics,
        bootstrap=study.bootstrap,
    )


def _check_unlearned(model: Artifact, error: NotFiniteError) -> None:
    """Raise the error unless a method made the model: a method may ruin a model, and that is its result."""
    if "method" not in model.info:
        raise error
