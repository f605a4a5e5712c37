"""Whatever a user has, as Examples.

Belongs here: `as_examples`. Does not: reading files. May import: dataset, tensors, examples.
"""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from regun.data.dataset import DatasetExamples
from regun.data.examples import Examples
from regun.data.tensors import TensorExamples
from regun.errors import DataError

Source = Any
"""Examples, a torch Dataset, a DataLoader, or a pair (inputs, labels) of tensors, arrays or a mapping of tensors."""


def as_examples(source: Source, num_classes: int, name: str) -> Examples:
    """`source` as Examples; a DataLoader gives its dataset, collate function and number of workers."""
    if isinstance(source, DataLoader):
        loader = cast("DataLoader[Any]", source)
        collate = cast(Any, loader.collate_fn)
        return DatasetExamples(loader.dataset, num_classes, collate=collate, workers=loader.num_workers)
    if isinstance(source, Dataset):
        return DatasetExamples(cast("Dataset[Any]", source), num_classes)
    if isinstance(source, tuple | list) and len(cast("tuple[Any, ...]", source)) == 2:
        x, y = cast("tuple[Any, Any]", source)
        labels = np.asarray(y.cpu() if isinstance(y, Tensor) else y)
        if isinstance(x, Mapping):
            mapping = cast("Mapping[str, Any]", x)
            return TensorExamples({k: torch.as_tensor(v) for k, v in mapping.items()}, labels, num_classes)
        return TensorExamples(torch.as_tensor(x), labels, num_classes)
    given: Any = cast(Any, source)
    if all(hasattr(given, part) for part in ("labels", "num_classes", "fetch", "stream")):
        return given
    raise DataError(
        f"{name} is a {type(given).__name__}; give a torch Dataset, a DataLoader or a pair of tensors (inputs, labels)."
    )
