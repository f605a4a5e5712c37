"""What happens to BatchNorm's running statistics while unlearning."""

from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]

from regun.data.examples import Batch, Indices
from regun.training.job import Job


def batchnorms(model: nn.Module) -> list[_BatchNorm]:
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]


def freeze_statistics(model: nn.Module) -> None:
    """Normalise by the running statistics and leave them alone; call it after `model.train()`."""
    for layer in batchnorms(model):
        layer.eval()


@contextmanager
def bearing_one(model: nn.Module, count: int) -> Generator[None]:
    """Inside, a batch of one example is normalised by the running statistics: by itself it has no variance."""
    layers = [layer for layer in batchnorms(model) if layer.training] if count == 1 else []
    for layer in layers:
        layer.eval()
    try:
        yield
    finally:
        for layer in layers:
            layer.train()


def logits_on(job: Job, batch: Batch) -> Tensor:
    """The current model's logits (fp32) on a batch that may hold one example only."""
    with bearing_one(job.model, len(batch)):
        return job.logits(batch.x).float()


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
