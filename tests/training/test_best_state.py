"""The weights of the highest score come back; of equal scores the first, or the latest."""

import math

import pytest
import torch
from torch import nn

from regun.training.best_state import BestState


@pytest.mark.parametrize(("latest", "kept"), [(False, 1.0), (True, 3.0)])
def test_the_best_of_equals(latest: bool, kept: float) -> None:
    best, model = BestState(latest=latest), nn.Linear(1, 1)
    for step, score in enumerate([0.2, 0.7, 0.1, 0.7, math.nan, 0.3]):
        nn.init.constant_(model.weight, float(step))
        best.update(score, model)
    best.restore(model)
    assert model.weight.item() == kept


def test_the_first_of_equals_is_the_default() -> None:
    best, model = BestState(), nn.Linear(1, 1)
    for step in (1.0, 2.0):
        nn.init.constant_(model.weight, step)
        best.update(0.5, model)
    best.restore(model)
    assert model.weight.item() == 1.0


def test_without_a_score_the_model_stays() -> None:
    model = nn.Linear(1, 1)
    before = model.weight.detach().clone()
    BestState().restore(model)
    assert torch.equal(model.weight, before)
