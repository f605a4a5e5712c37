"""Views of Examples: several sets joined, and a selection of one set."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from regun.data.examples import Batch, Examples, channels_last, named, with_indices
from regun.devices import send
from regun.errors import DataError
from regun.hashing import digest
from regun.types import Device, Indices, Inputs


@dataclass(frozen=True, eq=False)
class Joined(Examples):
    """`parts` one after the other; part k begins at `starts[k]`."""

    parts: tuple[Examples, ...]
    num_classes: int = field(init=False)

    def __post_init__(self) -> None:
        classes = {part.num_classes for part in self.parts}
        if len(classes) != 1:
            raise DataError(f"the sets to join have {sorted(classes)} classes; they must have the same number.")
        object.__setattr__(self, "num_classes", classes.pop())

    @cached_property
    def labels(self) -> Indices:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Labels of all parts; parts that must read their examples for them do it now."""
        return np.concatenate([part.labels for part in self.parts])

    def labels_at(self, indices: Indices) -> Indices:
        labels = np.empty(len(indices), dtype=np.int64)
        owner = self._owner(indices)
        for k, rows in self._divide(indices).items():
            labels[owner == k] = self.parts[k].labels_at(rows)
        return labels

    def __len__(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def starts(self) -> Indices:
        """First index of each part, and the end of the last one."""
        return np.cumsum([0, *(len(part) for part in self.parts)])

    @cached_property
    def digest(self) -> str:
        return digest([part.digest for part in self.parts])

    @property
    def augments(self) -> bool:
        return any(part.augments for part in self.parts)

    def describe_inputs(self) -> dict[str, Any]:
        return {**super().describe_inputs(), "parts": [part.describe_inputs() for part in self.parts]}

    def indices(self, part: int) -> Indices:
        """Return the indices of one part."""
        return np.arange(int(self.starts[part]), int(self.starts[part + 1]), dtype=np.int64)

    def fetch(
        self, indices: Indices, *, augment: bool = False, generator: Generator | None = None, device: Device = "cpu"
    ) -> Batch:
        batches = [
            self.parts[k].fetch(rows, augment=augment, generator=generator, device=device)
            for k, rows in self._divide(indices).items()
        ]
        return self._merge(batches, indices)

    def stream(
        self, plan: Sequence[Indices], *, augment: bool = False, seed: int = 0, first: int = 0, device: Device = "cpu"
    ) -> Iterator[Batch]:
        """Yield the planned batches; a plan within one part goes to it as a whole, so that its workers prefetch."""
        if len(self._divide(np.concatenate([np.asarray(p) for p in plan]))) == 1:
            part = next(iter(self._divide(plan[0])))
            local = [indices - self.starts[part] for indices in plan]
            source = self.parts[part].stream(local, augment=augment, seed=seed, first=first, device=device)
            yield from with_indices(source, plan)
            return
        for number, indices in enumerate(plan, start=first):
            batches = [
                next(iter(self.parts[k].stream([rows], augment=augment, seed=seed, first=number, device=device)))
                for k, rows in self._divide(indices).items()
            ]
            yield self._merge(batches, indices)

    def _divide(self, indices: Indices) -> dict[int, Indices]:
        """Return the indices by part, in the numbering of the part."""
        owner = self._owner(indices)
        if len(indices) and (owner.min() < 0 or owner.max() >= len(self.parts)):
            raise DataError(f"an index is out of range; there are {len(self)} examples.")
        return {int(k): indices[owner == k] - self.starts[k] for k in np.unique(owner)}

    def _owner(self, indices: Indices) -> Indices:
        """Return the number of the part that each index belongs to."""
        return np.searchsorted(self.starts, indices, side="right") - 1

    def _merge(self, batches: Sequence[Batch], indices: Indices) -> Batch:
        """Return the batches of the parts as one, in the order of `indices`."""
        rows = torch.from_numpy(indices)
        if len(batches) == 1:
            return Batch(batches[0].x, batches[0].y, rows)
        order = torch.from_numpy(np.argsort(np.argsort(self._owner(indices), kind="stable"), kind="stable"))
        order = send(order, batches[0].y.device)
        parts = [named(batch.x) for batch in batches]
        x: Inputs = {name: _stacked(name, [part[name] for part in parts])[order] for name in parts[0]}
        if isinstance(batches[0].x, Tensor):
            x = channels_last(x["x"])
        return Batch(x, torch.cat([b.y for b in batches])[order], rows)


@dataclass(frozen=True, eq=False)
class Selected(Examples):
    """The examples of `examples` at `rows`, in that order."""

    examples: Examples
    rows: Indices
    num_classes: int = field(init=False)

    def __post_init__(self) -> None:
        rows = np.asarray(self.rows, dtype=np.int64)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self.examples)):
            raise DataError(f"a selected row is out of range; there are {len(self.examples)} examples.")
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "num_classes", self.examples.num_classes)

    @cached_property
    def labels(self) -> Indices:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.examples.labels_at(self.rows)

    def labels_at(self, indices: Indices) -> Indices:
        return self.examples.labels_at(self.rows[indices])

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def digest(self) -> str:
        return digest([self.examples.digest, digest(self.rows)])

    @property
    def augments(self) -> bool:
        return self.examples.augments

    def describe_inputs(self) -> dict[str, Any]:
        return {**super().describe_inputs(), "of": self.examples.describe_inputs()}

    def fetch(
        self, indices: Indices, *, augment: bool = False, generator: Generator | None = None, device: Device = "cpu"
    ) -> Batch:
        batch = self.examples.fetch(self.rows[indices], augment=augment, generator=generator, device=device)
        return Batch(batch.x, batch.y, torch.from_numpy(indices))

    def stream(
        self, plan: Sequence[Indices], *, augment: bool = False, seed: int = 0, first: int = 0, device: Device = "cpu"
    ) -> Iterator[Batch]:
        inner = [self.rows[indices] for indices in plan]
        return with_indices(self.examples.stream(inner, augment=augment, seed=seed, first=first, device=device), plan)


def _stacked(name: str, tensors: Sequence[Tensor]) -> Tensor:
    """Return the tensors one after the other; raise if examples differ in shape."""
    shapes = {tuple(t.shape[1:]) for t in tensors}
    if len(shapes) > 1:
        raise DataError(
            f"a batch mixes examples of several sets, whose input {name!r} has the shapes {sorted(shapes)}; "
            f"let the collate function pad all batches to one length."
        )
    return torch.cat(list(tensors))
