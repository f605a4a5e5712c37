"""From a model to what it said: the one way."""

from collections.abc import Sequence
from contextlib import closing

import numpy as np
import torch
from torch import Tensor, nn

from regun.auditing.predictions import LogProbs, Predictions
from regun.data.examples import Examples, by_position
from regun.models.forward import logits_of
from regun.training.forward import logit_batches
from regun.training.job import device_of, private_copy
from regun.types import Indices, Inputs


def predict(
    model: nn.Module, examples: Examples, indices: Indices | None = None, device: torch.device | str | None = None
) -> Predictions:
    """What the model says about the examples at `indices` (default: all), from one pass over them.

    Raises `NotFiniteError` where its answers are not finite numbers.
    """
    return predict_each([model], examples, indices, device)[0]


def predict_each(
    models: Sequence[nn.Module],
    examples: Examples,
    indices: Indices | None = None,
    device: torch.device | str | None = None,
) -> list[Predictions]:
    """What each of some models says; every example is fetched once for all of them."""
    rows = np.arange(len(examples)) if indices is None else indices
    where = torch.device(device) if device is not None else device_of(models[0])
    there = [model if device_of(model) == where else private_copy(model, where) for model in models]
    together = _Together(there) if len(there) > 1 else None
    said: list[LogProbs] = []
    with closing(logit_batches(there[0] if together is None else together, examples, rows, where)) as batches:
        for logits in batches:
            widths = [logits.shape[1]] if together is None else together.outputs
            said = said or [LogProbs(len(rows), width) for width in widths]
            for one, answer in zip(said, torch.split(logits, widths, dim=1), strict=True):
                one.add(answer.numpy())
    labels = examples.labels_at(rows)
    return [one.predictions(labels, rows) for one in said]


class _Together(nn.Module):
    """Several models side by side: their logits next to each other; `outputs` is how many each has."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.outputs: list[int] = []

    def forward(self, *positional: Tensor, **named: Tensor) -> Tensor:
        x: Inputs = positional[0] if len(positional) == 1 else named or by_position(positional)
        answers = [logits_of(model, x) for model in self.models]
        self.outputs[:] = [answer.shape[1] for answer in answers]
        return torch.cat([answer.float() for answer in answers], dim=1)
