"""auto: train anew where that is short, otherwise distil from a start that has half forgotten; settings are found.

    R = what retraining takes: the recipe's epochs times |D_r| samples
    teacher = fresh weights trained on D_r alone: by the whole recipe where R is `short`, else for a part of `share` R
    as good as the base?  Then the teacher is the answer: it never saw D_f                      (claim: retrained)
    otherwise theta <- (1 - shrink) base + shrink fresh, and for the rest of `share` R, annealed,
        L = (1 - w) 1/b sum over B_f of KL(teacher(x) || p_theta(.|x)) + w CE(B_r)                (claim: empirical)
    no more accurate than the teacher?  The teacher.   Ruined?  The base, and the advice to retrain.

"As good" is asked of held-out examples, where there are some, and of retain examples; what chance explains does not
count. The first term of L is on only while forgotten examples are known better, compared with held-out ones, than the
teacher knows them: p_theta(y|x) on average. Without a recipe the learning rate is tried out, and the length of training
is read off the base: until the retain set is fitted as well. A teacher of the user's (`teacher=`) replaces the one that
is trained and is never the answer. Layers that cannot draw fresh weights get their own, shuffled; then nothing is
called retrained.

Own to regun; built from the parts of `regun@teacher_shrink`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from regun.errors import DivergedError
from regun.methods import _from_scratch as from_scratch
from regun.methods._baseline_comparison import LITTLE, BaselineComparison
from regun.methods._contract import Needs, Ranges, Work, passes
from regun.methods._distill import Balance, Distillation, distil
from regun.methods._fresh_weights import fresh_model, shrink_towards
from regun.methods._teacher import answers_of, taught
from regun.settings import check, setting, to_json
from regun.training.fit import Fitted
from regun.training.job import Job, frozen_copy
from regun.training.recipes import Recipe, assumed_recipe, shorten

LOG = logging.getLogger("regun.auto")
TITLE = "Auto"
NEEDS = Needs(heldout_helps=True)
SEARCH: Ranges = {"resnet": {}, "swin": {}}
PRESETS: Mapping[str, Mapping[str, Any]] = {}
LEAST_STEPS = 300
"""Of training a teacher and of distilling: fewer teach nothing, and do not repair what shrinking took."""
LEAST_TEACHER = 1 / 8
"""Of the usual epochs that a teacher is trained for."""
TRIES = 3
"""How often a teacher's training is begun, each time at a tenth of the rate."""
TIMES = (3.0, 1.0, 0.3)
"""Rates of distilling that are tried, as multiples of that of training."""
DISTILLING = 0.4
"""Part of the share that is spent on distilling, the teacher has the rest."""

PRETRAINED = "If it was pretrained, give rebuild=, a function that returns it as it was before fine-tuning."
COLLAPSED = (
    "the model's accuracy fell and could not be repaired, so it is given back as it was and nothing is forgotten. "
    f"Retrain it (method='retrain' with recipe=, how it was trained). {PRETRAINED}"
)


@dataclass(frozen=True)
class Config:
    """Settings of auto; hardly any need to be given."""

    share: float = setting(0.2, "share of a retraining to spend, where retraining is long", above=0, high=1)
    short: int = setting(100_000, "retraining by at most so many samples is simply done", low=0)
    anew: str = setting("auto", "whether the answer may be the model trained anew", choices=("auto", "never"))
    steps: int | None = setting(None, "steps of distilling (default: two fifths of the share, 300 at least)", low=1)
    shrink: float = setting(0.5, "how far to move towards fresh weights before distilling", low=0, high=1)
    w: float = setting(0.5, "weight of the retain loss while distilling", low=0, high=1)
    batch_size: int = setting(16, "forget examples a step", low=1)
    retain_batch: int = setting(64, "retain examples a step", low=1)
    lr: float | None = setting(None, "learning rate of distilling (default: the best of three)", above=0)

    def __post_init__(self) -> None:
        check(self, "auto")


