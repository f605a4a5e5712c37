"""Small classifiers for quick work on a CPU: a convolutional network and a multi-layer perceptron."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regun.errors import RegunError
from regun.models.architecture import ImageSize
from regun.settings import check, setting


@dataclass(frozen=True)
class CnnSettings:
    """Settings of `cnn`."""

    width: int = setting(16, "channels of the first stage; each further stage has twice as many", low=1, high=2**31)

    def __post_init__(self) -> None:
        check(self, "cnn")


@dataclass(frozen=True)
class MlpSettings:
    """Settings of `mlp`."""

    hidden: int = setting(256, "units of each hidden layer", low=1, high=2**31)
    depth: int = setting(2, "number of hidden layers; 0 is logistic regression", low=0, high=1000)
    features: int | None = setting(
        None, "length of a feature vector; none: taken from the image size", low=1, high=10_000_000
    )

    def __post_init__(self) -> None:
        check(self, "mlp")


class Cnn(nn.Module):
    """Stages of two 3x3 convolutions with batch norm, halved in between, then the global mean and a linear head."""

    def __init__(self, channels: int, width: int, stages: int, num_classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for stage in range(stages):
            wide = width * 2**stage
            layers += [*_convolution(channels, wide), *_convolution(wide, wide)]
            layers += [nn.MaxPool2d(2, ceil_mode=True)] if stage < stages - 1 else []
            channels = wide
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.mean(self.features(x), dim=(2, 3)))


def build_cnn(name: str, settings: CnnSettings, num_classes: int, image_size: ImageSize) -> nn.Module:
    """Return a CNN of two stages up to 16 pixels (the 8x8 digits), of three above."""
    channels, height, width = image_size
    return Cnn(channels, settings.width, 2 if max(height, width) <= 16 else 3, num_classes)


def build_mlp(name: str, settings: MlpSettings, num_classes: int, image_size: ImageSize | None) -> nn.Module:
    """Return linear layers with ReLU between, for feature vectors or flattened images."""
    features, pixels = settings.features, None if image_size is None else math.prod(image_size)
    if features is None and pixels is None:
        raise RegunError("mlp needs the length of its inputs: the data has no image size. Set mlp.features=N.")
    if features is not None and pixels is not None and features != pixels:
        raise RegunError(
            f"mlp.features is {features}, but images of size {image_size} have {pixels} values. "
            "Leave mlp.features out for images."
        )
    units = features or pixels or 0
    layers: list[nn.Module] = [nn.Flatten()]
    for _ in range(settings.depth):
        layers += [nn.Linear(units, settings.hidden), nn.ReLU(inplace=True)]
        units = settings.hidden
    return nn.Sequential(*layers, nn.Linear(units, num_classes))


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
