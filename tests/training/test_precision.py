"""Weights move in every precision, by as much as fp32 would move them."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from expect import error
from regun.data.tensors import TensorExamples
from regun.errors import SettingsError
from regun.training.fit import fit
from regun.training.job import private_copy
from regun.training.recipes import Recipe
from regun.training.streams import one_pass
from toys import blobs, job_for, same_state

HALF = [torch.float16, torch.bfloat16]
KINDS = [*HALF, torch.float32, torch.float64]


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def examples(kind: torch.dtype) -> TensorExamples:
    return TensorExamples(blobs().x.half().bfloat16().to(kind), blobs().labels, 3)  # numbers that all of them have


def trained(kind: torch.dtype, recipe: Recipe) -> nn.Module:
    job = job_for(net().half().bfloat16().to(kind), examples(kind))

    def loss(step):
        return functional.cross_entropy(job.logits(step.retain.x), step.retain.y)

    fit(job, one_pass(job, "retain", job.indices("retain"), recipe.batch_size), loss, recipe)
    return job.model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_every_weight_moves(kind: torch.dtype, optimizer: str) -> None:
    model = trained(kind, Recipe(epochs=2, batch_size=16, lr=0.01, optimizer=optimizer))
    start = net().half().bfloat16().to(next(model.parameters()).dtype)
    for ours, before in zip(model.parameters(), start.parameters(), strict=True):
        assert (ours != before).double().mean() > 0.5


@pytest.mark.parametrize("kind", HALF)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_updates_too_small_for_half_precision_add_up(kind: torch.dtype, optimizer: str) -> None:
    """2^-12 is less than half a step of bf16 between 0.125 and 0.25, but a hundred of them are not nothing."""
    recipe = Recipe(epochs=40, batch_size=96, lr=2**-13, optimizer=optimizer, momentum=0.0)
    ours, single = trained(kind, recipe), trained(torch.float32, recipe)
    assert same_state(ours.to(kind), single.to(kind))
    assert not same_state(ours, net().half().bfloat16().to(kind))


def test_fit_refuses_what_would_be_rounded_away() -> None:
    job = job_for(net(), examples(torch.float32))
    job.model.half()
    with error(SettingsError, "torch.float16", "float32"):
        fit(job, one_pass(job, "retain", np.arange(9), 4), lambda s: s.retain.x.sum(), Recipe(epochs=1))


def test_half_precision_that_does_not_train_stays_as_it_is() -> None:
    """The frozen base of an adapter, say: the model mixes precisions by itself."""
    model = net()
    model[0].requires_grad_(False).bfloat16()
    kinds = {p.dtype for p in private_copy(model, torch.device("cpu")).parameters()}
    assert kinds == {torch.bfloat16, torch.float32}
