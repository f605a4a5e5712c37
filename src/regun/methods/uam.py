"""UAM: descend on the retain set by the gradient found where the forget loss is higher.

    g_f = grad CE(B_f; theta),   theta' = theta + rho g_f / ||g_f||,   step along grad CE(B_r; theta'), taken at theta

Paper: Kim et al. 2025, "Unlearning-Aware Minimization" (NeurIPS): min over theta of the retain loss at the point of a
ball of radius rho around theta where the forget loss is largest, to first order, as sharpness-aware minimisation does
it for one loss. The norm is over all trainable weights. An epoch is a pass over the retain set; the authors' code lets
the longer set end it, and can let rho fall to 0 over the run (`rho_schedule="cosine"`). Bounded: no ascent is taken.
"""

import math
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from regun.methods._contract import RESNET_LR, SWIN, SWIN_LR, Needs, Range, Ranges, Work, paired_passes, passes
from regun.methods._steer import gradients, norm_of, steered
from regun.methods.finetune import retain_loss
from regun.settings import setting
from regun.training.fit import Fitted, fit
from regun.training.gradients import logits_with, trainable
from regun.training.job import Job, Step
from regun.training.recipes import Updates
from regun.training.streams import one_pass, paired

TITLE = "UAM"
NEEDS = Needs()
SEARCH: Ranges = {
    "resnet": {"lr": RESNET_LR, "rho": Range(0.01, 5.0, log=True)},
    "swin": {"lr": SWIN_LR, "rho": Range(0.01, 5.0, log=True)},
}
PRESETS = {"swin": {**SWIN, "weight_decay": 0.0}}


@dataclass(frozen=True)
class Config(Updates):
    """Settings of UAM."""

    epochs: int = setting(5, "passes over the retain set", low=0)
    weight_decay: float = setting(5e-4, "weight decay", low=0)
    rho: float = setting(0.1, "distance at which the retain gradient is taken (0 is finetune)", low=0)
    rho_schedule: str = setting("constant", "rho over the epochs", choices=("constant", "cosine"))
    epoch: str = setting("retain", "what ends an epoch", choices=("shorter", "forget", "retain"))


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: epochs over both sets."""
    if not config.rho:
        return passes(config.epochs, retain, config.batch_size)
    return paired_passes(config.epochs, forget, retain, (config.batch_size, config.batch_size), config.epoch)


def unlearn(job: Job, config: Config) -> Fitted:
    """Fine-tune by gradients from uphill of the forget loss."""
    if not config.rho:
        stream = one_pass(job, "retain", job.indices("retain"), config.batch_size)
        return fit(job, stream, lambda step: retain_loss(job, step), config)
    parameters = trainable(job.model)
    weights = list(parameters.values())

    def loss(step: Step) -> Tensor:
        uphill = gradients(functional.cross_entropy(job.logits(step.forget.x), step.forget.y), weights)
        length = rho_at(config, step.epoch, step.epochs) / norm_of(uphill).clamp(min=1e-16)
        there = {
            n: (p + length * g).detach().requires_grad_() for (n, p), g in zip(parameters.items(), uphill, strict=True)
        }
        logits = logits_with(job.model, there, step.retain.x).float()
        value = functional.cross_entropy(logits, step.retain.y)
        return steered(value, weights, gradients(value, list(there.values())))

    return fit(job, paired(job, config.batch_size, config.batch_size, epoch=config.epoch), loss, config)


def rho_at(config: Config, epoch: int, epochs: int) -> float:
    """Return rho in `epoch` (from 0) of `epochs`."""
    return config.rho * (0.5 * (1 + math.cos(math.pi * epoch / epochs)) if config.rho_schedule == "cosine" else 1)
