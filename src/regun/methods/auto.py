"""auto: retrain from scratch where that is short, otherwise distill from a start between base and fresh weights.

    R = samples of a retraining: the recipe's epochs times |D_r|; without a recipe a low estimate (8 epochs)
    R is known and `short`?  Train fresh weights on D_r by the whole recipe                                   (exact)
    a prepared table?        Distill with `crossfit`; no other model is trained                          (approximate)
    otherwise                teacher = fresh weights trained on D_r for a part of the allowance (`share` of R)
        as good as the base?  Return the teacher: it never saw D_f                                             (exact)
        else theta <- (1 - shrink) base + shrink fresh, and for the rest of the allowance, annealed,
        L = (1 - w) 1/b sum over B_f of KL(teacher(x) || p_theta(.|x)) + w CE(B_r)                       (approximate)
    not more accurate than the teacher?  Return the teacher.   Ruined?  Return the base, and advise to retrain.

The plan states before the run how many samples it may take; all branches together stay within it. Without a recipe
that is one estimated retraining. "As good" is measured on held-out examples, where there are some, and on retain
examples; differences within the standard error do not count. The first term of L is on only while the forgotten
examples are known better, compared with held-out ones, than the teacher knows them (mean p_theta(y|x)). Without a
recipe, trials find the learning rate. A user's `teacher=` replaces the trained one and is never returned. Layers that
cannot draw fresh weights get their own, shuffled; then nothing is called retrained.

Own to regun; built from the parts of `regun@teacher_shrink`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import nn

from regun.errors import DivergedError, see
from regun.methods import _from_scratch as from_scratch
from regun.methods import crossfit
from regun.methods._baseline_comparison import TOLERANCE, AccuracyLoss, BaselineComparison
from regun.methods._contract import Needs, Ranges, Work
from regun.methods._distill import Distillation, MembershipGap, distill
from regun.methods._fresh_weights import fresh_model, shrink_towards, with_fresh_weights
from regun.methods._teacher import answers_of, train_teacher
from regun.settings import check, setting, to_json
from regun.training.fit import Fitted
from regun.training.job import Budget, Job, frozen_copy
from regun.training.recipes import Recipe, assumed_recipe

LOG = logging.getLogger("regun.auto")
TITLE = "Auto"
NEEDS = Needs(heldout_helps=True, out_of_fold_helps=True)
SEARCH: Ranges = {"resnet": {}, "swin": {}}
PRESETS: Mapping[str, Mapping[str, Any]] = {}
ATTEMPTS = 3
"""How often a training from scratch is started, each time at a tenth of the rate, with the samples that are left."""
RATE_FACTORS = (3.0, 1.0, 0.3)
"""Rates of distilling that are tried, as multiples of the training rate."""
DISTILLING_SHARE = 0.4
"""Part of the allowance that is spent on distilling; the teacher has the rest."""
TRIAL_SHARE = 0.2
"""Part of a training's or a distillation's samples that trials of its learning rate may take."""
LEAST_STEPS = 20
"""Least steps of distilling."""

PRETRAINED = "If it was pretrained, give rebuild=, a function that returns it as it was before fine-tuning. " + see(
    "Pretrained models"
)
COLLAPSED = (
    "the model's accuracy fell and could not be repaired, so the base is returned unchanged and nothing is forgotten. "
    f"Retrain it (method='retrain' with recipe=, how it was trained). {PRETRAINED}"
)


@dataclass(frozen=True)
class Config:
    """Settings of auto; hardly any need to be given."""

    share: float = setting(0.2, "share of a retraining to spend, where retraining is long", above=0, high=1)
    short: int = setting(100_000, "retrain from scratch if that takes at most this many samples", low=0)
    from_scratch: str = setting("auto", "whether a retrained model may be returned", choices=("auto", "never"))
    steps: int | None = setting(None, "steps of distilling (default: two fifths of what may be spent)", low=1)
    shrink: float = setting(0.5, "how far to move towards fresh weights before distilling", low=0, high=1)
    w: float = setting(0.5, "weight of the retain loss while distilling", low=0, high=1)
    batch_size: int = setting(16, "forget examples per step", low=1)
    retain_batch: int = setting(64, "retain examples per step", low=1)
    lr: float | None = setting(None, "learning rate of distilling (default: the best of three)", above=0)

    def __post_init__(self) -> None:
        check(self, "auto")


@dataclass(frozen=True)
class Plan:
    """What a run will do, and the most that each part of it may take.

    `training`: the `whole` recipe, a `part` of it, none because the teacher is `given`, or none because there is a
    `table`. `trials` and `trial_steps` are those of the learning rate: of training, and of distilling. `known`: the
    base's recipe is known, not assumed.
    """

    training: str
    retraining: int
    known: bool
    recipe: Recipe
    teacher: Work
    trial_steps: int
    distilling: Work
    steps: int
    distilling_trial_steps: int
    budget: int | None = None
    """Most samples of a budget of the user's, which then decides the length."""

    @property
    def most(self) -> int:
        """The most samples that the run may take, over all branches."""
        return self.budget if self.budget is not None else self.teacher.samples + self.distilling.samples

    def __str__(self) -> str:
        cost = f"retraining takes {self.retraining:,} samples" + ("" if self.known else " (estimated: no recipe=)")
        limit = f"{self.most:,} samples at most ({self.most / max(1, self.retraining):.0%})"
        if self.training == "whole":
            return (
                f"{cost}: that is short, so the model is retrained from scratch, and distilled too if accuracy falls: "
                f"{limit}"
            )
        how = {
            "table": "the model is distilled with the prepared table",
            "given": "the model is distilled from your teacher",
            "part": "a teacher is trained without the records, and the model distilled from it unless the teacher "
            "is as good",
        }
        return f"{cost}; {how[self.training]}: {limit}"


