"""`DatasetExamples`: a user's `torch.utils.data.Dataset` as Examples."""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset, Subset, default_collate  # pyright: ignore[reportUnknownVariableType]

from regun.data.examples import Batch, Examples, batch_plan, by_position, checked_labels, code_of, named, to_device
from regun.devices import send
from regun.errors import DataError
from regun.rng import derive, isolated
from regun.types import Device, Indices, Inputs

LABEL_KEYS = ("labels", "label", "y", "target")


@dataclass(frozen=True, eq=False)
class DatasetExamples(Examples):
    """Items `(x, y)`, `(a, b, ..., y)` or mappings with a label.

    `evaluation` is the same data with the user's test-time transforms; `item_labels` are the labels, if the dataset
    does not list them. The global random generators are seeded for each item by its position in the plan, so that
    augmentation is reproducible and does not depend on the number of workers.
    """

    dataset: Dataset[Any]
    num_classes: int
    evaluation: Dataset[Any] | None = None
    collate: Callable[[list[Any]], Any] = default_collate  # pyright: ignore[reportUnknownVariableType]
    workers: int = 0
    item_labels: Sequence[int] | Indices | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        sizes = [len(cast(Sized, d)) for d in (self.dataset, self.evaluation) if d is not None]
        if len(set(sizes)) != 1:
            raise DataError(f"the dataset has {sizes[0]} items, but evaluation has {sizes[-1]}; they must match.")
        if sizes[0] == 0:
            raise DataError("the dataset is empty; give one with at least one item.")

    @cached_property
    def labels(self) -> Indices:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Labels that the dataset lists, or else those of its items."""
        return self.labels_at(np.arange(len(self)))

    def labels_at(self, indices: Indices) -> Indices:
        """Return labels; an item is read for its label at most once, and only if the dataset does not list it."""
        if self.listed_labels is not None:
            return self.listed_labels[indices]
        unread = np.unique(indices[self._read_labels[indices] < 0])
        for _ in self.stream([unread[part] for part in batch_plan(len(unread))] if len(unread) else []):
            pass  # `_batch` stores the labels of every batch
        return self._read_labels[indices]

    def __len__(self) -> int:
        return len(cast(Sized, self.dataset))

    @cached_property
    def _read_labels(self) -> Indices:
        """Labels of the items that were read so far, -1 for other items."""
        return np.full(len(self), -1, dtype=np.int64)

    @cached_property
    def listed_labels(self) -> Indices | None:
        """`item_labels`, or the `targets` or `labels` of the dataset or of the dataset behind a Subset."""
        listed = self.item_labels if self.item_labels is not None else _dataset_labels(self.dataset)
        if listed is None:
            return None
        labels = checked_labels(listed, self.num_classes)
        if len(labels) != len(self):
            raise DataError(f"there are {len(labels)} labels for {len(self)} items; give one per item.")
        return labels

    @property
    def augments(self) -> bool:
        """True if there is a plain version of the records; otherwise both are the same."""
        return self.evaluation is not None

    def describe_inputs(self) -> dict[str, Any]:
        """Return also the class of the dataset and the digest of its file: augmentation happens there."""
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
        items = [view[derive(seed, position), int(i)] for position, i in enumerate(indices)]
        return self._batch(_Collate(self.collate)(items), indices, device)

    def stream(
        self, plan: Sequence[Indices], *, augment: bool = False, seed: int = 0, first: int = 0, device: Device = "cpu"
    ) -> Iterator[Batch]:
        """Yield the planned batches from a DataLoader, whose workers read ahead."""
        keys = [
            [(derive(batch_seed, position), int(i)) for position, i in enumerate(indices)]
            for batch_seed, indices in ((derive(seed, n), indices) for n, indices in enumerate(plan, start=first))
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
        """Return a collated batch with its labels checked; raise if an input is not finite or not one row per item."""
        if isinstance(collated, _Failure):
            error = DataError(collated.text)
            error.add_note(collated.trace)
            raise error
        x, y = _parts(collated)
        labels = _checked_labels(y, indices, self.listed_labels, self.num_classes)
        self._read_labels[indices] = labels.numpy()
        for name, part in named(x).items():
            if not isinstance(part, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise DataError(f"input {name!r} of a batch is a {type(part).__name__}; give tensors only.")
            if part.shape[:1] != (len(indices),):
                raise DataError(
                    f"input {name!r} has shape {tuple(part.shape)} for {len(indices)} items; give one row per item."
                )
            finite = torch.isfinite(part).reshape(len(indices), -1).all(1)
            if not bool(finite.all()):
                item = indices[int((~finite).nonzero()[0])]
                raise DataError(f"input {name!r} holds NaN or infinity in item {item}; clean the data.")
        return Batch(to_device(x, device), send(labels, device), torch.from_numpy(indices))


@dataclass(frozen=True)
class _Failure:
    """An error on its way out of a worker process, where an exception would lose its type."""

    text: str
    trace: str


class _Seeded(Dataset[Any]):
    """Items by (seed, index): the global generators are seeded for the item and restored afterwards."""

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
    """The user's collate function; it returns a `_Failure` for an item or a batch that fails."""

    collate: Callable[[list[Any]], Any]

    def __call__(self, items: list[Any]) -> Any:
        failed = next((item for item in items if isinstance(item, _Failure)), None)
        if failed is not None:
            return failed
        try:
            return self.collate(items)
        except Exception as fault:
            text = f"a batch could not be collated: {type(fault).__name__}: {fault}. Give tensors of one shape, or"
            return _Failure(f"{text} pass a collate function.", traceback.format_exc())


