"""What happens to BatchNorm's running statistics while unlearning."""

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]

from regun.data.examples import Indices
from regun.training.job import Job


def batchnorms(model: nn.Module) -> list[_BatchNorm]:
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]


def freeze_statistics(model: nn.Module) -> None:
    """Normalise by the running statistics and leave them alone; call it after `model.train()`."""
    for layer in batchnorms(model):
        layer.eval()


def reestimate_statistics(job: Job, indices: Indices, batch_size: int) -> None:
    """Set the running statistics to their plain average over one pass of `indices` with train augmentation."""
    layers = batchnorms(job.model)
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # cumulative average
    job.model.train()
    plan = np.array_split(indices, max(1, len(indices) // batch_size))
    with torch.no_grad():
        for batch in job.examples.stream(plan, augment=True, seed=job.derive("statistics"), device=job.device):
            job.logits(batch.x)
            job.cost.add(forward=len(batch))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
