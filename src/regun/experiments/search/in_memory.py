"""The search for a method's settings on a user's own model and data, in memory and without a retrained model."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from typing import Any

from torch import nn

from regun.arguments import InputOptions, RunOptions, check_arguments
from regun.data.sources import Source
from regun.errors import RegunError, SettingsError
from regun.experiments.search.proposals import Proposer, run_trials
from regun.experiments.search.scoring import SET_ASIDE, PredictPart, TrialScorer, scoring_parts, visible_splits
from regun.experiments.search.space import Values, searchable
from regun.experiments.search.trials import Trial
from regun.jobs import ready_job
from regun.methods import Method, Teacher
from regun.predict import predict
from regun.training.job import Cost, Job, private_copy
from regun.training.recipes import Recipe
from regun.unlearning import Outcome, unlearn_job


def tune(
    model: nn.Module,
    *,
    trials: int = 20,
    forget: Source,
    retain: Source | None = None,
    heldout: Source | None = None,
    val: Source | None = None,
    method: str | Callable[..., Any] = "regun",
    settings: Mapping[str, Any] | None = None,
    recipe: Recipe | Mapping[str, Any] | str | None = None,
    rebuild: Callable[[int], nn.Module] | None = None,
    teacher: Teacher | None = None,
    seed: int = 0,
    inputs: InputOptions | None = None,
    run: RunOptions | None = None,
) -> Outcome:
    """Return the best of `trials` unlearnings with different settings; `outcome.trials` lists them all.

    No retrained model is needed: half of `heldout`, and `val`, are set aside to score the trials. Settings that are
    passed are not searched. The other arguments are those of `regun.unlearn`.

    >>> regun.tune(model, forget=forget, retain=retain, heldout=heldout, trials=8).trials  # doctest: +SKIP
    """
    check_arguments({"trials": trials})
    if trials < 1:
        raise SettingsError([f"trials is {trials}; give at least 1."])
    run = run if run is not None else RunOptions()
    ready = ready_job(
        model, {"forget": forget, "retain": retain, "heldout": heldout, "val": val},
        method=method, settings=settings, recipe=recipe, rebuild=rebuild, teacher=teacher, seed=seed, inputs=inputs,
        run=run,
    )  # fmt: skip
    splits = ready.job.splits
    assert splits is not None
    unseen = len(splits.val) + round(SET_ASIDE * len(splits.heldout))
    if unseen < 2:
        raise RegunError(
            f"trials are scored on unseen examples (val, and half of heldout), and there are {unseen}; give at least 2 "
            f"as heldout= or val=, or use regun.unlearn."
        )
    spec = ready.spec
    family = spec.preset or "resnet"
    outcome = search_job(
        ready.job,
        spec.method,
        ready.config,
        trials=int(trials),
        family=family if family in spec.method.search else "resnet",
        fixed=spec.settings,
        keep=run.keep,
        criterion=run.criterion,
    )
    return ready.finish(outcome)


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
        trial_job = replace(job, model=private_copy(job.model, device), splits=visible, cost=Cost())
        outcome = unlearn_job(trial_job, method, replace(start, **values), keep=keep, criterion=criterion)
        scored = scorer.score(predicting(outcome.model), outcome.diverged)
        if not best or scored.score < best[0][0]:  # the earliest among equals, as in SearchResult.best
            best[:] = [(scored.score, outcome)]
        cost = outcome.cost
        return Trial(number=number, values=values, **asdict(scored), steps=cost.steps, seconds=cost.seconds)

    done = run_trials(Proposer(space=space, seed=job.seed), trials, attempt)
    return replace(best[0][1], trials=[asdict(trial) for trial in done])
