"""Metrics, and their statistics on one model: a value, and how its interval is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from regun.auditing.intervals import (
    Estimate,
    Replicates,
    Resampling,
    auc_interval,
    auc_noise,
    bootstrap_mean,
    distance,
    mean_noise,
    percentile,
    rng,
    share,
    share_noise,
    significantly_apart,
)
from regun.auditing.predictions import FloatArray, SplitPredictions
from regun.auditing.roc import Contrast
from regun.auditing.user_functions import at_the_border, check_name, first_line
from regun.errors import AuditError


class Statistic(Protocol):
    """A value in its unit, and its interval from resamples: those that numbers share, or its own."""

    @property
    def value(self) -> float: ...

    def replicates(self) -> Replicates | None:
        """Return the number under the shared resamples of the scored splits; None if it does not use them."""
        ...

    def number(self, name: str, drawn: FloatArray, how: Resampling) -> Estimate:
        """Return the value with its interval; `drawn` is what `replicates` gave, empty if nothing."""
        ...

    def noise(self, other: Statistic) -> float | None:
        """Return how far two models differ by the choice of examples alone, as a deviation; None if unknown."""
        ...


@dataclass(frozen=True)
class Fixed:
    """A value without an interval."""

    value: float

    def replicates(self) -> None:
        return None

    def number(self, name: str, drawn: FloatArray, how: Resampling) -> Estimate:
        return Estimate(self.value)

    def noise(self, other: Statistic) -> None:
        return None


@dataclass(frozen=True, eq=False)
class PerExample:
    """The mean of one value per example, times `scale`; `of` names the scored split whose resamples it shares."""

    values: FloatArray
    scale: float = 1.0
    of: str | None = None

    @property
    def value(self) -> float:
        return self.scale * float(self.values.mean())

    def replicates(self) -> Replicates | None:
        split = self.of
        return None if split is None else lambda weights: self.values @ weights[split] / len(self.values)

    def number(self, name: str, drawn: FloatArray, how: Resampling) -> Estimate:
        separate = self.of is None
        used = bootstrap_mean(self.values, how.resamples, rng(how.seed, name)) if separate else drawn
        return percentile(float(self.values.mean()), used, how.level, self.scale)

    def noise(self, other: Statistic) -> float | None:
        return self.scale * mean_noise(self.values, other.values) if isinstance(other, PerExample) else None


@dataclass(frozen=True, eq=False)
class Share:
    """The percentage of examples for which something holds, 1.0 in `hits`."""

    hits: FloatArray

    @property
    def value(self) -> float:
        return 100.0 * float(self.hits.mean())

    def replicates(self) -> None:
        return None

    def number(self, name: str, drawn: FloatArray, how: Resampling) -> Estimate:
        return share(float(self.hits.mean()), len(self.hits), how.level)

    def noise(self, other: Statistic) -> float | None:
        return 100.0 * share_noise(self.hits, other.hits) if isinstance(other, Share) else None


@dataclass(frozen=True, eq=False)
class Ranked:
    """The AUC of members' scores against those of non-members, in percent; sorted on demand, to hold little."""

    members: FloatArray
    nonmembers: FloatArray
    computed: float | None = field(default=None, kw_only=True)
    """The value, where it is known already."""

    @property
    def value(self) -> float:
        return 100.0 * float(self.placements[0].mean()) if self.computed is None else self.computed

    @cached_property
    def placements(self) -> tuple[FloatArray, FloatArray]:
        return self._contrast().placements()

    def replicates(self) -> None:
        return None

    def number(self, name: str, drawn: FloatArray, how: Resampling) -> Estimate:
        return auc_interval(self._contrast(), how.level)

    def noise(self, other: Statistic) -> float | None:
        return auc_noise(self.placements, other.placements) if isinstance(other, Ranked) else None

    def _contrast(self) -> Contrast:
        return Contrast.of(self.members, self.nonmembers)


@dataclass(frozen=True, eq=False)
class Apart:
    """How far the distributions of a contrast's two sides are apart, in percent: Kolmogorov-Smirnov or Wasserstein."""

    contrast: Contrast
    against: str
    wasserstein: bool = False

    @property
    def value(self) -> float:
        return 100.0 * self._distance

    @property
    def _distance(self) -> float:
        return float((self.contrast.wasserstein() if self.wasserstein else self.contrast.advantage())[0])

    def replicates(self) -> Replicates:
        measure = self.contrast.wasserstein if self.wasserstein else self.contrast.advantage
        return lambda weights: measure(weights["forget"], weights[self.against])

    def number(self, name: str, drawn: FloatArray, how: Resampling) -> Estimate:
        sizes = len(self.contrast.members), len(self.contrast.nonmembers)
        apart = significantly_apart(float(self.contrast.advantage()[0]), *sizes, how.level)
        return distance(self._distance, drawn, apart, how.level)

    def noise(self, other: Statistic) -> None:
        return None


MetricResult = Statistic | npt.NDArray[Any] | float | None
"""What a metric may return: a number; an array of one value per example, whose mean is the number; an array of True and
False, whose share is the number, in percent; None where it cannot be had; or an `Estimate`."""
Measure = Callable[[SplitPredictions, SplitPredictions | None], MetricResult]
"""A metric's function of the predictions, by split, of the audited model and of Retrain (None without one)."""


@dataclass(frozen=True)
class Metric:
    """A number: its name, short label, unit, one-line meaning, which value is good, and the function that gives it.

    What is left out comes from the name and the function's docstring. The number's gap is its difference from Retrain's
    own, `measure(retrain, retrain)`; a `distance` to Retrain is its own gap. A metric that has `terms` in place of a
    function is the mean of the gaps of the numbers they name. `utility` marks numbers about retained or unseen
    examples: being like Retrain in them is no evidence of forgetting, and needs no power.
    """

    name: str
    label: str = ""
    unit: str = ""
    meaning: str = ""
    good: str = "Retrain's value"
    measure: Measure | None = field(default=None, compare=False, repr=False, kw_only=True)
    distance: bool = field(default=False, kw_only=True)
    utility: bool = field(default=False, kw_only=True)
    terms: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        check_name(self.name, "metric")
        object.__setattr__(self, "label", self.label or self.name.replace("_", " "))
        object.__setattr__(self, "meaning", self.meaning or first_line(self.measure))
        object.__setattr__(self, "terms", tuple(self.terms))

    def __call__(self, splits: SplitPredictions, retrain: SplitPredictions | None) -> Statistic | None:
        """Return the statistic of one model; None where the metric does not apply."""
        if self.measure is None:
            return None
        with at_the_border(f"the metric {self.name!r}"):
            result = self.measure(splits, retrain)
        if result is None or isinstance(result, Fixed | PerExample | Share | Ranked | Apart):
            return result
        values = np.asarray(result)
        if values.ndim > 1 or not values.size or values.dtype.kind not in "biuf" or not np.isfinite(values).all():
            raise AuditError(
                f"the metric {self.name!r} gave {values.dtype} of shape {values.shape}; give a finite number, an array "
                "with one finite number or truth value for each example, or None where it cannot be had."
            )
        numbers = values.astype(np.float64)
        if not values.ndim:
            return Fixed(float(numbers))
        return Share(numbers) if values.dtype.kind == "b" else PerExample(numbers)

    def to_json(self) -> dict[str, Any]:
        """Return the description of the number; `Metric(**value)` reads it."""
        return {**{k: v for k, v in vars(self).items() if k != "measure"}, "terms": list(self.terms)}
