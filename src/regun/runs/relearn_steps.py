"""The steps of a relearning check: small ones, on retained examples alone, with a look now and then."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from torch import nn
from torch.nn import functional

from regun.data.examples import Batch
from regun.training.fit import Fitted, fit
from regun.training.job import Epoch, Job
from regun.training.recipes import Recipe, Updates
from regun.training.streams import Stream, one_pass

LOOKS = (8, 4, 2, 1)
"""Where on its way a model is looked at: after an eighth, a quarter, a half and all of the steps."""
GENTLE = 0.1
"""The rate, as a share of the highest one that the model was trained with."""


def relearn_updates(recipe: Recipe | None) -> Updates:
    """Two passes over the retain set at a tenth of the base's rate, constant, without decay.

    Larger rates make a retrained model worse on the examples it keeps, smaller ones bring nothing back.
    """
    if recipe is None:
        return Updates(epochs=2, batch_size=64, lr=0.01)
    known = {name: getattr(recipe, name) for name in ("optimizer", "momentum", "beta1", "beta2")}
    return Updates(epochs=2, batch_size=64, lr=GENTLE * recipe.lr, **known)


def relearn_points(updates: Updates, retain: int) -> tuple[int, ...]:
    """Steps at which a model is looked at, the first before any."""
    total = updates.epochs * -(-retain // updates.batch_size)
    return tuple(dict.fromkeys((0, *(-(-total // part) for part in LOOKS))))


def relearn_steps(job: Job, updates: Updates, look: Callable[[nn.Module], None]) -> Fitted:
    """Train the job's model on its retain set; `look` sees it before the first step and at every point after."""
    stream = one_pass(job, "retain", job.indices("retain"), updates.batch_size)
    points = relearn_points(updates, len(job.indices("retain")))

    def watched(epoch: Epoch, model: nn.Module) -> None:
        job.on_epoch(epoch, model)
        look(model)

    look(job.model)
    return fit(
        replace(job, on_epoch=watched),
        _between(stream, points),
        lambda step: functional.cross_entropy(job.logits(step.retain.x), step.retain.y),
        replace(updates, epochs=len(points) - 1),
    )


def _between(stream: Stream, points: tuple[int, ...]) -> Stream:
    """The same batches in the same order, an epoch of them from one point to the next."""
    whole = stream.steps(0)

    def run(epoch: int, start: int) -> Iterator[Mapping[str, Batch]]:
        at, end = points[epoch] + start, points[epoch + 1]
        while at < end:
            number, inside = divmod(at, whole)
            wanted = min(end - at, whole - inside)
            yield from islice(stream.run(number, inside), wanted)
            at += wanted

    def steps(epoch: int) -> int:
        return points[epoch + 1] - points[epoch]

    return Stream(steps, lambda epoch: steps(epoch) * -(-stream.samples(0) // whole), run)
