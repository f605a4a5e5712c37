"""Predictions of models on examples, from one pass over the data."""

from collections.abc import Sequence
from contextlib import closing

import numpy as np
import torch
from torch import nn

from regun.auditing.predictions import LogProbs, Predictions
from regun.data.examples import Examples
from regun.models.adapters import ModelStack
from regun.training.forward import logit_batches
from regun.training.job import device_of, private_copy
from regun.types import Indices


def predict(
    model: nn.Module, examples: Examples, indices: Indices | None = None, device: torch.device | str | None = None
) -> Predictions:
    """Return the model's predictions on the examples at `indices` (default: all).

    Raises `NotFiniteError` if a log-probability is not finite.
    """
    return predict_each([model], examples, indices, device)[0]


def predict_each(
    models: Sequence[nn.Module],
    examples: Examples,
    indices: Indices | None = None,
    device: torch.device | str | None = None,
) -> list[Predictions]:
    """Return the predictions of each model; every example is fetched once for all of them."""
    rows = np.arange(len(examples)) if indices is None else indices
    target = torch.device(device) if device is not None else device_of(models[0])
    on_device = [model if device_of(model) == target else private_copy(model, target) for model in models]
    stack = ModelStack(on_device) if len(models) > 1 else None
    log_probs: list[LogProbs] = []
    with closing(logit_batches(stack or on_device[0], examples, rows, target)) as batches:
        for logits in batches:
            widths = stack.outputs if stack else [logits.shape[1]]
            log_probs = log_probs or [LogProbs(len(rows), width) for width in widths]
            for collected, part in zip(log_probs, torch.split(logits, widths, dim=1), strict=True):
                collected.add(part.numpy())
    labels = examples.labels_at(rows)
    return [collected.predictions(labels, rows) for collected in log_probs]
