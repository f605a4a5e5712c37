"""Index sets of the examples: held-out, validation, forget, retain.

Held-out is drawn first, then validation, both by the split seed alone; the forget set is picked from the rest. So the
training set of the base model does not depend on the forget set, and one base model serves every forget set.
"""

import heapq
import random
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from regun.errors import SplitError
from regun.forget_spec import ForgetSpec
from regun.hashing import digest
from regun.rng import derive, generator
from regun.types import Indices


@dataclass(frozen=True)
class Reserve:
    """Examples that no model trains on (`heldout`, `val`), and the rest (`pool`) in the order of forgetting."""

    heldout: Indices
    val: Indices
    pool: Indices
    stratified: bool = False

    @property
    def total(self) -> int:
        return len(self.heldout) + len(self.val) + len(self.pool)

    @cached_property
    def base(self) -> Indices:
        """Training set of the base model, sorted."""
        return np.sort(self.pool)


@dataclass(frozen=True)
class Splits:
    """Four disjoint, sorted index sets over `total` examples. Overlap, no forget set and bad indices raise an error."""

    retain: Indices
    forget: Indices
    heldout: Indices
    val: Indices
    total: int

    def __post_init__(self) -> None:
        owner = np.full(self.total, -1, dtype=np.int8)
        names = ("retain", "forget", "heldout", "val")
        for number, name in enumerate(names):
            part = np.unique(np.asarray(getattr(self, name), dtype=np.int64))
            if len(part) != len(getattr(self, name)):
                raise SplitError(f"{name} repeats {len(getattr(self, name)) - len(part)} examples; list each once.")
            _check_unknown(part, self.total, name)
            shared = owner[part] >= 0
            if shared.any():
                other, first = names[owner[part[shared][0]]], part[shared][0]
                raise SplitError(
                    f"{name} and {other} share {int(shared.sum())} examples (the first is {first}); they must be "
                    f"disjoint. Remove the shared ones from one of them."
                )
            owner[part] = number
            object.__setattr__(self, name, part)
        if not len(self.forget):
            raise SplitError("the forget set is empty; give a larger fraction or at least one example.")

    @cached_property
    def base(self) -> Indices:
        """Training set of the base model: retain and forget together, sorted."""
        return np.union1d(self.retain, self.forget)

    @cached_property
    def digest(self) -> str:
        return digest([self.total, *(digest(part) for part in (self.retain, self.forget, self.heldout, self.val))])


def reserve(labels: Indices, seed: int, *, heldout: float = 0.1, val: float = 0.1, stratified: bool = False) -> Reserve:
    """Reserve `heldout` of all examples, then `val` of the rest; the remaining ones are the base model's training set.

    >>> reserved = reserve(np.arange(100) % 10, seed=0)
    >>> len(reserved.heldout), len(reserved.val)
    (10, 9)
    """
    for name, fraction in (("heldout", heldout), ("val", val)):
        if not 0 <= fraction < 1:
            raise SplitError(f"the {name} fraction is {fraction}; give a number from 0 up to, not including, 1.")
    order = _order(np.arange(len(labels)), labels, seed, "heldout", stratified)
    first, rest = np.split(order, [round(heldout * len(order))])
    rest = _order(rest, labels, seed, "val", stratified)
    second, pool = np.split(rest, [round(val * len(rest))])
    if not len(pool):
        raise SplitError(f"heldout {heldout} and val {val} leave none of {len(labels)} examples; lower them.")
    pool = _order(pool, labels, seed, "forget", stratified)
    return Reserve(np.sort(first), np.sort(second), pool, stratified)


def make_splits(labels: Indices, spec: ForgetSpec, reserved: Reserve) -> Splits:
    """Return the four sets of `spec`; the forget set comes from the pool of `reserved`.

    >>> labels = np.arange(1000) % 10
    >>> s = make_splits(labels, ForgetSpec.random(0.1), reserve(labels, seed=0))
    >>> len(s.heldout), len(s.val), len(s.forget), len(s.retain)
    (100, 90, 90, 720)
    """
    if len(labels) != reserved.total:
        raise SplitError(f"the reserve was drawn over {reserved.total} examples, the data has {len(labels)}.")
    if spec.needs_model:
        raise SplitError(f"{spec.text} needs trained models; resolve it to ids first (regun.artifacts.selection).")
    select = {"class": _by_class, "class_fraction": _by_class, "ids": _by_ids}.get(spec.kind, _by_fraction)
    forget = select(labels, spec, reserved)
    retain = np.setdiff1d(reserved.pool, forget)
    return Splits(retain, forget, reserved.heldout, reserved.val, reserved.total)


def sample(indices: Indices, most: int, seed: int, *purpose: int | str) -> Indices:
    """Return at most `most` of the indices, in a random order that follows from `seed` and `purpose`."""
    order = torch.randperm(len(indices), generator=generator(seed, *purpose)).numpy()
    return indices[order[:most]]


def largest_remainder(weights: npt.NDArray[np.integer], total: int) -> Indices:
    """Return integers that sum to `total`, in proportion to integer `weights`, each within one of its exact share.

    Remaining units go to the largest fractional parts; ties to the larger weight, then to the smaller position. All
    arithmetic is in integers: rounding errors of floats would break ties the wrong way.
    """
    whole = np.asarray(weights, dtype=np.int64)
    mass = int(whole.sum())
    if total < 0 or mass <= 0 or whole.min() < 0:
        raise SplitError(f"cannot share {total} by weights {whole.tolist()}; weights must be >= 0, not all 0.")
    counts, remainders = np.divmod(whole * total, mass)
    order = np.lexsort((np.arange(len(counts)), -whole, -remainders))
    counts[order[: total - int(counts.sum())]] += 1
    return counts


