"""Some of a set's examples as a set of their own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regun.data.examples import Batch, Examples, Indices
from regun.errors import DataError
from regun.seeds import digest


@dataclass(frozen=True)
class Selected:
    """The examples of `examples` at `rows`, in that order."""

    examples: Examples
    rows: Indices

    def __post_init__(self) -> None:
        rows = np.asarray(self.rows, dtype=np.int64)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self.examples.labels)):
            raise DataError(f"a selected row is out of range; there are {len(self.examples.labels)} examples.")
        object.__setattr__(self, "rows", rows)

    @property
    def labels(self) -> Indices:
        return self.examples.labels[self.rows]

    @property
    def num_classes(self) -> int:
        return self.examples.num_classes

    @property
    def digest(self) -> str:
        return digest([self.examples.digest, digest(self.rows)])

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
        found = self.examples.fetch(self.rows[indices], augment=augment, generator=generator, device=device)
        return Batch(found.x, found.y, torch.from_numpy(indices))

    def stream(
        self,
        plan: Sequence[Indices],
        *,
        augment: bool = False,
        seed: int = 0,
        first: int = 0,
        device: torch.device | str = "cpu",
    ) -> Iterator[Batch]:
        inner = [self.rows[indices] for indices in plan]
        source = self.examples.stream(inner, augment=augment, seed=seed, first=first, device=device)
        for indices, batch in zip(plan, source, strict=True):
            yield Batch(batch.x, batch.y, torch.from_numpy(indices))
