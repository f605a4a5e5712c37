"""SSD: dampen the weights that matter far more for the forget set than for all data. No training.

    F = diagonal Fisher information;  where F_forget > alpha F_all:  theta *= min(lambda F_all / F_forget, 1)

Paper: Foster et al. 2024. The Fisher information is the mean of squared per-example gradients, so it does not depend on
batch size; `fisher="batch"` is the original's squared batch-mean gradients. No epsilon is needed, since the condition
implies F_forget > 0; the authors' released code adds 1e-12 to the denominator, which multiplies tiny-Fisher weights by
almost 0 (preset `paper_code`). Not made for large random forget sets, where both estimates nearly coincide.
"""

from dataclasses import dataclass

import torch

from regun.methods._contract import Needs, Range, Ranges, Work
from regun.settings import check, setting
from regun.training.fit import Fitted
from regun.training.gradients import fisher_by_batch, fisher_by_example, trainable
from regun.training.job import Job

TITLE = "SSD"
NEEDS = Needs()
SEARCH: Ranges = {"resnet": {}, "swin": {"alpha": Range(1, 10), "dampening": Range(0.7, 1.0)}}
PRESETS = {"swin": {}, "original": {"fisher": "batch"}, "paper_code": {"epsilon": 1e-12}}


@dataclass(frozen=True)
class Config:
    """Settings of SSD."""

    alpha: float = setting(10.0, "select weights whose forget Fisher exceeds alpha times the overall one", low=0)
    dampening: float = setting(1.0, "lambda: how strongly selected weights shrink (0 sets them to 0)", low=0)
    fisher: str = setting("example", "squared gradients of examples, or of batch means", choices=("example", "batch"))
    batch_size: int = setting(128, "examples per batch (fisher=batch)", low=1)
    micro_batch: int = setting(16, "examples whose gradients are in memory at once (fisher=example)", low=1)
    epsilon: float = setting(0.0, "added to the forget Fisher before dividing", low=0)

    def __post_init__(self) -> None:
        check(self, "ssd")


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: a pass over everything and one over the forget set, without a step."""
    return Work(0, retain + 2 * forget)


def unlearn(job: Job, config: Config) -> Fitted:
    """Dampen the selected weights, in place and at once."""
    if config.fisher == "example":
        everything = fisher_by_example(job, job.indices("base"), micro_batch=config.micro_batch)
        forgotten = fisher_by_example(job, job.indices("forget"), micro_batch=config.micro_batch)
    else:
        everything = fisher_by_batch(job, job.indices("base"), batch_size=config.batch_size)
        forgotten = fisher_by_batch(job, job.indices("forget"), batch_size=config.batch_size)
    selected = 0
    with torch.no_grad():
        for name, parameter in trainable(job.model).items():
            chosen = forgotten[name] > config.alpha * everything[name]
            factor = (config.dampening * everything[name] / (forgotten[name] + config.epsilon)).clamp(max=1)
            parameter.mul_(torch.where(chosen, factor, torch.ones_like(factor)).to(parameter.dtype))
            selected += int(chosen.sum())
    return Fitted(notes={"selected": selected, "parameters": sum(p.numel() for p in trainable(job.model).values())})
