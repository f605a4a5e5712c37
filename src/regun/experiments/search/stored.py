"""The search for a method's settings on a model of the store.

Each trial is an ordinary unlearned model, its score another small artifact, and the finished search one more. So a
search that was stopped continues when it is run again: finished work is in the store.
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
from regun.experiments.search.proposals import Proposer, run_trials
from regun.experiments.search.scoring import PredictPart, TrialScorer, scoring_parts, visible_splits
from regun.experiments.search.space import Space, Values
from regun.experiments.search.trials import SearchResult, Trial
from regun.hashing import code_digest, digest
from regun.predict import predict
from regun.training.job import Callbacks
from regun.types import Indices


@dataclass(frozen=True, kw_only=True)
class Search:
    """All that decides a search: the run to improve (its settings are trial 0), the space, the objective.

    `retrain` and `references` are for the objective `gap` only; `fixed` names settings that are not searched.
    """

    run: Unlearning
    space: Space
    objective: str = "gap"
    trials: int = 20
    seed: int = 0
    retrain: Artifact | None = None
    references: tuple[Artifact, ...] = ()
    fixed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_objective(self.objective)
        if self.trials < 1:
            raise SettingsError([f"a search has {self.trials} trials; give at least 1."])
        if self.objective != "gap":
            return
        run, models = self.run, "none" if self.retrain is None else "the retrained model alone"
        if self.retrain is None or not self.references:
            raise AuditError(
                f"the objective gap needs the retrained model and at least one reference, trained like the base model "
                f"but without the forget set; got {models}. Make them: regun train ... --without REQUEST --seed N, for "
                f"the base's seed and one more or several. The objective reference needs no retrained model."
            )
        if not len(run.splits.val):
            raise AuditError(
                "the objective gap is measured on validation examples and the split has none: regun train --split "
                "val=0.1."
            )
        audit = Auditing(
            target=run.base, data=run.data, splits=run.splits, retrain=self.retrain, references=self.references
        )
        check_references(audit)

    @cached_property
    def scoring_parts(self) -> dict[str, Indices]:
        """The examples that score its trials, by name."""
        return scoring_parts(self.objective, self.run.splits, self.run.data.train.labels)

    def inputs(self) -> dict[str, Any]:
        """Return what decides the trials: the content key."""
        return {
            "run": self.run.inputs(),
            "space": self.space.describe(),
            "fixed": list(self.fixed),
            "scorer": self._scorer_inputs,
            "seed": self.seed,
            "trials": self.trials,
            "code": code_digest("regun.experiments.search.proposals"),
        }

    def key(self) -> str:
        """Return the content key of the finished search."""
        return Store.key("tuning", self.inputs())

    def trial(self, values: Mapping[str, Any]) -> Unlearning:
        """Return the run of a trial, without the examples that score it where the method could train on them."""
        visible = visible_splits(self.run.method, self.objective, self.run.splits, self.run.data.train.labels)
        return replace(self.run, config=replace(self.run.config, **values), splits=visible)

    def score_inputs(self, trial: Unlearning) -> dict[str, Any]:
        """Return what decides the score of a trial: its model, which need not exist yet, and the scorer."""
        return {"model": Store.key("model", trial.inputs()), **self._scorer_inputs}

    def scorer(self, store: Store, device: torch.device) -> TrialScorer:
        """Return the scorer of its trials; predictions of the models to compare with are stored."""
        examples = self.run.data.train

        def predicting(artifact: Artifact) -> PredictPart:
            return lambda part: cached_predictions(artifact, examples, part, store, device)

        return TrialScorer(self.objective, self.scoring_parts, [predicting(model) for model in self._compared_with()])

    def _compared_with(self) -> tuple[Artifact, ...]:
        """Return the models that trials are compared with."""
        if self.objective == "reference" or self.retrain is None:
            return (self.run.base,)
        return (self.retrain, *self.references)

    @cached_property
    def _scorer_inputs(self) -> dict[str, Any]:
        return {
            "objective": self.objective,
            "scoring_parts": {name: digest(part) for name, part in self.scoring_parts.items()},
            "compared_with": [model_identity(artifact) for artifact in self._compared_with()],
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
    """Return the result of a search, from the store or searched now; `about` goes into its models' manifests."""
    scorer, examples = order.scorer(store, device), order.run.data.train

    def attempt(number: int, values: Values) -> Trial:
        run = order.trial(values)

        def make(_: SnapshotFolder) -> Contents:
            """Score a trial; its predictions are not stored: a store should not fill up with those of bad settings."""
            artifact = unlearn_model(run, store, device, about=about or {}, watch=watch)
            model, cost = load_model(artifact, device), artifact.info["cost"]
            scored = scorer.score(lambda part: predict(model, examples, part, device), artifact.info["diverged"])
            made = {"model": artifact.key, "steps": cost["steps"], "seconds": cost["seconds"]}
            return Contents({}, {"data_name": run.data.name, "tried": {**asdict(scored), **made}})

        return Trial(number=number, values=values, **store.make("score", order.score_inputs(run), make).info["tried"])

    def make(_: SnapshotFolder) -> Contents:
        proposer = Proposer(space=order.space, seed=order.seed)
        trials = run_trials(proposer, order.trials, attempt, on_trial)
        fixed = {name: getattr(order.run.config, name) for name in order.fixed}
        note = ""
        if order.space.size == 1:
            note = "nothing to search: the method names no ranges for this family of models, so the default stays"
        elif order.space.size is not None and order.space.size <= order.trials:
            note = f"all {order.space.size} combinations were tried"
        result = SearchResult(order.run.method.name, order.objective, trials, fixed, note, order.key())
        return Contents({}, {"data_name": order.run.data.name, "tuned": result.to_json()})

    return SearchResult.from_json(store.make("tuning", order.inputs(), make).info["tuned"])
