"""A user's model and sets of examples as they come: made ready, and refused before any work where they cannot work."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from regun.data.adapt import Source, as_examples
from regun.data.examples import Examples
from regun.data.overlap import Ids, refuse_overlap
from regun.errors import RegunError
from regun.models.outputs import ReadLogits
from regun.training import border
from regun.training.job import device_of

MANY = 2**31
"""A number of classes that every label is below, as long as the true one is not known."""


@dataclass(frozen=True)
class Given:
    """A model that returns logits, the examples that go with it by set name, and what looks wrong in them."""

    model: nn.Module
    sets: dict[str, Examples]
    classes: int
    device: torch.device
    remarks: list[str]


def given(
    model: nn.Module,
    sources: Mapping[str, Source | None],
    logits: ReadLogits | None,
    device: torch.device | str | None,
    num_classes: int | None,
    ids: Ids | None,
    check_content: bool | None,
) -> Given:
    """Everything a user gave, checked: what the model returns, what the sets hold, and that they do not overlap."""
    ready = border.taken(model, logits)
    present = {name: source for name, source in sources.items() if source is not None}
    told = count_classes(ready, present["forget"], "forget")
    if num_classes is not None and num_classes > told:
        raise RegunError(
            f"num_classes is {num_classes}, but the model tells {told} classes apart; give at most {told}."
        )
    classes = num_classes or told
    sets = {name: as_examples(source, classes, name) for name, source in present.items()}
    remarks = refuse_overlap(present, sets, ids, check_content)
    return Given(ready, sets, classes, torch.device(device) if device is not None else device_of(model), remarks)


def count_classes(model: nn.Module, source: Source, name: str) -> int:
    """How many classes the model tells apart, from its answers to an example or two of a set."""
    return border.count_classes(model, as_examples(source, MANY, name), name)
