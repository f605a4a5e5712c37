"""What a request will do, take and be judged by, measured before anything is done or written."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

import numpy as np
from torch import nn

from regun.auditing import Estimate
from regun.auditing.intervals import auc_interval
from regun.auditing.predictions import FloatArray
from regun.auditing.roc import Contrast
from regun.deletion.attempt import unseen_sets
from regun.deletion.folder import Folder
from regun.deletion.forget import model_after
from regun.deletion.plan import Plan
from regun.methods import auto
from regun.methods._teacher import teacher_work
from regun.predict import predict
from regun.training.job import Job, private_copy
from regun.training.recipes import Recipe, assumed_recipe
from regun.training.scratch import train_from_scratch
from regun.types import Indices

TIMED_STEPS = 4
"""Training steps on a copy of the model that are timed."""
PREDICTED = 2000
"""Records per set that the current model predicts, evenly spread."""
DETECTED = 1.96 + 0.84
"""Standard errors from 50 at which a two-sided test at 5 % finds a difference in 80 % of cases."""


@dataclass(frozen=True)
class RunForecast:
    """One method: whether it retrains from scratch, the most samples it trains on, and its plan in words."""

    method: str
    from_scratch: bool
    """True if it will; see also `may_retrain`."""
    samples: int | None
    """None for a method of your own, which does not say."""
    plan: str = ""
    may_retrain: bool = False
    """True for `auto` where it decides in the run: it returns the model it trained from scratch if that is as good."""


@dataclass(frozen=True)
class Power:
    """How well the model's loss distinguishes forgotten from unseen records, before the request.

    `smallest` is the attack AUC that so many records reveal in 80 % of cases; above 100 there is none. `before` is the
    AUC of the current model.
    """

    forgotten: int
    unseen: int
    against: str
    smallest: float
    before: Estimate

    @property
    def enough(self) -> bool:
        """True if the current model is caught: then a test can show that the new one is not."""
        return self.before.low is not None and self.before.low > 50


@dataclass(frozen=True)
class Forecast:
    """What a request will do (`runs`: the method, then the fallback), what judging takes, and the power of the test."""

    runs: tuple[RunForecast, ...]
    judging_samples: int
    samples_per_second: float | None
    power: Power

    def seconds(self, samples: int) -> float | None:
        """Return how long so many samples take at the measured speed."""
        return samples / self.samples_per_second if self.samples_per_second else None


def make_forecast(plan: Plan, out: Path) -> Forecast | None:
    """Return the forecast of a plan for the folder `out`; None if the model stays as it is."""
    if not len(plan.new):
        return None
    folder = Folder(out)
    current = model_after(plan.opened.project, folder, folder.read_ledger().current)
    runs, recipe = list[RunForecast](), plan.opened.project.recipe
    forget, retain = len(plan.forget), len(plan.retain)
    for method in plan.methods:
        table = plan.table is not None and method.needs.uses_out_of_fold
        work = method.method.planned(method.config, forget, retain, recipe=recipe, table=table)
        run = RunForecast(method.spec.text, method.method.from_scratch, None if work is None else work.samples)
        if isinstance(method.config, auto.Config):
            auto_plan = auto.plan_of(method.config, forget, retain, recipe, table=table)
            may_retrain = auto_plan.training == "part" and method.config.from_scratch == "auto"
            run = replace(run, from_scratch=auto_plan.training == "whole", plan=str(auto_plan), may_retrain=may_retrain)
        runs.append(run)
    judging = 0
    if plan.trains_out_models and not runs[0].from_scratch:
        judging = plan.out_models * teacher_work(plan.opened.project.out_recipe(retain), retain).samples
    return Forecast(tuple(runs), judging, _speed(plan, current), _power(plan, current))


def _speed(plan: Plan, current: nn.Module) -> float | None:
    """Return training samples per second, from a few steps on a copy; None if nothing can be trained."""
    if not any(parameter.requires_grad for parameter in current.parameters()):
        return None
    opened, usual = plan.opened, plan.opened.project.recipe or assumed_recipe(len(plan.retain))
    recipe = replace(Recipe(), epochs=1, lr=1e-6, momentum=0.0, batch_size=min(usual.batch_size, len(plan.retain)))
    job = Job(model=private_copy(current, opened.device), examples=opened.sets["train"], seed=0, device=opened.device)
    train_from_scratch(job, plan.retain[: recipe.batch_size], recipe)  # the first step also allocates
    rows = plan.retain[: TIMED_STEPS * recipe.batch_size]
    started = time.perf_counter()
    train_from_scratch(job, rows, recipe)
    return len(rows) / max(1e-9, time.perf_counter() - started)


def _power(plan: Plan, current: nn.Module) -> Power:
    sizes: Mapping[str, int] = {name: len(rows) for name, rows in plan.remaining.items() if len(rows)}
    against = max(unseen_sets(plan.methods[0], sizes), key=lambda name: sizes[name])

    def losses(name: str, rows: Indices) -> FloatArray:
        sample = rows[np.unique(np.linspace(0, len(rows) - 1, PREDICTED).astype(np.int64))]
        return predict(current, plan.opened.sets[name], sample, plan.opened.device).true_log_prob

    forgotten, unseen = losses("train", plan.new), losses(against, plan.remaining[against])
    m, n = len(plan.new), sizes[against]
    error = sqrt((m + n + 1) / (12 * m * n))  # of the AUC where nothing is left (Mann-Whitney)
    return Power(m, n, against, 50 + 100 * DETECTED * error, auc_interval(Contrast.of(forgotten, unseen)))