def _dataset_labels(dataset: Any) -> Sequence[int] | Indices | None:
    """Return `targets` or `labels` of a dataset, or of the one behind a Subset; None if it has neither."""
    for name in ("targets", "labels"):
        if getattr(dataset, name, None) is not None:
            return getattr(dataset, name)
    if not isinstance(dataset, Subset):
        return None
    subset = cast("Subset[Any]", dataset)
    whole = _dataset_labels(subset.dataset)
    if whole is None or len(whole) != len(cast(Sized, subset.dataset)):
        return None
    return np.asarray(whole)[np.asarray(subset.indices, dtype=np.int64)]


def _parts(collated: Any) -> tuple[Inputs, Any]:
    """Return inputs and labels of a collated batch: `(x, y)`, `(a, b, ..., y)`, or a mapping with one of `LABEL_KEYS`.

    Several inputs go to the model by position.
    """
    if isinstance(collated, Mapping):
        mapping = cast("Mapping[str, Any]", collated)
        key = next((k for k in LABEL_KEYS if k in mapping), None)
        if key is None:
            raise DataError(f"a batch has the keys {list(mapping)}; one of {LABEL_KEYS} must hold its labels.")
        return {k: v for k, v in mapping.items() if k != key}, mapping[key]
    if isinstance(collated, list | tuple) and len(cast("list[Any]", collated)) >= 2:
        *inputs, y = cast("list[Any]", collated)
        x = inputs[0] if len(inputs) == 1 else inputs
        return by_position(cast("list[Tensor]", x)) if isinstance(x, list | tuple) else x, y
    kind = type(cast(object, collated)).__name__
    raise DataError(
        f"a batch is a {kind}; items must be (x, y), (a, b, ..., y) or mappings with a label. For other items, pass a "
        f"DataLoader with a collate_fn that returns one of these."
    )


def _checked_labels(y: Any, indices: Indices, listed: Indices | None, classes: int) -> Tensor:
    """Return the labels of a batch; raise unless each is an integer below `classes` and as the dataset lists it."""
    try:
        raw = torch.as_tensor(y)
    except (TypeError, ValueError, RuntimeError):
        raise DataError(f"labels are {y!r}; give class numbers.") from None
    labels = raw.long()
    if raw.shape != (len(indices),) or not torch.equal(labels.to(raw.dtype), raw):
        raise DataError(
            f"a batch of {len(indices)} items has labels of shape {tuple(raw.shape)} and type {raw.dtype}; "
            f"give one integer per item."
        )
    wrong = ((labels < 0) | (labels >= classes)).nonzero()
    if len(wrong):
        item, label = indices[int(wrong[0])], int(labels[int(wrong[0])])
        raise DataError(
            f"item {item} has the label {label}; with {classes} classes, 0 to {classes - 1} are allowed: check "
            f"num_classes, or renumber the labels from 0. (The label is the last part of an item.)"
        )
    if listed is not None and not np.array_equal(labels.numpy(), listed[indices]):
        position = int(np.flatnonzero(labels.numpy() != listed[indices])[0])
        item, label = indices[position], int(labels[position])
        raise DataError(
            f"item {item} has the label {label}, but the dataset lists {listed[item]}; pass the labels of the items "
            f"as item_labels."
        )
    return labels
