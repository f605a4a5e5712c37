"""SalUn: random labels on the forget set, but only the weights that matter for it may move.

    mask = the `keep` share of weights with the largest |sum over D_f of grad CE|  (at theta_0, eval mode, exact)
    L = (1 - w) CE(B_f, y') + w CE(B_r, y),   y' redrawn for every batch

Paper: Fan et al. 2024. Masked-out weights keep their exact values under momentum, weight decay and AdamW. y' is one of
the K-1 wrong classes (`labels="wrong"`); the original draws from all K (`labels="all"`). An epoch ends with the shorter
set, weighted by w, as in the ReGUn paper's code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from regun.devices import send
from regun.methods._contract import RESNET_LR, SWIN, SWIN_LR, Needs, Range, Ranges, Work, paired_passes
from regun.rng import generator
from regun.settings import setting
from regun.training.fit import Fitted, fit
from regun.training.gradients import summed_gradient, top_mask
from regun.training.job import Job, Step
from regun.training.recipes import Updates
from regun.training.streams import paired

TITLE = "SalUn"
NEEDS = Needs()
SEARCH: Ranges = {
    "resnet": {"lr": RESNET_LR, "w": Range(0.1, 0.9)},
    "swin": {"lr": SWIN_LR, "w": Range(0.1, 0.9)},
}
TRADEOFF: Mapping[str, Any] = {}
PRESETS = {"swin": SWIN, "original": {"labels": "all"}}


@dataclass(frozen=True)
class Config(Updates):
    """Settings of SalUn."""

    w: float = setting(0.5, "weight of the retain loss; the random-label loss has 1 - w", low=0, high=1)
    keep: float = setting(0.5, "share of weights that may move", low=0, high=1)
    labels: str = setting("wrong", "random labels: wrong classes only, or all classes", choices=("wrong", "all"))
    epoch: str = setting("shorter", "what ends an epoch", choices=("shorter", "forget", "retain"))


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: the saliency of the forget set, then epochs over both sets."""
    batches = (config.batch_size, config.batch_size)
    return Work(0, forget) + paired_passes(config.epochs, forget, retain, batches, config.epoch)


def unlearn(job: Job, config: Config) -> Fitted:
    """Train on random labels under the saliency mask."""
    gradient = summed_gradient(job, job.indices("forget"), batch_size=config.batch_size)
    mask = top_mask({name: g.abs() for name, g in gradient.items()}, config.keep)
    classes = job.examples.num_classes

    def loss(step: Step) -> Tensor:
        terms: list[Tensor] = []
        if config.w < 1:
            draw = generator(job.seed, "labels", step.epoch, step.number)
            labels = random_labels(step.forget.y, classes, draw, wrong=config.labels == "wrong")
            terms.append((1 - config.w) * functional.cross_entropy(job.logits(step.forget.x), labels))
        if config.w > 0:
            terms.append(config.w * functional.cross_entropy(job.logits(step.retain.x), step.retain.y))
        return sum(terms[1:], terms[0])

    fitted = fit(job, paired(job, config.batch_size, config.batch_size, epoch=config.epoch), loss, config, mask=mask)
    fitted.notes["density"] = sum(int(m.sum()) for m in mask.values()) / sum(m.numel() for m in mask.values())
    return fitted


def random_labels(y: Tensor, classes: int, draw: torch.Generator, *, wrong: bool) -> Tensor:
    """Return uniform labels, over the K-1 wrong classes or over all K."""
    shift = torch.randint(1 if wrong else 0, classes, y.shape, generator=draw)
    return (y + send(shift, y.device)) % classes
