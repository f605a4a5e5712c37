"""Tuning one method on a model of the store: each trial an ordinary unlearned model, judged without test data."""

import importlib.util
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from regun.data.examples import Data, Indices
from regun.errors import AuditError, DivergedError, RegunError, SettingsError
from regun.evaluate import Signals
from regun.methods import Method
from regun.runs.audit import Models, cached_signals, refuse_unfit_references
from regun.runs.training import Unlearning, Watch, load_model, unlearn_model
from regun.seeds import digest
from regun.splits import Splits
from regun.store import Artefact, Made, Store
from regun.training.forward import eval_logits
from regun.training.job import Budget
from regun.tune.objectives import OBJECTIVE_VERSION, Scored, check_objective, gap_score, reference_score, worst
from regun.tune.outcome import Judged, Trial, Tuned
from regun.tune.scoring import set_aside
from regun.tune.space import Space, Values


@dataclass(frozen=True)
class Tuning:
    """Everything that decides a search: the run to improve (its settings are trial 0), where to look, what to minimise.

    `models` are the retrained model and the references, for the objective `gap` only.
    """

    run: Unlearning
    space: Space
    objective: str = "gap"
    trials: int = 20
    seed: int = 0
    pareto: bool = False
    models: Models | None = None
    fixed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_objective(self.objective)
        if self.trials < 1:
            raise SettingsError([f"a search has {self.trials} trials; give at least 1."])
        if self.objective == "gap":
            check_oracle(self.models, self.run.splits)

    @cached_property
    def scored_on(self) -> Indices | None:
        """The unseen examples that judge a trial (objective `reference`)."""
        return set_aside(self.run.splits, self.run.data.train.labels)[1] if self.objective == "reference" else None

    def trial(self, values: Mapping[str, Any]) -> Unlearning:
        """The run of a trial; a method that may look at held-out examples does not see those that judge it."""
        config = replace(self.run.config, **values)
        if self.objective != "reference" or not sees_heldout(self.run.method):
            return replace(self.run, config=config)
        return replace(self.run, config=config, splits=set_aside(self.run.splits, self.run.data.train.labels)[0])

    def inputs(self) -> dict[str, Any]:
        """What decides the trials, however many of them are run."""
        models = self.models if self.objective == "gap" else None
        return {
            "version": OBJECTIVE_VERSION,
            "run": self.run.inputs(),
            "space": self.space.describe(),
            "objective": self.objective,
            "retrain": models.retrain.info["weights"] if models and models.retrain else None,
            "references": [r.info["weights"] for r in models.references] if models else [],
            "scored_on": digest(self.scored_on) if self.scored_on is not None else None,
            "pareto": self.pareto,
            "seed": self.seed,
        }

    def key(self) -> str:
        """The content key of the finished search."""
        return Store.key("tuning", {**self.inputs(), "trials": self.trials})


def tune_method(
    base: Artefact,
    data: Data,
    splits: Splits,
    method: Method,
    start: Any,
    models: Models | None,
    store: Store,
    device: torch.device,
    *,
    objective: str = "gap",
    trials: int = 20,
    seed: int = 0,
    budget: Budget | None = None,
    family: str = "resnet",
    fixed: Collection[str] = (),
    pareto: bool = False,
    storage: str | None = None,
    about: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
    on_trial: Callable[[Trial], None] | None = None,
) -> Tuned:
    """The best of `trials` settings for `method` on `base`, from the store or searched now.

    `start` is a `Config` of the method and becomes trial 0; `fixed` names settings that stay as they are there.
    """
    space = Space.of(method, start, family, fixed)
    run = Unlearning(base, data, splits, method, start, seed, budget)
    tuning = Tuning(run, space, objective, trials, seed, pareto, models, tuple(fixed))
    return tune(tuning, store, device, storage=storage, about=about, watch=watch, on_trial=on_trial)


def tune(
    tuning: Tuning,
    store: Store,
    device: torch.device,
    *,
    storage: str | None = None,
    about: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
    on_trial: Callable[[Trial], None] | None = None,
) -> Tuned:
    """Run a search, or find it in the store; `storage` is where its trials are kept and shared while it runs,
    `about` what the trials' manifests should remember.

    Not under the store's lock, so that several processes can share the work; each ends with the same trials.
    """
    inputs = {**tuning.inputs(), "trials": tuning.trials}
    key = store.key("tuning", inputs)
    if not store.has("tuning", key):
        judge = _judge(tuning, store, device)

        def run(values: Values) -> Judged:
            return judge(unlearn_model(tuning.trial(values), store, device, about=dict(about or {}), watch=watch))

        trials = _trials(tuning, run, store, storage, on_trial)
        info = {"data_name": tuning.run.data.name, "tuned": _outcome(tuning, trials, key).to_json()}
        store.make("tuning", inputs, lambda _: Made({}, info))
    return Tuned.from_json(store.load("tuning", key).info["tuned"])


