"""Examples that stand where they must not: in two sets that have to be disjoint.

Unseen data that the model trained on look like members and spoil both ReGUn's reference and every attack number; a
forgotten example that stays in the retain set is learned again.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from regun.data.arrays import ArrayExamples
from regun.data.examples import Examples, Indices, in_order, named
from regun.data.sources import Source, loaded_dataset
from regun.data.tensors import TensorExamples
from regun.data.views import Selected
from regun.errors import DataError, unknown

TRAINED, UNSEEN = ("forget", "retain", "train"), ("heldout", "val", "test")
Ids = Mapping[str, Sequence[Any]]
"""Set name -> one id for each of its examples."""


def check_overlap(
    sources: Mapping[str, Source],
    sets: Mapping[str, Examples],
    ids: Ids | None,
    content: bool | None = None,
    way_out: str = "write check_content=False.",
) -> list[str]:
    """Raise if an unseen set shares examples with a training set, forget with retain, or heldout with test.

    Ids that are given are compared; torch Subsets of the same data set by their indices; with `content`, every example
    by the digest of its input. With None, that is done where nothing else tells examples apart and it is cheap, for
    data in memory; equal ones are then refused only where they are more than the equal ones within a set explain, and
    otherwise remarked on in what is returned. `way_out` says what to do about ones that only look alike.
    """
    named, origins = _checked_ids(sets, ids or {}), {name: _origin(source) for name, source in sources.items()}
    bytes_of: dict[str, list[bytes]] = {}
    remarks: list[str] = []
    for one, other in _pairs(sets):
        if one in named and other in named:
            _refuse(one, other, [key for key in named[other] if key in named[one]], "id")
        one_origin = one in origins and other in origins and origins[one][0] is origins[other][0]
        if one_origin:
            _refuse(one, other, np.intersect1d(origins[one][1], origins[other][1]), "position in the same data set")
        told_apart = one_origin or (one in named and other in named)
        cheap = in_memory(sets[one]) and in_memory(sets[other])
        if content or (content is None and cheap and not told_apart):
            for name in {one, other} - set(bytes_of):
                bytes_of[name] = content_digests(sets[name])
            hint = f" If they are different records that look alike, {way_out}" if content is None else ""
            remarks += _compare((one, bytes_of[one]), (other, bytes_of[other]), hint)
    return remarks


def _compare(first: tuple[str, list[bytes]], second: tuple[str, list[bytes]], hint: str) -> list[str]:
    """Raise if two sets hold equal examples; with a `hint`, say so if there are no more than chance explains."""
    (one, ours), (other, theirs) = first, second
    known = set(ours)
    rows = [row for row, key in enumerate(theirs) if key in known]
    if rows and hint and len(rows) <= 2 * _repeated(ours) * len(theirs):
        return [
            f"{len(rows)} of {len(theirs)} examples of {other} are equal to examples of {one}; such are common within "
            f"{one} too, so they may be different records. check_content=True refuses them."
        ]
    _refuse(one, other, rows, f"content; counted in {other}, by position", hint)
    return []


def content_digests(examples: Examples) -> list[bytes]:
    """SHA-256 of each example's input as the model would see it at test time, whatever batch it is in."""
    size = 256 if in_memory(examples) else 1  # a user's collate function may fill a batch up to its longest example
    found: list[bytes] = []
    for batch in examples.stream(in_order(len(examples), size)):
        parts = {name: _plain(part) for name, part in sorted(named(batch.x).items())}
        for row in range(len(batch)):
            sha = hashlib.sha256()
            for name, values in parts.items():
                sha.update(f"{name} {values.dtype} {values.shape[1:]}".encode())
                sha.update(values[row].tobytes())
            found.append(sha.digest())
    return found


def _plain(part: Tensor) -> npt.NDArray[Any]:
    whole = part.detach().cpu().contiguous()
    return (whole.view(torch.int16) if whole.dtype == torch.bfloat16 else whole).numpy()  # which numpy does not know


def in_memory(examples: Examples) -> bool:
    """Whether looking at every example is cheap."""
    if isinstance(examples, Selected):
        return in_memory(examples.examples)
    return isinstance(examples, TensorExamples | ArrayExamples)


def _repeated(digests: Sequence[bytes]) -> float:
    """The share of examples that have an equal one in their own set."""
    counts = Counter(digests)
    return sum(count for count in counts.values() if count > 1) / max(1, len(digests))


def id_texts(ids: Iterable[Any]) -> list[str]:
    """Ids as text: 7, numpy's 7 and "7" are the same id."""
    return [one if isinstance(one, str) else str(one.item() if hasattr(one, "item") else one) for one in ids]


def _pairs(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of sets that must be disjoint, the one that was learned from first."""
    ordered = [name for name in (*TRAINED, *UNSEEN) if name in set(names)]
    return [(a, b) for a, b in combinations(ordered, 2) if a in TRAINED or (a, b) == ("heldout", "test")]


def _checked_ids(sets: Mapping[str, Examples], ids: Ids) -> dict[str, dict[str, None]]:
    for name in ids:
        if name not in sets:
            raise DataError(unknown("set in ids", name, sets))
        if len(ids[name]) != len(sets[name]):
            raise DataError(
                f"ids[{name!r}] has {len(ids[name])} ids for {len(sets[name])} examples; give one for each."
            )
    return {name: dict.fromkeys(id_texts(given)) for name, given in ids.items()}


def _origin(source: Source) -> tuple[object, Indices]:
    """The data set behind Subsets and loaders, and which of its items are meant."""
    dataset: Any = loaded_dataset(cast("DataLoader[Any]", source)) if isinstance(source, DataLoader) else source
    rows: Indices | None = None
    while isinstance(dataset, Subset):
        subset = cast("Subset[Any]", dataset)
        own = np.asarray(subset.indices, dtype=np.int64)
        if (own < 0).any():  # counted from the end, as Python does
            own = own % len(cast(Any, subset.dataset))
        rows, dataset = own if rows is None else own[rows], subset.dataset
    if isinstance(dataset, Selected):
        return dataset.examples, dataset.rows
    if rows is None:
        counted: Any = cast(Any, dataset)[1] if isinstance(dataset, tuple | list) else dataset
        rows = np.arange(len(counted) if hasattr(counted, "__len__") else 0)
    return cast(object, dataset), rows


def _refuse(one: str, other: str, shared: Sequence[Any] | npt.NDArray[Any], how: str, hint: str = "") -> None:
    if not len(shared):
        return
    reason = f"the model was trained on {one}, so these examples are not unseen"
    if other in TRAINED:
        reason = "what is forgotten must not be trained on again"
    elif one == "heldout":
        reason = "a method may have learned from heldout, so these examples test nothing"
    raise DataError(
        f"{one} and {other} share {len(shared)} examples (by {how}; the first is {shared[0]}): {reason}. Take them out "
        f"of {other}.{hint}"
    )
