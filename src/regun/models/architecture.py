"""`Architecture`: how a model is built, and its default recipe and input pipeline."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

ImageSize = tuple[int, int, int]
"""Channels, height and width of the model's input (after any resizing)."""


@dataclass(frozen=True)
class Defaults:
    """Defaults of a model."""

    family: str = "resnet"
    """The paper's settings that methods use: those of `resnet` or `swin`."""
    recipe: str = "resnet18-small"
    pipeline: str = "resnet"
    """The input pipeline, unless the data set forces one."""


@dataclass(frozen=True)
class Architecture:
    """One model: a line about it, its settings class, the function that builds it, and its defaults."""

    about: str
    settings: type[Any]
    build: Callable[[str, Any, int, Any], nn.Module]
    """Called with name, settings, number of classes and image size (None only if not `images_only`)."""
    defaults: Defaults = Defaults()
    images_only: bool = True
