"""How a model compares with the one before it, on examples that neither was trained on or that both were."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from regun.splits import sample
from regun.training.forward import eval_logits
from regun.training.job import Job
from regun.types import Indices

ASKED = 1000
"""Examples of a set that are asked, at most."""
KNOWING = 0.05
"""Accuracy beyond chance below which a model knows nothing that could be lost."""
LITTLE = 0.02
"""Accuracy lost that training anew may cost."""


@dataclass(frozen=True)
class Lost:
    """Accuracy lost against the base on the same examples (a share; below 0: gained), with its standard error."""

    share: float
    error: float

    @property
    def surely(self) -> float:
        """What chance does not explain of it: two standard errors less."""
        return self.share - 2 * self.error


class BaselineComparison:
    """The base model's answers on a bounded sample of held-out and of retain examples, asked once.

    Held-out examples of classes that are not retained are left out: nobody can know them any more.
    """

    def __init__(self, job: Job, base: nn.Module) -> None:
        self.job, self.base = job, base
        retain, heldout = job.indices("retain"), job.indices("heldout")
        known = np.unique(job.examples.labels_at(retain))
        self.unseen = self.sample(heldout[np.isin(job.examples.labels_at(heldout), known)], "unseen")
        self.retain = self.sample(retain, "retain")

    @cached_property
    def unseen_right(self) -> Tensor:
        return self.right(self.base, self.unseen)

    @cached_property
    def retain_right(self) -> Tensor:
        return self.right(self.base, self.retain)

    def right(self, model: nn.Module, indices: Indices) -> Tensor:
        """Which of the examples the model labels rightly, as numbers (fp64)."""
        logits = eval_logits(model, self.job.examples, indices, self.job.device)
        return (logits.argmax(1) == torch.from_numpy(self.job.examples.labels_at(indices))).double()

    def sample(self, indices: Indices, purpose: str) -> Indices:
        """Return at most `ASKED` of the examples, the same ones every time."""
        return np.sort(sample(indices, ASKED, self.job.seed, "yardstick", purpose))

    def lost_unseen(self, model: nn.Module) -> Lost | None:
        """None where there are no unseen examples to ask."""
        return _lost(self.unseen_right, self.right(model, self.unseen)) if len(self.unseen) else None

    def lost_retain(self, model: nn.Module) -> Lost:
        return _lost(self.retain_right, self.right(model, self.retain))

    def fitted(self, model: nn.Module) -> bool:
        """Whether the model knows the retain set about as well as the base does: it was trained for as long."""
        lost = self.lost_retain(model)
        return lost.share <= max(LITTLE / 2, lost.error)

    def lost(self, model: nn.Module) -> Lost:
        """On unseen examples; on retain ones where there are none."""
        return self.lost_unseen(model) or self.lost_retain(model)

    def collapsed(self, model: nn.Module) -> bool:
        """Whether more than a quarter of what the base knew beyond chance is gone, if it knew anything."""
        before = self.unseen_right if len(self.unseen) else self.retain_right
        known = float(before.mean()) - 1 / self.job.examples.num_classes
        return known > KNOWING and self.lost(model).surely > 0.25 * known


def _lost(before: Tensor, after: Tensor) -> Lost:
    change = before - after
    return Lost(float(change.mean()), float(change.std(correction=0)) / math.sqrt(len(change)))
