"""Passes over examples that change nothing.

Belongs here: logits and penultimate features of a model over an index set, in eval mode on evaluation inputs.
Does not: gradients, scores. May import: data, models.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from regun.data.examples import Batch, Examples, Indices, Inputs
from regun.models.calls import features_of, logits_of

BATCH = 256


def eval_logits(model: nn.Module, examples: Examples, indices: Indices, device: torch.device | str = "cpu") -> Tensor:
    """Logits (n, K), float32 on the CPU, in the order of `indices`."""
    return _over(model, examples, indices, device, lambda x: logits_of(model, x))


def eval_features(model: nn.Module, examples: Examples, indices: Indices, device: torch.device | str = "cpu") -> Tensor:
    """Inputs of the final linear layer (n, d), float32 on the CPU, in the order of `indices`."""
    return _over(model, examples, indices, device, lambda x: features_of(model, x))


def eval_batches(
    examples: Examples, indices: Indices, device: torch.device | str = "cpu", size: int = BATCH
) -> Iterator[Batch]:
    """The evaluation view of `indices`, batch by batch."""
    return examples.stream(np.split(indices, range(size, len(indices), size)), device=device)


@contextmanager
def in_eval_mode(model: nn.Module) -> Generator[None]:
    """Eval mode inside the block; every module's own mode comes back after it."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _over(
    model: nn.Module,
    examples: Examples,
    indices: Indices,
    device: torch.device | str,
    function: Callable[[Inputs], Tensor],
) -> Tensor:
    with in_eval_mode(model), torch.no_grad():
        return torch.cat([function(batch.x).float().cpu() for batch in eval_batches(examples, indices, device)])
