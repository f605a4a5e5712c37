"""Training from scratch: the one loss and stream behind base models, retrained ones and references."""

from torch import Tensor
from torch.nn import functional

from regun.training.fit import Checkpoint, Fitted, fit
from regun.training.job import Job, Step
from regun.training.recipes import Recipe
from regun.training.streams import one_pass
from regun.types import Indices


def train_from_scratch(
    job: Job, indices: Indices, recipe: Recipe, part: str = "retain", *, checkpoint: Checkpoint | None = None
) -> Fitted:
    """Train `job.model` on `indices` by the recipe: cross-entropy, smoothed as the recipe says, in shuffled passes."""

    def loss(step: Step) -> Tensor:
        batch = step.part(part)
        return functional.cross_entropy(job.logits(batch.x), batch.y, label_smoothing=recipe.label_smoothing)

    return fit(job, one_pass(job, part, indices, recipe.batch_size), loss, recipe, checkpoint=checkpoint)
