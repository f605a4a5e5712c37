"""Examples that stand where they must not: in two sets that have to be disjoint.

Unseen data that the model trained on look like members and spoil both ReGUn's reference and every attack number; a
forgotten example that stays in the retain set is learned again.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from torch.utils.data import DataLoader, Subset

from regun.data.adapt import Source, loaded_dataset
from regun.data.examples import Examples, Indices, named
from regun.data.views import Selected
from regun.errors import DataError, unknown

TRAINED, UNSEEN = ("forget", "retain", "train"), ("heldout", "val", "test")
Ids = Mapping[str, Sequence[Any]]
"""Set name -> one id for each of its examples."""


def refuse_overlap(sources: Mapping[str, Source], sets: Mapping[str, Examples], ids: Ids | None, content: bool) -> None:
    """Raise if an unseen set shares examples with a training set, or forget with retain.

    Ids that are given are compared; torch Subsets of the same data set by their indices; with `content`, every example
    by the digest of its input.
    """
    named = _checked_ids(sets, ids or {})
    bytes_of = {name: content_digests(examples) for name, examples in sets.items()} if content else {}
    origins = {name: _origin(source) for name, source in sources.items()}
    for one, other in _pairs(sets):
        if one in named and other in named:
            _refuse(one, other, [key for key in named[other] if key in named[one]], "id")
        if one in origins and other in origins and origins[one][0] is origins[other][0]:
            _refuse(one, other, np.intersect1d(origins[one][1], origins[other][1]), "position in the same data set")
        if content:
            shared = set(bytes_of[one]) & set(bytes_of[other])
            rows = [row for row, key in enumerate(bytes_of[other]) if key in shared]
            _refuse(one, other, rows, f"content; counted in {other}, by position")


def content_digests(examples: Examples) -> list[bytes]:
    """SHA-256 of each example's input as the model would see it at test time, whatever batch it is in."""
    found: list[bytes] = []
    for row in range(len(examples.labels)):
        x = examples.fetch(np.array([row])).x
        sha = hashlib.sha256()
        for name, part in sorted(named(x).items()):
            plain = part.detach().cpu().contiguous().numpy()
            sha.update(f"{name} {plain.dtype} {plain.shape}".encode())
            sha.update(plain.tobytes())
        found.append(sha.digest())
    return found


def id_texts(ids: Iterable[Any]) -> list[str]:
    """Ids as text: 7, numpy's 7 and "7" are the same id."""
    return [one if isinstance(one, str) else str(one.item() if hasattr(one, "item") else one) for one in ids]


def _pairs(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of sets that must be disjoint, the training set first."""
    ordered = [name for name in (*TRAINED, *UNSEEN) if name in set(names)]
    return [(a, b) for a, b in combinations(ordered, 2) if a in TRAINED]


def _checked_ids(sets: Mapping[str, Examples], ids: Ids) -> dict[str, dict[str, None]]:
    for name in ids:
        if name not in sets:
            raise DataError(unknown("set in ids", name, sets))
        if len(ids[name]) != len(sets[name].labels):
            raise DataError(
                f"ids[{name!r}] has {len(ids[name])} ids for {len(sets[name].labels)} examples; give one for each."
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


def _refuse(one: str, other: str, shared: Sequence[Any] | npt.NDArray[Any], how: str) -> None:
    if not len(shared):
        return
    reason = (
        "what is forgotten must not be trained on again"
        if other in TRAINED
        else f"the model was trained on {one}, so these examples are not unseen"
    )
    raise DataError(
        f"{one} and {other} share {len(shared)} examples (by {how}; the first is {shared[0]}): {reason}. Take them out "
        f"of {other}."
    )
