"""ResNet-18 and ResNet-34, with torchvision's architecture, parameter names and initialization."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regun.models.architecture import ImageSize
from regun.settings import check, setting

DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
STEMS = ("auto", "cifar", "tiny", "imagenet")


@dataclass(frozen=True)
class ResNetSettings:
    """Settings of `resnet18` and `resnet34`."""

    width: int = setting(64, "channels of the first stage; the last has 8 times as many", low=1, high=2**20)
    stem: str = setting(
        "auto",
        "first layer: cifar 3x3 stride 1; tiny 3x3 stride 2; imagenet 7x7 stride 2 and max-pool; "
        "auto: cifar up to 36 pixels, tiny up to 72, else imagenet",
        choices=STEMS,
    )

    def __post_init__(self) -> None:
        check(self, "resnet")


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += shortcut
        return self.relu(out)


class ResNet(nn.Module):
    """Stem, four stages of basic blocks, global mean, linear head; images (N, C, H, W) to logits (N, K)."""

    def __init__(self, depths: tuple[int, ...], channels: int, width: int, stem: str, num_classes: int) -> None:
        super().__init__()
        large = stem == "imagenet"
        stride = 1 if stem == "cifar" else 2
        kernel = 7 if large else 3
        self.conv1 = nn.Conv2d(channels, width, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        self.layer1 = _stage(width, width, depths[0], stride=1)
        self.layer2 = _stage(width, 2 * width, depths[1], stride=2)
        self.layer3 = _stage(2 * width, 4 * width, depths[2], stride=2)
        self.layer4 = _stage(4 * width, 8 * width, depths[3], stride=2)
        self.fc = nn.Linear(8 * width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        # mean, not AdaptiveAvgPool2d: the same numbers, and torch.func.vmap supports it
        return self.fc(torch.mean(x, dim=(2, 3)))


def build_resnet(name: str, settings: ResNetSettings, num_classes: int, image_size: ImageSize) -> nn.Module:
    """Return ResNet-18 or ResNet-34; the first has 11,173,962 parameters with 10 classes and the CIFAR stem."""
    channels, height, width = image_size
    stem, pixels = settings.stem, max(height, width)
    if stem == "auto":
        stem = "cifar" if pixels <= 36 else "tiny" if pixels <= 72 else "imagenet"
    return ResNet(DEPTHS[name], channels, settings.width, stem, num_classes)


def _stage(inputs: int, outputs: int, depth: int, stride: int) -> nn.Sequential:
    first = BasicBlock(inputs, outputs, stride)
    return nn.Sequential(first, *(BasicBlock(outputs, outputs, 1) for _ in range(depth - 1)))
