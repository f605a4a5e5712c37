"""Plain inputs: an audit reads every example as at test time, and refuses data that augment at random."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Generator

from regun.data.examples import Batch, Examples, named
from regun.errors import DataError, see
from regun.rng import generator
from regun.types import Device, Indices

FETCHED_TWICE = 4
"""Examples per set that are fetched twice, to notice augmentation."""
COMPARED = 256
"""Labels that are compared between the two forms of a set."""


@dataclass(frozen=True, eq=False)
class AugmentedExamples(Examples):
    """The same records twice: `training` augments at random, `plain` has the transforms of test time."""

    training: Examples
    plain: Examples
    num_classes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_classes", self.plain.num_classes)
        if len(self.training) != len(self.plain):
            raise DataError(
                f"train has {len(self.training):,} records and train_eval {len(self.plain):,}; give the same records "
                f"in the same order."
            )
        rows = np.unique(np.linspace(0, len(self.plain) - 1, COMPARED).astype(np.int64))
        one, two = self.training.labels_at(rows), self.plain.labels_at(rows)
        if not np.array_equal(one, two):
            row = int(np.flatnonzero(one != two)[0])
            raise DataError(
                f"record {rows[row]} has the label {one[row]} in train and {two[row]} in train_eval; give the same "
                f"records in the same order."
            )

    @property
    def labels(self) -> Indices:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.plain.labels

    def labels_at(self, indices: Indices) -> Indices:
        return self.plain.labels_at(indices)

    def __len__(self) -> int:
        return len(self.plain)

    @property
    def digest(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.plain.digest

    def describe_inputs(self) -> dict[str, Any]:
        both = {"train": self.training.describe_inputs(), "plain": self.plain.describe_inputs()}
        return {**super().describe_inputs(), **both}

    def fetch(
        self, indices: Indices, *, augment: bool = False, generator: Generator | None = None, device: Device = "cpu"
    ) -> Batch:
        examples = self.training if augment else self.plain
        return examples.fetch(indices, augment=augment, generator=generator, device=device)

    def stream(
        self, plan: Sequence[Indices], *, augment: bool = False, seed: int = 0, first: int = 0, device: Device = "cpu"
    ) -> Iterator[Batch]:
        examples = self.training if augment else self.plain
        return examples.stream(plan, augment=augment, seed=seed, first=first, device=device)


def check_no_augmentation(sets: Mapping[str, Examples], way_out: str = "Give the same records") -> None:
    """Raise if a set returns different inputs each time the same example is fetched; `way_out` says what to pass."""
    for name, examples in sets.items():
        rows = np.arange(min(FETCHED_TWICE, len(examples)))
        first, second = (named(examples.fetch(rows, generator=generator(time)).x) for time in ("once", "again"))
        for part, values in first.items():
            if values.shape != second[part].shape or not torch.equal(values, second[part]):
                raise DataError(
                    f"{name} returns different inputs each time the same example is fetched (input {part!r}): it "
                    f"augments at random, and an audit needs plain inputs. {way_out} with the transforms of test time. "
                    f"{see('Random augmentation in the audit')}"
                )
