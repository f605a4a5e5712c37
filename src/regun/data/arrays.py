"""Images held as one uint8 array, in memory or memory-mapped: `ArrayExamples`."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from regun import hashing, rng
from regun.data.examples import Batch, Examples, InputPipeline, Transform, channels_last, checked_labels
from regun.devices import send
from regun.errors import DataError
from regun.types import Device, Indices

Images = npt.NDArray[np.uint8]


def content_digest(images: Images, labels: Indices, num_classes: int) -> str:
    """Return the SHA-256 of pixels, labels and the number of classes."""
    return hashing.digest([hashing.digest(images), hashing.digest(labels), num_classes])


@dataclass(frozen=True, eq=False)
class ArrayExamples(Examples):
    """`images` (N, H, W, C) uint8 with int64 `labels`; `pipeline` says how a stored image becomes a model input.

    `precomputed_digest` is the content digest; None computes it when it is first needed.
    """

    images: Images
    labels: Indices
    num_classes: int
    pipeline: InputPipeline
    precomputed_digest: str | None = None

    def __post_init__(self) -> None:
        images, pipeline = self.images, self.pipeline
        if images.dtype != np.uint8 or images.ndim != 4:
            raise DataError(
                f"images are {images.dtype} of shape {images.shape}; give uint8 of shape (N, H, W, C). "
                "Scale floats in [0, 1] by 255 first; add a channel axis with images[..., None]."
            )
        if images.size == 0:
            raise DataError(f"images have shape {images.shape}; give at least one image.")
        object.__setattr__(self, "labels", checked_labels(self.labels, self.num_classes))
        if len(self.labels) != len(images):
            raise DataError(f"there are {len(self.labels)} labels for {len(images)} images; give one per image.")
        if not len(pipeline.mean) == len(pipeline.std) == images.shape[3]:
            raise DataError(
                f"pipeline {pipeline.name!r} has {len(pipeline.mean)} means and {len(pipeline.std)} stds, the images "
                f"have {images.shape[3]} channels; give one of each per channel."
            )
        if not all(math.isfinite(s) and s > 0 for s in pipeline.std):
            raise DataError(f"pipeline {pipeline.name!r} has std {pipeline.std}; each must be above 0.")

    @cached_property
    def digest(self) -> str:
        return self.precomputed_digest or content_digest(self.images, self.labels, self.num_classes)

    def describe_inputs(self) -> dict[str, Any]:
        return self.pipeline.describe()

    @property
    def augments(self) -> bool:
        return bool(self.pipeline.train) or bool(self.pipeline.evaluation)

    def with_pipeline(self, pipeline: InputPipeline) -> "ArrayExamples":
        """Return the same content with another pipeline; a digest that was computed is reused."""
        computed = vars(self).get("digest", self.precomputed_digest)
        return dataclasses.replace(self, pipeline=pipeline, precomputed_digest=computed)

    def select(self, rows: Indices) -> "ArrayExamples":
        """Return the examples at `rows` as a new set."""
        images = np.asarray(self.images)[rows]
        return dataclasses.replace(self, images=images, labels=self.labels[rows], precomputed_digest=None)

    def stored(self, index: Indices) -> Images:
        """Return the images at `index` as they are stored, (B, H, W, C)."""
        return np.take(np.asarray(self.images), index, axis=0)

    def fetch(
        self, indices: Indices, *, augment: bool = False, generator: Generator | None = None, device: Device = "cpu"
    ) -> Batch:
        """Return the examples at `indices`, in that order: x float32 (B, C, H, W), channels_last, normalized.

        `augment` applies the train transforms and needs a `generator`. Otherwise the evaluation transforms apply,
        which never draw from the caller's generator.
        """
        if augment and generator is None:
            raise DataError(
                "fetch(augment=True) needs a generator: augmentation is random. "
                "Pass generator=regun.rng.generator(seed, ...), or augment=False."
            )
        index = checked_index(indices, len(self))
        stored = send(torch.from_numpy(self.stored(index)), device)
        if augment and generator is not None:
            images = _transformed(stored, self.pipeline.train, generator)
        else:
            images = _transformed(stored, self.pipeline.evaluation, rng.generator(0))
        return Batch(
            self.normalise(images), send(torch.from_numpy(self.labels[index]), device), torch.from_numpy(index)
        )

    def pixels(self, indices: Indices, device: Device = "cpu") -> Tensor:
        """Return evaluation inputs in [0, 1] before normalization: `normalise(pixels(i))` is `fetch(i).x`."""
        stored = send(torch.from_numpy(self.stored(checked_index(indices, len(self)))), device)
        images = _transformed(stored, self.pipeline.evaluation, rng.generator(0))
        return channels_last(images.float().div_(255) if images.dtype == torch.uint8 else images.float())

    def normalise(self, x: Tensor) -> Tensor:
        """Return (x - mean) / std per channel of floats in [0, 1], or of uint8 / 255; differentiable in x."""
        n, channels, height, width = x.shape
        # The channels are innermost in memory, and broadcasting over an axis of 3 is ten times slower than over a
        # whole image row: so the constants are repeated along the row.
        divisor = 255.0 if x.dtype == torch.uint8 else 1.0
        scale, shift = _row_constants(self.pipeline.mean, self.pipeline.std, width, divisor, x.device)
        rows = x.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1).reshape(n * height, width * channels)
        return torch.addcmul(shift, rows.float(), scale).view(n, height, width, channels).permute(0, 3, 1, 2)


def _transformed(stored: Tensor, transforms: Sequence[Transform], generator: Generator) -> Tensor:
    """Return stored images (B, H, W, C) after the transforms, as (B, C, H, W)."""
    images = stored.permute(0, 3, 1, 2)
    for transform in transforms:
        images = transform(images, generator)
    return images


@lru_cache(maxsize=32)
def _row_constants(
    mean: tuple[float, ...], std: tuple[float, ...], width: int, divisor: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return 1 / (std divisor) and -mean / std for every value of an image row."""
    deviation = torch.tensor(std, dtype=torch.float64)
    scale, shift = 1 / (deviation * divisor), -torch.tensor(mean, dtype=torch.float64) / deviation
    return send(scale.float().repeat(width), device), send(shift.float().repeat(width), device)


def checked_index(indices: Indices, count: int) -> Indices:
    """Return a copy of the indices as int64; raise if one is not from 0 to count - 1."""
    array: npt.NDArray[Any] = np.asarray(indices)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError(
            f"indices are {array.dtype} of shape {array.shape}; give a one-dimensional array of integers "
            "(for a boolean mask: np.flatnonzero(mask))."
        )
    if array.size and (array.min() < 0 or array.max() >= count):
        position = int(np.flatnonzero((array < 0) | (array >= count))[0])
        raise DataError(
            f"indices[{position}] is {array[position]}; with {count} examples, 0 to {count - 1} are allowed."
        )
    return array.astype(np.int64)  # a copy: the batch must not change when the caller's array does
