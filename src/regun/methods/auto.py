"""auto: retrain from scratch where that is short, otherwise distill from a start between base and fresh weights.

    R = cost of retraining: the recipe's epochs times |D_r| samples
    teacher = fresh weights trained on D_r alone: by the whole recipe where R is `short`, else for a part of `share` R
    as good as the base?  Then return the teacher: it never saw D_f                             (claim: retrained)
    otherwise theta <- (1 - shrink) base + shrink fresh, and for the rest of `share` R, annealed,
        L = (1 - w) 1/b sum over B_f of KL(teacher(x) || p_theta(.|x)) + w CE(B_r)                (claim: empirical)
    a prepared table, and R is not short?  No teacher: `crossfit` with the table                (claim: empirical)
    not more accurate than the teacher?  Return the teacher.   Ruined?  Return the base, and advise to retrain.

"As good" is measured on held-out examples, where there are some, and on retain examples; differences within the
standard error do not count. The first term of L is on only while the forgotten examples are known better, compared with
held-out ones, than the teacher knows them (mean p_theta(y|x)). Without a recipe, trials find the learning rate, and
training lasts until the retain set is fitted as well as by the base. A user's `teacher=` replaces the trained one and
is never returned. Layers that cannot draw fresh weights get their own, shuffled; then nothing is called retrained.

Own to regun; built from the parts of `regun@teacher_shrink`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from regun.errors import DivergedError
from regun.methods import _from_scratch as from_scratch
from regun.methods import crossfit
from regun.methods._baseline_comparison import TOLERANCE, BaselineComparison
from regun.methods._contract import Needs, Ranges, Work, passes
from regun.methods._distill import Distillation, MembershipGap, distill
from regun.methods._fresh_weights import fresh_model, shrink_towards, with_fresh_weights
from regun.methods._teacher import answers_of, train_teacher
from regun.settings import check, setting, to_json
from regun.training.fit import Fitted
from regun.training.job import Job, frozen_copy
from regun.training.recipes import Recipe, assumed_recipe, shorten

LOG = logging.getLogger("regun.auto")
TITLE = "Auto"
NEEDS = Needs(heldout_helps=True, out_of_fold_helps=True)
SEARCH: Ranges = {"resnet": {}, "swin": {}}
PRESETS: Mapping[str, Mapping[str, Any]] = {}
MIN_STEPS = 300
"""Least steps of training a teacher and of distilling: fewer teach nothing, and do not repair what shrinking took."""
MIN_TEACHER_SHARE = 1 / 8
"""Least share of the recipe's epochs that a teacher is trained for."""
ATTEMPTS = 3
"""How often a teacher's training is started, each time at a tenth of the rate."""
RATE_FACTORS = (3.0, 1.0, 0.3)
"""Rates of distilling that are tried, as multiples of the training rate."""
DISTILLING_SHARE = 0.4
"""Part of `share` that is spent on distilling; the teacher has the rest."""

PRETRAINED = "If it was pretrained, give rebuild=, a function that returns it as it was before fine-tuning."
COLLAPSED = (
    "the model's accuracy fell and could not be repaired, so the base is returned unchanged and nothing is forgotten. "
    f"Retrain it (method='retrain' with recipe=, how it was trained). {PRETRAINED}"
)


@dataclass(frozen=True)
class Config:
    """Settings of auto; hardly any need to be given."""

    share: float = setting(0.2, "share of a retraining to spend, where retraining is long", above=0, high=1)
    short: int = setting(100_000, "retrain from scratch if that takes at most so many samples", low=0)
    from_scratch: str = setting("auto", "whether a retrained model may be returned", choices=("auto", "never"))
    steps: int | None = setting(None, "steps of distilling (default: two fifths of the share, 300 at least)", low=1)
    shrink: float = setting(0.5, "how far to move towards fresh weights before distilling", low=0, high=1)
    w: float = setting(0.5, "weight of the retain loss while distilling", low=0, high=1)
    batch_size: int = setting(16, "forget examples per step", low=1)
    retain_batch: int = setting(64, "retain examples per step", low=1)
    lr: float | None = setting(None, "learning rate of distilling (default: the best of three)", above=0)

    def __post_init__(self) -> None:
        check(self, "auto")


