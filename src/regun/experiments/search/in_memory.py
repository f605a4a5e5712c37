"""The search for a method's settings on a user's own model and data, in memory and without a retrained model."""

from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

from torch import nn

from regun.errors import RegunError, SettingsError
from regun.experiments.search.proposals import Proposals, run_trials
from regun.experiments.search.scoring import Ask, Judge, judged_on, shown_to
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

    def asking(model: nn.Module) -> Ask:
        return lambda part: predict(model, examples, part, device)

    judge = Judge("reference", judged_on("reference", job.splits, examples.labels), [asking(job.model)])
    shown = shown_to(method, "reference", job.splits, examples.labels)
    best: list[tuple[float, Outcome]] = []  # one alone: models are large

    def attempt(number: int, values: Values) -> Trial:
        own = replace(job, model=private_copy(job.model, device), splits=shown, cost=Cost())
        outcome = unlearn_job(own, method, replace(start, **values), keep=keep, criterion=criterion)
        scored = judge.score(asking(outcome.model), outcome.diverged)
        if not best or scored.score < best[0][0]:  # the earliest among equals, as in Tuned.best
            best[:] = [(scored.score, outcome)]
        cost = outcome.cost
        return Trial(number=number, values=values, **asdict(scored), steps=cost.steps, seconds=cost.seconds)

    found = run_trials(Proposals(space=space, seed=job.seed), trials, attempt)
    return replace(best[0][1], trials=[tried.to_json() for tried in found])
