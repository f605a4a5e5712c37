"""The search for a method's settings on a user's own model and data, in memory and without a retrained model."""

from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

from torch import nn

from regun.errors import RegunError, SettingsError
from regun.experiments.search.proposals import Proposer, run_trials
from regun.experiments.search.scoring import PredictPart, TrialScorer, scoring_parts, visible_splits
from regun.experiments.search.space import Values, searchable
from regun.experiments.search.trials import Trial
from regun.methods import Method
from regun.predict import predict
from regun.training.job import Cost, Job, private_copy
from regun.unlearning import Outcome, unlearn_job


def search_job(
    job: Job,
    method: Method,
    start: Any,
    *,
    trials: int,
    family: str = "resnet",
    fixed: Collection[str] = (),
    keep: str = "last",
    criterion: str = "val_accuracy",
) -> Outcome:
    """The best outcome of `trials` settings by the objective `reference`; `job.model` is the base and stays as it is.

    Half of the held-out examples judge and are not shown to a method that may look at held-out examples.
    """
    if trials < 1:
        raise SettingsError([f"tune is {trials}; give at least 1 trial, or None for the settings as they are."])
    if job.splits is None:
        raise RegunError("a search needs a job with forget, retain and unseen examples.")
    space = searchable(method, start, family, fixed)
    examples, device = job.examples, job.device

    def predicting(model: nn.Module) -> PredictPart:
        return lambda part: predict(model, examples, part, device)

    parts = scoring_parts("reference", job.splits, examples.labels)
    scorer = TrialScorer("reference", parts, [predicting(job.model)])
    visible = visible_splits(method, "reference", job.splits, examples.labels)
    best: list[tuple[float, Outcome]] = []  # one alone: models are large

    def attempt(number: int, values: Values) -> Trial:
        own = replace(job, model=private_copy(job.model, device), splits=visible, cost=Cost())
        outcome = unlearn_job(own, method, replace(start, **values), keep=keep, criterion=criterion)
        scored = scorer.score(predicting(outcome.model), outcome.diverged)
        if not best or scored.score < best[0][0]:  # the earliest among equals, as in SearchResult.best
            best[:] = [(scored.score, outcome)]
        cost = outcome.cost
        return Trial(number=number, values=values, **asdict(scored), steps=cost.steps, seconds=cost.seconds)

    done = run_trials(Proposer(space=space, seed=job.seed), trials, attempt)
    return replace(best[0][1], trials=[trial.to_json() for trial in done])
