"""Gradients of models that are not written for torch.func, and of weights that nothing depends on."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.training.gradients import fisher_by_batch, fisher_by_example, summed_gradient
from toys import blobs, job_for, mlp


class Choosy(nn.Module):
    """MeasuredSets at its numbers to decide what to do, as transformers' models do with attention masks."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) if bool((x < 1e6).all()) else x


class Idle(nn.Module):
    """Has a layer that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.unused = mlp(), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def test_a_model_that_cannot_be_mapped_over_examples_is_asked_one_by_one() -> None:
    plain, choosy = job_for(mlp(), blobs()), job_for(Choosy(), blobs())
    rows = plain.indices("forget")[:21]
    mapped, alone = (fisher_by_example(job, rows, micro_batch=5) for job in (plain, choosy))
    for name, ours in mapped.items():
        assert torch.allclose(ours, alone[f"net.{name}"], rtol=1e-4, atol=1e-12)
    assert plain.cost == choosy.cost


def test_the_gradient_of_what_is_not_used_is_zero() -> None:
    job = job_for(Idle(), blobs())
    for found in (summed_gradient, fisher_by_batch, fisher_by_example):
        values = found(job, job.indices("forget"))
        assert not values["unused.weight"].any()
        assert values["net.0.weight"].any()


def test_the_fisher_by_batch_is_the_mean_over_batches_of_squared_mean_gradients() -> None:
    job = job_for(mlp(), blobs())
    rows = job.indices("forget")[:7]
    found, expected = fisher_by_batch(job, rows, batch_size=3), dict.fromkeys(dict(job.model.named_parameters()), 0.0)
    job.model.eval()
    for batch in job.examples.stream([rows[:3], rows[3:6], rows[6:]]):
        loss = functional.cross_entropy(job.model(batch.x), batch.y)
        for name, gradient in zip(expected, torch.autograd.grad(loss, list(job.model.parameters())), strict=True):
            expected[name] += gradient.double().square() / 3
    for name, value in found.items():
        assert torch.allclose(value, expected[name], rtol=1e-5, atol=1e-12), name
