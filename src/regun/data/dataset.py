"""A user's own `torch.utils.data.Dataset` as Examples."""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset, Subset, default_collate  # pyright: ignore[reportUnknownVariableType]

from regun.data.examples import Batch, Examples, by_position, checked_labels, code_of, in_order, named, placed
from regun.errors import DataError
from regun.rng import derive, isolated
from regun.types import Device, Indices, Inputs

LABEL_KEYS = ("labels", "label", "y", "target")


@dataclass(frozen=True, eq=False)
class DatasetExamples(Examples):
    """Items `(x, y)`, `(a, b, ..., y)` or mappings with a label.

    `evaluation` is the same data with the user's test-time transforms. Each item is drawn with random generators seeded
    for its place in the plan, so augmentation is reproducible and the batches do not depend on the number of workers.
    """

    dataset: Dataset[Any]
    num_classes: int
    evaluation: Dataset[Any] | None = None
    collate: Callable[[list[Any]], Any] = default_collate  # pyright: ignore[reportUnknownVariableType]
    workers: int = 0
    known_labels: Sequence[int] | Indices | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        sizes = [len(cast(Sized, d)) for d in (self.dataset, self.evaluation) if d is not None]
        if len(set(sizes)) != 1:
            raise DataError(f"the dataset has {sizes[0]} items, its evaluation view {sizes[-1]}; they must match.")
        if sizes[0] == 0:
            raise DataError("the dataset is empty; give one with at least one item.")

    @cached_property
    def labels(self) -> Indices:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those the dataset states, or else those found in its items."""
        return self.labels_at(np.arange(len(self)))

    def labels_at(self, indices: Indices) -> Indices:
        """Items whose label is not stated and that were never read are read for it, each once."""
        if self.stated_labels is not None:
            return self.stated_labels[indices]
        unread = np.unique(indices[self._seen_labels[indices] < 0])
        for _ in self.stream([unread[part] for part in in_order(len(unread))] if len(unread) else []):
            pass  # every batch leaves its labels behind
        return self._seen_labels[indices]

    def __len__(self) -> int:
        return len(cast(Sized, self.dataset))

    @cached_property
    def _seen_labels(self) -> Indices:
        """The labels of the items that were read so far; -1 for the others."""
        return np.full(len(self), -1, dtype=np.int64)

    @cached_property
    def stated_labels(self) -> Indices | None:
        """`known_labels`, or the dataset's `targets` or `labels`; those of the dataset behind it for a Subset."""
        known = self.known_labels if self.known_labels is not None else _stated_by(self.dataset)
        if known is None:
            return None
        labels = checked_labels(known, self.num_classes)
        if len(labels) != len(self):
            raise DataError(f"{len(labels)} labels for {len(self)} items; give one for each.")
        return labels

    def describe_inputs(self) -> dict[str, Any]:
        """Also the class that gives the items, and the digest of its file: augmentation happens there."""
        dataset = self.dataset
        while isinstance(dataset, Subset):
            dataset = dataset.dataset
        kind = type(dataset)
        return {**super().describe_inputs(), "class": kind.__qualname__, "items": code_of(kind)}

    def fetch(
        self, indices: Indices, *, augment: bool = False, generator: Generator | None = None, device: Device = "cpu"
    ) -> Batch:
        seed = generator.initial_seed() if generator is not None else 0
        view = _Seeded(self._view(augment))
        items = [view[derive(seed, place), int(i)] for place, i in enumerate(indices)]
        return self._batch(_Collate(self.collate)(items), indices, device)

    def stream(
        self, plan: Sequence[Indices], *, augment: bool = False, seed: int = 0, first: int = 0, device: Device = "cpu"
    ) -> Iterator[Batch]:
        """The loader's own way, so that its workers read ahead."""
        keys = [
            [(derive(own, place), int(i)) for place, i in enumerate(indices)]
            for own, indices in ((derive(seed, number), indices) for number, indices in enumerate(plan, start=first))
        ]
        loader: DataLoader[Any] = DataLoader(
            _Seeded(self._view(augment)),
            batch_sampler=cast(Any, keys),
            collate_fn=_Collate(self.collate),
            num_workers=self.workers,
            generator=torch.Generator().manual_seed(seed),  # else the loader draws from the global generator
        )
        for indices, collated in zip(plan, loader, strict=True):
            yield self._batch(collated, indices, device)

    def _view(self, augment: bool) -> Dataset[Any]:
        return self.dataset if augment or self.evaluation is None else self.evaluation

    def _batch(self, collated: Any, indices: Indices, device: Device) -> Batch:
        if isinstance(collated, _Failure):
            raise collated.error()
        x, y = _parts(collated)
        labels = _checked_labels(y, indices, self.stated_labels, self.num_classes)
        self._seen_labels[indices] = labels.numpy()
        for name, part in named(x).items():
            _check_input(name, part, indices)
        return Batch(placed(x, device), labels.to(device), torch.from_numpy(indices))


