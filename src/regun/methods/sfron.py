"""SFRon: ascend on the forget set where it is salient and still known, descend on the retain set, in turns.

    mask = F_f >= gamma F_r,  F the diagonal Fisher information of each set  (at theta_0, eval mode)
    forget step: gradient of -alpha_t sum_i v_i CE_i with v_i = CE_i^-lambda / sum_j CE_j^-lambda, masked, clipped
    retain step: CE over B_r;   after each, slow weights follow: s <- s + beta (theta - s), theta <- s

Paper: Huang et al. 2024, "Unified Gradient-Based Machine Unlearning with Remain Geometry Enhancement" (NeurIPS). The
v_i let go of examples that are forgotten already (lambda = 0 is plain ascent). A forget step comes before every
`every` retain steps; alpha falls to 0 over the run as a cosine. Defaults as in the authors' code for CIFAR-10, where
beta is 1: fast and slow weights are one. A loss below 1e-6 counts as 1e-6 in v_i: the original lets a single example
of loss 0, whose gradient is 0, take all the weight. The ascent has no bound but the clipping: see NegGrad.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from regun.methods._contract import RESNET_LR, SWIN, SWIN_LR, Needs, Range, Ranges, Work, passes
from regun.methods._steer import clipped, gradients, steered
from regun.methods.finetune import retain_loss
from regun.settings import setting
from regun.training.fit import Fitted, fit
from regun.training.gradients import Named, fisher_by_batch, fisher_by_example, trainable
from regun.training.job import Job, Step
from regun.training.recipes import Updates
from regun.training.streams import interleaved, one_pass

TITLE = "SFRon"
NEEDS = Needs()
SEARCH: Ranges = {
    "resnet": {"lr": RESNET_LR, "alpha": Range(0.5, 50, log=True)},
    "swin": {"lr": SWIN_LR, "alpha": Range(1, 500, log=True)},
}
PRESETS = {"swin": {**SWIN, "schedule": "cosine", "weight_decay": 0.05, "alpha": 500.0, "every": 1}}


@dataclass(frozen=True)
class Config(Updates):
    """Settings of SFRon; the defaults are its authors' for CIFAR-10."""

    weight_decay: float = setting(5e-4, "weight decay", low=0)
    schedule: str = setting("cosine", "learning rate over time", choices=("constant", "cosine", "onecycle", "steps"))
    alpha: float = setting(25.0, "strength of the ascent at the start (0 is finetune)", low=0)
    every: int = setting(5, "retain steps for each forget step", low=1)
    power: float = setting(0.5, "lambda: how fast examples of high loss are let go", low=0)
    gamma: float = setting(1.0, "ascend on weights whose forget Fisher is at least gamma times the retain one", low=0)
    fisher: str = setting("batch", "squared gradients of batch means, or of examples", choices=("batch", "example"))
    max_norm: float = setting(7.0, "the forget gradient is clipped to this norm", above=0)
    beta: float = setting(1.0, "how far the slow weights follow the fast ones (1: they are one)", above=0, high=1)


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: the Fisher information of both sets, then epochs over retain with forget steps between."""
    repair = passes(config.epochs, retain, config.batch_size)
    if not config.alpha:
        return repair
    steps = config.epochs * math.ceil(math.ceil(retain / config.batch_size) / config.every)
    ascent = Work(steps, round(steps * forget / math.ceil(forget / config.batch_size)))
    return Work(0, forget + retain) + ascent + repair


def unlearn(job: Job, config: Config) -> Fitted:
    """Take forget and retain steps in turns."""
    if not config.alpha:
        stream = one_pass(job, "retain", job.indices("retain"), config.batch_size)
        return fit(job, stream, lambda step: retain_loss(job, step), config)
    mask = salient(job, config)
    weights = list(trainable(job.model).values())
    stream = interleaved(job, config.batch_size, config.batch_size, config.every)
    slow = [w.detach().clone() for w in weights] if config.beta < 1 else []
    due = False

    def follow() -> None:
        with torch.no_grad():
            for weight, behind in zip(weights, slow, strict=False):
                weight.copy_(behind.lerp_(weight, config.beta))

    def loss(step: Step) -> Tensor:
        nonlocal due
        if due:
            follow()
        due = step.has("retain")
        if due:
            return retain_loss(job, step)
        done = (step.epoch + step.number / stream.steps(step.epoch)) / step.epochs
        strength = config.alpha * 0.5 * (1 + math.cos(math.pi * done))
        value = -strength * known_loss(job.logits(step.forget.x), step.forget.y, config.power)
        pairs = zip(gradients(value, weights), mask.values(), strict=True)
        return steered(value, weights, clipped([g * allowed for g, allowed in pairs], config.max_norm))

    fitted = fit(job, stream, loss, config)
    if due and not fitted.diverged:
        follow()
    fitted.notes["density"] = sum(int(m.sum()) for m in mask.values()) / sum(m.numel() for m in mask.values())
    return fitted


def known_loss(logits: Tensor, y: Tensor, power: float) -> Tensor:
    """Return cross-entropies averaged with weights that fall with them: sum_i v_i CE_i."""
    each = functional.cross_entropy(logits, y, reduction="none")
    weight = each.detach().clamp(min=1e-6) ** -power
    return (weight / weight.sum() * each).sum()


def salient(job: Job, config: Config) -> Named:
    """Return True where a weight matters for the forget set at least gamma times as much as for the retain set."""
    if config.fisher == "batch":
        forget, retain = (
            fisher_by_batch(job, job.indices(p), batch_size=config.batch_size) for p in ("forget", "retain")
        )
    else:
        forget, retain = (fisher_by_example(job, job.indices(p)) for p in ("forget", "retain"))
    return {name: forget[name] >= config.gamma * retain[name] for name in forget}
