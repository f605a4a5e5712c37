"""Unlearn with a method of your own: a function of a job, or a file with settings.

This one gives every forgotten example the label the model finds second best, while it trains on retained examples. The
job holds a private copy of the model, the data and a seed; `paired` and `fit` are the stream and the loop that regun's
own methods use, so cost, divergence and reproducibility are taken care of. Run: python docs/howto/own_method.py

On the command line: regun unlearn --base KEY --forget 0.1 --method docs/howto/own_method.py,w=0.8
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

import regun
from regun.settings import setting
from regun.training.fit import Fitted, fit
from regun.training.job import Job, Step
from regun.training.recipes import Updates
from regun.training.streams import paired

TITLE = "second best"


@dataclass(frozen=True)
class Config(Updates):
    """Settings: those of every method that trains (epochs, lr, batch_size, ...) and one of its own."""

    w: float = setting(0.8, "weight of the retain loss", low=0, high=1)


def unlearn(job: Job, config: Config) -> Fitted:
    """Push each forgotten example towards its second best label."""

    def loss(step: Step) -> Tensor:
        logits = job.logits(step.forget.x)
        true = functional.one_hot(step.forget.y, logits.shape[1]).bool()
        second = logits.detach().masked_fill(true, -torch.inf).argmax(1)
        forget = functional.cross_entropy(logits, second)
        return (1 - config.w) * forget + config.w * functional.cross_entropy(job.logits(step.retain.x), step.retain.y)

    return fit(job, paired(job, config.batch_size, 64, epoch="forget"), loss, config)


def forget_nothing(job: Job) -> None:
    """The shortest method there is: a function of the job alone, here one that does nothing."""


def main() -> dict[str, float]:
    sys.path.insert(0, str(Path(__file__).parent))
    from tabular import records, trained

    data = records()
    base = trained(*(torch.cat(parts) for parts in zip(data["forget"], data["retain"], strict=True)), seed=0)
    results = {}
    for name, method, settings in (
        ("forget nothing", forget_nothing, {}),
        ("second best", __file__, {"epochs": 5, "lr": 0.02, "batch_size": 8}),
    ):
        outcome = regun.unlearn(base, forget=data["forget"], retain=data["retain"], method=method, settings=settings)
        report = regun.audit(outcome.model, forget=data["forget"], test=data["test"])
        results[name] = report.numbers["smia_auc"].value
        print(f"{name:15}  {outcome.cost.steps:3} steps  smia_auc {results[name]:.1f}")
    return results


if __name__ == "__main__":
    main()
