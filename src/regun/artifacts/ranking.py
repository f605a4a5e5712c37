"""Rank examples by predictions or features: the hardest, the easiest, the nearest, a cluster."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from regun.auditing.predictions import FloatArray
from regun.errors import SplitError
from regun.forget_spec import ForgetSpec
from regun.splits import Reserve
from regun.types import Indices

FLOOR = -50.0
"""Lower limit of log-probabilities, so that one confident model does not dominate the mean."""
ROUNDS = 50
"""Rounds of k-means at most."""


def hardness(log_probs: Sequence[FloatArray]) -> FloatArray:
    """Return the mean loss -log p_y of several models on every example, (n,)."""
    return -np.mean(np.maximum(np.stack(log_probs), FLOOR), axis=0)


def by_hardness(spec: ForgetSpec, scores: FloatArray, reserved: Reserve) -> Indices:
    """Return the hardest or easiest training examples; `scores` are in the order of `reserved.base`."""
    available = len(reserved.val) + len(reserved.pool)
    count = round(spec.fraction * available)
    if not 0 < count < len(reserved.pool):
        raise SplitError(
            f"{spec.text} is {count} of {len(reserved.pool)} training examples; forget at "
            f"least one and retain at least one."
        )
    order = np.argsort(-scores if spec.kind == "hard" else scores, kind="stable")
    return reserved.base[order[:count]]


def by_features(spec: ForgetSpec, features: FloatArray, labels: Indices, reserved: Reserve) -> Indices:
    """Return the nearest examples or a cluster; `features` are of all examples, (total, d)."""
    pool = reserved.base
    unit = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    if spec.kind == "like":
        if spec.example >= len(unit):
            raise SplitError(f"{spec.text} names example {spec.example}; the data has ids 0 to {len(unit) - 1}.")
        if spec.count >= len(pool):
            raise SplitError(f"{spec.text} names {spec.count} of {len(pool)} training examples, which retains none.")
        nearest = np.argsort(-(unit[pool] @ unit[spec.example]), kind="stable")
        return pool[nearest[: spec.count]]
    if spec.kind == "subclass":
        pool = pool[labels[pool] == spec.classes[0]]
    if spec.parts > len(pool):
        where = f"class {spec.classes[0]}" if spec.kind == "subclass" else "the training set"
        raise SplitError(f"{spec.parts} clusters of {len(pool)} examples of {where}; give fewer clusters.")
    groups = clusters(unit[pool], spec.parts)
    sizes = np.bincount(groups, minlength=spec.parts)
    chosen = np.argsort(-sizes, kind="stable")[spec.part - 1]
    cluster = pool[groups == chosen]
    if len(cluster) == len(reserved.pool):
        raise SplitError("the cluster holds every training example; give more clusters.")
    return cluster


def clusters(points: FloatArray, count: int) -> npt.NDArray[np.int64]:
    """Return the cluster of every point by k-means from farthest-first centers, without randomness.

    Starts at the point farthest from the mean; each further center is the point farthest from all before it.
    """
    first = int(((points - points.mean(axis=0)) ** 2).sum(axis=1).argmax())
    centers = points[[first]]
    while len(centers) < count:
        centers = np.concatenate([centers, points[[int(_distances(points, centers).min(axis=1).argmax())]]])
    groups = _distances(points, centers).argmin(axis=1)
    for _ in range(ROUNDS):
        means = [points[groups == k].mean(axis=0) if (groups == k).any() else centers[k] for k in range(count)]
        centers = np.stack(means)
        fresh = _distances(points, centers).argmin(axis=1)
        if np.array_equal(fresh, groups):
            break
        groups = fresh
    return groups


def _distances(points: FloatArray, centers: FloatArray) -> FloatArray:
    """Squared distances (n, k)."""
    return (points**2).sum(axis=1)[:, None] - 2 * points @ centers.T + (centers**2).sum(axis=1)[None]
