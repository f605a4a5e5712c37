"""The transformers package, fetched when needed and kept silent, and the shell that makes its models return logits."""

import importlib
import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from regun.errors import RegunError


class Logits(nn.Module):
    """A transformers image classifier that returns its logits only; parameter names get the prefix `model.`"""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Tensor) -> Tensor:
        output: Any = self.model(pixel_values=pixel_values)
        return output.logits


@contextmanager
def silent_transformers(needed_by: str) -> Generator[ModuleType]:
    """The transformers package; inside the block it does not warn, log or draw progress bars, afterwards as before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            package = importlib.import_module("transformers")
            bars = importlib.import_module("transformers.utils.logging")
            hub = importlib.import_module("huggingface_hub.utils")
        except ImportError as fault:
            raise RegunError(
                f"the model {needed_by!r} needs the package transformers, which cannot be imported ({fault}). "
                "Install it with: pip install 'regun[transformers]'"
            ) from fault
        with _errors_only("transformers"), _errors_only("huggingface_hub"), _no_bars(bars, hub):
            yield package


@contextmanager
def _errors_only(name: str) -> Generator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _no_bars(bars: ModuleType, hub: ModuleType) -> Generator[None]:
    shown, hub_hidden = bars.is_progress_bar_enabled(), hub.are_progress_bars_disabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()  # shows those of huggingface_hub too
        if hub_hidden:
            hub.disable_progress_bars()
        elif not shown:
            hub.enable_progress_bars()
