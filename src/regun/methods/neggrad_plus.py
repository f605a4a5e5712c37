"""NegGrad+: gradient ascent on the forget set, together with gradient descent on the retain set.

    L = w CE(B_r) - (1 - w) CE(B_f)

Paper: Kurmanji et al. 2023 (SCRUB). An epoch ends with the shorter of the two sets, as in the authors' code; the
original ends it with the retain set (`epoch="retain"`). `mode="sequential"` ascends first and repairs afterwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import functional

from regun.errors import SettingsError
from regun.methods._contract import RESNET_LR, SWIN, SWIN_LR, Needs, Range, Ranges, Work, paired_passes, passes
from regun.settings import setting
from regun.training.fit import Fitted, fit
from regun.training.job import Job, Step
from regun.training.recipes import Updates
from regun.training.streams import chained, one_pass, paired

TITLE = "NegGrad+"
NEEDS = Needs()
SEARCH: Ranges = {
    "resnet": {"lr": RESNET_LR, "w": Range(0.8, 0.99)},
    "swin": {"lr": SWIN_LR, "w": Range(0.8, 0.99)},
}
TRADEOFF: Mapping[str, Any] = {}
PRESETS = {"swin": SWIN, "original": {"epoch": "retain"}}


@dataclass(frozen=True)
class Config(Updates):
    """Settings of NegGrad+."""

    w: float = setting(0.95, "weight of the retain loss; the ascent has 1 - w", low=0, high=1)
    epoch: str = setting("shorter", "what ends an epoch", choices=("shorter", "forget", "retain"))
    mode: str = setting(
        "joint", "joint, or ascent epochs first and retain epochs after", choices=("joint", "sequential")
    )
    ascent_epochs: int = setting(1, "sequential: epochs of ascent before the retain epochs", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode == "sequential" and self.ascent_epochs > self.epochs:
            raise SettingsError(
                [f"neggrad_plus.ascent_epochs is {self.ascent_epochs}; at most epochs ({self.epochs})."]
            )


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: epochs over both sets, together or one after the other."""
    if config.mode == "sequential":
        after = passes(config.epochs - config.ascent_epochs, retain, config.batch_size)
        return passes(config.ascent_epochs, forget, config.batch_size) + after
    return paired_passes(config.epochs, forget, retain, (config.batch_size, config.batch_size), config.epoch)


def is_loss(config: Config) -> bool:
    """Return True if any loop can run the method (`regun.steps`)."""
    return True


def unlearn(job: Job, config: Config) -> Fitted:
    """Ascend and descend, together or one after the other."""
    stream = paired(job, config.batch_size, config.batch_size, epoch=config.epoch)
    if config.mode == "sequential":
        forget = one_pass(job, "forget", job.indices("forget"), config.batch_size)
        retain = one_pass(job, "retain", job.indices("retain"), config.batch_size)
        first = config.ascent_epochs
        stream = chained(lambda epoch: [(forget, epoch) if epoch < first else (retain, epoch - first)])
    return fit(job, stream, lambda step: weighted_loss(job, step, config.w), config)


def weighted_loss(job: Job, step: Step, w: float) -> Tensor:
    """Return w CE(retain) - (1 - w) CE(forget) over the parts the step has; a part of weight 0 is not run."""
    terms: list[Tensor] = []
    if step.has("forget") and w < 1:
        terms.append((w - 1) * functional.cross_entropy(job.logits(step.forget.x), step.forget.y))
    if step.has("retain") and w > 0:
        terms.append(w * functional.cross_entropy(job.logits(step.retain.x), step.retain.y))
    return sum(terms[1:], terms[0])
