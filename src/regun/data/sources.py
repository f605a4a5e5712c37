"""Adapt a user's data to Examples: tensors, arrays, torch Datasets, DataLoaders, and functions that return them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    default_collate,  # pyright: ignore[reportUnknownVariableType]
)

from regun.data.arrays import ArrayExamples
from regun.data.dataset import DatasetExamples
from regun.data.examples import Data, Examples, by_position
from regun.data.pipelines import OWN
from regun.data.plain import check_no_augmentation
from regun.data.tensors import TensorExamples
from regun.errors import DataError, LabelError
from regun.plugins import UserFunction

Source = Any
"""Examples, a torch Dataset, a DataLoader, or a pair (inputs, labels): a tensor, an array, several tensors by position
or a mapping of tensors by name, and one integer label for each example."""
MANY_CLASSES = 2**31
"""Number of classes that labels are checked against until the real one is determined."""


def as_examples(source: Source, num_classes: int, name: str) -> Examples:
    """Return `source` as Examples; a DataLoader gives its items, collate function and number of workers.

    `name` is what errors call the set.
    """
    try:
        return _as_examples(source, num_classes, name)
    except LabelError as fault:
        raise LabelError(f"{name}: {fault}") from None


def _as_examples(source: Source, num_classes: int, name: str) -> Examples:
    if isinstance(source, Examples):
        return source
    if isinstance(source, tuple | list) and len(cast("tuple[Any, ...]", source)) == 2:
        return _from_pair(*cast("tuple[Any, Any]", source), num_classes, name)
    loader = cast("DataLoader[Any]", source) if isinstance(source, DataLoader) else None
    dataset = cast(Any, loader.dataset if loader is not None else source)
    if isinstance(source, DataLoader | Dataset):
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise DataError(
                f"{name} is a {type(cast(object, dataset)).__name__} whose items cannot be counted and read by number, "
                f"so single ones cannot be forgotten. Give a map-style Dataset: __len__ and __getitem__."
            )
    elif hasattr(dataset, "labels") and hasattr(dataset, "fetch"):
        raise DataError(
            f"{name} is a {type(dataset).__name__}, which has labels and fetch but is no Examples; "
            f"let the class inherit from regun.data.Examples."
        )
    elif isinstance(dataset, str | bytes | Mapping | tuple | list | Tensor | np.ndarray) or not (
        hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")  # as Hugging Face's data sets have
    ):
        raise DataError(
            f"{name} is a {type(cast(object, source)).__name__}; give a torch Dataset, a DataLoader or a pair of "
            f"tensors (inputs, labels)."
        )
    if not len(dataset):
        raise _empty(name)
    collate = cast(Any, default_collate if loader is None else loader.collate_fn)
    dataset = dataset if loader is None else loaded_dataset(loader)
    tensors = _tensors_of(dataset) if collate is default_collate else None
    if tensors is not None:
        *inputs, labels = tensors
        return _from_pair(inputs[0] if len(inputs) == 1 else inputs, labels, num_classes, name)
    workers = 0 if loader is None else loader.num_workers
    return DatasetExamples(dataset, num_classes, collate=collate, workers=workers)


def load_user_data(function: UserFunction) -> Data:
    """Call a user's function, which returns a `Data` or a pair (train, test) of what `as_examples` takes.

    If the function does not declare the number of classes, it is the largest label of both parts plus one.
    """
    result: Any = function.call()
    if isinstance(result, Data):
        data = result
    elif isinstance(result, tuple | list) and len(cast("tuple[Any, ...]", result)) == 2:
        data = Data(function.name, *cast("tuple[Any, Any]", result))
    else:
        raise DataError(
            f"{function.name} returned a {type(cast(object, result)).__name__}; it must return a regun.data.Data or a "
            f"pair (train, test), each a torch Dataset, a pair of tensors (inputs, labels) or regun.data.Examples."
        )
    train, test = (
        as_examples(part, MANY_CLASSES, f"{name} of {function.name}")
        for name, part in (("train", data.train), ("test", data.test))
    )
    declared = {train.num_classes, test.num_classes} - {MANY_CLASSES}
    if len(declared) > 1:
        raise DataError(f"train and test of {function.name} have {sorted(declared)} classes; they must have the same.")
    classes = declared.pop() if declared else 1 + max(int(train.labels.max()), int(test.labels.max()))
    train, test = _with_classes(train, classes), _with_classes(test, classes)
    both = {f"train of {function.name}": train, f"test of {function.name}": test}
    check_no_augmentation(both, "Return regun.data.DatasetExamples(..., evaluation=...), the same records")
    return replace(data, train=train, test=test)


def _with_classes(part: Examples, classes: int) -> Examples:
    """Return the examples with their number of classes; stored images with their pipeline called `own`."""
    if isinstance(part, ArrayExamples):
        return part.with_pipeline(replace(part.pipeline, name=OWN.name))
    if isinstance(part, DatasetExamples) and part.num_classes == MANY_CLASSES:  # the labels are not read again
        return replace(part, num_classes=classes, item_labels=part.labels)
    if isinstance(part, TensorExamples) and part.num_classes == MANY_CLASSES:
        return replace(part, num_classes=classes)
    return part


def loaded_dataset(loader: DataLoader[Any]) -> Dataset[Any]:
    """Return the items a loader goes over, or those of its SubsetRandomSampler; the order does not matter."""
    batches = cast(Any, loader.batch_sampler)
    sampler = cast(Any, batches.sampler if isinstance(batches, BatchSampler) else batches or loader.sampler)
    if isinstance(sampler, SubsetRandomSampler):
        return Subset(loader.dataset, [int(i) for i in sampler.indices])
    whole = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler)
        and not sampler.replacement
        and sampler.num_samples == len(cast(Any, loader.dataset))
    )
    if not whole:
        raise DataError(
            f"a DataLoader samples with a {type(cast(object, sampler)).__name__}, so its set of examples is not "
            f"defined; pass a loader over torch.utils.data.Subset(dataset, indices)."
        )
    return loader.dataset


def _tensors_of(dataset: Dataset[Any]) -> tuple[Tensor, ...] | None:
    """Return the tensors of a TensorDataset or of Subsets of one, None for other data sets."""
    if type(dataset) is TensorDataset:
        return dataset.tensors if len(dataset.tensors) > 1 else None
    if type(dataset) is not Subset:
        return None
    subset = cast("Subset[Any]", dataset)
    whole, rows = _tensors_of(subset.dataset), torch.as_tensor(subset.indices)
    return None if whole is None else tuple(tensor[rows.to(tensor.device)] for tensor in whole)


def _from_pair(x: Any, y: Any, num_classes: int, name: str) -> Examples:
    """Return inputs (one tensor, several by position, or a mapping) and labels as Examples."""
    try:
        labels = np.asarray(y.cpu() if isinstance(y, Tensor) else y)
    except (ValueError, TypeError, RuntimeError) as fault:  # ragged lists, tensors on the meta device
        raise LabelError(f"labels cannot be read ({fault}); give one integer per example.") from None
    if labels.shape == (0,):
        raise _empty(name)
    if labels.dtype.kind == "f" and np.array_equal(labels, np.round(labels)):
        labels = labels.astype(np.int64)  # floats are usual for binary cross-entropy
    if isinstance(x, Mapping):
        mapping = cast("Mapping[str, Any]", x)
        return TensorExamples({k: _as_tensor(v, f"{name}[{k!r}]") for k, v in mapping.items()}, labels, num_classes)
    if isinstance(x, tuple | list) and all(isinstance(part, Tensor) for part in cast("list[Any]", x)):
        parts = [_as_tensor(part, f"{name}[{position}]") for position, part in enumerate(cast("list[Tensor]", x))]
        return TensorExamples(by_position(parts), labels, num_classes)
    return TensorExamples(_as_tensor(x, name), labels, num_classes)


def _as_tensor(values: Any, name: str) -> Tensor:
    """Return the inputs of a set as one dense tensor."""
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as fault:
        what = f"an array of {values.dtype}" if isinstance(values, np.ndarray) else f"a {type(values).__name__}"
        raise DataError(
            f"the inputs of {name} are {what}, of which no tensor can be made ({fault}); give a tensor or an array of "
            f"numbers: np.stack(list(x)).astype('float32')."
        ) from None
    if tensor.is_meta:
        raise DataError(f"the inputs of {name} are on the meta device and hold no numbers; give a tensor with data.")
    if tensor.layout != torch.strided:
        raise DataError(f"the inputs of {name} are a {tensor.layout} tensor; give a dense one: x.to_dense().")
    return tensor


def _empty(name: str) -> DataError:
    return DataError(f"the {name} set is empty; give at least one example, or leave it out.")
