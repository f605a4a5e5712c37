"""Examples that occur in two sets that must be disjoint.

Unseen data that the model trained on look like members: they spoil ReGUn's source model and every attack.
A forgotten example that stays in the retain set is learned again.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from regun.data.arrays import ArrayExamples
from regun.data.examples import Examples, batch_plan, named
from regun.data.plain import AugmentedExamples
from regun.data.sources import Source, loaded_dataset
from regun.data.tensors import TensorExamples
from regun.data.views import Selected
from regun.errors import DataError, see, unknown
from regun.types import Indices

TRAINED = ("forget", "retain", "train")
BLOCK_BYTES = 2**22
"""Inputs hashed at once: they stay in the processor's cache."""
Ids = Mapping[str, Sequence[Any]]
"""Set name -> one id for each of its examples."""
Hashes = npt.NDArray[np.bytes_]
Words = npt.NDArray[np.uint64]


def check_overlap(
    sources: Mapping[str, Source],
    sets: Mapping[str, Examples],
    ids: Ids | None,
    content: bool | None = None,
    way_out: str = "write check_content=False.",
) -> list[str]:
    """Raise if an unseen set shares examples with a training set, forget with retain, or heldout with test.

    Sets are compared by their `ids`, torch Subsets of one data set by their indices, and with `content` all sets by
    their inputs. `content=None` compares inputs only where neither ids nor indices are available and the data are in
    memory. It then tolerates as many equal examples as the duplicates within a set explain, and returns a warning.
    `way_out` is advice for examples that only look alike.
    """
    ids = ids or {}
    for name in ids:
        if name not in sets:
            raise DataError(unknown("set in ids", name, sets))
        if len(ids[name]) != len(sets[name]):
            raise DataError(
                f"ids[{name!r}] has {len(ids[name])} ids for {len(sets[name])} examples; give one for each."
            )
    id_sets = {name: dict.fromkeys(id_texts(values)) for name, values in ids.items()}
    origins = {name: _origin(source) for name, source in sources.items()}
    ordered = [name for name in (*TRAINED, "heldout", "val", "test") if name in sets]
    disjoint = [(a, b) for a, b in combinations(ordered, 2) if a in TRAINED or (a, b) == ("heldout", "test")]
    by_content: list[tuple[str, str]] = []
    for one, other in disjoint:
        has_ids = one in id_sets and other in id_sets
        if has_ids:
            _check_shared(one, other, [key for key in id_sets[other] if key in id_sets[one]], "id")
        same_origin = one in origins and other in origins and origins[one][0] is origins[other][0]
        if same_origin:
            shared = np.intersect1d(origins[one][1], origins[other][1])
            _check_shared(one, other, shared, "position in the same data set")
        cheap = in_memory(sets[one]) and in_memory(sets[other])
        if content or (content is None and cheap and not (has_ids or same_origin)):
            by_content.append((one, other))
    return _compare_content(by_content, sets, way_out if content is None else None)


def _compare_content(pairs: Sequence[tuple[str, str]], sets: Mapping[str, Examples], way_out: str | None) -> list[str]:
    """Raise if sets of a pair share inputs. With `way_out`, tolerate duplicates and return warnings about them."""
    if not pairs:
        return []
    compared = dict.fromkeys(name for pair in pairs for name in pair)
    hashes = [content_hashes(sets[name]) for name in compared]
    _, inverse = np.unique(np.concatenate(hashes), return_inverse=True)  # equal inputs have equal numbers
    numbers = dict(zip(compared, np.split(inverse, np.cumsum([len(part) for part in hashes])[:-1]), strict=True))
    warnings: list[str] = []
    for one, other in pairs:
        rows = np.flatnonzero(np.isin(numbers[other], numbers[one]))
        counts = np.bincount(numbers[one])
        duplicated = int(counts[counts > 1].sum()) / max(1, len(numbers[one]))
        if way_out is not None and 0 < len(rows) <= 2 * duplicated * len(numbers[other]):
            warnings.append(
                f"{len(rows)} of {len(numbers[other])} examples of {other} are equal to examples of {one}. Duplicates "
                f"are common within {one} too, so these may be different records. check_content=True rejects them."
            )
            continue
        hint = "" if way_out is None else f" If they are different records that look alike, {way_out}"
        _check_shared(one, other, rows, f"content; counted in {other}, by position", hint)
    return warnings


