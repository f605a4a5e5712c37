"""The search space of a method: its ranges, widened to contain the settings that the search starts from."""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from regun.errors import SettingsError
from regun.methods import Choice, Method, Range
from regun.rng import derive

Values = dict[str, Any]
_DIGITS = 4  # of a number drawn from a range; more would pretend a precision that no setting has


@dataclass(frozen=True)
class Space:
    """The settings to search, each a `Choice` or a `Range`, and their values at the start."""

    axes: Mapping[str, Choice | Range]
    start: Mapping[str, Any]

    @classmethod
    def of(cls, method: Method, config: Any, family: str, fixed: Collection[str] = ()) -> "Space":
        """Return the method's space for a model family, without `fixed` settings, widened to contain `config`'s values.

        >>> from regun.methods import get_method
        >>> Space.of(get_method("finetune"), get_method("finetune").configure({"lr": 0.02}), "resnet").axes["lr"].values
        (0.1, 0.05, 0.01, 0.005, 0.02)
        """
        ranges = {name: axis for name, axis in method.search.get(family, {}).items() if name not in fixed}
        start = {name: getattr(config, name) for name in ranges}
        return cls({name: _widened(axis, start[name], f"{method.name}.{name}") for name, axis in ranges.items()}, start)

    @cached_property
    def size(self) -> int | None:
        """The number of combinations; None if there is a range."""
        if any(isinstance(axis, Range) for axis in self.axes.values()):
            return None
        return math.prod(len(axis.values) for axis in self.axes.values() if isinstance(axis, Choice))

    def at_most(self, trials: int) -> int:
        """Return the number of trials to run: at most the number of combinations."""
        return trials if self.size is None else min(trials, self.size)

    def combinations(self, seed: int) -> list[Values]:
        """Return every combination of a finite space: the start first, the others in an order drawn from the seed."""
        choices = [axis.values for axis in self.axes.values() if isinstance(axis, Choice)]
        every = [dict(zip(self.axes, values, strict=True)) for values in itertools.product(*choices)]
        rest = [values for values in every if values != dict(self.start)]
        order = np.random.default_rng(derive(seed, "combinations")).permutation(len(rest))
        return [dict(self.start), *(rest[k] for k in order)]

    def point(self, unit: Sequence[float]) -> Values:
        """Return the point of the space at `unit`, one number in [0, 1) per axis, uniform on the scale of each axis."""
        values: Values = {}
        for (name, axis), u in zip(self.axes.items(), unit, strict=True):
            if isinstance(axis, Choice):
                values[name] = axis.values[min(int(u * len(axis.values)), len(axis.values) - 1)]
            elif axis.log:
                values[name] = math.exp(math.log(axis.low) + u * (math.log(axis.high) - math.log(axis.low)))
            else:
                values[name] = axis.low + u * (axis.high - axis.low)
        return values

    def rounded(self, values: Mapping[str, Any]) -> Values:
        """Return the values rounded to a few digits inside their ranges; the start stays as it is."""
        if dict(values) == dict(self.start):
            return dict(values)
        rounded = dict(values)
        for name, axis in self.axes.items():
            if isinstance(axis, Range):
                rounded[name] = min(max(float(f"{values[name]:.{_DIGITS}g}"), axis.low), axis.high)
        return rounded

    def describe(self) -> dict[str, Any]:
        """Return the space as JSON, for the content key."""
        axes = {
            name: list(axis.values)
            if isinstance(axis, Choice)
            else {"low": axis.low, "high": axis.high, "log": axis.log}
            for name, axis in self.axes.items()
        }
        return {"axes": axes, "start": dict(self.start)}


def searchable(method: Method, config: Any, family: str, fixed: Collection[str] = ()) -> Space:
    """Return the method's space; raise if there is nothing to search."""
    space = Space.of(method, config, family, fixed)
    if space.size == 1:
        searched = ", ".join(method.search.get(family, {})) or "none for this family of models"
        raise SettingsError(
            [
                f"{method.title} has nothing to search (its searched settings: {searched}; fixed: "
                f"{', '.join(fixed) or 'none'}); leave tune out, give fewer settings, or choose another method."
            ]
        )
    return space


def _widened(axis: Choice | Range, value: Any, name: str) -> Choice | Range:
    """Return the axis, widened to contain the starting value."""
    if isinstance(axis, Choice):
        wrong = [v for v in (*axis.values, value) if not isinstance(v, str | bool | int | float)]
        if wrong:
            raise SettingsError([f"{name} cannot be searched: {wrong[0]!r} is no text, number, true or false."])
        return axis if value in axis.values else Choice((*axis.values, value))
    if isinstance(value, bool) or not isinstance(value, int | float) or (axis.log and value <= 0):
        needed = "a number above 0" if axis.log else "a number"
        raise SettingsError(
            [f"{name} is searched from {axis.low} to {axis.high} and starts at {value!r}; give {needed}."]
        )
    return Range(min(axis.low, value), max(axis.high, value), axis.log)
