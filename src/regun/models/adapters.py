"""Wrappers around modules: other outputs than logits, and several models as one."""

import importlib
import logging
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from regun.errors import RegunError, not_installed
from regun.models.forward import logits_of
from regun.types import Inputs

ReadLogits = Callable[[Any], Tensor]
"""From what a model returns to its logits (N, K)."""


class OutputAdapter(nn.Module):
    """Return the logits that `logits` reads from the output of `model`; parameter names get the prefix `model.`"""

    def __init__(self, model: nn.Module, logits: ReadLogits) -> None:
        super().__init__()
        self.model, self.logits = model, logits

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        output: Any = self.model(*inputs, **named)
        try:
            return self.logits(output)
        except (TypeError, KeyError, IndexError, AttributeError) as error:
            raise RegunError(
                f"logits=... could not read the output of {type(self.model).__name__}, a {type(output).__name__}: "
                f"{type(error).__name__}: {error}. Pass a function from what the model returns to a tensor of logits."
            ) from error


class TransformersAdapter(nn.Module):
    """Return the logits of a transformers image classifier; parameter names get the prefix `model.`"""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Tensor) -> Tensor:
        output: Any = self.model(pixel_values=pixel_values)
        return output.logits


class ModelStack(nn.Module):
    """Return the logits of several models side by side; `outputs` holds the number of logits of each."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.outputs: list[int] = []

    def forward(self, *positional: Tensor, **named: Tensor) -> Tensor:
        by_name = named or {str(place): part for place, part in enumerate(positional)}
        x: Inputs = positional[0] if len(positional) == 1 else by_name
        logits = [logits_of(model, x) for model in self.models]
        self.outputs[:] = [part.shape[1] for part in logits]
        return torch.cat([part.float() for part in logits], dim=1)


def wrap(model: nn.Module, logits: ReadLogits) -> nn.Module:
    """Return a module that returns logits; its attribute `model` is the same module, with the same weights.

    >>> two = nn.Bilinear(2, 2, 3)  # takes two inputs
    >>> wrap(two, logits=lambda output: output * 2)(torch.zeros(4, 2), torch.zeros(4, 2)).shape
    torch.Size([4, 3])
    """
    return OutputAdapter(model, logits)


def binary(output: Tensor) -> Tensor:
    """Return two logits (N, 2) for one (N,) or (N, 1) trained with binary cross-entropy: softmax gives its sigmoid.

    >>> binary(torch.tensor([0.0])).softmax(1).tolist()
    [[0.5, 0.5]]
    """
    one = output.reshape(len(output), -1)
    if one.shape[1] != 1:
        raise RegunError(f"binary reads one logit per example, but the model returns {one.shape[1]}; leave it out.")
    return torch.cat([torch.zeros_like(one), one], dim=1)


@contextmanager
def silent_transformers(needed_by: str) -> Generator[ModuleType]:
    """Import transformers; inside the block it neither warns, logs nor draws progress bars."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            package = importlib.import_module("transformers")
            bars = importlib.import_module("transformers.utils.logging")
            hub = importlib.import_module("huggingface_hub.utils")
        except ImportError as error:
            raise RegunError(not_installed(f"the model {needed_by!r}", "transformers", "transformers")) from error
        loggers = [logging.getLogger(name) for name in ("transformers", "huggingface_hub")]
        levels = [logger.level for logger in loggers]
        shown, hub_hidden = bars.is_progress_bar_enabled(), hub.are_progress_bars_disabled()
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        bars.disable_progress_bar()
        try:
            yield package
        finally:
            if shown:
                bars.enable_progress_bar()  # shows those of huggingface_hub too
            if hub_hidden:
                hub.disable_progress_bars()
            elif not shown:
                hub.enable_progress_bars()
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