def content_hashes(examples: Examples) -> Hashes:
    """Return a 128-bit hash of each example's input at test time; equal inputs have equal hashes.

    The hash does not depend on the batch. It is not cryptographic.
    """
    if not len(examples):
        return np.empty(0, dtype="S16")
    size = 1  # a user's collate function may pad a batch to its longest example
    if in_memory(examples):
        first = named(examples.fetch(np.zeros(1, dtype=np.int64)).x)
        size = max(1, BLOCK_BYTES // max(1, sum(part.nbytes for part in first.values())))
    blocks = [_hash_rows(named(batch.x)) for batch in examples.stream(batch_plan(len(examples), size))]
    return np.concatenate(blocks).view("S16").ravel()


def in_memory(examples: Examples) -> bool:
    """Return True if reading every example is cheap."""
    if isinstance(examples, Selected):
        return in_memory(examples.examples)
    if isinstance(examples, AugmentedExamples):
        return in_memory(examples.plain)
    return isinstance(examples, TensorExamples | ArrayExamples)


def id_texts(ids: Iterable[Any]) -> list[str]:
    """Return ids as text: 7, numpy's 7 and "7" are the same id."""
    return [key if isinstance(key, str) else str(key.item() if hasattr(key, "item") else key) for key in ids]


def _hash_rows(parts: Mapping[str, Tensor]) -> Words:
    """Return two 64-bit sums for each row: every word of a row is mixed with a key for its position."""
    sums = np.zeros((len(next(iter(parts.values()))), 2), dtype=np.uint64)
    for name, part in sorted(parts.items()):
        rows = part.detach().cpu().reshape(len(part), part[0].numel()).contiguous().view(torch.uint8).numpy()
        words = np.ascontiguousarray(np.pad(rows, ((0, 0), (0, -rows.shape[1] % 8)))).view(np.uint64)
        keys, weights = _keys(f"{name} {part.dtype} {tuple(part.shape[1:])}", words.shape[1])
        mixed = words ^ keys
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the constants of SplitMix64
            mixed ^= mixed >> np.uint64(shift)
            mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
        sums[:, 0] += mixed.sum(axis=1, dtype=np.uint64)
        mixed *= weights
        sums[:, 1] += mixed.sum(axis=1, dtype=np.uint64)
    return sums


@lru_cache(maxsize=32)
def _keys(layout: str, count: int) -> tuple[Words, Words]:
    """Return `count` keys and as many odd weights that follow from the name, dtype and shape of an input."""
    generator = np.random.default_rng(int(hashlib.sha256(layout.encode()).hexdigest(), 16))
    keys, weights = generator.integers(0, 2**64, (2, count), dtype=np.uint64)
    return keys, weights | np.uint64(1)


def _origin(source: Source) -> tuple[object, Indices]:
    """Return the data set behind Subsets and loaders, and the positions of its items."""
    dataset: Any = loaded_dataset(cast("DataLoader[Any]", source)) if isinstance(source, DataLoader) else source
    rows: Indices | None = None
    while isinstance(dataset, Subset):
        subset = cast("Subset[Any]", dataset)
        indices = np.asarray(subset.indices, dtype=np.int64)
        if (indices < 0).any():  # counted from the end, as Python does
            indices = indices % len(cast(Any, subset.dataset))
        rows, dataset = indices if rows is None else indices[rows], subset.dataset
    if isinstance(dataset, Selected):
        return dataset.examples, dataset.rows
    if rows is None:
        counted: Any = cast(Any, dataset)[1] if isinstance(dataset, tuple | list) else dataset
        rows = np.arange(len(counted) if hasattr(counted, "__len__") else 0)
    return cast(object, dataset), rows


def _check_shared(one: str, other: str, shared: Sequence[Any] | npt.NDArray[Any], how: str, hint: str = "") -> None:
    if not len(shared):
        return
    reason = f"The model was trained on {one}, so they are not unseen"
    if other in TRAINED:
        reason = "Forgotten examples must not be trained on again"
    elif one == "heldout":
        reason = "A method may train on heldout, so they cannot test it"
    raise DataError(
        f"{one} and {other} share {len(shared)} examples (by {how}; the first is {shared[0]}). {reason}. "
        f"Remove them from {other}.{hint} {see('Sets that overlap')}"
    )
