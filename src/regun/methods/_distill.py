"""Distillation on the forget set, until its examples are predicted as unseen ones would be, and no further."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.methods._baseline_comparison import BaselineComparison
from regun.models.forward import counting
from regun.training.best_state import BestState
from regun.training.fit import Fitted, fit
from regun.training.forward import eval_logits
from regun.training.job import Epoch, Job, Step
from regun.training.recipes import Recipe
from regun.training.streams import in_rounds, paired
from regun.types import Indices

ROUNDS = 10
"""Most parts of a distillation, each at its own learning rate; the model is measured after each."""
CANDIDATES = 3
"""Last rounds among which the best model is chosen."""
MEASURED = 250
"""Examples per set, at most, on which the gap is measured."""


@dataclass(frozen=True)
class Distillation:
    """How to distill: `steps` of `forget` and `retain` examples each, by the updates of `recipe`, retain weight `w`."""

    steps: int
    forget: int
    retain: int
    w: float
    recipe: Recipe

    @property
    def steps_per_round(self) -> int:
        return -(-self.steps // ROUNDS)

    @property
    def rounds(self) -> int:
        return max(1, self.steps // self.steps_per_round)


def distill(job: Job, how: Distillation, target: Callable[[Step], Tensor], gap: "MembershipGap") -> Fitted:
    """Update `job.model` on

        L = (1 - w) 1/b sum over B_f of KL(q(x) || p_theta(.|x)) + w CE(B_r)

    with q by `target` and the learning rate annealed to 0. b is the full size of a forget batch, so that each example
    of a small request weighs as much as one of a large. The first term is left out in rounds that begin with the gap
    closed. Of the last rounds, the model with the fewest errors and the smallest distance from the wanted gap is kept.
    """
    best = BestState(latest=True)  # of equals the later: its learning rate is lower

    def loss(step: Step) -> Tensor:
        retain = functional.cross_entropy(job.logits(step.retain.x), step.retain.y)
        if not gap.open:
            return how.w * retain
        q, log_p = target(step), functional.log_softmax(job.logits(step.forget.x), dim=1)
        return (1 - how.w) * functional.kl_div(log_p, q, reduction="sum") / how.forget + how.w * retain

    def after_round(epoch: Epoch, model: nn.Module) -> None:
        job.on_epoch(epoch, model)
        with counting(lambda n: job.cost.add(forward=n)):
            excess = gap.measure(model)
            if epoch.number > how.rounds - CANDIDATES:
                comparison = gap.comparison
                errors = 1 - float(comparison.correct(model, comparison.judged).mean())
                best.update(-(errors + abs(excess)), model)

    stream = in_rounds(paired(job, how.forget, how.retain), how.steps_per_round)
    fitted = fit(replace(job, on_epoch=after_round), stream, loss, how.recipe.annealed(how.rounds))
    if not fitted.diverged:
        best.restore(job.model)
    fitted.notes["rounds_of_forgetting"] = f"{gap.open_rounds} of {how.rounds}"
    return fitted


class MembershipGap:
    """How much better a model knows the forgotten examples than held-out ones, compared with a model that saw neither.

    gap(model) = mean p(y|x) over forgotten examples - mean p(y|x) over held-out ones. The wanted gap is the teacher's,
    or 0 without a teacher. The gap is `open` while the model's exceeds the wanted one, and always without held-out
    examples, where it cannot be measured.
    """

    def __init__(self, job: Job, comparison: BaselineComparison, teacher: nn.Module | None) -> None:
        self.job, self.comparison = job, comparison
        self.forget = comparison.sample(job.indices("forget"), "forget", MEASURED)
        self.unseen = comparison.sample(comparison.unseen, "gap", MEASURED)
        self.wanted = self.of(teacher) if teacher is not None else 0.0
        self.open, self.open_rounds = True, 0

    def of(self, model: nn.Module) -> float:
        """Return the model's gap; 0 without held-out examples."""
        if not len(self.unseen):
            return 0.0
        return self._confidence(model, self.forget) - self._confidence(model, self.unseen)

    def measure(self, model: nn.Module) -> float:
        """Return by how much the gap exceeds the wanted one after a round, and note whether it is still open."""
        self.open_rounds += self.open
        excess = self.of(model) - self.wanted
        self.open = excess > 0 or not len(self.unseen)
        return excess

    def _confidence(self, model: nn.Module, indices: Indices) -> float:
        logits = eval_logits(model, self.job.examples, indices, self.job.device).double()
        labels = torch.from_numpy(self.job.examples.labels_at(indices))
        return float(functional.softmax(logits, dim=1)[torch.arange(len(labels)), labels].mean())