def needs(config: Config) -> Needs:
    """Return the needs: held-out examples help to judge; fresh weights are wanted, but there are ways without."""
    return NEEDS


def table_helps(config: Config, forget: int, retain: int, recipe: Recipe | None) -> bool:
    """Return True if a run would use a prepared table: where retraining is not short."""
    return plan_of(config, forget, retain, recipe, table=True).training == "table"


def plan_of(
    config: Config,
    forget: int,
    retain: int,
    recipe: Recipe | None,
    *,
    teacher: bool = False,
    table: bool = False,
    budget: Budget | None = None,
) -> Plan:
    """Return what a run will do and cost at most; `teacher`: the user has one; `table`: there is a prepared one."""
    known, usual = recipe is not None, recipe or assumed_recipe(retain)
    retraining = usual.epochs * retain if recipe is not None else from_scratch.estimated_samples(retain)
    allowed = retraining
    if known:  # a short retraining may be spent as a whole
        allowed = max(round(config.share * retraining), min(retraining, from_scratch.LEAST_SAMPLES))
    each, batch = min(config.batch_size, forget) + min(config.retain_batch, retain), min(usual.batch_size, retain)
    limit = _budget_samples(budget, max(each, batch))
    plan = Plan("given", retraining, known, usual, Work(0, 0), 0, Work(0, 0), 0, 0, limit)
    if teacher:
        return _with_distilling(plan, config, allowed, forget, retain)
    if config.from_scratch == "auto" and known and retraining <= config.short:
        whole = from_scratch.training_work(usual, retain, retraining)
        plan = replace(plan, training="whole", teacher=whole)
        repair = min(
            0.4 * retraining, max(DISTILLING_SHARE * config.share * retraining, from_scratch.LEAST_SAMPLES / 2)
        )
        return _with_distilling(plan, config, round(repair), forget, retain)
    if table:
        update = crossfit.work(_update(config, allowed, forget, retain, recipe), forget, retain, recipe)
        return replace(plan, training="table", distilling=update, steps=update.steps)
    plan = _with_distilling(replace(plan, training="part"), config, round(DISTILLING_SHARE * allowed), forget, retain)
    left = max(batch, allowed - plan.distilling.samples)
    rates = 0 if known else len(from_scratch.RATES)
    trial_steps = from_scratch.trial_steps(round(TRIAL_SHARE * left), rates, batch)
    trials = Work(rates * trial_steps, rates * trial_steps * batch)
    training = from_scratch.training_work(usual, retain, left - trials.samples)
    return replace(plan, teacher=trials + training, trial_steps=trial_steps)


