"""Which examples the answers of models name: the hardest, the easiest, the nearest, a cluster."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from regun.auditing.predictions import FloatArray
from regun.errors import SplitError
from regun.forget_spec import ForgetSpec
from regun.splits import Reserve
from regun.types import Indices

FLOOR = -50.0
"""Stands in for log 0, and keeps one model's certainty from outvoting the others."""


def hardness(log_probs: Sequence[FloatArray]) -> FloatArray:
    """The mean loss -log p_y of several models on every example, (n,)."""
    return -np.mean(np.maximum(np.stack(log_probs), FLOOR), axis=0)


def by_hardness(spec: ForgetSpec, scores: FloatArray, reserved: Reserve) -> Indices:
    """The hardest or easiest examples of the training set; `scores` are in the order of `reserved.base`."""
    available = len(reserved.val) + len(reserved.pool)
    wanted = round(spec.fraction * available)
    if not 0 < wanted < len(reserved.pool):
        raise SplitError(
            f"{spec.text} is {wanted} of {len(reserved.pool)} training examples; ask for "
            f"at least one and leave at least one."
        )
    order = np.argsort(-scores if spec.kind == "hard" else scores, kind="stable")
    return reserved.base[order[:wanted]]


def by_features(spec: ForgetSpec, features: FloatArray, labels: Indices, reserved: Reserve) -> Indices:
    """The nearest examples or a cluster; `features` are of all examples, (total, d)."""
    pool = reserved.base
    unit = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    if spec.kind == "like":
        return _nearest(spec, unit, pool)
    if spec.kind == "subclass":
        pool = pool[labels[pool] == spec.classes[0]]
    if spec.parts > len(pool):
        where = f"class {spec.classes[0]}" if spec.kind == "subclass" else "the training set"
        raise SplitError(f"{spec.parts} clusters of {len(pool)} examples of {where}; ask for fewer.")
    groups = clusters(unit[pool], spec.parts)
    sizes = np.bincount(groups, minlength=spec.parts)
    chosen = np.argsort(-sizes, kind="stable")[spec.part - 1]
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


def _nearest(spec: ForgetSpec, unit: FloatArray, pool: Indices) -> Indices:
    if spec.example >= len(unit):
        raise SplitError(f"like: names example {spec.example}; the data has ids 0 to {len(unit) - 1}.")
    if spec.count >= len(pool):
        raise SplitError(
            f"like: asks for {spec.count} of {len(pool)} training examples, which leaves nothing to retain."
        )
    order = np.argsort(-(unit[pool] @ unit[spec.example]), kind="stable")
    return pool[order[: spec.count]]
