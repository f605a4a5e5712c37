"""Out models of a stored base: short trainings on the retain set, which never saw what is to be forgotten."""

from dataclasses import replace

import torch

from regun.artifacts import Artifact, Store
from regun.artifacts.setup import Setup
from regun.artifacts.trainings import Training, train_model
from regun.data.examples import Data
from regun.rng import derive
from regun.splits import Splits
from regun.training.job import Callbacks
from regun.training.recipes import shorten

SHARE = 0.25
"""Of the base's epochs: long enough to know which examples are hard (docs/metrics.md)."""


def train_out_models(
    base: Artifact,
    data: Data,
    splits: Splits,
    count: int,
    store: Store,
    device: torch.device,
    watch: Callbacks | None = None,
) -> tuple[Artifact, ...]:
    """`count` models trained like the base, on the retain set alone, for a quarter of its epochs; from the store, or
    trained now."""
    about = {**Setup.of(base).about(), "role": "out", "out_of": base.key}
    found: list[Artifact] = []
    for number in range(count):
        whole = Training.of(base, data, trained_on=splits.retain, seed=derive(base.inputs["seed"], "out", number))
        short = replace(whole, recipe=shorten(whole.recipe, SHARE))
        found.append(train_model(short, store, device, about=about, watch=watch))
    return tuple(found)