@dataclass(frozen=True)
class Plan:
    """In samples: the cost of retraining, and what training a teacher and distilling will cost at most.

    `training`: the `whole` recipe, a `part` of it, in `rounds` until as good as the base, or none (the teacher is
    `given`). `steps` are those of distilling itself, without the trials of its learning rate. `known`: the base's
    recipe is known, not assumed.
    """

    training: str
    retraining: int
    teacher: Work
    distilling: Work
    steps: int
    recipe: Recipe
    known: bool

    def __str__(self) -> str:
        cost = f"retraining takes {self.retraining:,} samples" + ("" if self.known else ", assuming 40 epochs")
        if self.training == "whole":
            return f"{cost}: that is short, so the model is retrained from scratch"
        if self.training == "rounds":
            return f"{cost}: it is retrained from scratch until it fits as before, by {self.teacher.samples:,} at most"
        ours = self.teacher.samples + self.distilling.samples
        if self.training == "prepared":
            return f"{cost}; the update with the prepared table takes {ours:,} ({ours / max(1, self.retraining):.0%})"
        return f"{cost}; at most {ours:,} ({ours / max(1, self.retraining):.0%} of that) are spent, teacher included"


def needs(config: Config) -> Needs:
    """Return the needs: held-out examples help to judge; fresh weights are wanted, but there are ways without."""
    return NEEDS


def plan_of(
    config: Config, retain: int, recipe: Recipe | None, given: bool = False, prepared: int | None = None
) -> Plan:
    """Return what a run will do and cost; `given`: the user has a teacher; `prepared`: forgotten records in a table."""
    usual, known = recipe or assumed_recipe(retain), recipe is not None
    retraining, whole = usual.epochs * retain, passes(usual.epochs, retain, usual.batch_size)
    each = config.batch_size + config.retain_batch
    steps = config.steps or max(MIN_STEPS, round(DISTILLING_SHARE * config.share * retraining / each))
    rate_trials = from_scratch.trial_work(retain, config.retain_batch, 0 if config.lr else len(RATE_FACTORS))
    distilling = Work(steps, steps * each) + rate_trials
    plan = Plan("given", retraining, Work(0, 0), distilling, steps, usual, known)
    if given:
        return plan
    if config.from_scratch == "auto" and known and retraining <= config.short:
        return replace(plan, training="whole", teacher=whole)
    if prepared is not None:
        update = crossfit.work(_update(config), prepared, retain, usual)
        return replace(plan, training="prepared", distilling=update, steps=update.steps)
    trials = from_scratch.trial_work(retain, usual.batch_size, 0 if known else len(from_scratch.RATES))
    if config.from_scratch == "auto" and not known and from_scratch.first_round(retain) * retain <= config.short:
        rounds = passes(from_scratch.most_epochs(retain, config.short), retain, usual.batch_size)
        return replace(plan, training="rounds", teacher=trials + rounds)
    part = max(
        MIN_TEACHER_SHARE, config.share - distilling.samples / max(1, retraining), MIN_STEPS / max(1, whole.steps)
    )
    short = shorten(usual, min(1.0, part))
    teacher = trials + passes(short.epochs, retain, short.batch_size)
    return replace(plan, training="part", teacher=teacher, recipe=short)


def work(config: Config, forget: int, retain: int, recipe: Recipe | None) -> Work:
    """Return all the work that may be needed."""
    plan = plan_of(config, retain, recipe)
    return plan.teacher + plan.distilling


def unlearn(job: Job, config: Config) -> Fitted:
    """Retrain or distill, whichever fits this model and request."""
    run = _Run(job, config)
    if run.plan.training == "prepared":
        return run.cross_fitted()
    teacher = run.make_teacher()
    if run.may_return_teacher and run.as_good(teacher):
        return run.finish(teacher, "retrained")
    fitted = run.distilled(teacher)
    lost = run.comparison.loss(teacher)
    if run.may_return_teacher and lost.share - run.comparison.loss(job.model).share <= lost.error:
        return run.finish(teacher, "retrained")
    return fitted


def _update(config: Config) -> crossfit.Config:
    """Return the settings of the update with a prepared table."""
    return crossfit.Config(share=min(config.share, crossfit.Config().share), steps=config.steps, lr=config.lr)


