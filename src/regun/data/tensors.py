"""`TensorExamples`: inputs that are tensors already, as floating-point images, feature vectors or tokens."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from regun.data.examples import Batch, Examples, checked_labels, named, to_device
from regun.devices import send
from regun.errors import DataError
from regun.types import Device, Indices, Inputs


@dataclass(frozen=True, eq=False)
class TensorExamples(Examples):
    """A tensor, or a mapping of tensors, whose first axis counts examples, and their labels."""

    x: Inputs
    labels: Indices
    num_classes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", checked_labels(self.labels, self.num_classes))
        for name, tensor in named(self.x).items():
            if len(tensor) != len(self.labels):
                raise DataError(
                    f"input {name!r} has {len(tensor)} examples, but there are {len(self.labels)} labels; "
                    f"give one label per example."
                )
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                first = int((~torch.isfinite(tensor)).reshape(len(tensor), -1).any(1).nonzero()[0, 0])
                raise DataError(f"input {name!r} holds NaN or infinity, first in example {first}; clean the data.")

    @property
    def augments(self) -> bool:
        return False

    def fetch(
        self, indices: Indices, *, augment: bool = False, generator: Generator | None = None, device: Device = "cpu"
    ) -> Batch:
        rows = torch.from_numpy(indices)
        x = self.x[rows] if isinstance(self.x, Tensor) else {name: tensor[rows] for name, tensor in self.x.items()}
        return Batch(to_device(x, device), send(torch.from_numpy(self.labels[indices]), device), rows)
