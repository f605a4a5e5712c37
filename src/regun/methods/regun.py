"""ReGUn: treat forgotten data as unseen data, by distilling towards predictions on a disjoint held-out set.

    L = (1 - w) mean over B_f of KL(q(B_f) || p_theta(.|x)) + w CE(B_r)
    q(B_f) = mean over m held-out examples, drawn to match B_f's class histogram, of the frozen base model's softmax

Paper: Mirlach, Laguna, Vogt, "Reference-Guided Machine Unlearning". An epoch is one pass over the forget set; the
retain batches come from an endlessly reshuffled stream. The defaults are the paper's method. Everything else is a
setting: how fine the target is (`granularity`), which held-out examples speak (`selector`), how they are averaged,
whose predictions they are (`source`), what BatchNorm does, how many retain examples a step sees (`retain_batch`).

Held-out predictions of a source that does not move are computed once; a step then only indexes them.

`target=teacher` asks for the answers on x itself instead, q(x), of a model that never saw it: a fresh one trained on
the retain set by the base's recipe for `teacher_share` of its epochs, or one given (`source=given`). It needs no
held-out set. `shrink` moves the start that share of the way to fresh weights, normalisation layers apart, so that less
is left in them to be relearned. Presets `teacher`, `teacher_shrink`; `annealed` has their rates and batches, and the
paper's target.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.devices import send
from regun.errors import SettingsError
from regun.methods._batchnorm import freeze_statistics, reestimate_statistics
from regun.methods._contract import RESNET_LR, SWIN, SWIN_LR, Needs, Range, Ranges, Work, paired_passes
from regun.methods._fresh_weights import fresh_model, shrink_towards
from regun.methods._teacher import (
    TeacherSettings,
    answers_of,
    given_teacher,
    rows_of_step,
    teacher_recipe,
    teacher_work,
    train_teachers,
)
from regun.methods._unseen_targets import Picks, Pool, aggregate, histogram_picks, nearest, nearest_picks, uniform_picks
from regun.rng import generator
from regun.settings import setting
from regun.training.fit import Fitted, fit
from regun.training.forward import eval_features, eval_logits
from regun.training.job import Job, Step, frozen_copy
from regun.training.recipes import Recipe
from regun.training.streams import paired

TITLE = "ReGUn"
NEEDS = Needs(heldout=True)
SEARCH: Ranges = {
    "resnet": {"lr": RESNET_LR, "w": Range(0.1, 0.9)},
    "swin": {"lr": SWIN_LR, "w": Range(0.1, 0.9)},
}
TRADEOFF: Mapping[str, Any] = {}
TEACHER: Mapping[str, Any] = {
    "target": "teacher", "batch_size": 16, "retain_batch": 64, "w": 0.5, "lr": 0.05, "schedule": "cosine",
    "nesterov": True, "weight_decay": 5e-4,
}  # fmt: skip
PRESETS = {
    "swin": SWIN,
    "paper_code": {"replacement": True},
    "wide_retain": {"batch_size": 16, "retain_batch": 64},
    "annealed": {k: v for k, v in TEACHER.items() if k != "target"},
    "teacher": TEACHER,
    "teacher_shrink": {**TEACHER, "shrink": 0.5},
}


@dataclass(frozen=True)
class Config(TeacherSettings):
    """Settings of ReGUn; the defaults are the paper's."""

    w: float = setting(0.5, "weight of the retain loss; the distillation has 1 - w", low=0, high=1)
    retain_batch: int | None = setting(None, "retain examples per step (default: batch_size, as in the paper)", low=1)
    m: int | None = setting(None, "held-out draws per step (default: as many as forget examples)", low=1, high=10_000)
    granularity: str = setting(
        "batch", "one target per batch, per class or per sample", choices=("batch", "class", "sample")
    )
    selector: str = setting("histogram", "which held-out examples speak", choices=("histogram", "uniform", "nearest"))
    k: int = setting(1, "selector nearest: neighbours per example", low=1)
    aggregation: str = setting("probabilities", "what is averaged", choices=("probabilities", "logits"))
    temperature: float = setting(1.0, "softens both sides of the distillation", above=0)
    source: str = setting(
        "base",
        "whose predictions: the frozen base, the moving model, or one given",
        choices=("base", "moving", "given"),
    )
    replacement: bool = setting(False, "always draw with replacement (default: only when the pool runs out)")
    batchnorm: str = setting(
        "paper",
        "BatchNorm statistics: updated by both passes, frozen, or re-estimated on retain at the end",
        choices=("paper", "frozen", "reestimate"),
    )
    target: str = setting(
        "reference",
        "what is learned: answers on unseen examples, or a teacher's on these",
        choices=("reference", "teacher"),
    )
    shrink: float = setting(0.0, "how far to move towards fresh weights before the first step", low=0, high=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        problems: list[str] = []
        if self.target == "teacher":
            unused = {"selector": "histogram", "granularity": "batch", "m": None, "aggregation": "probabilities"}
            problems += [
                f"regun.{name} is {vars(self)[name]!r}; target teacher draws no held-out examples: leave it out."
                for name, default in unused.items()
                if vars(self)[name] != default
            ]
            if self.source == "moving":
                problems.append(
                    "regun.source is 'moving'; target teacher allows base (a teacher is trained) and given."
                )
            if self.source == "given" and self.teachers != 1:
                problems.append(f"regun.teachers is {self.teachers}; with source given there is one: leave it out.")
        if self.selector == "uniform" and self.granularity != "batch":
            problems.append(f"regun.granularity is {self.granularity!r}; selector uniform knows only batch.")
        if self.selector == "nearest" and self.m is not None:
            problems.append(f"regun.m is {self.m}; selector nearest draws k neighbours per example: set k instead.")
        if problems:
            raise SettingsError(problems)


def needs(config: Config) -> Needs:
    """Return the needs: a held-out set for unseen targets; a fresh model for a teacher or to shrink towards."""
    heldout = config.target == "reference" and config.w < 1
    return Needs(heldout=heldout, fresh_model=_trains_teacher(config) or config.shrink > 0)


def work(config: Config, forget: int, retain: int, recipe: Recipe | None) -> Work:
    """Return the work: a teacher's training, then epochs over the forget set with retain batches."""
    each = teacher_work(teacher_recipe(recipe, config, retain), retain)
    teachers = config.teachers if _trains_teacher(config) else 0
    return sum([each] * teachers, _distillation(config, forget, retain))


def is_loss(config: Config) -> bool:
    """Return True if any loop can run the method (`regun.steps`)."""
    return config.batchnorm != "reestimate"


def unlearn(job: Job, config: Config) -> Fitted:
    """Distill the forget set towards the target while training on the retain set."""
    begun = replace(job.cost)
    target = make_target(job, config) if config.w < 1 else None
    spent = {"steps": job.cost.steps - begun.steps, "backward": job.cost.backward - begun.backward}
    if config.shrink:
        shrink_towards(job.model, fresh_model(job, "shrink"), config.shrink)

    def loss(step: Step) -> Tensor:
        if config.batchnorm == "frozen":
            freeze_statistics(job.model)
        terms: list[Tensor] = []
        if target is not None:
            q = target(step)
            log_p = functional.log_softmax(job.logits(step.forget.x) / config.temperature, dim=1)
            terms.append((1 - config.w) * functional.kl_div(log_p, q, reduction="batchmean"))
        if config.w > 0:
            terms.append(config.w * functional.cross_entropy(job.logits(step.retain.x), step.retain.y))
        return sum(terms[1:], terms[0])

    stream = paired(job, config.batch_size, config.retain_batch or config.batch_size, epoch="forget")
    fitted = fit(job, stream, loss, config)
    if config.batchnorm == "reestimate" and not fitted.diverged:
        reestimate_statistics(job, job.indices("retain"), config.batch_size)
    if isinstance(target, Target) and target.pool.missing:
        fitted.notes["draws_for_missing_classes"] = target.pool.missing
    if spent["steps"]:
        fitted.notes["teacher"] = spent
    return fitted


def make_target(job: Job, config: Config) -> Callable[[Step], Tensor]:
    """Return the function from a step to the soft targets (b, K) of its forget batch."""
    if config.target == "reference":
        return unseen_target(job, config)
    if config.source == "given":
        return answers_of([given_teacher(job)], job, config.temperature)
    after = _distillation(config, len(job.indices("forget")), len(job.indices("retain")))
    return answers_of(train_teachers(job, config, after), job, config.temperature)


class Target:
    """RefDist: the soft targets (b, K) of a step's forget batch."""

    def __init__(
        self,
        job: Job,
        pool: Pool,
        pick: Callable[[Step, torch.Generator], Picks],
        logits_at: Callable[[Tensor], Tensor],
        config: Config,
    ) -> None:
        self.job, self.pool, self.pick, self.logits_at, self.config = job, pool, pick, logits_at, config

    def __call__(self, step: Step) -> Tensor:
        picks = self.pick(step, generator(self.job.seed, "reference", step.epoch, step.number))
        target = aggregate(picks, self.logits_at, self.config.aggregation, self.config.temperature)
        return send(target, self.job.device)


def unseen_target(job: Job, config: Config) -> Target:
    """Prepare RefDist: cache what does not move, and choose how to pick."""
    heldout = job.indices("heldout")
    source = given_teacher(job) if config.source == "given" else frozen_copy(job.model)
    if config.source == "moving":

        def logits_at(chosen: Tensor) -> Tensor:
            return eval_logits(job.model, job.examples, heldout[chosen.numpy()], job.device)
    else:
        cached = eval_logits(source, job.examples, heldout, job.device)

        def logits_at(chosen: Tensor) -> Tensor:
            return cached[chosen]

    pool = Pool(job.examples.labels_at(heldout), job.examples.num_classes)  # read by now, where they had to be
    return Target(job, pool, _picker(job, config, pool, source), logits_at, config)


def _picker(job: Job, config: Config, pool: Pool, source: nn.Module) -> Callable[[Step, torch.Generator], Picks]:
    def labels(step: Step) -> Tensor:  # not `step.forget.y`, which may be on an accelerator
        return torch.from_numpy(job.examples.labels_at(step.forget.indices.numpy()))

    if config.selector == "histogram":
        return lambda step, draw: histogram_picks(
            pool, labels(step), config.m, config.granularity, draw, replacement=config.replacement
        )
    if config.selector == "uniform":
        return lambda step, draw: uniform_picks(pool, labels(step), config.m, draw, replacement=config.replacement)
    forget = job.indices("forget")
    ours = eval_features(source, job.examples, forget, job.device)
    theirs = eval_features(source, job.examples, job.indices("heldout"), job.device)
    neighbours = nearest(ours, theirs, config.k)
    rows = rows_of_step(job, neighbours)
    return lambda step, _: nearest_picks(rows(step), labels(step), pool.classes, config.granularity)


def _trains_teacher(config: Config) -> bool:
    return config.target == "teacher" and config.source != "given" and config.w < 1


def _distillation(config: Config, forget: int, retain: int) -> Work:
    batches = (config.batch_size, config.retain_batch or config.batch_size)
    return paired_passes(config.epochs, forget, retain, batches, "forget")
