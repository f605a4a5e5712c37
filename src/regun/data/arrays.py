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
from regun.errors import DataError
from regun.types import Device, Indices

Images = npt.NDArray[np.uint8]


def content_digest(images: Images, labels: Indices, num_classes: int) -> str:
    """SHA-256 of what a data set holds: pixels, labels and the number of classes."""
    return hashing.digest([hashing.digest(images), hashing.digest(labels), num_classes])


@dataclass(frozen=True, eq=False)
class ArrayExamples(Examples):
    """`images` (N, H, W, C) uint8 with int64 `labels`; `pipeline` says how a stored image becomes a model input.

    `known_digest` is the content digest where the caller has it already; otherwise it is computed when first asked.
    """

    images: Images
    labels: Indices
    num_classes: int
    pipeline: InputPipeline
    known_digest: str | None = None

    def __post_init__(self) -> None:
        _check_images(self.images)
        object.__setattr__(self, "labels", checked_labels(self.labels, self.num_classes))
        if len(self.labels) != len(self.images):
            raise DataError(f"there are {len(self.labels)} labels for {len(self.images)} images; give one an image.")
        _check_pipeline(self.pipeline, self.images.shape[3])

    @cached_property
    def digest(self) -> str:
        return self.known_digest or content_digest(self.images, self.labels, self.num_classes)

    def describe_inputs(self) -> dict[str, Any]:
        return self.pipeline.describe()

    def with_pipeline(self, pipeline: InputPipeline) -> "ArrayExamples":
        """The same content seen through another pipeline; a digest that was computed is kept."""
        known = vars(self).get("digest", self.known_digest)
        return dataclasses.replace(self, pipeline=pipeline, known_digest=known)

    def chosen(self, rows: Indices) -> "ArrayExamples":
        """The examples at `rows` as a set of their own."""
        images = np.asarray(self.images)[rows]
        return dataclasses.replace(self, images=images, labels=self.labels[rows], known_digest=None)

    def fetch(
        self, indices: Indices, *, augment: bool = False, generator: Generator | None = None, device: Device = "cpu"
    ) -> Batch:
        """The examples at `indices`, in that order: x float32 (B, C, H, W), channels_last, normalised.

        `augment` applies the train transforms and needs a `generator`; without it the evaluation transforms apply,
        and they never draw from the caller's generator.
        """
        if augment and generator is None:
            raise DataError(
                "fetch(augment=True) was called without a generator; augmentation is random. "
                "Pass generator=regun.rng.generator(seed, ...), or augment=False."
            )
        index = _checked_index(indices, len(self))
        if augment and generator is not None:
            images = self._seen(index, self.pipeline.train, generator, device)
        else:
            images = self._seen(index, self.pipeline.evaluation, rng.generator(0), device)
        return Batch(self.normalise(images), torch.from_numpy(self.labels[index]).to(device), torch.from_numpy(index))

    def pixels(self, indices: Indices, device: Device = "cpu") -> Tensor:
        """The evaluation view in [0, 1], float32, before normalisation: `normalise(pixels(i))` is `fetch(i).x`."""
        index = _checked_index(indices, len(self))
        images = self._seen(index, self.pipeline.evaluation, rng.generator(0), device)
        return channels_last(images.float().div_(255) if images.dtype == torch.uint8 else images.float())

    def normalise(self, x: Tensor) -> Tensor:
        """(x - mean) / std per channel of floats in [0, 1], or of uint8 (then x / 255); differentiable in x."""
        n, channels, height, width = x.shape
        # The channels are innermost in memory, and broadcasting over an axis of 3 is ten times slower than over a
        # whole image row: so the constants are repeated along the row.
        divisor = 255.0 if x.dtype == torch.uint8 else 1.0
        scale, shift = _row_constants(self.pipeline.mean, self.pipeline.std, width, divisor, x.device)
        rows = x.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1).reshape(n * height, width * channels)
        return torch.addcmul(shift, rows.float(), scale).view(n, height, width, channels).permute(0, 3, 1, 2)

    def _seen(self, index: Indices, transforms: Sequence[Transform], generator: Generator, device: Device) -> Tensor:
        """The stored images after the transforms, (B, C, H, W)."""
        images = torch.from_numpy(np.take(np.asarray(self.images), index, axis=0)).to(device).permute(0, 3, 1, 2)
        for transform in transforms:
            images = transform(images, generator)
        return images


@lru_cache(maxsize=32)
def _row_constants(
    mean: tuple[float, ...], std: tuple[float, ...], width: int, divisor: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    """1 / (std divisor) and -mean / std for every value of an image row."""
    deviation = torch.tensor(std, dtype=torch.float64)
    scale, shift = 1 / (deviation * divisor), -torch.tensor(mean, dtype=torch.float64) / deviation
    return scale.float().repeat(width).to(device), shift.float().repeat(width).to(device)


def _checked_index(indices: Indices, count: int) -> Indices:
    given: npt.NDArray[Any] = np.asarray(indices)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise DataError(
            f"indices are {given.dtype} of shape {given.shape}; give a one-dimensional array of whole numbers "
            "(for a boolean mask: np.flatnonzero(mask))."
        )
    if given.size and (given.min() < 0 or given.max() >= count):
        position = int(np.flatnonzero((given < 0) | (given >= count))[0])
        raise DataError(
            f"indices[{position}] is {given[position]}; the data set has {count} examples, so 0 to {count - 1} are "
            "allowed. Check that the indices were drawn for this data set."
        )
    return given.astype(np.int64)  # a copy: the batch must not change when the caller's array does


def _check_images(images: npt.NDArray[Any]) -> None:
    if images.dtype != np.uint8 or images.ndim != 4:
        raise DataError(
            f"images are {images.dtype} of shape {images.shape}; give uint8 of shape (N, H, W, C). "
            "Scale floats in [0, 1] by 255 first; add a channel axis with images[..., None]."
        )
    if images.size == 0:
        raise DataError(f"images have shape {images.shape}: there is nothing in them. Give at least one image.")


def _check_pipeline(pipeline: InputPipeline, channels: int) -> None:
    if not len(pipeline.mean) == len(pipeline.std) == channels:
        raise DataError(
            f"pipeline {pipeline.name!r} has {len(pipeline.mean)} means and {len(pipeline.std)} stds, the images have "
            f"{channels} channels; give one of each a channel."
        )
    if not all(math.isfinite(s) and s > 0 for s in pipeline.std):
        raise DataError(f"pipeline {pipeline.name!r} has std {pipeline.std}; each must be above 0.")
