"""The search for a method's settings on a model of the store.

Each trial is an ordinary unlearned model, its score a small artifact beside it, and the finished search one more. So a
search that was stopped goes on by running it again: what is finished is found by its content.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import torch

from regun.artifacts import Artifact, Contents, SnapshotFolder, Store
from regun.artifacts.audits import Auditing, cached_predictions, check_references
from regun.artifacts.trainings import load_model, model_identity
from regun.artifacts.unlearnings import Unlearning, unlearn_model
from regun.errors import AuditError, SettingsError
from regun.experiments.search.objectives import check_objective
from regun.experiments.search.proposals import Proposals, run_trials
from regun.experiments.search.scoring import Ask, Judge, judged_on, shown_to
from regun.experiments.search.space import Space, Values
from regun.experiments.search.trials import SearchResult, Trial
from regun.hashing import code_digest, digest
from regun.predict import predict
from regun.splits import Splits
from regun.training.job import Callbacks
from regun.types import Indices


@dataclass(frozen=True, kw_only=True)
class Search:
    """Everything that decides a search: the run to improve (its settings are trial 0), where to look, what to minimise.

    `retrain` and `references` are for the objective `gap` only; `fixed` names settings that were given and stay.
    """

    run: Unlearning
    space: Space
    objective: str = "gap"
    trials: int = 20
    seed: int = 0
    pareto: bool = False
    retrain: Artifact | None = None
    references: tuple[Artifact, ...] = ()
    fixed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_objective(self.objective)
        if self.trials < 1:
            raise SettingsError([f"a search has {self.trials} trials; give at least 1."])
        if self.objective == "gap":
            _check_oracle(self)

    @property
    def wanted(self) -> int:
        """How many trials there are to run."""
        return self.space.at_most(self.trials)

    @cached_property
    def judged_on(self) -> dict[str, Indices]:
        """The examples that judge its trials, by name."""
        return judged_on(self.objective, self.run.splits, self.run.data.train.labels)

    def inputs(self) -> dict[str, Any]:
        """What decides the trials: the content key."""
        return {
            "run": self.run.inputs(),
            "space": self.space.describe(),
            "fixed": list(self.fixed),
            "judge": self._judge_inputs,
            "pareto": self.pareto,
            "seed": self.seed,
            "trials": self.trials,
            "code": code_digest("regun.experiments.search.proposals"),
        }

    def key(self) -> str:
        """The content key of the finished search."""
        return Store.key("tuning", self.inputs())

    def trial(self, values: Mapping[str, Any]) -> Unlearning:
        """The run of a trial, without the examples that judge it where the method could learn from them."""
        return replace(self.run, config=replace(self.run.config, **values), splits=self._shown)

    def score_inputs(self, trial: Unlearning) -> dict[str, Any]:
        """What decides the score of a trial: its model, which need not exist yet, and who judges it."""
        return {"model": Store.key("model", trial.inputs()), **self._judge_inputs}

    def judge(self, store: Store, device: torch.device) -> Judge:
        """The judge of its trials; what the models to compare with say is kept in the store."""
        examples = self.run.data.train

        def asking(artifact: Artifact) -> Ask:
            return lambda part: cached_predictions(artifact, examples, part, store, device)

        return Judge(self.objective, self.judged_on, [asking(artifact) for artifact in self._others()])

    def _others(self) -> tuple[Artifact, ...]:
        """The models that trials are compared with."""
        if self.objective == "reference" or self.retrain is None:
            return (self.run.base,)
        return (self.retrain, *self.references)

    @cached_property
    def _shown(self) -> Splits:
        return shown_to(self.run.method, self.objective, self.run.splits, self.run.data.train.labels)

    @cached_property
    def _judge_inputs(self) -> dict[str, Any]:
        return {
            "objective": self.objective,
            "judged_on": {name: digest(part) for name, part in self.judged_on.items()},
            "compared_with": [model_identity(artifact) for artifact in self._others()],
            "code": code_digest("regun.experiments.search.scoring", "regun.predict"),
        }


def search(
    order: Search,
    store: Store,
    device: torch.device,
    *,
    about: Mapping[str, Any] | None = None,
    watch: Callbacks | None = None,
    on_trial: Callable[[Trial], None] | None = None,
) -> SearchResult:
    """What a search finds, from the store or searched now; `about` is what its models' manifests should remember."""
    judge = order.judge(store, device)

    def attempt(number: int, values: Values) -> Trial:
        run = order.trial(values)

        def make(_: SnapshotFolder) -> Contents:
            return _scored(unlearn_model(run, store, device, about=about or {}, watch=watch), run, judge, device)

        return Trial(number=number, values=values, **store.make("score", order.score_inputs(run), make).info["tried"])

    def make(_: SnapshotFolder) -> Contents:
        proposals = Proposals(space=order.space, seed=order.seed, pareto=order.pareto)
        trials = run_trials(proposals, order.trials, attempt, on_trial)
        return Contents({}, {"data_name": order.run.data.name, "tuned": _outcome(order, trials).to_json()})

    return SearchResult.from_json(store.make("tuning", order.inputs(), make).info["tuned"])


def _scored(artifact: Artifact, run: Unlearning, judge: Judge, device: torch.device) -> Contents:
    """The score of a trial's model, and what it cost.

    What the model says is not kept: a store should not fill up with the answers of bad settings.
    """
    model, examples, cost = load_model(artifact, device), run.data.train, artifact.info["cost"]
    scored = judge.score(lambda part: predict(model, examples, part, device), artifact.info["diverged"])
    made = {"model": artifact.key, "steps": cost["steps"], "seconds": cost["seconds"]}
    return Contents({}, {"data_name": run.data.name, "tried": {**asdict(scored), **made}})


def _outcome(order: Search, trials: tuple[Trial, ...]) -> SearchResult:
    fixed = {name: getattr(order.run.config, name) for name in order.fixed}
    note = ""
    if order.space.size == 1:
        note = "nothing to search: the method names no ranges for this family of models, so the default is kept"
    elif order.space.size is not None and order.space.size <= order.trials:
        note = f"all {order.space.size} combinations were tried"
    return SearchResult(order.run.method.name, order.objective, trials, fixed, note, order.key())


def _check_oracle(order: Search) -> None:
    """Raise unless the objective `gap` has the models and the examples it needs."""
    if order.retrain is None or not order.references:
        found = "none" if order.retrain is None else "the retrained model alone"
        raise AuditError(
            f"the objective gap needs the retrained model and at least one reference, trained like the base model but "
            f"without the forget set; got {found}. Make them: regun train ... --without REQUEST --seed N, for the "
            f"base's seed and one more or several. The objective reference needs no retrained model."
        )
    run = order.run
    if not len(run.splits.val):
        raise AuditError(
            "the objective gap is measured on validation examples and the split has none: train --val 0.1."
        )
    check_references(
        Auditing(target=run.base, data=run.data, splits=run.splits, retrain=order.retrain, references=order.references)
    )
