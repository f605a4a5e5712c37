"""Forget some images of a convolutional network in the style of torchvision, with transforms of your own.

The data set is an ordinary torch Dataset whose items are transformed when they are fetched; forget, retain and held-out
sets are Subsets of one Dataset, and regun refuses them if they overlap. Run: python docs/howto/image_model.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

import regun
from regun.auditing import Evaluation
from regun.errors import DataError


class Digits(Dataset):
    """Grey 8x8 images with a transform, as torchvision's data sets have one."""

    def __init__(self, transform) -> None:
        images, targets = load_digits(return_X_y=True)
        noise = np.random.default_rng(0).normal(0, 5, images.shape)
        self.images, self.targets = (images + noise).reshape(-1, 1, 8, 8).astype(np.float32), targets.tolist()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.transform(self.images[i]), self.targets[i]


def normalise(image: np.ndarray) -> Tensor:
    return (torch.from_numpy(image) - 8) / 8


class BasicBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))).relu()


def new_model(seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        return nn.Sequential(stem, BasicBlock(16), nn.AvgPool2d(2), BasicBlock(16), nn.Flatten(), nn.Linear(256, 10))


def train(model: nn.Module, data: Dataset) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(12):
        for x, y in DataLoader(data, 64, shuffle=True, generator=torch.Generator().manual_seed(epoch)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return model


def main() -> tuple[regun.Outcome, Evaluation]:
    data = Digits(normalise)
    cuts = {"forget": (0, 60), "retain": (60, 700), "heldout": (700, 1000), "test": (1000, 1797)}
    sets = {name: Subset(data, range(a, b)) for name, (a, b) in cuts.items()}
    base = train(new_model(0), Subset(data, range(700)))
    known = {name: sets[name] for name in ("forget", "retain", "heldout")}
    try:
        regun.unlearn(base, **{**known, "heldout": Subset(data, range(650, 750))})
    except DataError as refusal:
        print(f"refused: {refusal}")
    recipe = {"epochs": 12, "batch_size": 64, "lr": 0.05}
    outcome = regun.unlearn(base, **known, recipe=recipe, rebuild=new_model)
    print(outcome, end="\n\n")
    report = regun.audit(outcome.model, before=base, **known, test=sets["test"])
    print(report)
    return outcome, report


if __name__ == "__main__":
    main()
