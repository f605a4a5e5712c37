"""Bad teacher: distill from a random network on the forget set, and from the base model on the retain set.

    L = mean over B of KL(t(x) || p_theta(.|x)),  t = the random net's softmax for x in D_f, the base's for x in D_r

Paper: Chundawat et al. 2023. B is drawn from the forget set and a fixed random `retain_share` of the retain set,
shuffled together, so BatchNorm sees both. Both teachers are in eval mode and see what the model sees, augmentation
included. The mean is over examples; the authors' code also divides by the number of classes. A random net answers
nearly the same whatever it is shown: a weak method, kept because tables are expected to have it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from regun.devices import send
from regun.methods._contract import Choice, Needs, Range, Ranges, Work, passes
from regun.methods._fresh_weights import fresh_model
from regun.models.forward import logits_of
from regun.settings import setting
from regun.splits import sample
from regun.training.fit import Fitted, fit
from regun.training.job import Job, Step, frozen_copy
from regun.training.recipes import Updates
from regun.training.streams import one_pass

TITLE = "Bad teacher"
NEEDS = Needs(fresh_model=True)
SEARCH: Ranges = {
    "resnet": {"lr": Choice((1e-2, 1e-3, 5e-4, 1e-4)), "epochs": Choice((1, 5, 10)), "temperature": Range(0.5, 4)},
    "swin": {"lr": Choice((1e-3, 5e-4, 1e-4)), "epochs": Choice((1, 5, 10)), "temperature": Range(0.5, 4)},
}
PRESETS = {"all_retain": {"retain_share": 1.0, "epochs": 10}}


@dataclass(frozen=True)
class Config(Updates):
    """Settings of the bad teacher; the defaults are its authors'."""

    epochs: int = setting(1, "passes over the forget set and the part of the retain set", low=0)
    batch_size: int = setting(256, "examples per batch", low=1)
    optimizer: str = setting("adamw", "update rule (adamw without decay is Adam)", choices=("sgd", "adamw"))
    lr: float = setting(1e-4, "learning rate", low=0)
    temperature: float = setting(1.0, "softens both sides of the divergence", above=0)
    retain_share: float = setting(0.3, "share of the retain set to stay near the base on, drawn once", low=0, high=1)


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: epochs over the forget set and its part of the retain set."""
    return passes(config.epochs, forget + round(config.retain_share * retain), config.batch_size)


def is_loss(config: Config) -> bool:
    """Return True if any loop can run the method (`regun.steps`)."""
    return True


def unlearn(job: Job, config: Config) -> Fitted:
    """Distill from both teachers."""
    good, bad = frozen_copy(job.model), frozen_copy(fresh_model(job, "bad teacher"))
    forget, retain = job.indices("forget"), job.indices("retain")
    subset = sample(retain, round(config.retain_share * len(retain)), job.seed, "subset")
    unwanted = torch.zeros(len(job.examples), dtype=torch.bool)
    unwanted[torch.from_numpy(forget)] = True

    def loss(step: Step) -> Tensor:
        batch = step.part("both")
        with torch.no_grad():
            chosen = send(unwanted[batch.indices], job.device).unsqueeze(1)
            answers = torch.where(chosen, logits_of(bad, batch.x), logits_of(good, batch.x)).float()
        target = functional.softmax(answers / config.temperature, dim=1)
        log_p = functional.log_softmax(job.logits(batch.x) / config.temperature, dim=1)
        return functional.kl_div(log_p, target, reduction="batchmean")

    both = np.sort(np.concatenate([forget, subset]))
    return fit(job, one_pass(job, "both", both, config.batch_size), loss, config)
