"""Training from scratch: the one loss and stream behind base models, retrained ones and references."""

from dataclasses import replace

from torch import Tensor
from torch.nn import functional

from regun.training.fit import Fitted, fit
from regun.training.job import Job, Step
from regun.training.recipes import Recipe
from regun.training.snapshots import Checkpoint
from regun.training.streams import in_rounds, one_pass
from regun.types import Indices

PARTS = 10
"""Parts of a training of less than an epoch, each at its own learning rate."""


def train_from_scratch(
    job: Job,
    indices: Indices,
    recipe: Recipe,
    part: str = "retain",
    *,
    checkpoint: Checkpoint | None = None,
    steps: int | None = None,
) -> Fitted:
    """Train `job.model` on `indices` by the recipe: cross-entropy, smoothed as the recipe says, in shuffled passes.

    With `steps`, at most so many steps of the first passes, whose schedule runs over ten equal parts of them.
    """
    stream = one_pass(job, part, indices, recipe.batch_size)
    if steps is not None:
        each = -(-steps // PARTS)
        stream = in_rounds(stream, each)
        recipe = replace(recipe, epochs=max(1, steps // each), warmup_epochs=0, milestones=())

    def loss(step: Step) -> Tensor:
        batch = step.part(part)
        return functional.cross_entropy(job.logits(batch.x), batch.y, label_smoothing=recipe.label_smoothing)

    return fit(job, stream, loss, recipe, checkpoint=checkpoint)
