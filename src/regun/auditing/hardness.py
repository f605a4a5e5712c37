"""Records next to unseen ones that are as hard: what is usual for a record of that hardness, and how far off it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regun.auditing.predictions import FloatArray, IntArray

NEAR = 100
"""Unseen records, nearest in hardness, that say what is usual."""
AS_HARD = 300
"""Unseen records, nearest in hardness, that may stand in the place of a forgotten one."""
_AT_ONCE = 500_000  # records drawn at a time: bounds memory
_MANY = 300  # records from which on an effect is normal, far beyond what its draws would show


@dataclass(frozen=True, eq=False)
class HardnessIndex:
    """Unseen records sorted by hardness, and the places of forgotten ones among them."""

    order: IntArray
    unseen: FloatArray  # hardness, sorted
    forget: FloatArray  # hardness

    @classmethod
    def of(cls, forget: FloatArray, unseen: FloatArray) -> HardnessIndex:
        middle = float(unseen.mean())  # sums of squares lose fewer digits
        order = np.argsort(unseen, kind="stable").astype(np.int64)
        return cls(order, unseen[order] - middle, forget - middle)

    @property
    def near(self) -> int:
        return min(NEAR, len(self.unseen) // 2)

    @property
    def as_hard(self) -> int:
        return min(AS_HARD, len(self.unseen))

    def windows(self, width: int) -> IntArray:
        """Return where the `width` unseen records nearest in rank to each forgotten one begin."""
        left, right = (np.searchsorted(self.unseen, self.forget, side) for side in ("left", "right"))
        return _inside((left + right) // 2, width, len(self.unseen))

    def residuals(self, forget: FloatArray, unseen: FloatArray) -> Residuals:
        """Return how far a model's scores are from what is usual, those of unseen records without themselves.

        Usual is a straight line through the scores of the nearest unseen records, over their hardness.
        """
        scores, width, rows = unseen[self.order], self.near, np.arange(len(unseen))
        own_windows = _inside(rows, width, len(scores))
        theirs = scores - _line(self.unseen, scores, own_windows, width, self.unseen, rows)
        squares = theirs**2
        least = 1e-9 + 1e-3 * float(np.sqrt(squares.mean()))
        places = self.windows(width)
        usual = _line(self.unseen, scores, places, width, self.forget)
        return Residuals(
            forget=forget - usual,
            usual=usual,
            spread=np.maximum(_root(_sums(squares, places, width) / width), least),
            unseen=theirs,
            unseen_spread=np.maximum(_root((_sums(squares, own_windows, width) - squares) / (width - 1)), least),
        )


@dataclass(frozen=True, eq=False)
class Residuals:
    """Of one model: scores minus what is usual, what that is, and how much unseen records of like hardness spread.

    Those of unseen records are in the order of the index.
    """

    forget: FloatArray
    usual: FloatArray
    spread: FloatArray
    unseen: FloatArray
    unseen_spread: FloatArray

    @property
    def scaled(self) -> FloatArray:
        return self.unseen / self.unseen_spread


def null_effects(
    index: HardnessIndex, models: Sequence[Residuals], weights: FloatArray, draws: int, rng: np.random.Generator
) -> FloatArray:
    """Return the effects (models, draws), had unseen records of like hardness stood in place of the forgotten.

    An unseen record comes with its residual at the spread of the place it takes. The forgotten record itself is one of
    those that may stand there, as in any permutation test, so that no rank is 0. With other unseen records the usual
    value would differ, too: that noise is added, normal.
    """
    draw = _normal_effects if len(weights) > _MANY else _drawn_effects
    effects = draw(index, models, weights, draws, rng)
    return effects + _noise(_usual_noise(index, models, weights), draws, rng)


def _drawn_effects(
    index: HardnessIndex, models: Sequence[Residuals], weights: FloatArray, draws: int, rng: np.random.Generator
) -> FloatArray:
    width, n = index.as_hard, len(weights)
    start, step = index.windows(width), max(1, _AT_ONCE // n)
    effects = np.empty((len(models), draws))
    for first in range(0, draws, step):
        rows = slice(first, min(first + step, draws))
        chosen = rng.integers(0, width + 1, size=(rows.stop - first, n))
        itself, places = chosen == width, start + np.minimum(chosen, width - 1)
        for number, model in enumerate(models):
            theirs = model.scaled[places] * model.spread
            effects[number, rows] = np.where(itself, model.forget, theirs) @ weights
    return effects


def _normal_effects(
    index: HardnessIndex, models: Sequence[Residuals], weights: FloatArray, draws: int, rng: np.random.Generator
) -> FloatArray:
    """Return effects drawn from the normal with the mean and covariance of such draws."""
    width = index.as_hard
    start = index.windows(width)
    reach = [weights * model.spread for model in models]
    means = [_sums(model.scaled, start, width) / width for model in models]
    covariance = np.empty((len(models), len(models)))
    for i, one in enumerate(models):
        for j, other in enumerate(models):
            both = _sums(one.scaled * other.scaled, start, width) / width - means[i] * means[j]
            covariance[i, j] = (reach[i] * reach[j]) @ both
    centre = np.array([r @ m for r, m in zip(reach, means, strict=True)])
    return centre[:, None] + _noise(covariance, draws, rng)


def _usual_noise(index: HardnessIndex, models: Sequence[Residuals], weights: FloatArray) -> FloatArray:
    """Return the covariance of the usual values, each unseen record weighing as much as it is used."""
    width = index.near
    places, steps = index.windows(width), np.zeros(len(index.unseen) + 1)
    np.add.at(steps, places, weights / width)
    np.add.at(steps, places + width, -weights / width)
    used = np.cumsum(steps)[:-1] ** 2
    return np.array([[float(used @ (one.unseen * other.unseen)) for other in models] for one in models])


def _noise(covariance: FloatArray, draws: int, rng: np.random.Generator) -> FloatArray:
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ rng.standard_normal((len(values), draws))


def _inside(middle: IntArray, width: int, size: int) -> IntArray:
    return np.clip(middle - width // 2, 0, size - width).astype(np.int64)


def _sums(values: FloatArray, start: IntArray, width: int) -> FloatArray:
    """Return sums of `width` neighbouring values from each of `start`."""
    totals = np.concatenate([[0.0], np.cumsum(values)])
    return totals[start + width] - totals[start]


def _line(
    x: FloatArray, y: FloatArray, start: IntArray, width: int, at: FloatArray, without: IntArray | None = None
) -> FloatArray:
    """Return least-squares lines through windows of (x, y), x sorted, each read at `at`, kept inside its window.

    `without` names a point of each window that does not count.
    """
    count = float(width - (without is not None))
    sums = [_sums(v, start, width) for v in (x, y, x * x, x * y)]
    if without is not None:
        sums = [s - v[without] for s, v in zip(sums, (x, y, x * x, x * y), strict=True)]
    mean_x, mean_y, square, both = (s / count for s in sums)
    spread = square - mean_x**2
    slope = np.where(spread > 1e-9, (both - mean_x * mean_y) / np.maximum(spread, 1e-9), 0.0)
    return mean_y + slope * (np.clip(at, x[start], x[start + width - 1]) - mean_x)


def _root(values: FloatArray) -> FloatArray:
    """Return the square root; rounding leaves differences of sums a little below 0."""
    return np.sqrt(np.maximum(values, 0.0))
