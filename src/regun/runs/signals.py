"""From a model to what it said: the one way."""

import numpy as np
import torch
from torch import nn

from regun.data.examples import Examples, Indices
from regun.evaluate.signals import Signals
from regun.training.forward import eval_logits
from regun.training.job import device_of, private_copy


def signals_of(
    model: nn.Module, examples: Examples, indices: Indices | None = None, device: torch.device | str | None = None
) -> Signals:
    """What the model says about the examples at `indices` (default: all), from one pass over them.

    Raises `NotFiniteError` where its answers are not finite numbers.
    """
    rows = np.arange(len(examples.labels)) if indices is None else indices
    where = torch.device(device) if device is not None else device_of(model)
    there = model if device_of(model) == where else private_copy(model, where)
    logits = eval_logits(there, examples, rows, where)
    return Signals.from_logits(logits.numpy(), examples.labels[rows], rows)