@dataclass(frozen=True)
class Plan:
    """In samples: what retraining takes, and what training a teacher and distilling will take at most.

    `training`: the `whole` recipe, a `part` of it, in `rounds` until as good as the base, or none (the teacher is
    `given`). `steps` are those of distilling itself, without finding its learning rate.
    """

    training: str
    retraining: int
    teacher: Work
    distilling: Work
    steps: int
    recipe: Recipe
    known: bool

    def __str__(self) -> str:
        what = f"retraining takes {self.retraining:,} samples" + ("" if self.known else ", if 40 epochs are usual")
        if self.training == "whole":
            return f"{what}: that is short, so the model is trained anew"
        if self.training == "rounds":
            return f"{what}: the model is trained anew, until it fits as before, by {self.teacher.samples:,} at most"
        ours = self.teacher.samples + self.distilling.samples
        return f"{what}; at most {ours:,} ({ours / max(1, self.retraining):.0%} of that) are spent, teacher included"


def needs(config: Config) -> Needs:
    """Held-out examples help to judge; fresh weights are wanted, but there are ways without."""
    return NEEDS


def plan_of(config: Config, retain: int, recipe: Recipe | None, given: bool = False) -> Plan:
    """How much of everything."""
    usual, known = recipe or assumed_recipe(retain), recipe is not None
    retraining, whole = usual.epochs * retain, passes(usual.epochs, retain, usual.batch_size)
    each, found = config.batch_size + config.retain_batch, config.lr is None
    steps = config.steps or max(LEAST_STEPS, round(DISTILLING * config.share * retraining / each))
    distilling = Work(steps, steps * each) + from_scratch.trial_work(
        retain, config.retain_batch, len(TIMES) if found else 0
    )
    plan = Plan("given", retraining, Work(0, 0), distilling, steps, usual, known)
    if given:
        return plan
    if config.anew == "auto" and known and retraining <= config.short:
        return replace(plan, training="whole", teacher=whole)
    trials = from_scratch.trial_work(retain, usual.batch_size, 0 if known else len(from_scratch.RATES))
    if config.anew == "auto" and not known and from_scratch.first_round(retain) * retain <= config.short:
        rounds = passes(from_scratch.most_epochs(retain, config.short), retain, usual.batch_size)
        return replace(plan, training="rounds", teacher=trials + rounds)
    part = max(LEAST_TEACHER, config.share - distilling.samples / max(1, retraining), LEAST_STEPS / max(1, whole.steps))
    short = shorten(usual, min(1.0, part))
    teacher = trials + passes(short.epochs, retain, short.batch_size)
    return replace(plan, training="part", teacher=teacher, recipe=short)


def work(config: Config, forget: int, retain: int, recipe: Recipe | None) -> Work:
    """All that may be needed."""
    plan = plan_of(config, retain, recipe)
    return plan.teacher + plan.distilling


def unlearn(job: Job, config: Config) -> Fitted:
    """Train anew or distil, whichever this model and request ask for."""
    run = _Run(job, config)
    teacher = run.teacher()
    if run.may_be_answer and run.as_good(teacher):
        return run.ended(teacher, "trained anew")
    fitted = run.distilled(teacher)
    lost = run.stick.lost(teacher)
    if run.may_be_answer and lost.share - run.stick.lost(job.model).share <= lost.error:
        return run.ended(teacher, "trained anew")
    return fitted


