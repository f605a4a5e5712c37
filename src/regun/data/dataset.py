"""A user's own `torch.utils.data.Dataset` as Examples.

Belongs here: `DatasetExamples`, which keeps the user's transforms and collate function and lets worker processes
prefetch along the planned batches. Does not: any transform of its own. May import: examples, seeds, errors.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from regun.data.examples import Batch, Indices, Inputs, channels_last, checked_labels
from regun.errors import DataError
from regun.seeds import derive, digest, isolated

LABEL_KEYS = ("labels", "label", "y", "target")


@dataclass(frozen=True)
class DatasetExamples:
    """Items `(x, y)` or mappings with a label; `evaluation` is the same data with the user's test-time transforms.

    Each item is drawn with random generators seeded for its place in the plan, so augmentation is reproducible and
    the batches do not depend on the number of workers.
    """

    dataset: Dataset[Any]
    num_classes: int
    evaluation: Dataset[Any] | None = None
    collate: Callable[[list[Any]], Any] = default_collate
    workers: int = 0
    known_labels: Sequence[int] | Indices | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        sizes = [len(cast(Sized, d)) for d in (self.dataset, self.evaluation) if d is not None]
        if len(set(sizes)) != 1:
            raise DataError(f"the dataset has {sizes[0]} items, its evaluation view {sizes[-1]}; they must match.")
        if sizes[0] == 0:
            raise DataError("the dataset is empty; give one with at least one item.")

    @property
    def labels(self) -> Indices:
        return self._all_labels

    @cached_property
    def _all_labels(self) -> Indices:
        """From `known_labels`, the dataset's `targets` or `labels`, or else one pass over all items."""
        known = self.known_labels
        for name in ("targets", "labels"):
            if known is None:
                known = cast("Sequence[int] | None", getattr(self.dataset, name, None))
        if known is None:
            known = np.concatenate([b.y.numpy() for b in self._everything()])
        labels = checked_labels(np.asarray(known), self.num_classes)
        if len(labels) != len(cast(Sized, self.dataset)):
            raise DataError(f"{len(labels)} labels for {len(cast(Sized, self.dataset))} items; give one for each.")
        return labels

    @property
    def digest(self) -> str:
        return self._content_digest

    @cached_property
    def _content_digest(self) -> str:
        """One pass over all items in evaluation form."""
        parts: list[str] = []
        for batch in self._everything():
            x = {"x": batch.x} if isinstance(batch.x, Tensor) else batch.x
            parts.append(digest({name: digest(t.contiguous().numpy()) for name, t in x.items()}))
        return digest([*parts, digest(self.labels)])

    def describe_inputs(self) -> dict[str, Any]:
        return {"kind": "dataset", "class": f"{type(self.dataset).__module__}.{type(self.dataset).__qualname__}"}

    def fetch(
        self,
        indices: Indices,
        *,
        augment: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> Batch:
        seed = generator.initial_seed() if generator is not None else 0
        view = _Seeded(self._view(augment))
        items = [view[derive(seed, place), int(i)] for place, i in enumerate(indices)]
        return self._batch(self.collate(items), indices, device)

    def stream(
        self,
        plan: Sequence[Indices],
        *,
        augment: bool = False,
        seed: int = 0,
        first: int = 0,
        device: torch.device | str = "cpu",
    ) -> Iterator[Batch]:
        keys = [
            [(derive(seed, first + number, place), int(i)) for place, i in enumerate(indices)]
            for number, indices in enumerate(plan)
        ]
        loader: DataLoader[Any] = DataLoader(
            _Seeded(self._view(augment)),
            batch_sampler=cast(Any, keys),
            collate_fn=self.collate,
            num_workers=self.workers,
            generator=torch.Generator().manual_seed(seed),  # else the loader draws from the global generator
        )
        for indices, collated in zip(plan, loader, strict=True):
            yield self._batch(collated, indices, device)

    def _view(self, augment: bool) -> Dataset[Any]:
        return self.dataset if augment or self.evaluation is None else self.evaluation

    def _everything(self, batch_size: int = 256) -> Iterator[Batch]:
        plan = np.split(
            np.arange(len(cast(Sized, self.dataset))), range(batch_size, len(cast(Sized, self.dataset)), batch_size)
        )
        return self.stream(plan)

    def _batch(self, collated: Any, indices: Indices, device: torch.device | str) -> Batch:
        x, y = _parts(collated)
        if len(y) != len(indices):
            raise DataError(
                f"the collate function made {len(y)} labels of {len(indices)} items; it must keep them all."
            )
        inputs: Inputs
        if isinstance(x, Tensor):
            inputs = channels_last(x.to(device))
        else:
            inputs = {name: tensor.to(device) for name, tensor in x.items()}
        return Batch(inputs, y.long().to(device), torch.from_numpy(indices))


class _Seeded(Dataset[Any]):
    """Items by (seed, index): whatever randomness the item uses starts from that seed and leaves no trace."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __getitem__(self, index: tuple[int, int]) -> Any:
        seed, number = index
        with isolated(seed):
            try:
                return self.dataset[number]
            except Exception as fault:
                raise DataError(
                    f"item {number} of the dataset could not be read: {type(fault).__name__}: {fault}"
                ) from fault


def _parts(collated: Any) -> tuple[Inputs, Tensor]:
    """Inputs and labels of a collated batch: a pair, or a mapping that holds the labels under a usual name."""
    if isinstance(collated, Mapping):
        mapping = cast("Mapping[str, Tensor]", collated)
        key = next((k for k in LABEL_KEYS if k in mapping), None)
        if key is None:
            raise DataError(f"a batch has the keys {list(mapping)}; its labels must stand under one of {LABEL_KEYS}.")
        return {k: v for k, v in mapping.items() if k != key}, mapping[key]
    if isinstance(collated, list | tuple) and len(cast("list[Any]", collated)) == 2:
        x, y = cast("tuple[Inputs, Tensor]", collated)
        return x, torch.as_tensor(y)
    raise DataError(f"a batch is a {type(collated).__name__}; items must be (x, y) pairs or mappings with a label.")
