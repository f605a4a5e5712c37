"""Folds for cross-fitting: stratified by label, whole groups together, whatever the order of the records."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components  # pyright: ignore[reportUnknownVariableType]

from regun.errors import DataError
from regun.rng import derive

IntArray = npt.NDArray[np.int64]


def canonical_order(keys: npt.NDArray[np.uint8], seed: int) -> IntArray:
    """Return the rows in an order that depends on their keys and the seed, not on where they stand."""
    words = np.ascontiguousarray(keys).view(np.uint64)
    mixed = [_mix(words[:, 0] ^ np.uint64(derive(seed, "order") & 0xFFFFFFFFFFFFFFFF)), words[:, 1], words[:, 0]]
    return np.lexsort(mixed[::-1]).astype(np.int64)


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Scramble each number (the finalizer of splitmix64)."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def merge_groups(size: int, *labelings: Sequence[Any] | npt.NDArray[Any]) -> IntArray:
    """Return one group number per record such that records that share a label in any labeling share the group."""
    edges: list[tuple[IntArray, IntArray]] = []
    first_free = size
    for labeling in labelings:
        if len(labeling) != size:
            raise DataError(f"groups has {len(labeling):,} entries for {size:,} records; give one for each.")
        values = np.asarray(labeling)
        codes = _numbered(values) if values.ndim == 2 else np.unique(values, return_inverse=True)[1]
        edges.append((np.arange(size), first_free + codes))
        first_free += int(codes.max()) + 1 if size else 0
    if not edges:
        return np.arange(size)
    rows, columns = (np.concatenate(parts) for parts in zip(*edges, strict=True))
    graph = coo_matrix((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(first_free, first_free))
    number = cast("npt.NDArray[np.int32]", connected_components(graph, directed=False)[1])
    return number[:size].astype(np.int64)


def sort_keys(keys: npt.NDArray[np.uint8]) -> IntArray:
    """Return the rows in ascending order of their keys."""
    words = np.ascontiguousarray(keys).view(np.uint64)
    return np.lexsort((words[:, 1], words[:, 0])).astype(np.int64)


def _numbered(keys: npt.NDArray[np.uint8]) -> IntArray:
    """Return a number per key; equal keys have equal numbers."""
    order = sort_keys(keys)
    words = np.ascontiguousarray(keys).view(np.uint64)[order]
    starts = np.concatenate([[0], (words[1:] != words[:-1]).any(axis=1)]) if len(keys) else np.zeros(0)
    numbers = np.empty(len(keys), dtype=np.int64)
    numbers[order] = np.cumsum(starts)
    return numbers


def assign_folds(
    keys: npt.NDArray[np.uint8], labels: IntArray, folds: int, seed: int, groups: IntArray | None = None
) -> npt.NDArray[np.int32]:
    """Return the fold of every record: equal shares of every label, and each group whole in one fold.

    The fold of a record follows from the set of keys, labels and groups, so permuting the records permutes the folds.
    With as many folds as records, each record has a fold of its own (leave-one-out).
    """
    order = canonical_order(keys, seed)
    group = np.arange(len(keys)) if groups is None else groups
    _, first, unit, size = np.unique(group[order], return_index=True, return_inverse=True, return_counts=True)
    if not 2 <= folds <= len(first):
        what = "groups" if groups is not None else "records"
        raise DataError(f"folds is {folds}; give 2 to {len(first)}, the number of {what}.")
    label_of = labels[order][first]
    by_size = np.lexsort((first, -size))
    codes = np.unique(label_of, return_inverse=True)[1]
    counts, totals = np.zeros((int(codes.max()) + 1, folds), dtype=np.int64), np.zeros(folds, dtype=np.int64)
    place = np.full(len(first), -1, dtype=np.int32)
    large = by_size[size[by_size] > 1]
    for u in large:
        fold = int(np.lexsort((totals, counts[codes[u]]))[0])
        place[u] = fold
        counts[codes[u], fold] += size[u]
        totals[fold] += size[u]
    single = by_size[len(large) :]  # in canonical order
    for label in range(len(counts)):
        mine = single[codes[single] == label]
        quota = _even_out(counts[label], totals, len(mine))
        place[mine] = np.repeat(np.arange(folds), quota)
        totals += quota
    fold_of = np.empty(len(keys), dtype=np.int32)
    fold_of[order] = place[unit]
    return fold_of


def _even_out(counts: IntArray, totals: IntArray, size: int) -> IntArray:
    """Return how many of `size` records each fold gets so that `counts` become as equal as they can.

    What does not divide goes to the folds with the smallest totals.
    """
    quota = np.zeros(len(counts), dtype=np.int64)
    while size > 0:
        level = counts + quota
        lowest = np.flatnonzero(level == level.min())
        higher = level[level > level.min()]
        step = int(higher.min() - level.min()) if len(higher) else size
        each = min(step, size // len(lowest))
        if each == 0:
            smallest = lowest[np.argsort((totals + quota)[lowest], kind="stable")[:size]]
            quota[smallest] += 1
            return quota
        quota[lowest] += each
        size -= each * len(lowest)
    return quota
