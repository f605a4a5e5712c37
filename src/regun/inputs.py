"""A user's model and sets of examples as they come: made ready, and refused before any work where they cannot work."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from regun.data.examples import Examples
from regun.data.overlap import Ids, check_overlap
from regun.data.sources import Source, as_examples
from regun.errors import DataError, RegunError, SettingsError
from regun.models.adapters import ReadLogits
from regun.plugins import guarded
from regun.settings import shown
from regun.training import border
from regun.training.job import Budget, device_of, uncompiled
from regun.training.recipes import Recipe
from regun.training.weights import broken_weights, misfits

MANY = 2**31
"""A number of classes that every label is below, as long as the true one is not known."""
T = TypeVar("T")

NONE = type(None)
Kind = tuple[tuple[Any, ...], str]
"""The types that a value may have, and what to give, in words."""
TEXT: Kind = ((str,), "text")
WHOLE: Kind = ((Integral,), "a whole number")
ANEW: Kind = ((Callable, NONE), "a function of a seed that returns a new, untrained model of the same kind")
TRAINED_BY: Kind = (
    (Recipe, Mapping, str, NONE),
    "a mapping ({'epochs': 30, 'lr': 0.1}) or text ('resnet18,epochs=30')",
)
CLASSES: Kind = ((Integral, NONE), "a whole number, that of the classes")
ARGUMENTS: dict[str, Kind] = {
    "method": ((str, Callable), "text as on the command line ('regun,lr=0.02') or a function of a Job"),
    "settings": ((Mapping, NONE), "a mapping: {'lr': 0.02}"),
    "preset": ((str, NONE), "text"),
    "seed": WHOLE,
    "budget": ((Budget, NONE), "regun.Budget(steps=N) or regun.Budget(samples=N)"),
    "keep": TEXT,
    "criterion": TEXT,
    "rebuild": ANEW,
    "recipe": TRAINED_BY,
    "on_epoch": ((Callable, NONE), "a function of an epoch and the model"),
    "tune": ((Integral, NONE), "a whole number of settings to try"),
    "bootstrap": WHOLE,
    "logits": ((Callable, NONE), "a function from what the model returns to its logits"),
    "num_classes": CLASSES,
    "ids": ((Mapping, NONE), "a mapping from names of sets to ids: {'forget': [...], 'retain': [...]}"),
}
"""What people may give in Python, beside models, sets and devices."""


@dataclass(frozen=True)
class Given:
    """A model that returns logits, the examples that go with it by set name, and what looks wrong in them."""

    model: nn.Module
    sets: dict[str, Examples]
    classes: int
    device: torch.device
    remarks: list[str]


def given(
    model: nn.Module,
    sources: Mapping[str, Source | None],
    logits: ReadLogits | None,
    device: torch.device | str | None,
    num_classes: int | None,
    ids: Ids | None,
    check_content: bool | None,
    needed: Iterable[str] = ("forget",),
) -> Given:
    """Everything a user gave, checked: what the model returns, what the sets hold, and that they do not overlap."""
    ready = border.taken(as_model("the model", model), logits)
    where = device_of(ready) if device is None else usable_device(device)
    present = {name: source for name, source in sources.items() if source is not None or name in needed}
    classes = count_classes(ready, present["forget"], "forget", num_classes)
    sets = {name: _fitting(source, classes, name, num_classes is not None) for name, source in present.items()}
    return Given(ready, sets, classes, where, check_overlap(present, sets, ids, check_content))


def count_classes(model: nn.Module, source: Source, name: str, said: int | None = None) -> int:
    """How many classes the model tells apart, from its answers to an example or two of a set; or fewer, as is said."""
    told = border.count_classes(model, _counted(source, name), name)
    if said is None:
        return told
    if not 2 <= said <= told:
        limit = f"at most {told}" if said > told else "at least 2"
        raise RegunError(f"num_classes is {said}, but the model tells {told} classes apart; give {limit}.")
    return int(said)


def check_fewer_classes(models: Mapping[str, nn.Module], examples: Examples) -> None:
    """Raise if one of some models, by name, tells fewer classes apart than the first."""
    told = {name: border.count_classes(model, examples, "forget") for name, model in models.items()}
    first, most = next(iter(told.items()))
    fewer = next((name for name, classes in told.items() if classes < most), None)
    if fewer is not None:
        raise RegunError(
            f"{fewer} tells {told[fewer]} classes apart and {first} {most}; give models of the same classes, in the "
            f"same order."
        )


def check_broken(model: nn.Module) -> None:
    """Raise if a weight of the model is no finite number."""
    broken = broken_weights(uncompiled(model))
    if broken is not None:
        raise RegunError(
            f"the model's weights hold NaN or infinity, first in {broken!r}; give a model that works (a training that "
            f"diverged leaves such)."
        )


def _counted(source: Source, name: str) -> Examples:
    """The examples of a set before the number of classes is known; what is wrong with its labels names the set."""
    try:
        return as_examples(source, MANY, name)
    except DataError as fault:
        if "labels have shape (0,)" in str(fault):
            raise DataError(f"the {name} set is empty; give at least one example.") from None
        what, _, rest = _of(name, fault).partition(";")
        unknown = str(MANY - 1) in rest
        rest = " give class numbers from 0 to one less than the model's classes." if unknown else rest
        raise DataError(f"{what};{rest}") from None


def _fitting(source: Source, classes: int, name: str, said: bool) -> Examples:
    """The examples of a set; what is wrong with its labels names the set, and what they should fit."""
    try:
        return as_examples(source, classes, name)
    except DataError as fault:
        if "labels have shape (0,)" in str(fault):
            raise DataError(f"the {name} set is empty; give at least one example, or leave it out.") from None
        whose = f"You gave num_classes={classes}" if said else f"The model's last layer has {classes} outputs"
        outside = "classes, 0 to" in str(fault)
        raise DataError(f"{_of(name, fault)}{f' ({whose}.)' if outside else ''}") from None


def _of(name: str, fault: DataError) -> str:
    """What is wrong, with the name of the set."""
    return f"{fault}" if f"{fault}".startswith((name, f"the {name}")) else f"{name}: {fault}"


def usable_device(device: torch.device | str) -> torch.device:
    """The device, once a number was put there and read again."""
    try:
        found = torch.device(device)
        torch.empty(1, device=found).tolist()  # `meta` makes tensors, but they hold nothing
    except (RuntimeError, AssertionError, ImportError, ValueError, TypeError) as fault:
        reason = f"{fault}".splitlines()[0].split(". ")[0] if f"{fault}" else type(fault).__name__
        said = f"device {str(device)[:80]!r} cannot be used ({reason[:200]})"
        raise RegunError(f"{said}; use cpu, or leave it out.") from None
    return found


# --------------------------------------------------------------------------------------------------- values of any kind


def check_wrong_kinds(values: Mapping[str, object], kinds: Mapping[str, Kind] = ARGUMENTS, whose: str = "") -> None:
    """Raise one SettingsError that lists every value of another kind than its name asks for."""
    wrong = [name for name, value in values.items() if name in kinds and not _fits(value, kinds[name][0])]
    if wrong:
        raise SettingsError(f"{whose}{name} is {_in_words(values[name])}; give {kinds[name][1]}." for name in wrong)


def _fits(value: object, types: tuple[Any, ...]) -> bool:
    """Text is no list of letters, and true is no number."""
    letters = isinstance(value, str | bytes) and str not in types
    return isinstance(value, types) and not letters and not isinstance(value, bool)


def _in_words(value: object) -> str:
    plain = value is None or isinstance(value, str | int | float)
    return shown(value) if plain else f"a {type(value).__name__}"


def several(what: str, some: T | Iterable[T]) -> tuple[T, ...]:
    """Names or functions; one alone need not be in a list."""
    if isinstance(some, str) or callable(some):
        return (cast(T, some),)
    check_wrong_kinds({what: some}, {what: ((Iterable,), "a list of names or functions")})
    return tuple(cast("Iterable[T]", some))


def as_model(what: str, one: object) -> nn.Module:
    """A model; whatever else it is is said."""
    if isinstance(one, nn.Module):
        return one
    kind = type(one).__name__
    hint = " Of a state dict, make one: model.load_state_dict(state)." if isinstance(one, Mapping) else ""
    raise RegunError(f"{what} is a {kind}; give a torch.nn.Module.{hint}")


def as_models(what: str, some: object) -> list[nn.Module]:
    """Some models; one alone is refused, since it may be a list of its own layers."""
    alone = isinstance(some, nn.Module) and not isinstance(some, nn.ModuleList)
    if alone or not isinstance(some, Iterable):
        hint = ", also of one: [model]" if alone else ""
        raise RegunError(f"{what} is {_in_words(some)}; give a list of models{hint}.")
    return [as_model(f"{what}[{number}]", one) for number, one in enumerate(cast("Iterable[object]", some))]


def same_kind(what: str, made: object, model: nn.Module) -> nn.Module:
    """A model that was made to have the place of another; refused unless its state fits."""
    found = as_model(what, made)
    wrong = misfits(_tensors(found), _tensors(model))
    if wrong:
        raise RegunError(f"{what} does not fit the model: {'; '.join(wrong[:3])}. Give {ANEW[1]}.")
    return found


def made_anew(rebuild: Callable[[int], object], seed: int, model: nn.Module) -> nn.Module:
    """What a user's `rebuild` makes of a seed; its faults are told as its own."""
    with guarded("rebuild"):
        return same_kind("what rebuild returned", rebuild(seed), model)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    state: Mapping[str, object] = uncompiled(model).state_dict()
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}
