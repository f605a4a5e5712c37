"""A data set of your own: a function in a file that returns regun.data.Data, or a pair (train, test).

Its parameters are the data set's settings; limit and test_limit come by themselves. A part may be images with the
pipeline that makes them model inputs, as here, a pair of tensors (inputs, labels), a torch Dataset, or a class of your
own that inherits from regun.data.Examples. What is made from it is named by its content: change a pixel and nothing
old is mistaken for new. Run: python docs/howto/own_data.py

On the command line: regun train --data docs/howto/own_data.py:load,noise=80 --model cnn
In a study's TOML, the file beside it: data = "own_data.py:load,noise=80,limit=600"
"""

import tempfile

import numpy as np
import torch
from torch import Generator, Tensor

from regun.cli import main as regun
from regun.data import ArrayExamples, Data, InputPipeline
from regun.data.registry import DataSpec, load_data

CLASSES = ("vertical", "horizontal", "diagonal")


class Roll:
    """An augmentation of one's own: each image moves sideways by 0 to 3 pixels; its file is part of every key."""

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        moves = torch.randint(4, (len(images),), generator=generator).tolist()
        return torch.stack([image.roll(move, -1) for image, move in zip(images, moves, strict=True)])

    def describe(self) -> dict[str, str]:
        return {"transform": "Roll"}


def load(noise: int = 60, images: int = 900, seed: int = 0) -> Data:
    """Grey 8x8 images of stripes in three directions, with noise; a third is for testing."""
    draw = np.random.default_rng(seed)
    labels = np.arange(images) % len(CLASSES)
    row, column = np.mgrid[:8, :8]
    phase = np.array([column, row, row + column])[labels] + draw.integers(0, 4, images)[:, None, None]
    pixels = 255 * (phase % 4 < 2) + noise * draw.standard_normal(phase.shape)
    stored = np.clip(pixels, 0, 255).astype(np.uint8)[..., None]
    pipeline = InputPipeline("stripes", mean=(0.5,), std=(0.5,), train=(Roll(),))
    cut = images // 3
    test, train = (ArrayExamples(stored[part], labels[part], 3, pipeline) for part in (slice(cut), slice(cut, None)))
    return Data("stripes", train, test, class_names=CLASSES)


def main() -> dict[str, int]:
    data = load_data(DataSpec.read(f"{__file__}:load", {"noise": 80, "limit": 300}), "own")
    print(f"{len(data.train)} images to train on, {len(data.test)} to test with, content {data.train.digest[:12]}")
    with tempfile.TemporaryDirectory() as store:
        text = f"{__file__}:load,noise=80,limit=300"
        done = regun(["train", "--data", text, "--model", "cnn", "--recipe", "digits,epochs=3", "--store", store])
    return {"train": len(data.train), "test": len(data.test), "command": done}


if __name__ == "__main__":
    main()
