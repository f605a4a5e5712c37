"""Members against non-members: what two sets of scores say about an attack."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from regun.auditing.predictions import FloatArray, IntArray
from regun.errors import AuditError

Weights = npt.NDArray[np.uint8]
"""How often each example (row) was drawn in each resample (column)."""
Counts = npt.NDArray[np.int32]

FPR_TARGETS = (0.01, 0.001)


@dataclass(frozen=True, eq=False)
class Contrast:
    """Two sets of scores, sorted once; every statistic then costs one pass, also for many resamples together."""

    members: FloatArray  # sorted scores
    nonmembers: FloatArray
    member_order: IntArray  # positions of the sorted scores in the arrays that `of` takes
    nonmember_order: IntArray
    below: IntArray  # for each sorted member, non-members with a lower score ...
    upto: IntArray  # ... and with a score not higher; the two differ where scores are tied

    @classmethod
    def of(cls, members: FloatArray, nonmembers: FloatArray) -> Contrast:
        _check_scores(members, "members")
        _check_scores(nonmembers, "non-members")
        m_order, n_order = np.argsort(members), np.argsort(nonmembers)
        m_sorted, n_sorted = members[m_order], nonmembers[n_order]
        below = np.searchsorted(n_sorted, m_sorted, side="left")
        upto = np.searchsorted(n_sorted, m_sorted, side="right")
        return cls(m_sorted, n_sorted, m_order, n_order, below, upto)

    def statistics(self, members: Weights | None = None, nonmembers: Weights | None = None) -> FloatArray:
        """Return AUC, TPR at 1 % and 0.1 % FPR, and advantage, as rows (4, resamples); without weights one column."""
        drawn = _Drawn(self, members, nonmembers)
        return np.stack([drawn.auc(), *(drawn.tpr(target) for target in FPR_TARGETS), drawn.advantage()])

    def auc(self) -> float:
        """Return P(member's score > non-member's) + 1/2 P(equal)."""
        return float(_Drawn(self, None, None).auc()[0])

    def wins(self) -> tuple[FloatArray, FloatArray, int]:
        """Return how many non-members each member beats, how many members beat each non-member, and the tied pairs.

        A tie counts half.
        """
        lower = np.searchsorted(self.members, self.nonmembers, side="left")
        upper = np.searchsorted(self.members, self.nonmembers, side="right")
        beaten_by = len(self.members) - (lower + upper) / 2.0
        return (self.below + self.upto) / 2.0, beaten_by, int((self.upto - self.below).sum())

    def placements(self) -> tuple[FloatArray, FloatArray]:
        """Return the share of non-members that each member beats, and of members that beat each non-member."""
        members, nonmembers, _ = self.wins()
        return self._in_input_order(members / len(nonmembers), nonmembers / len(members))

    def scores(self) -> tuple[FloatArray, FloatArray]:
        """Return the scores of members and of non-members, in the order in which `of` takes them."""
        return self._in_input_order(self.members, self.nonmembers)

    def _in_input_order(self, members: FloatArray, nonmembers: FloatArray) -> tuple[FloatArray, FloatArray]:
        unsorted = np.empty(len(members)), np.empty(len(nonmembers))
        unsorted[0][self.member_order] = members
        unsorted[1][self.nonmember_order] = nonmembers
        return unsorted

    def advantage(self, members: Weights | None = None, nonmembers: Weights | None = None) -> FloatArray:
        """Return max |F_members - F_nonmembers|, for each resample: the Kolmogorov-Smirnov distance, too."""
        return _Drawn(self, members, nonmembers).advantage()

    def wasserstein(self, members: Weights | None = None, nonmembers: Weights | None = None) -> FloatArray:
        """Return the integral of |F_members - F_nonmembers| over the scores, for each resample."""
        return _Drawn(self, members, nonmembers).wasserstein()


class _Drawn:
    """One set of resamples of a contrast: running totals of the weights in score order, and statistics of them.

    Entry i of a running total counts the draws among the i lowest scores, a column for each resample. Differences of
    distribution functions are taken in whole numbers, F_m - F_n = (M n - N m) / (m n), exactly.
    """

    def __init__(self, contrast: Contrast, members: Weights | None, nonmembers: Weights | None) -> None:
        self.contrast = contrast
        self.m, self.n = len(contrast.members), len(contrast.nonmembers)
        members = np.ones((self.m, 1), np.uint8) if members is None else members
        nonmembers = np.ones((self.n, 1), np.uint8) if nonmembers is None else nonmembers
        self.weights = members[contrast.member_order]
        self.nonmembers = running_totals(nonmembers[contrast.nonmember_order])  # (n + 1, resamples)
        self.below = self.nonmembers[contrast.below]  # drawn non-members with a lower score than each member
        tied = not np.array_equal(contrast.below, contrast.upto)
        self.upto = self.nonmembers[contrast.upto] if tied else self.below

    @cached_property
    def members(self) -> Counts:
        return running_totals(self.weights)  # (m + 1, resamples)

    def auc(self) -> FloatArray:
        beaten = self.below + self.upto
        total: FloatArray = np.einsum("ij,ij->j", self.weights, beaten, dtype=np.float64)
        return total / (2.0 * self.m * self.n)

    def tpr(self, target: float) -> FloatArray:
        """Return the largest TPR whose FPR is <= target: the share of members above the first non-member too many."""
        allowed = math.floor(target * self.n + 1e-9)
        first_refused = _count_below(self.nonmembers[:-1], self.n - allowed) - 1
        bar = self.contrast.nonmembers[first_refused]
        start = np.searchsorted(self.contrast.members, bar, side="right")
        return 1.0 - self.members[start, np.arange(len(start))] / self.m

    def advantage(self) -> FloatArray:
        """Return max |TPR - FPR| over all thresholds.

        Between two members' scores only the non-members' distribution moves, so F_m - F_n is largest at a member's
        score and F_n - F_m just below one. Of members that tie, the last and the first are right and so the largest.
        """
        scaled = self._scaled(self.members, self.n)
        after, before = scaled[1:], scaled[:-1]
        below = self._scaled(self.below, self.m)
        upto = below if self.upto is self.below else self._scaled(self.upto, self.m)
        return np.maximum((after - upto).max(axis=0), (below - before).max(axis=0)) / (self.m * self.n)

    def wasserstein(self) -> FloatArray:
        """Return integral of |F_members - F_nonmembers|, summed over the steps between neighbouring scores."""
        points = np.sort(np.concatenate([self.contrast.members, self.contrast.nonmembers]))
        steps = np.diff(points)
        f_members = np.searchsorted(self.contrast.members, points[:-1], side="right")
        f_nonmembers = np.searchsorted(self.contrast.nonmembers, points[:-1], side="right")
        total = np.zeros(self.weights.shape[1])
        for rows in (slice(k, k + 256) for k in range(0, len(steps), 256)):
            difference = self._scaled(self.members[f_members[rows]], self.n)
            difference -= self._scaled(self.nonmembers[f_nonmembers[rows]], self.m)
            total += steps[rows] @ np.abs(difference)
        return total / (self.m * self.n)

    def _scaled(self, counts: Counts, factor: int) -> npt.NDArray[np.signedinteger]:
        return counts * np.int32(factor) if self.m * self.n < 2**31 else counts * np.int64(factor)


def running_totals(weights: Weights) -> Counts:
    """Return 0 and the cumulative sums down the rows, (n + 1, resamples).

    In blocks of about sqrt(n) rows, every step works on long contiguous runs: 3-4 times faster than np.cumsum here.
    """
    n, resamples = weights.shape
    block = math.isqrt(n - 1) + 1
    blocks = -(-n // block)
    totals = np.zeros((blocks * block + 1, resamples), dtype=np.int32)
    totals[1 : n + 1] = weights
    view = totals[1:].reshape(blocks, block, resamples)
    for row in range(1, block):
        view[:, row] += view[:, row - 1]
    for number in range(1, blocks):
        view[number] += view[number - 1, -1]
    return totals[: n + 1]


def _count_below(totals: Counts, bar: int) -> IntArray:
    """Return how many entries of each column, which never decreases, are below `bar`; by bisection."""
    columns: IntArray = np.arange(totals.shape[1], dtype=np.int64)
    low, high = np.zeros(len(columns), dtype=np.int64), np.full(len(columns), len(totals))
    while (low < high).any():
        middle = (low + high) // 2
        below = totals[np.minimum(middle, len(totals) - 1), columns] < bar
        low, high = np.where(below & (low < high), middle + 1, low), np.where(below, high, middle)
    return low


def roc_curve(contrast: Contrast, points: int | None = None) -> tuple[FloatArray, FloatArray]:
    """Return FPR and TPR at every distinct threshold, from (0, 0) to (1, 1); at most about `points` of them.

    Thinning keeps the ends and takes half of the points evenly in FPR, half evenly in log FPR.
    """
    levels = np.unique(np.concatenate([contrast.members, contrast.nonmembers]))[::-1]
    m, n = len(contrast.members), len(contrast.nonmembers)
    tpr = np.concatenate([[0.0], 1.0 - np.searchsorted(contrast.members, levels, side="left") / m])
    fpr = np.concatenate([[0.0], 1.0 - np.searchsorted(contrast.nonmembers, levels, side="left") / n])
    if points is None or len(fpr) <= points:
        return fpr, tpr
    rates = np.concatenate([np.linspace(0, 1, points // 2), np.geomspace(1 / n, 1, points // 2)])
    keep = np.unique(np.concatenate([[0, len(fpr) - 1], np.searchsorted(fpr, rates, side="right") - 1]))
    return fpr[keep], tpr[keep]


def best_threshold(members: FloatArray, nonmembers: FloatArray) -> float:
    """Return the score t for which 'score >= t means member' has the largest TPR - FPR; inf if none is above 0."""
    members, nonmembers = np.sort(members), np.sort(nonmembers)
    missed = np.searchsorted(members, members, side="left") / len(members)
    cleared = np.searchsorted(nonmembers, members, side="left") / len(nonmembers)
    best = int((cleared - missed).argmax())
    return float(members[best]) if cleared[best] > missed[best] else math.inf


def cross_fitted_hits(
    members: FloatArray, nonmembers: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return 1.0 where the threshold chosen on the other half of the examples classifies an example correctly.

    Balanced accuracy is the mean of the two means; a threshold picked on the scores it is judged by is too good.
    """
    if min(len(members), len(nonmembers)) < 2:
        raise AuditError("a cross-fitted threshold needs at least two members and two non-members.")
    first_members, first_nonmembers = (rng.permutation(len(s)) % 2 == 0 for s in (members, nonmembers))
    threshold = best_threshold(members[first_members], nonmembers[first_nonmembers])
    other = best_threshold(members[~first_members], nonmembers[~first_nonmembers])
    accused_members = members >= np.where(first_members, other, threshold)
    accused_nonmembers = nonmembers >= np.where(first_nonmembers, other, threshold)
    return accused_members.astype(np.float64), (~accused_nonmembers).astype(np.float64)


def _check_scores(scores: FloatArray, who: str) -> None:
    if scores.ndim != 1 or not len(scores):
        raise AuditError(
            f"scores of {who} have shape {scores.shape}; an attack needs examples of both kinds, one score each."
        )
    if np.isnan(scores).any():
        raise AuditError(f"the score of row {int(np.isnan(scores).argmax())} of {who} is NaN; it cannot be ranked.")
