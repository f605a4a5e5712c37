"""What every data set offers: `Examples`, and the `Batch` it gives."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regun.errors import DataError

Indices = npt.NDArray[np.int64]
Inputs = Tensor | Mapping[str, Tensor]


@dataclass(frozen=True)
class Batch:
    """Inputs `x` (a tensor or a mapping of tensors), labels `y`, and the `indices` they came from."""

    x: Inputs
    y: Tensor
    indices: Tensor

    def __len__(self) -> int:
        return len(self.y)


class Transform(Protocol):
    """One batched image transform: NCHW in, NCHW out; every random number comes from `generator`.

    Batches are uint8 up to and including the first transform that needs floats; floats are in [0, 1].
    `describe` names the transform and its settings for the content key.
    """

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor: ...

    def describe(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class InputPipeline:
    """How stored uint8 images become model inputs: train transforms or eval transforms, then (x - mean) / std."""

    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    train: tuple[Transform, ...] = ()
    evaluation: tuple[Transform, ...] = ()

    def describe(self) -> dict[str, Any]:
        return {
            "mean": list(self.mean),
            "std": list(self.std),
            "train": [t.describe() for t in self.train],
            "evaluation": [t.describe() for t in self.evaluation],
        }


class Examples(Protocol):
    """Labelled examples that can be fetched by index; all randomness comes from the generator that is passed in."""

    @property
    def labels(self) -> Indices:
        """Label of every example, int64, 0 <= label < num_classes."""
        ...

    @property
    def num_classes(self) -> int: ...

    @property
    def digest(self) -> str:
        """SHA-256 of the content (inputs and labels)."""
        ...

    def describe_inputs(self) -> dict[str, Any]:
        """What turns stored examples into model inputs, as JSON, for the content key of a training."""
        ...

    def fetch(
        self,
        indices: Indices,
        *,
        augment: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> Batch:
        """The examples at `indices`, in that order, as one batch on `device`."""
        ...

    def stream(
        self,
        plan: Sequence[Indices],
        *,
        augment: bool = False,
        seed: int = 0,
        first: int = 0,
        device: torch.device | str = "cpu",
    ) -> Iterator[Batch]:
        """The planned batches in order; the i-th draws from its own generator, derived from (seed, first + i)."""
        ...


@runtime_checkable
class PixelExamples(Examples, Protocol):
    """Image examples that can also be had as pixels in [0, 1], before normalisation."""

    def pixels(self, indices: Indices, device: torch.device | str = "cpu") -> Tensor: ...

    def normalise(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Data:
    """A data set as published: training and test examples, and how its images are shaped (None for other inputs)."""

    name: str
    train: Examples
    test: Examples
    image_size: tuple[int, int, int] | None
    class_names: tuple[str, ...] = ()


def checked_labels(labels: npt.ArrayLike, num_classes: int) -> Indices:
    """Labels as int64, refused when one is out of range or not a whole number."""
    try:
        given = np.asarray(labels)
    except ValueError:
        raise DataError("labels are lists of different lengths; give one whole number for each example.") from None
    if given.ndim != 1 or not len(given):
        raise DataError(f"labels have shape {given.shape}; give one whole number for each example.")
    numeric = given.dtype.kind in "biuf"
    with np.errstate(invalid="ignore"):  # NaN, refused below
        whole = given.astype(np.int64) if numeric else np.empty(0, dtype=np.int64)
    if not numeric or not np.array_equal(whole, given):
        raise DataError(f"labels are {given.dtype} and not whole numbers; give class numbers 0 to {num_classes - 1}.")
    wrong = np.flatnonzero((whole < 0) | (whole >= num_classes))
    if wrong.size:
        raise DataError(
            f"labels[{wrong[0]}] is {whole[wrong[0]]}; with {num_classes} classes, 0 to {num_classes - 1} are allowed. "
            f"{wrong.size} labels are out of range: check num_classes, or renumber the labels from 0."
        )
    return whole


def channels_last(x: Tensor) -> Tensor:
    """Image batches in the memory layout convolutions prefer; anything else as it is."""
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
