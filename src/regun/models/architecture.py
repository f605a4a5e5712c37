"""What is known of a model before it is built."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

ImageSize = tuple[int, int, int]
"""Channels, height and width of the images a model is fed (after any resizing)."""


@dataclass(frozen=True)
class Defaults:
    """What goes with a model unless something else is named."""

    family: str = "resnet"
    """Whose settings of the paper a method takes on it: `resnet` or `swin`."""
    recipe: str = "resnet18-small"
    pipeline: str = "resnet"
    """The input pipeline, unless the data set forces one."""


@dataclass(frozen=True)
class Architecture:
    """One model: what it is, its settings, how it is built from them, and what goes with it."""

    about: str
    settings: type[Any]
    build: Callable[[str, Any, int, Any], nn.Module]
    """From name, settings, number of classes and image size (None only for models that do without images)."""
    defaults: Defaults = Defaults()
    images_only: bool = True
