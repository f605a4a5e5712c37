"""Examples with a few made-up ones behind them.

Belongs here: `Appended`, which lets a method train on inputs it has made itself (adversarial examples) mixed with the
real ones. Does not: making them. May import: examples.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regun.data.examples import Batch, Examples, Indices, Inputs, channels_last
from regun.seeds import digest


@dataclass(frozen=True)
class Appended:
    """`examples`, and from index `first` on the ready-made inputs `x` with labels `y`, which are never augmented."""

    examples: Examples
    x: Inputs
    y: Indices

    @property
    def first(self) -> int:
        """The index of the first made-up example."""
        return len(self.examples.labels)

    @property
    def labels(self) -> Indices:
        return self._all_labels

    @cached_property
    def _all_labels(self) -> Indices:
        return np.concatenate([self.examples.labels, self.y])

    @property
    def num_classes(self) -> int:
        return self.examples.num_classes

    @property
    def digest(self) -> str:
        x = {"x": self.x} if isinstance(self.x, Tensor) else self.x
        return digest([self.examples.digest, *(digest(t.contiguous().numpy()) for t in x.values()), digest(self.y)])

    def describe_inputs(self) -> dict[str, Any]:
        return self.examples.describe_inputs()

    def fetch(
        self,
        indices: Indices,
        *,
        augment: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> Batch:
        real = indices < self.first
        batch = None
        if real.any():
            batch = self.examples.fetch(indices[real], augment=augment, generator=generator, device=device)
        return self._merge(batch, indices, device)

    def stream(
        self,
        plan: Sequence[Indices],
        *,
        augment: bool = False,
        seed: int = 0,
        first: int = 0,
        device: torch.device | str = "cpu",
    ) -> Iterator[Batch]:
        for position, indices in enumerate(plan, start=first):
            real = [indices[indices < self.first]]
            source = self.examples.stream(real, augment=augment, seed=seed, first=position, device=device)
            yield self._merge(next(source) if len(real[0]) else None, indices, device)

    def _merge(self, batch: Batch | None, indices: Indices, device: torch.device | str) -> Batch:
        """The real part and the made-up rows, back in the order of `indices`."""
        made = indices[indices >= self.first] - self.first
        order = torch.from_numpy(np.argsort(np.argsort(indices >= self.first, kind="stable"), kind="stable"))
        rows = torch.from_numpy(made)

        def joined(own: Tensor, extra: Tensor) -> Tensor:
            return channels_last(torch.cat([own, extra[rows].to(device)])[order])

        y = torch.from_numpy(self.labels[indices]).to(device)
        own = batch.x if batch is not None else None
        if isinstance(self.x, Tensor):
            x: Inputs = joined(own if isinstance(own, Tensor) else self.x[:0].to(device), self.x)
        else:
            x = {k: joined(own[k] if isinstance(own, Mapping) else v[:0].to(device), v) for k, v in self.x.items()}
        return Batch(x, y, torch.from_numpy(indices))