def proportional_order(members: Indices, labels: Indices) -> Indices:
    """Return `members` in an order whose every prefix holds each class's share to within one example.

    The order within a class does not change. The j-th member of a class with share p may stand at positions (j-1)/p to
    j/p; earliest deadline first meets both limits for all classes. Largest remainders at each length would not be
    nested: a class may lose a position when the total grows.
    """
    classes, inverse, counts = np.unique(labels[members], return_inverse=True, return_counts=True)
    total = len(members)
    queues = [members[inverse == k] for k in range(len(classes))]
    opening = [(0, k) for k in range(len(classes))]
    taken = [0] * len(classes)
    ready: list[tuple[int, int]] = []
    out = np.empty(total, dtype=np.int64)
    heapq.heapify(opening)
    for place in range(total):
        while opening and opening[0][0] <= place:
            k = heapq.heappop(opening)[1]
            heapq.heappush(ready, (-(-(taken[k] + 1) * total // int(counts[k])), k))
        k = heapq.heappop(ready)[1]
        out[place] = queues[k][taken[k]]
        taken[k] += 1
        if taken[k] < counts[k]:
            heapq.heappush(opening, (taken[k] * total // int(counts[k]), k))
    return out


def _order(members: Indices, labels: Indices, seed: int, stage: str, stratified: bool) -> Indices:
    """Return the order of a stage: shuffled by `random.Random(seed)` once, or per stage and by class if stratified."""
    if stratified:
        shuffled = members.tolist()
        random.Random(derive(seed, stage)).shuffle(shuffled)
        return proportional_order(np.array(shuffled, dtype=np.int64), labels)
    if stage != "heldout":
        return members
    shuffled = members.tolist()
    random.Random(seed).shuffle(shuffled)
    return np.array(shuffled, dtype=np.int64)


def _by_fraction(labels: Indices, spec: ForgetSpec, reserved: Reserve) -> Indices:
    """Return a fraction of the training and validation examples, from the training examples."""
    fraction = spec.fraction
    available = len(reserved.val) + len(reserved.pool)
    if not 0 < fraction < 1:
        raise SplitError(f"the forget fraction is {fraction}; give a number between 0 and 1.")
    count = round(fraction * available)
    if count == 0:
        raise SplitError(
            f"{fraction} of {available} examples is none; the smallest fraction here is {1 / available:.2g}."
        )
    if count >= len(reserved.pool):
        raise SplitError(
            f"a forget fraction of {fraction} is {count} of the {len(reserved.pool)} examples the base model "
            f"is trained on, which leaves nothing to retain; the fraction counts validation too, so stay below "
            f"{len(reserved.pool) / available:.3f}."
        )
    pool = reserved.pool
    if spec.kind == "stratified" and not reserved.stratified:
        pool = proportional_order(pool, labels)
    return pool[:count]


def _by_class(labels: Indices, spec: ForgetSpec, reserved: Reserve) -> Indices:
    """Return all training examples of the classes, or a fraction of each class."""
    present = np.unique(labels[reserved.pool])
    if not spec.classes:
        raise SplitError("no class to forget was named; name at least one.")
    for name in spec.classes:
        if name not in present:
            raise SplitError(
                f"class {name} has no members among the training examples; classes that have some: "
                f"{', '.join(map(str, present[:20]))}{', ...' if len(present) > 20 else ''}."
            )
    whole = spec.kind == "class" or all(f == 1 for f in spec.fractions)
    if whole and len(np.setdiff1d(present, spec.classes)) == 0:
        raise SplitError("every class is to be forgotten; nothing would be left to retain.")
    if spec.kind == "class":
        return reserved.pool[np.isin(labels[reserved.pool], spec.classes)]
    parts: list[Indices] = []
    for name, fraction in zip(spec.classes, spec.fractions, strict=True):
        if not 0 < fraction <= 1:
            raise SplitError(f"class {name}: the forget fraction is {fraction}; give a number above 0 and up to 1.")
        members = reserved.pool[labels[reserved.pool] == name]
        if round(fraction * len(members)) == 0:
            raise SplitError(f"class {name}: {fraction} of its {len(members)} training examples is none.")
        parts.append(members[: round(fraction * len(members))])
    return np.concatenate(parts)


def _by_ids(labels: Indices, spec: ForgetSpec, reserved: Reserve) -> Indices:
    """Return the ids; raise unless they are different training examples, and not all of them."""
    ids = np.array(spec.ids, dtype=np.int64)
    if not len(ids):
        raise SplitError("the list of ids to forget is empty; name at least one training example.")
    _check_unknown(ids, len(labels), "the list of ids to forget")
    unique = np.unique(ids)
    if len(unique) != len(ids):
        raise SplitError(f"the list of ids to forget names {len(ids) - len(unique)} ids twice; give each once.")
    for name, part in (("held-out", reserved.heldout), ("validation", reserved.val)):
        hit = np.intersect1d(unique, part)
        if len(hit):
            raise SplitError(
                f"{len(hit)} of the ids to forget (the first is {hit[0]}) are in the {name} set, on which the base "
                f"model was never trained: there is nothing to forget. Leave them out, or use another split seed."
            )
    if len(unique) == len(reserved.pool):
        raise SplitError("the list of ids to forget names every training example; nothing would be left to retain.")
    return unique


def _check_unknown(ids: Indices, total: int, what: str) -> None:
    """Raise if an id is not from 0 to total - 1."""
    stray = ids[(ids < 0) | (ids >= total)]
    if len(stray):
        raise SplitError(
            f"{what} holds {len(stray)} unknown ids (the first is {stray[0]}); the data has ids 0 to {total - 1}."
        )
