"""Finetune: continue training on the retain set.

    L = mean CE over B_r,  an epoch = one pass over the retain set

Paper: the plainest baseline (Warnecke et al. 2021; Golatkar et al. 2020). The authors' released code fine-tunes on a
fixed random retain subset of the forget set's size for 2 epochs (preset `paper_code`); the published numbers are those
of the full retain set. `layers=last:K` trains the last K layers only (CF-k, Goel et al. 2022); the others keep their
weights, their BatchNorm statistics become those of the retain set.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from regun.methods._contract import RESNET_LR, SWIN, SWIN_LR, Needs, Ranges, Work, passes
from regun.methods._layers import HELP, check_layers, training_only
from regun.settings import setting
from regun.splits import sample
from regun.training.fit import Fitted, fit
from regun.training.job import Job, Step
from regun.training.recipes import Updates
from regun.training.streams import one_pass
from regun.types import Indices

TITLE = "Finetune"
NEEDS = Needs()
SEARCH: Ranges = {"resnet": {"lr": RESNET_LR}, "swin": {"lr": SWIN_LR}}
PRESETS = {"swin": SWIN, "paper_code": {"subset": True, "epochs": 2}}


@dataclass(frozen=True)
class Config(Updates):
    """Settings of Finetune."""

    subset: bool = setting(False, "use only as many retain examples as there are forget examples, drawn once")
    layers: str = setting("all", HELP)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self.layers, "finetune")


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: epochs over the retain set, or over as much of it as is forgotten."""
    return passes(config.epochs, min(forget, retain) if config.subset else retain, config.batch_size)


def is_loss(config: Config) -> bool:
    """Return True if any loop can run the method (`regun.steps`)."""
    return config.layers == "all"


def unlearn(job: Job, config: Config) -> Fitted:
    """Train on the retain set."""
    stream = one_pass(job, "retain", retained(job, config.subset), config.batch_size)
    with training_only(job.model, config.layers) as names:
        fitted = fit(job, stream, lambda s: retain_loss(job, s), config)
    if config.layers != "all":
        fitted.notes["trained"] = names
    return fitted


def retain_loss(job: Job, step: Step) -> Tensor:
    """Return mean cross-entropy of the step's retain batch."""
    return functional.cross_entropy(job.logits(step.retain.x), step.retain.y)


def retained(job: Job, subset: bool) -> Indices:
    """Return the retain set, or a fixed random part of it of the forget set's size."""
    indices = job.indices("retain")
    return sample(indices, len(job.indices("forget")), job.seed, "subset") if subset else indices
