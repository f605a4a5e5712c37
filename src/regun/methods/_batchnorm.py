"""What happens to BatchNorm's running statistics while unlearning."""

import numpy as np
import torch
from torch import nn

from regun.models.forward import batchnorms
from regun.training.job import Job
from regun.types import Indices


def freeze_statistics(model: nn.Module) -> None:
    """Normalise by the running statistics and leave them alone; call it after `model.train()`."""
    for layer in batchnorms(model):
        layer.eval()


def reestimate_statistics(job: Job, indices: Indices, batch_size: int) -> None:
    """Set the running statistics to their plain average over one pass of `indices` with train augmentation.

    Batches hold two examples at least; a single example has no variance and leaves the statistics as they are.
    """
    layers = batchnorms(job.model)
    if not layers or len(indices) < 2:
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # cumulative average
    job.model.train()
    plan = np.array_split(indices, max(1, len(indices) // max(2, batch_size)))
    with torch.no_grad():
        for batch in job.examples.stream(plan, augment=True, seed=job.derive("statistics"), device=job.device):
            job.logits(batch.x)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