@dataclass(frozen=True)
class _Failure:
    """A fault on its way out of a worker process, where an exception would lose its shape."""

    text: str
    trace: str

    def error(self) -> DataError:
        error = DataError(self.text)
        error.add_note(self.trace)
        return error


class _Seeded(Dataset[Any]):
    """Items by (seed, index): whatever randomness the item uses starts from that seed and leaves no trace."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __getitem__(self, index: tuple[int, int]) -> Any:
        seed, number = index
        with isolated(seed):
            try:
                return self.dataset[number]
            except (Exception, SystemExit) as fault:
                text = f"item {number} of the dataset could not be read: {type(fault).__name__}: {fault}"
                return _Failure(text, traceback.format_exc())


@dataclass(frozen=True)
class _Collate:
    """The user's collate function; an item or a batch that fails comes out as a `_Failure`."""

    collate: Callable[[list[Any]], Any]

    def __call__(self, items: list[Any]) -> Any:
        failed = next((item for item in items if isinstance(item, _Failure)), None)
        if failed is not None:
            return failed
        try:
            return self.collate(items)
        except Exception as fault:
            text = f"a batch could not be collated: {type(fault).__name__}: {fault}. Give items that are tensors of"
            return _Failure(f"{text} one shape, or your own collate function.", traceback.format_exc())


def _stated_by(dataset: Any) -> Sequence[int] | Indices | None:
    for name in ("targets", "labels"):
        if getattr(dataset, name, None) is not None:
            return getattr(dataset, name)
    if not isinstance(dataset, Subset):
        return None
    subset = cast("Subset[Any]", dataset)
    whole = _stated_by(subset.dataset)
    if whole is None or len(whole) != len(cast(Sized, subset.dataset)):
        return None
    return np.asarray(whole)[np.asarray(subset.indices, dtype=np.int64)]


def _parts(collated: Any) -> tuple[Inputs, Any]:
    """Inputs and labels of a collated batch: `(x, y)`, `(a, b, ..., y)`, or a mapping with the labels by a usual name.

    Several inputs go to the model by position.
    """
    if isinstance(collated, Mapping):
        mapping = cast("Mapping[str, Any]", collated)
        key = next((k for k in LABEL_KEYS if k in mapping), None)
        if key is None:
            raise DataError(f"a batch has the keys {list(mapping)}; its labels must stand under one of {LABEL_KEYS}.")
        return {k: v for k, v in mapping.items() if k != key}, mapping[key]
    if isinstance(collated, list | tuple) and len(cast("list[Any]", collated)) >= 2:
        *inputs, y = cast("list[Any]", collated)
        x = inputs[0] if len(inputs) == 1 else inputs
        return by_position(cast("list[Tensor]", x)) if isinstance(x, list | tuple) else x, y
    kind = type(cast(object, collated)).__name__
    raise DataError(
        f"a batch is a {kind}; items must be (x, y), (a, b, ..., y) or mappings with a label. For any other, give a "
        f"DataLoader with collate_fn=a function from a list of items to one of these."
    )


def _checked_labels(y: Any, indices: Indices, stated: Indices | None, classes: int) -> Tensor:
    """A batch's labels: one whole number an item, below `classes`, the same that the dataset states."""
    try:
        given = torch.as_tensor(y)
    except (TypeError, ValueError, RuntimeError):
        raise DataError(f"labels are {y!r}; give class numbers.") from None
    labels = given.long()
    if given.shape != (len(indices),) or not torch.equal(labels.to(given.dtype), given):
        raise DataError(
            f"a batch of {len(indices)} items has labels of shape {tuple(given.shape)} and type {given.dtype}; "
            f"give one whole number for each item."
        )
    wrong = ((labels < 0) | (labels >= classes)).nonzero()
    if len(wrong):
        place = int(wrong[0])
        raise DataError(
            f"item {indices[place]} has the label {int(labels[place])}; with {classes} classes, 0 to {classes - 1} are "
            f"allowed: check num_classes, or renumber the labels from 0. (The label is the last part of an item.)"
        )
    if stated is not None and not np.array_equal(labels.numpy(), stated[indices]):
        place = int(np.flatnonzero(labels.numpy() != stated[indices])[0])
        raise DataError(
            f"item {indices[place]} has the label {int(labels[place])}, but the dataset's list of labels says "
            f"{stated[indices[place]]}; pass the labels that its items have as known_labels."
        )
    return labels


def _check_input(name: str, part: Any, indices: Indices) -> None:
    """Refuse what is not a tensor with one finite row for each item."""
    if not isinstance(part, Tensor):
        raise DataError(f"input {name!r} of a batch is a {type(part).__name__}; give tensors only.")
    if part.shape[:1] != (len(indices),):
        raise DataError(
            f"input {name!r} has shape {tuple(part.shape)} for {len(indices)} items; give one row for each."
        )
    finite = torch.isfinite(part).reshape(len(indices), -1).all(1)
    if not bool(finite.all()):
        item = indices[int((~finite).nonzero()[0])]
        raise DataError(f"input {name!r} holds NaN or infinity in item {item}; clean the data.")
