"""SCRUB: push away from the frozen base model on the forget set, stay near it on the retain set.

    forget steps: L = -T^2 KL(teacher || model);   retain steps: L = alpha T^2 KL(teacher || model) + gamma CE

Paper: Kurmanji et al. 2023. Each epoch is a pass over the forget set (in the first `forget_epochs` only) and then one
over the retain set. The teacher is the base model, always in eval mode. Defaults as in the ReGUn authors' code; preset
`original` has the SCRUB authors' large-scale settings.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from regun.methods._contract import RESNET_LR, SWIN, SWIN_LR, Needs, Range, Ranges, Work, passes
from regun.models.forward import logits_of
from regun.settings import setting
from regun.training.fit import Fitted, fit
from regun.training.job import Job, Step, frozen_copy
from regun.training.recipes import Updates
from regun.training.streams import chained, one_pass
from regun.types import Inputs

TITLE = "SCRUB"
NEEDS = Needs()
SEARCH: Ranges = {
    "resnet": {"lr": RESNET_LR, "alpha": Range(1e-3, 1.0, log=True)},
    "swin": {"lr": SWIN_LR, "alpha": Range(1e-3, 1.0, log=True)},
}
PRESETS = {
    "swin": SWIN,
    "original": {
        "epochs": 3, "forget_epochs": 2, "alpha": 0.001, "gamma": 0.99, "lr": 5e-4, "weight_decay": 5e-4,
        "forget_batch": 32,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Config(Updates):
    """Settings of SCRUB."""

    epochs: int = setting(5, "passes over the retain set", low=0)
    forget_epochs: int | None = setting(
        None, "epochs that begin with a forget pass (default: half, at least one)", low=0
    )
    forget_batch: int | None = setting(None, "forget examples per step (default: batch_size)", low=1)
    alpha: float = setting(0.5, "weight of staying near the teacher on the retain set", low=0)
    gamma: float = setting(1.0, "weight of the retain cross-entropy", low=0)
    temperature: float = setting(4.0, "softens both distributions in the KL terms", above=0)
    schedule: str = setting("steps", "learning rate over time", choices=("constant", "cosine", "onecycle", "steps"))
    milestones: tuple[int, ...] = setting((3, 5, 9), "schedule steps: divide the rate by 10 at each of these epochs")


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: epochs over the retain set, the first of them with a forget pass before."""
    ascent = passes(min(_forget_epochs(config), config.epochs), forget, config.forget_batch or config.batch_size)
    return ascent + passes(config.epochs, retain, config.batch_size)


def is_loss(config: Config) -> bool:
    """Return True if any loop can run the method (`regun.steps`)."""
    return True


def unlearn(job: Job, config: Config) -> Fitted:
    """Alternate forget and retain passes."""
    teacher = frozen_copy(job.model)

    def divergence(x: Inputs, logits: Tensor) -> Tensor:
        with torch.no_grad():
            target = functional.softmax(logits_of(teacher, x).float() / config.temperature, dim=1)
        log_probs = functional.log_softmax(logits / config.temperature, dim=1)
        return config.temperature**2 * functional.kl_div(log_probs, target, reduction="batchmean")

    def loss(step: Step) -> Tensor:
        if step.has("forget"):
            return -divergence(step.forget.x, job.logits(step.forget.x))
        logits = job.logits(step.retain.x)
        value = config.gamma * functional.cross_entropy(logits, step.retain.y)
        return value + config.alpha * divergence(step.retain.x, logits) if config.alpha else value

    forget = one_pass(job, "forget", job.indices("forget"), config.forget_batch or config.batch_size)
    retain = one_pass(job, "retain", job.indices("retain"), config.batch_size)
    first = _forget_epochs(config)
    stream = chained(lambda epoch: [(forget, epoch), (retain, epoch)] if epoch < first else [(retain, epoch)])
    return fit(job, stream, loss, config)


def _forget_epochs(config: Config) -> int:
    return config.forget_epochs if config.forget_epochs is not None else max(1, config.epochs // 2)
