"""How sure a number is: resamples, and the intervals made of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from regun.errors import AuditError
from regun.evaluate.roc import Contrast, Weights, delong_error
from regun.evaluate.signals import FloatArray
from regun.seeds import derive

LEVEL = 0.95
_MANY = 20_000  # values whose mean's resamples are normal far beyond the digits of an interval
_CHUNK = 2_000_000  # weights of the largest split held at once: bounds memory however large a split is


@dataclass(frozen=True)
class Number:
    """A value and, where it has one, the ends of its interval."""

    value: float
    low: float | None = None
    high: float | None = None

    def to_json(self) -> list[float | None]:
        return [self.value, self.low, self.high]


@dataclass(frozen=True)
class Resampling:
    """How intervals are made: so many resamples (0 for none), from this seed, to cover at this level."""

    resamples: int = 1000
    seed: int = 0
    level: float = LEVEL

    def __post_init__(self) -> None:
        if self.resamples < 0 or not 0.0 < self.level < 1.0:
            raise AuditError(
                f"{self.resamples} resamples at level {self.level}; give 0 or more resamples, a level between 0 and 1."
            )


def rng(seed: int, *names: str) -> np.random.Generator:
    """A generator that depends on the seed and the names only."""
    return np.random.default_rng(derive(seed, *names))


def resample(sizes: Mapping[str, int], resamples: int, seed: int) -> Iterator[dict[str, Weights]]:
    """Chunks of resampling weights for named sets of examples: {name: (size, columns)}, columns add to `resamples`.

    Each column draws `size` examples with replacement. A set's draws depend on the seed, its name and its size only,
    so every number of an audit sees the same resamples.
    """
    columns = max(1, min(250, _CHUNK // max(sizes.values(), default=1)))
    generators = {name: rng(seed, "resample", name) for name in sizes}
    for start in range(0, resamples, columns):
        width = min(columns, resamples - start)
        yield {name: _draw(generators[name], size, width) for name, size in sizes.items()}


def bootstrap_contrast(contrast: Contrast, resamples: int, seed: int) -> FloatArray:
    """AUC, TPR at 1 % and 0.1 % FPR and advantage of every resample, (4, resamples)."""
    sizes = {"members": len(contrast.members), "nonmembers": len(contrast.nonmembers)}
    drawn = [contrast.statistics(w["members"], w["nonmembers"]) for w in resample(sizes, resamples, seed)]
    return np.concatenate(drawn, axis=1)


def bootstrap_mean(values: FloatArray, resamples: int, generator: np.random.Generator) -> FloatArray:
    """The mean of every resample of `values`.

    For values of 0 and 1 it is drawn as the binomial it is; for very many values as the normal it then is.
    """
    n = len(values)
    if np.isin(values, (0.0, 1.0)).all():
        return generator.binomial(n, values.mean(), size=resamples) / n
    if n > _MANY:
        return generator.normal(values.mean(), values.std() / math.sqrt(n), size=resamples)
    columns = max(1, min(250, _CHUNK // n))
    means = np.empty(resamples)
    for start in range(0, resamples, columns):
        width = min(columns, resamples - start)
        means[start : start + width] = values @ _draw(generator, n, width) / n
    return means


def percentile(value: float, draws: FloatArray, level: float = LEVEL, scale: float = 100.0) -> Number:
    """`value` with the central `level` of its resampled values, both times `scale`."""
    if not draws.size:
        return Number(scale * value)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Number(scale * value, scale * float(low), scale * float(high))


def proportion(value: float, draws: FloatArray, size: int, level: float = LEVEL) -> Number:
    """A percentile interval of a share of `size` examples; at 0 and 1, where resamples cannot vary, the exact bound.

    None of n seen leaves shares up to 1 - ((1 - level) / 2)^(1/n) possible.
    """
    number = percentile(value, draws, level)
    if not draws.size or 0.0 < value < 1.0:
        return number
    slack = 100.0 * (1.0 - ((1.0 - level) / 2.0) ** (1.0 / size))
    if value <= 0.0:
        return Number(number.value, number.low, max(number.high or 0.0, slack))
    return Number(number.value, min(number.low or 0.0, 100.0 - slack), number.high)


def distance(
    value: float, draws: FloatArray, told_apart: bool, level: float = LEVEL, *, ceiling: float | None = 1.0
) -> Number:
    """The basic interval [2 v - q_high, 2 v - q_low] of a distance, at least 0; its low end is 0 unless `told_apart`.

    Resampling adds noise of its own to a largest difference, so percentiles of a distance lie too high; the basic
    interval takes that shift back. Near a true distance of 0 only a test can tell, which is what `told_apart` says.
    """
    if not draws.size:
        return Number(100.0 * value)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    ends = np.clip([2 * value - high, 2 * value - low], 0.0, ceiling)
    return Number(100.0 * value, 100.0 * float(ends[0]) if told_apart else 0.0, 100.0 * max(float(ends[1]), value))


def told_apart(ks: float, members: int, nonmembers: int, level: float = LEVEL) -> bool:
    """Whether the two-sample Kolmogorov-Smirnov test rejects equal distributions (asymptotic critical value)."""
    critical = math.sqrt(-math.log((1 - level) / 2) / 2)
    return ks > critical * math.sqrt(1 / members + 1 / nonmembers)


def delong(contrast: Contrast, level: float = LEVEL) -> Number:
    """AUC in percent with DeLong's interval: AUC +- z * error, kept within 0..100."""
    if min(len(contrast.members), len(contrast.nonmembers)) < 2:
        raise AuditError("DeLong's interval needs at least two members and two non-members.")
    value, reach = float(contrast.auc()[0]), NormalDist().inv_cdf((1 + level) / 2) * delong_error(contrast)
    return Number(100 * value, 100 * max(0.0, value - reach), 100 * min(1.0, value + reach))


def _draw(generator: np.random.Generator, size: int, columns: int) -> Weights:
    weights = np.empty((columns, size), dtype=np.uint8)  # a count above 255 has probability below 1e-500
    for row in weights:
        row[:] = np.bincount(generator.integers(0, size, size=size, dtype=np.int32), minlength=size)
    return np.ascontiguousarray(weights.T)
