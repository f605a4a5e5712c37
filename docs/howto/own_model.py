"""A model of your own: a function in a file that takes num_classes and returns a torch module.

Its other parameters are the model's settings; one called image_size gets (channels, height, width). What goes with the
model unless you name something else, the file may say: RECIPE (see `regun recipes`), PIPELINE (an input pipeline) and
FAMILY ("resnet" or "swin": whose settings of the paper the methods take), or the function itself, as build.RECIPE.
The file is part of the key of all that is made with it. Run: python docs/howto/own_model.py

On the command line: regun train --model docs/howto/own_model.py:build,width=16
In a study's TOML: model = "own_model.py:build,width=16"
"""

import tempfile

import torch
from torch import Tensor, nn

from regun.cli import main as regun
from regun.models import ModelSpec, build_model

FAMILY, RECIPE, PIPELINE = "resnet", "digits,epochs=20", "none"


class Mixer(nn.Module):
    """Rows and columns mixed in turn by linear layers."""

    def __init__(self, channels: int, height: int, width: int, hidden: int, num_classes: int) -> None:
        super().__init__()
        self.rows, self.columns = nn.Linear(width, width), nn.Linear(height, height)
        self.hidden = nn.Linear(channels * height * width, hidden)
        self.head = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.columns(torch.relu(self.rows(x)).transpose(2, 3)))
        return self.head(torch.relu(self.hidden(x.flatten(1))))


def build(num_classes: int, image_size: tuple[int, int, int], width: int = 32) -> nn.Module:
    return Mixer(*image_size, width, num_classes)


def main() -> dict[str, int]:
    name = f"{__file__}:build"
    model = build_model(ModelSpec(name, {"width": 16}), num_classes=10, image_size=(1, 8, 8), seed=0)
    count = sum(p.numel() for p in model.parameters())
    print(f"{type(model).__name__} with {count:,} parameters")
    with tempfile.TemporaryDirectory() as store:
        done = regun(["train", "--data", "digits", "--model", f"{name},width=16", "--store", store])
    return {"parameters": count, "command": done}


if __name__ == "__main__":
    main()
