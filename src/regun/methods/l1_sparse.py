"""l1-sparse: fine-tune on the retain set under a penalty that drives weights to zero.

    L = CE(B_r) + gamma_t sum_i |theta_i|   over all trainable parameters

Paper: Jia et al. 2023. With t = 1..E the epoch, `decay` (the authors' code) is gamma_t = 2 gamma (1 - t/E), `original`
is gamma (1 - (t-1)/E), `constant` is gamma, `growing` is 2 gamma t/E. No weights are pruned afterwards.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from regun.methods._contract import RESNET_LR, SWIN, SWIN_LR, Needs, Range, Ranges, Work, passes
from regun.methods.finetune import retain_loss, retained
from regun.settings import setting
from regun.training.fit import Fitted, fit
from regun.training.gradients import trainable
from regun.training.job import Job, Step
from regun.training.recipes import Updates
from regun.training.streams import one_pass

TITLE = "l1-sparse"
NEEDS = Needs()
SEARCH: Ranges = {
    "resnet": {"lr": RESNET_LR, "gamma": Range(5e-6, 5e-3, log=True)},
    "swin": {"lr": SWIN_LR, "gamma": Range(5e-7, 5e-5, log=True)},
}
PRESETS = {
    "swin": {**SWIN, "gamma": 5e-6},
    "original": {"penalty": "original"},
    "paper_code": {"subset": True, "epochs": 2},
}


@dataclass(frozen=True)
class Config(Updates):
    """Settings of l1-sparse."""

    gamma: float = setting(5e-4, "strength of the penalty", low=0)
    penalty: str = setting("decay", "strength over epochs", choices=("decay", "original", "constant", "growing"))
    subset: bool = setting(False, "use only as many retain examples as there are forget examples, drawn once")


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: epochs over the retain set, or over as much of it as is forgotten."""
    return passes(config.epochs, min(forget, retain) if config.subset else retain, config.batch_size)


def is_loss(config: Config) -> bool:
    """Return True if any loop can run the method (`regun.steps`)."""
    return True


def unlearn(job: Job, config: Config) -> Fitted:
    """Fine-tune under the penalty."""
    parameters = list(trainable(job.model).values())

    def loss(step: Step) -> Tensor:
        value = retain_loss(job, step)
        strength = strength_at(config, step.epoch, step.epochs)
        if strength == 0:
            return value
        return value + strength * torch.stack([p.float().abs().sum() for p in parameters]).sum()

    stream = one_pass(job, "retain", retained(job, config.subset), config.batch_size)
    return fit(job, stream, loss, config)


def strength_at(config: Config, epoch: int, epochs: int) -> float:
    """Return gamma_t in `epoch`, counted from 0."""
    t = epoch + 1
    factors = {"decay": 2 - 2 * t / epochs, "original": 1 - epoch / epochs, "constant": 1.0, "growing": 2 * t / epochs}
    return config.gamma * factors[config.penalty]
