"""A data set of the user's own: what `module:function` or `path/to/file.py:function` returns."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from regun.data.arrays import ArrayExamples
from regun.data.dataset import DatasetExamples
from regun.data.examples import Data, Examples
from regun.data.pipelines import OWN
from regun.data.sources import as_examples
from regun.data.tensors import TensorExamples
from regun.errors import DataError
from regun.plugins import UserFunction, find_function, find_user_function, parameters_of

MANY = 2**31
"""Classes to read labels with, as long as their number is not known."""
WHAT = "returns a data set"


def find_user_data(name: str, settings: Mapping[str, Any]) -> UserFunction:
    """The function called `name`, imported, with `settings` read as its signature says."""
    return find_user_function(name, settings, WHAT)


def user_parameters(name: str) -> list[str]:
    """The parameters of the function called `name`."""
    return list(parameters_of(name, find_function(name, WHAT)))


def load_user_data(user: UserFunction) -> Data:
    """Call the function with its settings; it returns a `Data`, or a pair (train, test) of what `as_examples` takes.

    The number of classes, where the function does not say it, is the largest label of both parts plus one.
    """
    found: Any = user.call()
    if isinstance(found, Data):
        train, test = _examples(found.train, found.test, user.name)
        return replace(found, train=train, test=test)
    if isinstance(found, tuple | list) and len(cast("tuple[Any, ...]", found)) == 2:
        train, test = _examples(*cast("tuple[Any, Any]", found), user.name)
        return Data(user.name, train, test)
    kind = type(cast(object, found)).__name__
    raise DataError(
        f"{user.name} returned a {kind}; it must return a regun.data.Data or a pair (train, test), "
        "each a torch Dataset, a pair of tensors (inputs, labels) or regun.data.Examples."
    )


def _examples(train: Any, test: Any, name: str) -> tuple[Examples, Examples]:
    found = [as_examples(part, MANY, f"{which} of {name}") for which, part in (("train", train), ("test", test))]
    said = {part.num_classes for part in found} - {MANY}
    if len(said) > 1:
        raise DataError(f"{name} returned parts of {sorted(said)} classes; train and test must have the same number.")
    classes = said.pop() if said else 1 + max(int(part.labels.max()) for part in found)
    one, other = (_settled(part, classes) for part in found)
    return one, other


def _settled(part: Examples, classes: int) -> Examples:
    """The examples with their number of classes, and their pipeline under the name by which it is known."""
    if isinstance(part, ArrayExamples):
        return part.with_pipeline(replace(part.pipeline, name=OWN.name))
    if isinstance(part, DatasetExamples) and part.num_classes == MANY:  # its labels need not be looked for again
        return replace(part, num_classes=classes, known_labels=part.labels)
    if isinstance(part, TensorExamples) and part.num_classes == MANY:
        return replace(part, num_classes=classes)
    return part