class _Run:
    """One run of auto: its plan, the base as it was, and the yardstick that models are compared by."""

    def __init__(self, job: Job, config: Config) -> None:
        self.job, self.fresh = from_scratch.with_fresh_weights(job)
        self.config = config
        self.plan = plan_of(config, len(job.indices("retain")), job.recipe, job.teacher is not None)
        LOG.info("%s", self.plan)
        self.base = frozen_copy(job.model)
        self.stick = BaselineComparison(job, self.base)
        self.may_be_answer = config.anew == "auto" and job.teacher is None
        self.recipe = self.plan.recipe

    def teacher(self) -> nn.Module:
        """A model that never saw the forgotten examples."""
        job, plan = self.job, self.plan
        if job.teacher is not None:
            return frozen_copy(job.teacher)
        if not plan.known and job.budget is None:
            self.recipe = from_scratch.found_rate(job, fresh_model(job, "teacher"), plan.recipe, from_scratch.RATES)
        if plan.training == "rounds" and job.budget is None:
            return from_scratch.train_in_rounds(job, self.recipe, self.config.short, self.stick.fitted)
        return self._taught(Work(0, 0) if plan.training == "whole" else plan.distilling)

    def _taught(self, after: Work) -> nn.Module:
        """A teacher by the recipe; at a lower rate where it diverges."""
        for _ in range(TRIES - 1):
            try:
                return taught(self.job, self.recipe, after)
            except DivergedError as fault:
                self.recipe = replace(self.recipe, lr=self.recipe.lr / 10)
                LOG.info("%s Once more, at a learning rate of %g.", fault, self.recipe.lr)
        return taught(self.job, self.recipe, after)

    def as_good(self, teacher: nn.Module) -> bool:
        """Whether a teacher is the answer: trained by the whole recipe, or for as long as the base was and no worse on
        unseen examples than training anew may be, as far as they can tell."""
        if self.plan.training == "whole":
            return not self.stick.collapsed(teacher)
        lost = self.stick.lost(teacher)
        return self.stick.fitted(teacher) and lost.share <= max(LITTLE, lost.error)

    def distilled(self, teacher: nn.Module) -> Fitted:
        """The base, moved towards fresh weights and then towards the teacher's answers; the base as it was where that
        has led to no bearable model."""
        job, config = self.job, self.config
        if self._knows_more(teacher):
            LOG.info("the model knows more than the retain set can teach: it keeps its weights. %s", PRETRAINED)
        else:
            shrink_towards(job.model, fresh_model(job, "shrink"), config.shrink)
        recipe = replace(self.recipe, lr=config.lr or self.recipe.lr, batch_size=config.retain_batch)
        if config.lr is None and job.budget is None:
            recipe = from_scratch.found_rate(job, job.model, recipe, [recipe.lr * times for times in TIMES])
        how = Distillation(self.plan.steps, config.batch_size, config.retain_batch, config.w, recipe)
        fitted = distil(job, how, answers_of([teacher], job, 1.0), Balance(job, self.stick, teacher))
        if self.stick.collapsed(job.model):
            return self.ended(self.base, "base", warnings=[COLLAPSED])
        fitted.notes |= {"plan": str(self.plan), "result": "distilled", "accuracy": self._accuracy(job.model)}
        return fitted

    def _knows_more(self, teacher: nn.Module) -> bool:
        """Whether the base knows what a teacher has not learned, though the retain set has nothing more to teach it (or
        though it has hardly begun): a start nearer to fresh weights would lose that."""
        if self.stick.collapsed(teacher):
            return True
        return self.stick.fitted(teacher) and self.stick.lost(teacher).surely > LITTLE

    def ended(self, model: nn.Module, result: str, **notes: Any) -> Fitted:
        self.job.model.load_state_dict(model.state_dict())
        exact = {"from_scratch": True} if result == "trained anew" and self.fresh else {}
        used = {"trained_by": self._trained_by()} if result == "trained anew" else {}
        told = {"plan": str(self.plan), "result": result, "accuracy": self._accuracy(model)}
        return Fitted(notes={**told, **used, **exact, **notes})

    def _trained_by(self) -> dict[str, Any]:
        """The recipe that was followed; without its epochs where rounds or a budget have decided on them."""
        said = to_json(self.recipe)
        if self.plan.training == "rounds" or self.job.budget is not None:
            del said["epochs"]
        return said

    def _accuracy(self, model: nn.Module) -> str:
        lost, heldout = self.stick.lost(model), bool(len(self.stick.unseen))
        before = float((self.stick.unseen_right if heldout else self.stick.retain_right).mean())
        asked, error = "held-out" if heldout else "retain", f"error of the difference {100 * lost.error:.1f}"
        return f"{before - lost.share:.1%} on {asked} examples, {before:.1%} before ({error})"