class _Run:
    """One run of auto: its plan, the base as it was, and the comparison of models with it."""

    def __init__(self, job: Job, config: Config) -> None:
        self.job, self.fresh = with_fresh_weights(job)
        self.config = config
        table = len(job.indices("forget")) if job.out_of_fold is not None else None
        self.plan = plan_of(config, len(job.indices("retain")), job.recipe, job.teacher is not None, table)
        LOG.info("%s", self.plan)
        self.base = frozen_copy(job.model)
        self.comparison = BaselineComparison(job, self.base)
        self.may_return_teacher = config.from_scratch == "auto" and job.teacher is None
        self.recipe = self.plan.recipe

    def make_teacher(self) -> nn.Module:
        """Return a model that never saw the forgotten examples; one that diverges is trained at a lower rate."""
        job, plan = self.job, self.plan
        if job.teacher is not None:
            return frozen_copy(job.teacher)
        if not plan.known and job.budget is None:
            self.recipe = from_scratch.find_rate(job, fresh_model(job, "teacher"), plan.recipe, from_scratch.RATES)
        if plan.training == "rounds" and job.budget is None:
            return from_scratch.train_in_rounds(job, self.recipe, self.config.short, self.comparison.fitted)
        after = Work(0, 0) if plan.training == "whole" else plan.distilling
        for _ in range(ATTEMPTS - 1):
            try:
                return train_teacher(job, self.recipe, after)
            except DivergedError as fault:
                self.recipe = replace(self.recipe, lr=self.recipe.lr / 10)
                LOG.info("%s Once more, at a learning rate of %g.", fault, self.recipe.lr)
        return train_teacher(job, self.recipe, after)

    def cross_fitted(self) -> Fitted:
        """Distill towards the prepared table; a ruined model becomes the base again."""
        fitted = crossfit.unlearn(self.job, _update(self.config))
        if self.comparison.collapsed(self.job.model):
            return self.finish(self.base, "base", warnings=[COLLAPSED])
        fitted.notes |= {"plan": str(self.plan), "result": "cross-fitted", "accuracy": self._accuracy(self.job.model)}
        return fitted

    def as_good(self, teacher: nn.Module) -> bool:
        """Return True if the teacher may be returned.

        It was trained by the whole recipe, or it fits as well as the base and is hardly less accurate on unseen data.
        """
        if self.plan.training == "whole":
            return not self.comparison.collapsed(teacher)
        lost = self.comparison.loss(teacher)
        return self.comparison.fitted(teacher) and lost.share <= max(TOLERANCE, lost.error)

    def distilled(self, teacher: nn.Module) -> Fitted:
        """Move the base towards fresh weights and then towards the teacher's answers; a ruined model becomes the base
        again."""
        job, config = self.job, self.config
        comparison = self.comparison
        if comparison.collapsed(teacher) or (
            comparison.fitted(teacher) and comparison.loss(teacher).significant > TOLERANCE
        ):  # the base knows what the retain set cannot teach; a start nearer to fresh weights would lose that
            LOG.info("the model knows more than the retain set can teach: it keeps its weights. %s", PRETRAINED)
        else:
            shrink_towards(job.model, fresh_model(job, "shrink"), config.shrink)
        recipe = replace(self.recipe, lr=config.lr or self.recipe.lr, batch_size=config.retain_batch)
        if config.lr is None and job.budget is None:
            recipe = from_scratch.find_rate(job, job.model, recipe, [recipe.lr * factor for factor in RATE_FACTORS])
        how = Distillation(self.plan.steps, config.batch_size, config.retain_batch, config.w, recipe)
        fitted = distill(job, how, answers_of([teacher], job, 1.0), MembershipGap(job, self.comparison, teacher))
        if self.comparison.collapsed(job.model):
            return self.finish(self.base, "base", warnings=[COLLAPSED])
        fitted.notes |= {"plan": str(self.plan), "result": "distilled", "accuracy": self._accuracy(job.model)}
        return fitted

    def finish(self, model: nn.Module, result: str, **notes: Any) -> Fitted:
        """Make `model` the result."""
        self.job.model.load_state_dict(model.state_dict())
        notes = {"plan": str(self.plan), "result": result, "accuracy": self._accuracy(model), **notes}
        if result == "retrained":
            notes["trained_by"] = to_json(self.recipe)
            if self.plan.training == "rounds" or self.job.budget is not None:  # which decide on the epochs
                del notes["trained_by"]["epochs"]
            if self.fresh:
                notes["from_scratch"] = True
        return Fitted(notes=notes)

    def _accuracy(self, model: nn.Module) -> str:
        lost, before = self.comparison.loss(model), float(self.comparison.base_correct.mean())
        kind = "held-out" if len(self.comparison.unseen) else "retain"
        error = f"error of the difference {100 * lost.error:.1f}"
        return f"{before - lost.share:.1%} on {kind} examples, {before:.1%} before ({error})"
