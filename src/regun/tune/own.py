"""Tuning on a user's own model and data, in memory and without a retrained model."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch

from regun.data.examples import Indices
from regun.errors import DivergedError, RegunError, SettingsError
from regun.evaluate import Signals
from regun.methods import Method
from regun.runs.unlearning import Outcome, unlearn_job
from regun.training.forward import eval_logits
from regun.training.job import Cost, Job, private_copy
from regun.tune.objectives import reference_score, worst
from regun.tune.outcome import Judged
from regun.tune.scoring import set_aside
from regun.tune.space import Values, searchable
from regun.tune.tuning import need_optuna, sees_heldout


def tune_job(
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
    space = searchable(method, start, family, fixed)
    need_optuna()
    from optuna.storages import InMemoryStorage

    from regun.tune.search import Plan, search  # an extra: only a search needs it

    judge = _Judge(job, method, start, keep, criterion)
    found = search(Plan("own", space, trials, job.seed), judge, InMemoryStorage())
    if judge.best is None:
        raise RegunError(f"none of {trials} trials ended with a model; run without tune to see why.")
    return replace(judge.best, trials=[trial.to_json() for trial in found])


class _Judge:
    """Runs trials, scores them and remembers the best."""

    def __init__(self, job: Job, method: Method, start: Any, keep: str, criterion: str) -> None:
        if job.splits is None:
            raise RegunError("a search needs a job with forget, retain and unseen examples.")
        self.method, self.start, self.keep, self.criterion = method, start, keep, criterion
        shown, unseen = set_aside(job.splits, job.examples.labels)
        self.job = replace(job, splits=shown) if sees_heldout(method) else job
        kept = {"unseen": unseen} | ({"retain": job.splits.retain} if len(job.splits.retain) else {})
        self.parts: dict[str, Indices] = {"forget": job.splits.forget, **kept}
        self.before = {name: self._signals(job.model, kept[name]) for name in kept}
        self.best: Outcome | None = None
        self.score = float("inf")

    def __call__(self, values: Values) -> Judged:
        job = replace(self.job, model=private_copy(self.job.model, self.job.device), cost=Cost())
        config = replace(self.start, **values)
        outcome = unlearn_job(job, self.method, config, keep=self.keep, criterion=self.criterion)
        diverged = outcome.diverged
        try:
            scored = worst("reference") if diverged else reference_score(
                {name: self._signals(outcome.model, part) for name, part in self.parts.items()}, self.before
            )  # fmt: skip
        except DivergedError as fault:
            scored, diverged = worst("reference"), str(fault)
        if scored.score < self.score:  # the earliest among equals, as in Tuned.best
            self.best, self.score = outcome, scored.score
        scores = (scored.score, scored.forgetting, scored.utility, scored.parts)
        return Judged(*scores, diverged, None, outcome.cost.steps, outcome.cost.seconds)

    def _signals(self, model: torch.nn.Module, part: Indices) -> Signals:
        logits = eval_logits(model, self.job.examples, part, self.job.device)
        if not bool(torch.isfinite(logits).all()):
            raise DivergedError("the model's answers are not finite")
        return Signals.from_logits(logits.numpy(), self.job.examples.labels[part], part)
