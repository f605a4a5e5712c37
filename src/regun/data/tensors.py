"""Examples that are already tensors: images as floats, feature vectors, token mappings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regun.data.examples import Batch, Indices, Inputs, channels_last, checked_labels
from regun.errors import DataError
from regun.seeds import digest


@dataclass(frozen=True)
class TensorExamples:
    """A tensor, or a mapping of tensors, whose first axis counts examples, and their labels."""

    x: Inputs
    labels: Indices
    num_classes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", checked_labels(self.labels, self.num_classes))
        for name, tensor in self._parts().items():
            if len(tensor) != len(self.labels):
                raise DataError(
                    f"input {name!r} holds {len(tensor)} examples, but there are {len(self.labels)} labels; "
                    f"give one label for each example."
                )
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                first = int((~torch.isfinite(tensor)).reshape(len(tensor), -1).any(1).nonzero()[0, 0])
                raise DataError(f"input {name!r} holds NaN or infinity, first in example {first}; clean the data.")

    @property
    def digest(self) -> str:
        return self._content_digest

    @cached_property
    def _content_digest(self) -> str:
        parts = {name: digest(t.detach().cpu().contiguous().numpy()) for name, t in self._parts().items()}
        return digest([parts, digest(self.labels)])

    def describe_inputs(self) -> dict[str, Any]:
        return {"kind": "tensors"}

    def fetch(
        self,
        indices: Indices,
        *,
        augment: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> Batch:
        rows = torch.from_numpy(indices)
        if isinstance(self.x, Tensor):
            x: Inputs = channels_last(self.x[rows].to(device))
        else:
            x = {name: tensor[rows].to(device) for name, tensor in self.x.items()}
        return Batch(x, torch.from_numpy(self.labels[indices]).to(device), rows)

    def stream(
        self,
        plan: Sequence[Indices],
        *,
        augment: bool = False,
        seed: int = 0,
        first: int = 0,
        device: torch.device | str = "cpu",
    ) -> Iterator[Batch]:
        for indices in plan:
            yield self.fetch(indices, device=device)

    def _parts(self) -> Mapping[str, Tensor]:
        return {"x": self.x} if isinstance(self.x, Tensor) else self.x
