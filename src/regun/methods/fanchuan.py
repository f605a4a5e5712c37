"""Fanchuan: make predictions on the forget set uniform, then alternate a contrastive loss and fine-tuning.

    first, one pass over D_f:   L = mean over B_f of KL(uniform || p_theta(.|x))
    then each epoch: a forget round,  L = mean over (x, x') in B_f x B_r of -log softmax_x'(z(x) . z(x') / tau),
    z the logits, those of x' without gradient; and a retain round,  L = mean CE over B_r

Paper: winner of the NeurIPS 2023 unlearning challenge (team fanchuan); settings as in the DeepUnlearn comparison (Cadet
et al. 2024). The three kinds of steps have optimizers of their own: rates `first_lr`, `forget_lr` (a cosine down to
`least_lr` over all forget rounds) and `lr`, a momentum each, and weight decay in the retain round alone. A forget
round ends with the shorter set.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from regun.errors import SettingsError
from regun.methods._contract import Choice, Needs, Range, Ranges, Work, paired_passes, passes
from regun.methods._steer import gradients, steered
from regun.methods.finetune import retain_loss
from regun.settings import setting
from regun.training.fit import Fitted, fit
from regun.training.gradients import trainable
from regun.training.job import Job, Step
from regun.training.recipes import Updates
from regun.training.streams import chained, one_pass, paired

TITLE = "Fanchuan"
NEEDS = Needs()
RATES = {"lr": Choice((1e-2, 4e-3, 1e-3)), "forget_lr": Range(1e-5, 1e-2, log=True)}
SEARCH: Ranges = {"resnet": RATES, "swin": RATES}
PRESETS: Mapping[str, Mapping[str, Any]] = {}


@dataclass(frozen=True)
class Config(Updates):
    """Settings of Fanchuan; the defaults are the winning entry's."""

    epochs: int = setting(8, "forget rounds, each with a retain round after it", low=0)
    batch_size: int = setting(256, "examples per batch", low=1)
    lr: float = setting(4e-3, "learning rate of the retain rounds", above=0)
    weight_decay: float = setting(1e-2, "weight decay in the retain rounds", low=0)
    first_lr: float = setting(5e-3, "learning rate of the first pass", low=0)
    forget_lr: float = setting(3e-4, "learning rate of the forget rounds at the start", low=0)
    least_lr: float = setting(1e-6, "learning rate of the forget rounds at the end", low=0)
    temperature: float = setting(1.15, "tau: softens the comparison with the retain batch", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = {
            "optimizer": ("sgd", self.optimizer),
            "schedule": ("constant", self.schedule),
            "nesterov": (False, self.nesterov),
        }
        problems = [
            f"fanchuan.{n} is {g!r}; its three kinds of steps know {w!r} only." for n, (w, g) in wrong.items() if g != w
        ]
        if problems:
            raise SettingsError(problems)


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: a pass over the forget set, then epochs of a forget round and a pass over the retain set."""
    first = passes(min(1, config.epochs), forget, config.batch_size)
    rounds = paired_passes(config.epochs, forget, retain, (config.batch_size, config.batch_size), "shorter")
    return first + rounds + passes(config.epochs, retain, config.batch_size)


def unlearn(job: Job, config: Config) -> Fitted:
    """Flatten, then alternate."""
    first = one_pass(job, "forget", job.indices("forget"), config.batch_size)
    contrast = paired(replace(job, seed=job.derive("contrast")), config.batch_size, config.batch_size, epoch="shorter")
    repair = one_pass(job, "retain", job.indices("retain"), config.batch_size)
    stream = chained(lambda e: [*([] if e else [(first, 0)]), (contrast, e), (repair, e)])
    weights = list(trainable(job.model).values())
    moving: dict[str, list[Tensor]] = {}

    def loss(step: Step) -> Tensor:
        kind = "repair" if not step.has("forget") else "contrast" if step.has("retain") else "flatten"
        if kind == "repair":
            value, rate, decay = retain_loss(job, step), config.lr, config.weight_decay
        elif kind == "flatten":
            value, rate, decay = flatness(job.logits(step.forget.x)), config.first_lr, 0.0
        else:
            value, decay = contrast_loss(job, step, config.temperature), 0.0
            number = step.number - (0 if step.epoch else first.steps(0))
            done = (step.epoch + number / contrast.steps(0)) / step.epochs
            rate = config.least_lr + (config.forget_lr - config.least_lr) * 0.5 * (1 + math.cos(math.pi * done))
        directions = [g + decay * w.detach() for g, w in zip(gradients(value, weights), weights, strict=True)]
        before = moving.get(kind, [torch.zeros_like(g) for g in directions])
        moving[kind] = [config.momentum * v + g for v, g in zip(before, directions, strict=True)]
        return steered(value, weights, [v * (rate / config.lr) for v in moving[kind]])

    return fit(job, stream, loss, replace(config, momentum=0.0, weight_decay=0.0))


def flatness(logits: Tensor) -> Tensor:
    """Return the mean KL divergence of the model's predictions from the uniform distribution."""
    uniform = torch.full_like(logits, 1 / logits.shape[1])
    return functional.kl_div(functional.log_softmax(logits, dim=1), uniform, reduction="batchmean")


def contrast_loss(job: Job, step: Step, temperature: float) -> Tensor:
    """Return how far the forget batch's logits are from looking alike towards all of the retain batch."""
    forget = job.logits(step.forget.x)
    with torch.no_grad():
        retain = job.logits(step.retain.x)
    return -functional.log_softmax(forget @ retain.T / temperature, dim=1).mean()
