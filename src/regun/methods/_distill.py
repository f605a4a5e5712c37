"""Distilling towards answers on the forgotten examples that an unseen one would get, and no further."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.data.examples import Batch
from regun.methods._baseline_comparison import BaselineComparison
from regun.methods._contract import Work
from regun.models.forward import counting
from regun.training.best_state import BestState
from regun.training.fit import Fitted, fit
from regun.training.forward import eval_logits
from regun.training.job import Epoch, Job, Step
from regun.training.recipes import Recipe
from regun.training.streams import Stream, paired
from regun.types import Indices

ROUNDS = 20
"""Parts of a distillation, each at its own learning rate."""
LOOKS = 5
"""Rounds at the end after which the model is looked at."""


@dataclass(frozen=True)
class Distillation:
    """How to distil: `steps` of `forget` and `retain` examples each, by the updates of `recipe`, retain weight `w`."""

    steps: int
    forget: int
    retain: int
    w: float
    recipe: Recipe

    @property
    def each(self) -> int:
        """Steps a round."""
        return max(1, self.steps // ROUNDS)

    @property
    def rounds(self) -> int:
        return max(1, self.steps // self.each)

    @property
    def work(self) -> Work:
        steps = self.rounds * self.each
        return Work(steps, steps * (self.forget + self.retain))


def distil(job: Job, how: Distillation, target: Callable[[Step], Tensor], balance: "Balance") -> Fitted:
    """Update `job.model` on

        L = (1 - w) 1/b sum over B_f of KL(q(x) || p_theta(.|x)) + w CE(B_r)

    with q by `target` and the learning rate annealed to 0; the best of the last rounds is kept. b is the full size of a
    forget batch, so that each example of a small request weighs as much as one of a large. Rounds that begin with the
    forgotten examples known no better than they should be leave the first term out.
    """

    def loss(step: Step) -> Tensor:
        retain = functional.cross_entropy(job.logits(step.retain.x), step.retain.y)
        if not balance.remembers:
            return how.w * retain
        q, log_p = target(step), functional.log_softmax(job.logits(step.forget.x), dim=1)
        return (1 - how.w) * functional.kl_div(log_p, q, reduction="sum") / how.forget + how.w * retain

    keeper = Keeper(job, balance, first=how.rounds - LOOKS)
    stream = in_rounds(paired(job, how.forget, how.retain), how.each)
    updates = replace(how.recipe, epochs=how.rounds, schedule="cosine", warmup_epochs=0, milestones=())
    fitted = fit(replace(job, on_epoch=keeper), stream, loss, updates)
    if not fitted.diverged:
        keeper.best.restore(job.model)
    fitted.notes["rounds_of_forgetting"] = f"{balance.rounds} of {how.rounds}"
    return fitted


class Balance:
    """Whether the forgotten examples are still known better than they should be.

    known = mean p(y|x) over forgotten examples minus that over held-out ones. A model that never saw the former has the
    teacher's, up to noise, and 0 where there is no teacher to ask. Without held-out examples nobody can tell, and every
    round forgets.
    """

    def __init__(self, job: Job, stick: BaselineComparison, teacher: nn.Module | None) -> None:
        self.job, self.stick = job, stick
        self.forget = stick.sample(job.indices("forget"), "forget")
        self.wanted = self.known(teacher) if teacher is not None else 0.0
        self.remembers, self.rounds = True, 0

    def known(self, model: nn.Module) -> float:
        if not len(self.stick.unseen):
            return 0.0
        return self._label(model, self.forget) - self._label(model, self.stick.unseen)

    def look(self, model: nn.Module) -> float:
        """After a round: how much better the forgotten examples are known than they should be."""
        self.rounds += self.remembers
        more = self.known(model) - self.wanted
        self.remembers = more > 0 or not len(self.stick.unseen)
        return more

    def _label(self, model: nn.Module, indices: Indices) -> float:
        logits = eval_logits(model, self.job.examples, indices, self.job.device).double()
        labels = torch.from_numpy(self.job.examples.labels_at(indices))
        return float(functional.softmax(logits, dim=1)[torch.arange(len(labels)), labels].mean())


def in_rounds(stream: Stream, each: int) -> Stream:
    """The same batches with an epoch every `each` steps, whatever a pass over the forget set takes."""
    per_pass, samples = stream.steps(0), stream.samples(0)

    def run(epoch: int, start: int) -> Iterator[Mapping[str, Batch]]:
        place, end = epoch * each + start, (epoch + 1) * each
        while place < end:
            number, first = divmod(place, per_pass)
            for parts in stream.run(number, first):
                yield parts
                place += 1
                if place == end:
                    return

    return Stream(lambda _: each, lambda _: round(each * samples / per_pass), run)


class Keeper:
    """Looks at the model after every round, and remembers the best of the last: errors on unseen examples (on retain
    ones where there are none) plus how far what it knows of the forgotten ones is from what it should."""

    def __init__(self, job: Job, balance: Balance, first: int) -> None:
        self.job, self.balance, self.stick, self.first = job, balance, balance.stick, first
        self.best = BestState(latest=True)  # of equals the later: its learning rate is lower

    def __call__(self, epoch: Epoch, model: nn.Module) -> None:
        self.job.on_epoch(epoch, model)
        with counting(lambda n: self.job.cost.add(forward=n)):
            more = self.balance.look(model)
            if epoch.number <= self.first:
                return
            asked = self.stick.unseen if len(self.stick.unseen) else self.stick.retain
            error = 1 - float(self.stick.right(model, asked).mean()) + abs(more)
        self.best.update(-error, model)
