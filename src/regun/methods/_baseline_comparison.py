"""Comparison of a model with the base, on examples that neither was trained on or that both were."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from regun.data.examples import Indices
from regun.splits import sample
from regun.training.forward import eval_logits
from regun.training.job import Job

SAMPLE = 1000
"""Examples per set that are compared, at most."""
MIN_SKILL = 0.05
"""Accuracy above guessing below which a base has nothing to lose."""
TOLERANCE = 0.02
"""Accuracy that training from scratch may cost."""


@dataclass(frozen=True)
class AccuracyLoss:
    """Accuracy lost against the base on the same examples (a share; below 0: gained), with its standard error."""

    share: float
    error: float

    @property
    def significant(self) -> float:
        """The part of the loss beyond two standard errors."""
        return self.share - 2 * self.error


class BaselineComparison:
    """The base's predictions on a sample of held-out and of retain examples, computed once.

    Held-out examples of classes without retain examples are left out: no model is expected to know them.
    """

    def __init__(self, job: Job, base: nn.Module) -> None:
        self.job, self.base = job, base
        retain, heldout = job.indices("retain"), job.indices("heldout")
        classes = np.unique(job.examples.labels_at(retain))
        self.unseen = self.sample(heldout[np.isin(job.examples.labels_at(heldout), classes)], "unseen")
        self.retain = self.sample(retain, "retain")
        self.judged = self.unseen if len(self.unseen) else self.retain

    def sample(self, indices: Indices, purpose: str, most: int = SAMPLE) -> Indices:
        """Return at most `most` of the examples, the same ones every time."""
        return np.sort(sample(indices, most, self.job.seed, "yardstick", purpose))

    def correct(self, model: nn.Module, indices: Indices) -> Tensor:
        """Return 1 for each example that the model labels correctly, else 0 (fp64)."""
        logits = eval_logits(model, self.job.examples, indices, self.job.device)
        return (logits.argmax(1) == torch.from_numpy(self.job.examples.labels_at(indices))).double()

    @cached_property
    def base_correct(self) -> Tensor:
        """`correct` of the base on the judged examples."""
        return self.correct(self.base, self.unseen) if len(self.unseen) else self.base_correct_on_retain

    @cached_property
    def base_correct_on_retain(self) -> Tensor:
        return self.correct(self.base, self.retain)

    def loss(self, model: nn.Module) -> AccuracyLoss:
        """Return the accuracy lost on unseen examples; on retain examples where there are no unseen ones."""
        return _loss(self.base_correct, self.correct(model, self.judged))

    def fitted(self, model: nn.Module) -> bool:
        """Return True if the model fits the retain set about as well as the base: it was trained for long enough."""
        lost = _loss(self.base_correct_on_retain, self.correct(model, self.retain))
        return lost.share <= max(TOLERANCE / 2, lost.error)

    def collapsed(self, lost: AccuracyLoss) -> bool:
        """Return True if more than a quarter of the base's accuracy above guessing is significantly lost."""
        skill = float(self.base_correct.mean()) - 1 / self.job.examples.num_classes
        return skill > MIN_SKILL and lost.significant > 0.25 * skill


def _loss(before: Tensor, after: Tensor) -> AccuracyLoss:
    change = before - after
    return AccuracyLoss(float(change.mean()), float(change.std(correction=0)) / math.sqrt(len(change)))
