"""Predictions of models on examples, from one pass over the data."""

import logging
from collections.abc import Sequence
from contextlib import closing

import numpy as np
import torch
from torch import nn

from regun.auditing.predictions import LogProbs, PerExampleCollector, Predictions
from regun.data.examples import Examples
from regun.models.adapters import ModelStack
from regun.training.forward import logit_batches
from regun.training.job import device_of, private_copy
from regun.types import Indices

LOG = logging.getLogger("regun")
MOST_BYTES = 1 << 32
"""Bytes of log-probabilities of one model on one set of examples up to which all of them are kept."""


def predict(
    model: nn.Module,
    examples: Examples,
    indices: Indices | None = None,
    device: torch.device | str | None = None,
    *,
    whole: bool = False,
) -> Predictions:
    """Return the model's predictions on the examples at `indices` (default: all).

    Raises `NotFiniteError` if a log-probability is not finite. `whole` keeps all log-probabilities, however many.
    """
    return predict_each([model], examples, indices, device, whole=whole)[0]


def predict_each(
    models: Sequence[nn.Module],
    examples: Examples,
    indices: Indices | None = None,
    device: torch.device | str | None = None,
    *,
    whole: bool = False,
) -> list[Predictions]:
    """Return the predictions of each model; every example is fetched once for all of them.

    Log-probabilities that take more than `MOST_BYTES` are not kept, unless `whole`: only values per example are.
    """
    rows = np.arange(len(examples)) if indices is None else indices
    target = torch.device(device) if device is not None else device_of(models[0])
    on_device = [model if device_of(model) == target else private_copy(model, target) for model in models]
    stack = ModelStack(on_device) if len(models) > 1 else None
    log_probs: list[LogProbs | PerExampleCollector] = []
    with closing(logit_batches(stack or on_device[0], examples, rows, target)) as batches:
        for logits in batches:
            widths = stack.outputs if stack else [logits.shape[1]]
            log_probs = log_probs or _collectors(examples, rows, widths, whole)
            for collected, part in zip(log_probs, torch.split(logits, widths, dim=1), strict=True):
                collected.add(part.numpy())
    labels = examples.labels_at(rows)
    return [collected.predictions(labels, rows) for collected in log_probs]


def _collectors(
    examples: Examples, rows: Indices, widths: Sequence[int], whole: bool
) -> list[LogProbs | PerExampleCollector]:
    """Return, for each model, what keeps all log-probabilities, or values per example if they take too much."""
    classes, count = max(widths), len(rows)
    if whole or 8 * count * classes <= MOST_BYTES:
        return [LogProbs(count, width) for width in widths]
    LOG.warning(
        "Log-probabilities of %s examples with %s classes take %.1f GB and are not kept. Accuracies, attacks and "
        "intervals do not need them. Divergences from retrained models do, and are left out: audit at most %s "
        "examples per set to get them.",
        f"{count:,}", f"{classes:,}", 8e-9 * count * classes, f"{MOST_BYTES // (8 * classes):,}",
    )  # fmt: skip
    labels = examples.labels_at(rows)
    return [PerExampleCollector(width, labels) for width in widths]
