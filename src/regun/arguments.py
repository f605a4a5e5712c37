"""Arguments of the public functions: their types, checked before any work, and the two groups of options."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeVar, cast

import torch
from torch import nn

from regun.data.overlap import Ids
from regun.errors import RegunError, SettingsError
from regun.models.adapters import ReadLogits
from regun.settings import shown
from regun.training.job import Budget, Epoch
from regun.training.recipes import Recipe

T = TypeVar("T")

NONE = type(None)
ArgumentType = tuple[tuple[Any, ...], str]
"""The Python types that an argument may have, and what to pass, in words."""
TEXT: ArgumentType = ((str,), "a string")
INTEGER: ArgumentType = ((Integral,), "an integer")
REBUILD: ArgumentType = ((Callable, NONE), "a function of a seed that returns a new, untrained model of the same kind")
RECIPE: ArgumentType = (
    (Recipe, Mapping, str, NONE),
    "a mapping ({'epochs': 30, 'lr': 0.1}) or a string ('resnet18,epochs=30')",
)
NUM_CLASSES: ArgumentType = ((Integral, NONE), "an integer, the number of classes")


@dataclass(frozen=True)
class InputOptions:
    """How the model and the data are read.

    >>> regun.unlearn(model, forget=forget, inputs=regun.InputOptions(logits=lambda out: out[0]))  # doctest: +SKIP
    """

    logits: ReadLogits | None = None
    """Function from what the model returns to its logits (N, K); None if it returns them, bare or as `.logits`."""
    num_classes: int | None = None
    """Number of classes, if it is smaller than the number of the model's outputs."""
    ids: Ids | None = None
    """Set name -> one id per example; sets that share an id are an error."""
    check_content: bool | None = None
    """True: sets that share equal examples are an error; False: not compared; None: compared for data in memory."""
    device: torch.device | str | None = None
    """Device to work on; None: where the model is."""

    def __post_init__(self) -> None:
        check_arguments(vars(self))


@dataclass(frozen=True)
class RunOptions:
    """How long a run is, which of its epochs is returned, and how its progress is reported.

    >>> regun.unlearn(model, forget=forget, run=regun.RunOptions(progress=True))  # doctest: +SKIP
    """

    budget: Budget | None = None
    """Number of steps or samples after which the run ends, in place of the method's epochs."""
    keep: str = "last"
    """Epoch to return: `last`, or `best` by the criterion on `val`."""
    criterion: str = "val_accuracy"
    """Criterion of `keep="best"`: val_accuracy, val_loss or unseen_error."""
    on_epoch: Callable[[Epoch, nn.Module], None] | None = None
    """Callback after each epoch, with the epoch and the current model."""
    progress: bool = False
    """Show a progress line on standard error."""

    def __post_init__(self) -> None:
        check_arguments(vars(self))


ARGUMENTS: dict[str, ArgumentType] = {
    "method": ((str, Callable), "a string as on the command line ('regun,lr=0.02') or a function of a Job"),
    "settings": ((Mapping, NONE), "a mapping: {'lr': 0.02}"),
    "seed": INTEGER,
    "rebuild": REBUILD,
    "recipe": RECIPE,
    "trials": INTEGER,
    "bootstrap": INTEGER,
    "inputs": ((InputOptions, NONE), "regun.InputOptions(logits=..., num_classes=..., ids=..., device=...)"),
    "run": ((RunOptions, NONE), "regun.RunOptions(budget=..., keep=..., on_epoch=..., progress=...)"),
    "logits": ((Callable, NONE), "a function from what the model returns to its logits"),
    "num_classes": NUM_CLASSES,
    "ids": ((Mapping, NONE), "a mapping from names of sets to ids: {'forget': [...], 'retain': [...]}"),
    "check_content": ((bool, NONE), "True, False or None"),
    "budget": ((Budget, NONE), "regun.Budget(steps=N) or regun.Budget(samples=N)"),
    "keep": ((str,), "'last' or 'best'"),
    "criterion": ((str,), "'val_accuracy', 'val_loss' or 'unseen_error'"),
    "on_epoch": ((Callable, NONE), "a function of an epoch and the model"),
    "progress": ((bool,), "True or False"),
}
"""Arguments of the public functions other than models, sets of examples and devices."""


def check_arguments(
    values: Mapping[str, object], types: Mapping[str, ArgumentType] = ARGUMENTS, prefix: str = ""
) -> None:
    """Raise one SettingsError that lists every value of a wrong type."""
    problems: list[str] = []
    for name in (name for name in values if name in types):
        value, (allowed, advice) = values[name], types[name]
        fits = isinstance(value, allowed)
        if isinstance(value, bool):  # True is not an integer
            fits = bool in allowed
        elif isinstance(value, str | bytes):  # a string is not a list of letters
            fits = fits and str in allowed
        if not fits:
            problems.append(f"{prefix}{name} is {_described(value)}; give {advice}.")
    if problems:
        raise SettingsError(problems)


def _described(value: object) -> str:
    plain = value is None or isinstance(value, str | int | float)
    return shown(value) if plain else f"a {type(value).__name__}"


def as_tuple(name: str, values: T | Iterable[T]) -> tuple[T, ...]:
    """Return names or functions as a tuple; a single one need not be in a list."""
    if isinstance(values, str) or callable(values):
        return (cast(T, values),)
    check_arguments({name: values}, {name: ((Iterable,), "a name, a function, or a list of them")})
    return tuple(cast("Iterable[T]", values))


def as_model(name: str, value: object) -> nn.Module:
    """Return `value`, or raise if it is not a torch module."""
    if isinstance(value, nn.Module):
        return value
    hint = " Load a state dict into a model first: model.load_state_dict(state)." if isinstance(value, Mapping) else ""
    raise RegunError(f"{name} is a {type(cast(object, value)).__name__}; give a torch.nn.Module.{hint}")


def as_models(name: str, value: object) -> dict[str, nn.Module]:
    """Return one model, or a list of models, by the name that messages give each: `name`, or `name[0]`, `name[1]`."""
    if isinstance(value, nn.Module) and not isinstance(value, nn.ModuleList):
        return {name: value}
    if value is None or isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise RegunError(f"{name} is {_described(cast(object, value))}; give a torch.nn.Module or a list of them.")
    names = ((f"{name}[{number}]", model) for number, model in enumerate(cast("Iterable[object]", value)))
    return {label: as_model(label, model) for label, model in names}