def check_oracle(models: Models | None, splits: Splits) -> None:
    """Raise unless the objective `gap` has the models and the examples it needs."""
    if models is None or models.retrain is None or not models.references:
        found = "none" if models is None or models.retrain is None else "the retrained model alone"
        raise AuditError(
            f"the objective gap needs the retrained model and at least one reference, trained like the base model but "
            f"without the forget set; got {found}. Make them: regun train ... --without REQUEST --seed N, for the "
            f"base's seed and one more or several. The objective reference needs no retrained model."
        )
    if not len(splits.val):
        raise AuditError(
            "the objective gap is measured on validation examples and the split has none: train --val 0.1."
        )
    refuse_unfit_references(models, splits)


def sees_heldout(method: Method) -> bool:
    """Whether a method may look at held-out examples: it says so, or it is a user's own and need not say."""
    return method.needs.heldout or method.source is not None


def need_optuna() -> None:
    """Say what is missing before anything is started."""
    if importlib.util.find_spec("optuna") is None:
        raise RegunError("a search needs Optuna, which is not installed: pip install 'regun[tune]'.")


def _trials(
    tuning: Tuning,
    run: Callable[[Values], Judged],
    store: Store,
    storage: str | None,
    on_trial: Callable[[Trial], None] | None,
) -> tuple[Trial, ...]:
    if tuning.space.size == 1:
        only = Trial(0, dict(tuning.space.start), run(dict(tuning.space.start)))
        if on_trial is not None:
            on_trial(only)
        return (only,)
    need_optuna()
    from regun.tune.search import Plan, search  # an extra: only a search needs it
    from regun.tune.storage import open_storage

    name = digest(tuning.inputs())
    if storage is None:
        (store.root / "tuning").mkdir(exist_ok=True)
        storage = f"sqlite:///{store.root / 'tuning' / name}.sqlite"
    plan = Plan(f"regun {name}", tuning.space, tuning.trials, tuning.seed, tuning.pareto)
    return search(plan, run, open_storage(storage), on_trial=on_trial)


def _outcome(tuning: Tuning, trials: tuple[Trial, ...], key: str) -> Tuned:
    fixed = {name: getattr(tuning.run.config, name) for name in tuning.fixed}
    note = ""
    if tuning.space.size == 1:
        note = "nothing to search: the method names no ranges for this family of models, so the default is kept"
    elif tuning.space.size is not None and tuning.space.size <= tuning.trials:
        note = f"all {tuning.space.size} combinations were tried"
    return Tuned(tuning.run.method.name, tuning.objective, trials, fixed, note, key)


def _judge(tuning: Tuning, store: Store, device: torch.device) -> Callable[[Artefact], Judged]:
    score = {"gap": _by_gap, "reference": _by_reference}[tuning.objective](tuning, store, device)

    def judge(artefact: Artefact) -> Judged:
        diverged: str | None = artefact.info["diverged"]
        try:
            found = worst(tuning.objective) if diverged else score(artefact)
        except DivergedError as fault:
            found, diverged = worst(tuning.objective), str(fault)
        cost = artefact.info["cost"]
        scores = (found.score, found.forgetting, found.utility, found.parts)
        return Judged(*scores, diverged, artefact.key, cost["steps"], cost["seconds"])

    return judge


def _by_gap(tuning: Tuning, store: Store, device: torch.device) -> Callable[[Artefact], Scored]:
    splits, examples, models = tuning.run.splits, tuning.run.data.train, tuning.models
    parts = {"retain": splits.retain, "forget": splits.forget, "val": splits.val}

    def known(artefact: Artefact) -> dict[str, Signals]:
        return {name: cached_signals(artefact, examples, part, store, device) for name, part in parts.items()}

    assert models is not None  # checked by Tuning
    assert models.retrain is not None
    retrain, references = known(models.retrain), [known(r) for r in models.references]
    return lambda artefact: gap_score(_signals(tuning, artefact, parts, device), retrain, references)


def _by_reference(tuning: Tuning, store: Store, device: torch.device) -> Callable[[Artefact], Scored]:
    splits, examples = tuning.run.splits, tuning.run.data.train
    assert tuning.scored_on is not None  # checked by Tuning
    kept = {"unseen": tuning.scored_on} | ({"retain": splits.retain} if len(splits.retain) else {})
    before = {name: cached_signals(tuning.run.base, examples, part, store, device) for name, part in kept.items()}
    parts = {"forget": splits.forget, **kept}
    return lambda artefact: reference_score(_signals(tuning, artefact, parts, device), before)


def _signals(
    tuning: Tuning, artefact: Artefact, parts: Mapping[str, Indices], device: torch.device
) -> dict[str, Signals]:
    """What a trial's model says; not kept in the store, which would fill up with the answers of bad settings."""
    model, examples = load_model(artefact, device), tuning.run.data.train
    logits = {name: eval_logits(model, examples, part, device) for name, part in parts.items()}
    if not all(bool(torch.isfinite(values).all()) for values in logits.values()):
        raise DivergedError("the model's answers are not finite")
    return {name: Signals.from_logits(values.numpy(), examples.labels[parts[name]], parts[name])
            for name, values in logits.items()}  # fmt: skip
