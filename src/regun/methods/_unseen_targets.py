"""ReGUn's targets: predictions on unseen examples that are like those of a forget batch, averaged."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from regun.errors import RegunError
from regun.splits import largest_remainder
from regun.types import Indices


@dataclass(frozen=True)
class Picks:
    """Chosen held-out positions, the group of forget examples each speaks for, and each forget example's group."""

    chosen: Tensor
    speaks_for: Tensor
    group_of: Tensor
    groups: int


@dataclass
class Pool:
    """The held-out set by class. `missing` counts draws for classes of which it has no example."""

    labels: Indices
    classes: int
    missing: int = 0
    start: Indices = field(init=False, repr=False)
    size: Indices = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not len(self.labels):
            raise RegunError("the held-out set is empty; set some unseen, labelled examples aside as heldout.")
        self.size = np.bincount(self.labels, minlength=self.classes)
        self.start = np.concatenate([[0], np.cumsum(self.size)[:-1]])

    def draw(self, counts: Indices, generator: torch.Generator, *, replacement: bool) -> tuple[Tensor, Indices]:
        """Return `counts[k]` positions of class k (any class if the pool lacks k), and the class each stands for.

        Without replacement while the pool suffices; beyond that, every member is used as evenly as possible.
        """
        drawn_classes = np.repeat(np.arange(self.classes), counts)
        rank = np.arange(len(drawn_classes)) - np.repeat(np.cumsum(counts) - counts, counts)
        size, start = self.size[drawn_classes], self.start[drawn_classes]
        absent = size == 0
        self.missing += int(absent.sum())
        size, start = np.where(absent, len(self.labels), size), np.where(absent, 0, start)
        noise = torch.rand(len(self.labels), generator=generator, dtype=torch.float64)
        order = torch.argsort(torch.from_numpy(self.labels) + noise)  # grouped by class, shuffled within each
        if absent.any() or replacement:
            loose = torch.rand(len(drawn_classes), generator=generator, dtype=torch.float64).numpy()
            place = np.where(absent | replacement, np.floor(loose * size), rank % size)
        else:
            place = rank % size
        return order[torch.from_numpy((start + place).astype(np.int64))], drawn_classes


def histogram_picks(
    pool: Pool, labels: Tensor, m: int | None, granularity: str, generator: torch.Generator, *, replacement: bool
) -> Picks:
    """Return draws that match the forget batch's class histogram, for the batch, each class or each example."""
    y = labels.numpy()
    histogram = np.bincount(y, minlength=pool.classes)
    total = len(y) if m is None else m
    if granularity == "sample":
        each = max(1, round(total / len(y)))
        counts = histogram * each
    else:
        counts = largest_remainder(histogram, total)
    if granularity == "class":
        counts = np.maximum(counts, np.minimum(histogram, 1))
    chosen, stands_for = pool.draw(counts, generator, replacement=replacement)
    if granularity == "batch":
        return Picks(chosen, torch.zeros(len(chosen), dtype=torch.long), torch.zeros(len(y), dtype=torch.long), 1)
    if granularity == "class":
        return Picks(chosen, torch.from_numpy(stands_for), torch.from_numpy(y), pool.classes)
    owner = np.repeat(np.argsort(y, kind="stable"), round(len(chosen) / len(y)))
    return Picks(chosen, torch.from_numpy(owner), torch.arange(len(y)), len(y))


def uniform_picks(pool: Pool, labels: Tensor, m: int | None, generator: torch.Generator, *, replacement: bool) -> Picks:
    """Return draws from the whole held-out set, whatever the labels; one target for the batch."""
    total, size = len(labels) if m is None else m, len(pool.labels)
    if replacement:
        chosen = torch.randint(size, (total,), generator=generator)
    else:
        chosen = torch.randperm(size, generator=generator)[torch.arange(total) % size]
    return Picks(chosen, torch.zeros(total, dtype=torch.long), torch.zeros(len(labels), dtype=torch.long), 1)


def nearest(features: Tensor, heldout: Tensor, k: int, block: int = 4096) -> Tensor:
    """Return positions (n, k) of each row's k most cosine-similar held-out rows, nearest first; ties to the earlier."""
    if not 1 <= k <= len(heldout):
        raise RegunError(f"regun.k is {k}; the held-out set has {len(heldout)} examples, so give 1 to {len(heldout)}.")
    ours, theirs = functional.normalize(features, dim=1), functional.normalize(heldout, dim=1)
    parts: list[Tensor] = []
    for start in range(0, len(ours), block):
        similarity = ours[start : start + block] @ theirs.T
        parts.append(similarity.sort(dim=1, descending=True, stable=True).indices[:, :k])
    return torch.cat(parts)


def nearest_picks(neighbours: Tensor, labels: Tensor, classes: int, granularity: str) -> Picks:
    """Return each forget example's neighbours (b, k), speaking for the batch, its class, or the example alone."""
    count, k = neighbours.shape
    group_of = {"batch": torch.zeros(count, dtype=torch.long), "class": labels, "sample": torch.arange(count)}[
        granularity
    ]
    groups = {"batch": 1, "class": classes, "sample": count}[granularity]
    return Picks(neighbours.reshape(-1), group_of.repeat_interleave(k), group_of, groups)


def aggregate(picks: Picks, logits_at: Callable[[Tensor], Tensor], aggregation: str, temperature: float) -> Tensor:
    """Return one target per forget example (b, K): its group's mean probabilities, or softmax of its mean logits."""
    logits = logits_at(picks.chosen).double() / temperature
    values = functional.softmax(logits, dim=1) if aggregation == "probabilities" else logits
    total = torch.zeros(picks.groups, values.shape[1], dtype=values.dtype).index_add_(0, picks.speaks_for, values)
    count = torch.bincount(picks.speaks_for, minlength=picks.groups).clamp(min=1).unsqueeze(1)
    mean = total / count
    means = mean if aggregation == "probabilities" else functional.softmax(mean, dim=1)
    return means[picks.group_of].float()
