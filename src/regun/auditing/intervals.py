"""How sure a number is: resamples, and the intervals made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from regun.auditing.predictions import FloatArray
from regun.auditing.roc import Contrast, Weights
from regun.errors import AuditError
from regun.rng import derive

LEVEL = 0.95
Replicates = Callable[[Mapping[str, Weights]], FloatArray]
"""A number under resampling: from the weights of every split, by name, to one row or several, a column per resample."""

_MANY = 20_000  # values whose mean's resamples are normal far beyond the digits of an interval
_EXTRA = 0.75  # part of an example added at the worst place: keeps 93 % even where members beat all or none
_CHUNK = 2_000_000  # weights of the largest split held at once: bounds memory however large a split is


@dataclass(frozen=True)
class Estimate:
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
    """Return a generator that depends on the seed and the names only."""
    return np.random.default_rng(derive(seed, *names))


def resample(sizes: Mapping[str, int], resamples: int, seed: int) -> Iterator[dict[str, Weights]]:
    """Yield chunks of resampling weights for named sets: {name: (size, columns)}, columns add to `resamples`.

    Each column draws `size` examples with replacement. A set's draws depend on the seed, its name and its size only,
    so every number of an audit sees the same resamples.
    """
    columns = max(1, min(250, _CHUNK // max(sizes.values(), default=1)))
    generators = {name: rng(seed, "resample", name) for name in sizes}
    for start in range(0, resamples, columns):
        width = min(columns, resamples - start)
        yield {name: _draw(generators[name], size, width) for name, size in sizes.items()}


def replicate(statistics: Mapping[str, Replicates], sizes: Mapping[str, int], how: Resampling) -> dict[str, FloatArray]:
    """Return each number under the same resamples, (rows, resamples) by name; empty without resamples."""
    parts: dict[str, list[FloatArray]] = {name: [] for name in statistics}
    for weights in resample(sizes, how.resamples, how.seed):
        for name, replicates in statistics.items():
            parts[name].append(np.atleast_2d(replicates(weights)))
    return {name: np.concatenate(drawn, axis=1) for name, drawn in parts.items() if drawn}


def bootstrap_contrast(contrast: Contrast, resamples: int, seed: int) -> FloatArray:
    """Return AUC, TPR at 1 % and 0.1 % FPR and advantage of every resample, (4, resamples)."""
    sizes = {"members": len(contrast.members), "nonmembers": len(contrast.nonmembers)}
    drawn = [contrast.statistics(w["members"], w["nonmembers"]) for w in resample(sizes, resamples, seed)]
    return np.concatenate(drawn, axis=1)


def bootstrap_mean(values: FloatArray, resamples: int, generator: np.random.Generator) -> FloatArray:
    """Return the mean of every resample of `values`; of very many, drawn from the normal that it then follows."""
    n = len(values)
    if n > _MANY:
        return generator.normal(values.mean(), values.std() / math.sqrt(n), size=resamples)
    columns = max(1, min(250, _CHUNK // n))
    means = np.empty(resamples)
    for start in range(0, resamples, columns):
        width = min(columns, resamples - start)
        means[start : start + width] = values @ _draw(generator, n, width) / n
    return means


def percentile(value: float, draws: FloatArray, level: float = LEVEL, scale: float = 100.0) -> Estimate:
    """Return `value` with the central `level` of its resampled values, both times `scale`."""
    if not draws.size:
        return Estimate(scale * value)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(scale * value, scale * float(low), scale * float(high))


def share(value: float, size: int, level: float = LEVEL) -> Estimate:
    """Return a share of `size` examples in percent, with the exact binomial interval (Clopper-Pearson).

    >>> round(share(1.0, 3).low)  # three of three leave shares down to 29 % possible
    29
    """
    low, high = _ends(_one_more_miss(value, size), _one_more_miss(1.0 - value, size), level)
    return Estimate(100.0 * value, low, high)


def share_above_bar(value: float, draws: FloatArray, size: int, level: float = LEVEL) -> Estimate:
    """Return a share beyond an uncertain bar, in percent: the percentile interval or the exact, if wider."""
    number, exact = percentile(value, draws, level), share(value, size, level)
    if number.low is None or number.high is None or exact.low is None or exact.high is None:
        return number
    return Estimate(number.value, min(number.low, exact.low), max(number.high, exact.high))


def balanced_share(first: FloatArray, second: FloatArray, level: float = LEVEL) -> Estimate:
    """Return the mean of two shares in percent, given as hits (1.0) and misses (0.0) of two sets of examples."""

    def moments(*sets: FloatArray) -> tuple[float, float]:
        each = [_one_more_miss(float(hits.mean()), len(hits)) for hits in sets]
        return sum(mean for mean, _ in each) / 2.0, sum(variance for _, variance in each) / 4.0

    low, high = _ends(moments(first, second), moments(1.0 - first, 1.0 - second), level)
    return Estimate(50.0 * float(first.mean() + second.mean()), low, high)


def auc_interval(contrast: Contrast, level: float = LEVEL) -> Estimate:
    """Return AUC in percent, with an interval that keeps its level however few members or non-members there are.

    The low end: add 3/4 of a member that beats nobody and of a non-member that nobody beats, and let the examples have
    any weights, D ~ Dirichlet(1, ..., 1, 3/4) over members and W over non-members. It is the (1 - level)/2 quantile of
    sum_ij D_i W_j psi_ij (psi_ij = 1 where member i beats non-member j, 1/2 for a tie), read from the Beta distribution
    of the same mean and variance. The high end: the same from the other side. With many examples it is DeLong's.

    A single example has a rank among the n of the other kind. Had the model never seen it, all n + 1 ranks would be
    equally likely, so that at most k of the others are at or below it with probability (k + 1) / (n + 1). Its interval
    leaves out 50 only where this two-sided rank test rejects, 2 (k + 1) / (n + 1) < 1 - level:

        low, high = 100 (share won without ties, with ties) -+ reach,   reach = 50 level + 50 (1 + level) / n
    """
    m, n = len(contrast.members), len(contrast.nonmembers)
    members, nonmembers, ties = contrast.wins()
    if min(m, n) == 1:
        pairs = m * n
        reach = 50.0 * level * pairs + 50.0 * (1.0 + level)  # times the pairs, so that 50 itself is not rounded away
        low, high = 100.0 * float(contrast.below.sum()) - reach, 100.0 * float(contrast.upto.sum()) + reach
        return Estimate(100.0 * float(members.sum()) / pairs, max(0.0, low / pairs), min(100.0, high / pairs))
    lost = n - members, m - nonmembers
    low, high = _ends(_weighted_auc(members, nonmembers, ties), _weighted_auc(*lost, ties), level)
    return Estimate(100.0 * (float(members.sum()) / (m * n)), low, high)


def auc_noise(one: tuple[FloatArray, FloatArray], other: tuple[FloatArray, FloatArray]) -> float:
    """Return the standard deviation, over examples, of the difference of two models' AUCs (DeLong), in percent.

    Both are given as the placements of members and of non-members.
    """
    return 100.0 * math.sqrt(math.fsum(float((a - b).var()) / len(a) for a, b in zip(one, other, strict=True)))


def mean_noise(one: FloatArray, other: FloatArray) -> float:
    """Return the same for the difference of two means of one value per example."""
    return float((one - other).std()) / math.sqrt(len(one))


def share_noise(one: FloatArray, other: FloatArray) -> float:
    """Return the same for two shares of hits, with one more example on which they differ.

    That two models agree on all these examples does not mean that they always do.
    """
    return math.hypot(mean_noise(one, other), 1.0 / len(one))


def _weighted_auc(members: FloatArray, nonmembers: FloatArray, ties: int) -> tuple[float, float]:
    """Return mean and variance of sum_ij D_i W_j psi_ij, from the sums of psi over j, over i, and the number of ties.

    E[D_i] = 1 / M and E[D_i D_k] = (1 + [i = k]) / (M (M + 1)) with M = m + 3/4; likewise W.
    """
    m, n, total = len(members) + _EXTRA, len(nonmembers) + _EXTRA, float(members.sum())
    squares = total**2 + float((members**2).sum()) + float((nonmembers**2).sum()) + (total - ties / 4.0)
    mean = total / (m * n)
    return mean, squares / (m * (m + 1) * n * (n + 1)) - mean**2


def _one_more_miss(value: float, size: int) -> tuple[float, float]:
    """Return mean and variance of Beta(hits, size + 1 - hits): what the share may be, had one more example missed."""
    mean = value * size / (size + 1)
    return mean, mean * (1.0 - mean) / (size + 2)


def _ends(low: tuple[float, float], high: tuple[float, float], level: float) -> tuple[float, float]:
    """Return both ends in percent, from mean and variance seen from below, and of the complement from above."""
    return 100.0 * _beta_quantile(*low, (1 - level) / 2), 100.0 * (1.0 - _beta_quantile(*high, (1 - level) / 2))


def _beta_quantile(mean: float, variance: float, at: float) -> float:
    """Return the quantile of the Beta distribution with this mean and variance."""
    if mean <= 0.0:
        return 0.0
    both = mean * (1.0 - mean) / variance - 1.0
    return float(betaincinv(mean * both, (1.0 - mean) * both, at))


def distance(value: float, draws: FloatArray, significantly_apart: bool, level: float = LEVEL) -> Estimate:
    """Return the basic interval [2 v - q_high, 2 v - q_low] of a distance, between 0 and 1, in percent.

    Resampling adds noise of its own to a largest difference, so percentiles of a distance lie too high; the basic
    interval takes that shift back. Near a true distance of 0 only a test decides: `significantly_apart`.
    """
    if not draws.size:
        return Estimate(100.0 * value)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    ends = np.clip([2 * value - high, 2 * value - low], 0.0, 1.0)
    return Estimate(
        100.0 * value, 100.0 * float(ends[0]) if significantly_apart else 0.0, 100.0 * max(float(ends[1]), value)
    )


def ks_bar(members: int, nonmembers: int, level: float = LEVEL) -> float:
    """Return the two-sample Kolmogorov-Smirnov distance that equal distributions exceed in 1 - level of cases."""
    return math.sqrt(-math.log((1 - level) / 2) / 2) * math.sqrt(1 / members + 1 / nonmembers)


def significantly_apart(ks: float, members: int, nonmembers: int, level: float = LEVEL) -> bool:
    """Return True if the two-sample Kolmogorov-Smirnov test rejects equal distributions."""
    return ks > ks_bar(members, nonmembers, level)


def _draw(generator: np.random.Generator, size: int, columns: int) -> Weights:
    weights = np.empty((columns, size), dtype=np.uint8)  # a count above 255 has probability below 1e-500
    for row in weights:
        row[:] = np.bincount(generator.integers(0, size, size=size, dtype=np.int32), minlength=size)
    return np.ascontiguousarray(weights.T)
