"""The interface of every data set: `Examples`, and the `Batch` it returns."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from regun import hashing, rng
from regun.devices import send
from regun.errors import LabelError
from regun.hashing import code_digest
from regun.plugins import source_digest
from regun.types import Device, Indices, Inputs

ProgressCallback = Callable[[int, int], None]
"""Called with the amount done and the total, or 0 without one: bytes of a download, images decoded."""


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

    def __call__(self, images: Tensor, generator: Generator) -> Tensor: ...

    def describe(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class InputPipeline:
    """Turns stored uint8 images into model inputs: train or evaluation transforms, then (x - mean) / std."""

    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    train: tuple[Transform, ...] = ()
    evaluation: tuple[Transform, ...] = ()

    def describe(self) -> dict[str, Any]:
        """Return what decides a model input, as JSON for the content key, with digests of the code."""
        return {
            "mean": list(self.mean),
            "std": list(self.std),
            "train": [{**t.describe(), "code": code_of(type(t))} for t in self.train],
            "evaluation": [{**t.describe(), "code": code_of(type(t))} for t in self.evaluation],
            "code": code_digest("regun.data.arrays"),
        }


class Examples(ABC):
    """Labelled examples that can be fetched by index; all randomness comes from the generator passed in.

    A subclass defines `labels`, `num_classes` and `fetch`; the rest follows from them.
    """

    labels: Indices
    """Label of every example, int64, 0 <= label < num_classes."""
    num_classes: int

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def augments(self) -> bool:
        """True if `fetch(augment=True)` may return other inputs than `fetch`."""
        return True

    def labels_at(self, indices: Indices) -> Indices:
        """Return the labels of these examples; a set that must read examples for them reads only these."""
        return self.labels[indices]

    @abstractmethod
    def fetch(
        self, indices: Indices, *, augment: bool = False, generator: Generator | None = None, device: Device = "cpu"
    ) -> Batch:
        """Return the examples at `indices`, in that order, as one batch on `device`."""

    def stream(
        self, plan: Sequence[Indices], *, augment: bool = False, seed: int = 0, first: int = 0, device: Device = "cpu"
    ) -> Iterator[Batch]:
        """Yield the planned batches in order; the i-th draws from a generator derived from (seed, first + i)."""
        for number, indices in enumerate(plan, start=first):
            generator = rng.generator(seed, number) if augment else None
            yield self.fetch(indices, augment=augment, generator=generator, device=device)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content: inputs without augmentation, and labels."""
        inputs = [
            hashing.digest(
                {name: hashing.digest(t.detach().contiguous().numpy()) for name, t in named(batch.x).items()}
            )
            for batch in self.stream(batch_plan(len(self)))
        ]
        return hashing.digest([*inputs, hashing.digest(self.labels)])

    def describe_inputs(self) -> dict[str, Any]:
        """Return what turns stored examples into model inputs, as JSON, for the content key of a training."""
        return {"kind": type(self).__name__, "code": code_of(type(self))}


@runtime_checkable
class PixelExamples(Protocol):
    """Image examples that also offer their pixels in [0, 1], before normalization."""

    def pixels(self, indices: Indices, device: Device = "cpu") -> Tensor: ...

    def normalise(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Data:
    """A data set: training and test examples, and as published the shape of its images and the names of its classes."""

    name: str
    train: Examples
    test: Examples
    image_size: tuple[int, int, int] | None = None
    class_names: tuple[str, ...] = ()
    original_pipeline: InputPipeline | None = None
    """The input pipeline the images came with, if another one is in use."""


def checked_labels(labels: npt.ArrayLike, num_classes: int) -> Indices:
    """Return the labels as int64; raise if one is not an integer from 0 to num_classes - 1."""
    try:
        array = np.asarray(labels)
    except ValueError:
        raise LabelError("labels are lists of different lengths; give one integer per example.") from None
    if array.ndim != 1 or not len(array):
        raise LabelError(f"labels have shape {array.shape}; give one integer per example.")
    if array.dtype.kind not in "biu":
        raise LabelError(f"labels are {array.dtype}; give class numbers: integers from 0.")
    wrong = np.flatnonzero(array < 0)
    if wrong.size:
        raise LabelError(f"labels[{wrong[0]}] is {array[wrong[0]]}; give class numbers: integers from 0.")
    wrong = np.flatnonzero(array >= num_classes)
    if wrong.size:
        raise LabelError(
            f"labels[{wrong[0]}] is {array[wrong[0]]}; with {num_classes} classes, 0 to {num_classes - 1} are allowed. "
            f"{wrong.size} labels are out of range: check num_classes, or renumber the labels from 0."
        )
    return array.astype(np.int64)


def code_of(kind: type) -> str:
    """Return the digest of the code of a class: with all it imports if it is regun's, else of its file."""
    builtin = kind.__module__.partition(".")[0] == "regun"
    return code_digest(kind.__module__) if builtin else source_digest(kind, kind.__qualname__)


def batch_plan(count: int, size: int = 256) -> list[Indices]:
    """Return a plan of batches that goes once through `count` examples."""
    return np.split(np.arange(count, dtype=np.int64), range(size, count, size))


def named(x: Inputs) -> Mapping[str, Tensor]:
    """Return inputs by name; a bare tensor is called x."""
    return x if isinstance(x, Mapping) else {"x": x}


def by_position(parts: Sequence[Tensor]) -> Mapping[str, Tensor]:
    """Return inputs that a model takes by position as a mapping with the names 0, 1, ..."""
    return {str(position): part for position, part in enumerate(parts)}


def to_device(x: Inputs, device: Device) -> Inputs:
    """Return inputs on the device, image batches in the memory layout that convolutions prefer."""
    if isinstance(x, Tensor):
        return channels_last(send(x, device))
    return {name: send(part, device) for name, part in x.items()}


def channels_last(x: Tensor) -> Tensor:
    """Return image batches in the memory layout that convolutions prefer, other tensors as they are."""
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def with_indices(batches: Iterator[Batch], plan: Sequence[Indices]) -> Iterator[Batch]:
    """Yield batches of another set with the indices of this plan."""
    for indices, batch in zip(plan, batches, strict=True):
        yield Batch(batch.x, batch.y, torch.from_numpy(indices))
