"""NegGrad: gradient ascent on the loss of the forget set.

    L = -mean CE over B_f,  an epoch = one pass over the forget set

Paper: gradient ascent (Golatkar et al. 2020; Thudi et al. 2022), 2 epochs. The objective has no lower bound: a run
that leaves the finite numbers stops, keeps its last finite weights and is reported as diverged. The authors' released
configuration runs 10 epochs (preset `paper_code`).
"""

from dataclasses import dataclass

from torch.nn import functional

from regun.methods._contract import Choice, Needs, Ranges, Work, passes
from regun.settings import setting
from regun.training.fit import Fitted, fit
from regun.training.job import Job
from regun.training.recipes import Updates
from regun.training.streams import one_pass

TITLE = "NegGrad"
NEEDS = Needs(retain=False)
SEARCH: Ranges = {
    "resnet": {"lr": Choice((5e-2, 1e-2, 5e-3, 1e-3))},
    "swin": {"lr": Choice((1e-5, 5e-6, 1e-6, 5e-7, 1e-7, 5e-8, 1e-8))},
}
PRESETS = {"swin": {"optimizer": "adamw", "lr": 1e-6}, "paper_code": {"epochs": 10}}


@dataclass(frozen=True)
class Config(Updates):
    """Settings of NegGrad."""

    epochs: int = setting(2, "passes over the forget set", low=0)
    lr: float = setting(5e-3, "learning rate", low=0)


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: epochs over the forget set."""
    return passes(config.epochs, forget, config.batch_size)


def is_loss(config: Config) -> bool:
    """Return True if any loop can run the method (`regun.steps`)."""
    return True


def unlearn(job: Job, config: Config) -> Fitted:
    """Ascend on the forget set."""
    stream = one_pass(job, "forget", job.indices("forget"), config.batch_size)
    return fit(job, stream, lambda s: -functional.cross_entropy(job.logits(s.forget.x), s.forget.y), config)
