"""Which examples the answers of models name: the hardest, the easiest, the nearest, a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from regun.errors import SplitError
from regun.splits import Indices, Reserve

FloatArray = npt.NDArray[np.float64]

FLOOR = -50.0
"""Stands in for log 0, and keeps one model's certainty from outvoting the others."""


@dataclass(frozen=True)
class Selection:
    """A request before models have answered it."""

    kind: str
    fraction: float = 0.0
    example: int = 0
    count: int = 0
    label: int = 0
    part: int = 1
    parts: int = 1

    @property
    def by_early(self) -> bool:
        """Whether several models must answer that were trained for a short while."""
        return self.kind in ("hard", "easy")

    def size(self, labels: Indices, reserved: Reserve) -> int:
        """How many examples it will name; of clusters a guess."""
        if self.by_early:
            return round(self.fraction * (len(reserved.val) + len(reserved.pool)))
        if self.kind == "like":
            return self.count
        members = len(reserved.pool)
        if self.kind == "subclass":
            members = int((labels[reserved.pool] == self.label).sum())
        return max(1, members // self.parts)


def hardness(log_probs: Sequence[FloatArray]) -> FloatArray:
    """The mean loss -log p_y of several models on every example, (n,)."""
    return -np.mean(np.maximum(np.stack(log_probs), FLOOR), axis=0)


def by_hardness(selection: Selection, scores: FloatArray, reserved: Reserve) -> Indices:
    """The hardest or easiest examples of the training set; `scores` are in the order of `reserved.base`."""
    available = len(reserved.val) + len(reserved.pool)
    wanted = round(selection.fraction * available)
    if not 0 < wanted < len(reserved.pool):
        raise SplitError(
            f"{selection.kind}:{selection.fraction:g} is {wanted} of {len(reserved.pool)} training examples; ask for "
            f"at least one and leave at least one."
        )
    order = np.argsort(-scores if selection.kind == "hard" else scores, kind="stable")
    return reserved.base[order[:wanted]]


def by_features(selection: Selection, features: FloatArray, labels: Indices, reserved: Reserve) -> Indices:
    """The nearest examples or a cluster; `features` are of all examples, (total, d)."""
    pool = reserved.base
    unit = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    if selection.kind == "like":
        return _nearest(selection, unit, pool)
    if selection.kind == "subclass":
        pool = pool[labels[pool] == selection.label]
    if selection.parts > len(pool):
        where = f"class {selection.label}" if selection.kind == "subclass" else "the training set"
        raise SplitError(f"{selection.parts} clusters of {len(pool)} examples of {where}; ask for fewer.")
    groups = clusters(unit[pool], selection.parts)
    sizes = np.bincount(groups, minlength=selection.parts)
    chosen = np.argsort(-sizes, kind="stable")[selection.part - 1]
    found = pool[groups == chosen]
    if len(found) == len(reserved.pool):
        raise SplitError("the cluster holds every training example; ask for more clusters.")
    return found


def clusters(points: FloatArray, count: int, rounds: int = 50) -> npt.NDArray[np.int64]:
    """k-means from farthest-first centres, which need no chance: the number of its cluster for every point.

    Starts at the point farthest from the mean; each further centre is the point farthest from all before it.
    """
    first = int(((points - points.mean(axis=0)) ** 2).sum(axis=1).argmax())
    centres = points[[first]]
    while len(centres) < count:
        centres = np.concatenate([centres, points[[int(_distances(points, centres).min(axis=1).argmax())]]])
    groups = _distances(points, centres).argmin(axis=1)
    for _ in range(rounds):
        means = [points[groups == k].mean(axis=0) if (groups == k).any() else centres[k] for k in range(count)]
        centres = np.stack(means)
        fresh = _distances(points, centres).argmin(axis=1)
        if np.array_equal(fresh, groups):
            break
        groups = fresh
    return groups


def _distances(points: FloatArray, centres: FloatArray) -> FloatArray:
    """Squared distances (n, k)."""
    return (points**2).sum(axis=1)[:, None] - 2 * points @ centres.T + (centres**2).sum(axis=1)[None]


def _nearest(selection: Selection, unit: FloatArray, pool: Indices) -> Indices:
    if selection.example >= len(unit):
        raise SplitError(f"like: names example {selection.example}; the data has ids 0 to {len(unit) - 1}.")
    if selection.count >= len(pool):
        raise SplitError(
            f"like: asks for {selection.count} of {len(pool)} training examples, which leaves nothing to retain."
        )
    order = np.argsort(-(unit[pool] @ unit[selection.example]), kind="stable")
    return pool[order[: selection.count]]