def _with_distilling(plan: Plan, config: Config, samples: int, forget: int, retain: int) -> Plan:
    """Return the plan with a distillation that takes at most so many samples, or the steps that were set."""
    batch = min(config.retain_batch, retain)
    each, rates = min(config.batch_size, forget) + batch, 0 if config.lr else len(RATE_FACTORS)
    trial_steps = from_scratch.trial_steps(round(TRIAL_SHARE * samples), rates, batch)
    trials = Work(rates * trial_steps, rates * trial_steps * batch)
    steps = config.steps or max(LEAST_STEPS, (samples - trials.samples) // each)
    work = trials + Work(steps, steps * each)
    return replace(plan, distilling=work, steps=steps, distilling_trial_steps=trial_steps)


def _budget_samples(budget: Budget | None, each: int) -> int | None:
    """Return the most samples of a budget; its two parts each end with the step that reaches their limit."""
    if budget is None:
        return None
    return budget.steps * each if budget.steps is not None else (budget.samples or 0) + 2 * each


def _update(config: Config, allowed: int, forget: int, retain: int, recipe: Recipe | None) -> crossfit.Config:
    """Return the settings of the update with a prepared table: its usual length, within what may be spent."""
    usual = crossfit.Config()
    own = replace(usual, share=min(config.share, usual.share), steps=config.steps, lr=config.lr)
    if config.steps or crossfit.work(own, forget, retain, recipe).samples <= allowed:
        return own
    steps = allowed // crossfit.step_samples(own, forget, retain, recipe)
    whole = steps - steps % crossfit.ROUNDS  # of rounds, so that no step is added
    return replace(own, steps=max(1, whole or steps))


def work(config: Config, forget: int, retain: int, recipe: Recipe | None, table: bool) -> Work:
    """Return all the work that may be needed."""
    plan = plan_of(config, forget, retain, recipe, table=table)
    return plan.teacher + plan.distilling


def unlearn(job: Job, config: Config) -> Fitted:
    """Retrain or distill, whichever fits this model and request."""
    run = _Run(job, config)
    if run.plan.training == "table":
        return run.cross_fitted()
    run.make_teacher()
    if run.may_return_teacher and run.as_good():
        return run.finish(run.teacher, "retrained", run.why_retrained())
    fitted = run.distilled()
    if run.may_return_teacher and run.lost.share - run.after.share <= run.lost.error:
        why = "the model trained from scratch is at least as accurate as the distilled one"
        return run.finish(run.teacher, "retrained", why)
    return fitted


class _Run:
    """One run of auto: its plan, the base as it was, and the comparison of models with it."""

    teacher: nn.Module
    after: AccuracyLoss
    """Accuracy that the result lacks against the base."""

    def __init__(self, job: Job, config: Config) -> None:
        self.job, self.fresh = with_fresh_weights(job)
        self.config = config
        self.forget, self.retain = len(job.indices("forget")), len(job.indices("retain"))
        self.plan = plan_of(
            config,
            self.forget,
            self.retain,
            job.recipe,
            teacher=job.teacher is not None,
            table=job.out_of_fold is not None,
            budget=job.budget,
        )
        LOG.info("%s", self.plan)
        self.base = frozen_copy(job.model)
        self.comparison = BaselineComparison(job, self.base)
        self.may_return_teacher = config.from_scratch == "auto" and job.teacher is None
        self.recipe = self.plan.recipe
        self.start = job.cost.backward
        self.epochs = 0.0
        """Passes over the retain set that the teacher's training took."""

    @cached_property
    def lost(self) -> AccuracyLoss:
        """Accuracy that the teacher lacks against the base."""
        return self.comparison.loss(self.teacher)

    @cached_property
    def fitted(self) -> bool:
        """True if the teacher fits the retain set about as well as the base."""
        return self.comparison.fitted(self.teacher)

    def make_teacher(self) -> None:
        """Train a model that never saw the forgotten examples; one that diverges is begun again at a lower rate."""
        job, plan = self.job, self.plan
        if job.teacher is not None:
            self.teacher = frozen_copy(job.teacher)
            return
        if plan.trial_steps and job.budget is None:
            start = fresh_model(job, "teacher")
            self.recipe = from_scratch.find_rate(job, start, plan.recipe, from_scratch.RATES, plan.trial_steps)
        end = self.start + plan.teacher.samples
        for attempt in range(ATTEMPTS):
            began = job.cost.backward
            try:
                self.teacher = self._train(end - began)
            except DivergedError as fault:
                over = job.budget is None and end - job.cost.backward < min(self.recipe.batch_size, self.retain)
                if attempt == ATTEMPTS - 1 or over:
                    raise
                self.recipe = replace(self.recipe, lr=self.recipe.lr / 10)
                LOG.info("%s Once more, at a learning rate of %g.", fault, self.recipe.lr)
            else:
                self.epochs = (job.cost.backward - began) / max(1, self.retain)
                return

    def _train(self, samples: int) -> nn.Module:
        if self.job.budget is not None:
            return train_teacher(self.job, self.recipe, Work(0, 0) if self._whole else self.plan.distilling)
        return from_scratch.train_for(self.job, self.recipe, samples)

    @property
    def _whole(self) -> bool:
        """True if the teacher is trained by the recipe as it is."""
        return self.plan.training == "whole" and self.recipe == self.plan.recipe

    def cross_fitted(self) -> Fitted:
        """Distill towards the prepared table; a ruined model becomes the base again."""
        allowed = self.plan.distilling.samples
        fitted = crossfit.unlearn(self.job, _update(self.config, allowed, self.forget, self.retain, self.job.recipe))
        self.after = self.comparison.loss(self.job.model)
        if self.comparison.collapsed(self.after):
            return self.finish(self.base, "base", "the result lost too much accuracy", warnings=[COLLAPSED])
        return self._noted(fitted, "cross-fitted", "there is a prepared table, and retraining is not short")

    def as_good(self) -> bool:
        """Return True if the teacher may be returned.

        It was trained by the whole recipe, or it fits as well as the base and is hardly less accurate on unseen data.
        """
        if self._whole:
            return not self.comparison.collapsed(self.lost)
        return self.fitted and self.lost.share <= max(TOLERANCE, self.lost.error)

    def why_retrained(self) -> str:
        """Return why the teacher is the result."""
        if self._whole:
            return f"retraining by the recipe is short (at most {self.config.short:,} samples)"
        return "the model trained from scratch is as accurate as before"

    def distilled(self) -> Fitted:
        """Move the base towards fresh weights and then towards the teacher's predictions.

        A ruined model becomes the base again.
        """
        job, config, plan = self.job, self.config, self.plan
        if self.comparison.collapsed(self.lost) or (self.fitted and self.lost.significant > TOLERANCE):
            # the base knows what the retain set cannot teach; a start nearer to fresh weights would lose that
            LOG.info("the model knows more than the retain set can teach: it keeps its weights. %s", PRETRAINED)
        else:
            shrink_towards(job.model, fresh_model(job, "shrink"), config.shrink)
        recipe = replace(self.recipe, lr=config.lr or self.recipe.lr, batch_size=config.retain_batch)
        if plan.distilling_trial_steps and job.budget is None:
            rates = [recipe.lr * factor for factor in RATE_FACTORS]
            recipe = from_scratch.find_rate(job, job.model, recipe, rates, plan.distilling_trial_steps)
        how = Distillation(plan.steps, config.batch_size, config.retain_batch, config.w, recipe)
        gap = MembershipGap(job, self.comparison, self.teacher)
        fitted = distill(job, how, answers_of([self.teacher], job, 1.0), gap)
        self.after = self.comparison.loss(job.model)
        if self.comparison.collapsed(self.after):
            return self.finish(self.base, "base", "the result lost too much accuracy", warnings=[COLLAPSED])
        return self._noted(fitted, "distilled", self._why_distilled())

    def _why_distilled(self) -> str:
        if self.job.teacher is not None:
            return "the teacher is given"
        if not self.may_return_teacher:
            return "from_scratch=never"
        return f"the model trained from scratch for {self.epochs:.3g} epochs " + (
            f"is {100 * self.lost.share:.1f} points less accurate"
            if self.fitted
            else "does not fit retained records as before"
        )

    def finish(self, model: nn.Module, branch: str, reason: str, **notes: Any) -> Fitted:
        """Make `model` the result."""
        self.job.model.load_state_dict(model.state_dict())
        self.after = self.lost if branch == "retrained" else AccuracyLoss(0.0, 0.0)
        fitted = self._noted(Fitted(notes=notes), branch, reason)
        if branch == "retrained":
            epochs = int(self.epochs) if self.epochs.is_integer() else round(self.epochs, 3)
            fitted.notes["trained_by"] = to_json(self.recipe) | {"epochs": epochs}
            if self.fresh:
                fitted.notes["from_scratch"] = True
        return fitted

    def _noted(self, fitted: Fitted, branch: str, reason: str) -> Fitted:
        """Return the result with its plan, branch, price and accuracy."""
        plan = self.plan
        facts = {"retraining": plan.retraining, "estimated": not plan.known, "planned": plan.most}
        price = facts | {"branch": branch, "reason": reason}
        fitted.notes |= {"plan": str(plan), "price": price, "accuracy": self._accuracy()}
        return fitted

    def _accuracy(self) -> str:
        before, kind = (
            float(self.comparison.base_correct.mean()),
            "held-out" if len(self.comparison.unseen) else "retain",
        )
        error = f"error of the difference {100 * self.after.error:.1f}"
        return f"{before - self.after.share:.1%} on {kind} examples, {before:.1%} before ({error})"
