"""Models that return something else than logits, with a function that reads the logits from it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regun.errors import RegunError

ReadLogits = Callable[[Any], Tensor]
"""From what a model returns to its logits (N, K)."""


class Read(nn.Module):
    """A model that returns its logits, read from its output by a function; parameter names get the prefix `model.`"""

    def __init__(self, model: nn.Module, logits: ReadLogits) -> None:
        super().__init__()
        self.model, self.logits = model, logits

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        output: Any = self.model(*inputs, **named)
        try:
            return self.logits(output)
        except (TypeError, KeyError, IndexError, AttributeError) as fault:
            raise RegunError(
                f"logits=... could not read the output of {type(self.model).__name__}, a {type(output).__name__}: "
                f"{type(fault).__name__}: {fault}. Give a function from what the model returns to a tensor of logits."
            ) from fault


def wrap(model: nn.Module, logits: ReadLogits) -> nn.Module:
    """`model` as one that returns logits; `wrapped.model` is the model itself, with the same weights.

    >>> two = nn.Bilinear(2, 2, 3)  # takes two inputs
    >>> wrap(two, logits=lambda output: output * 2)(torch.zeros(4, 2), torch.zeros(4, 2)).shape
    torch.Size([4, 3])
    """
    return Read(model, logits)


def binary(output: Tensor) -> Tensor:
    """Two logits (N, 2) of one (N,) or (N, 1), as trained with binary cross-entropy: their softmax is its sigmoid.

    >>> binary(torch.tensor([0.0])).softmax(1).tolist()
    [[0.5, 0.5]]
    """
    one = output.reshape(len(output), -1)
    if one.shape[1] != 1:
        raise RegunError(f"binary reads one logit an example; the model gives {one.shape[1]}, so leave it out.")
    return torch.cat([torch.zeros_like(one), one], dim=1)
