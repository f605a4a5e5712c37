"""Every forward pass counts, whoever's module and however it is called; what runs inside of one does not count again."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.methods import get_method
from regun.models.forward import counting, logits_of
from regun.training.job import Job, frozen_copy
from toys import blobs, job_for, mlp


class Keyword(nn.Module):
    """Called by name, as transformers' models are; runs two layers inside."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        return {"logits": self.net(pixels)}


def counted(what) -> list[int]:
    found: list[int] = []
    with counting(found.append):
        what()
    return found


X = torch.zeros(7, 6)


@pytest.mark.parametrize(
    ("call", "passes"),
    [
        (lambda m: m(X), [7]),
        (lambda m: logits_of(m, X), [7]),
        (lambda m: (m(X), m(X[:3])), [7, 3]),
        (lambda m: Keyword()(pixels=X), [7]),
        (lambda m: logits_of(Keyword(), {"pixels": X}), [7]),
        (lambda m: functional.cross_entropy(nn.Softmax(1)(m(X)), torch.zeros(7).long()), [7]),
        (lambda m: nn.CrossEntropyLoss()(m(X), torch.zeros(7).long()), [7]),  # a loss is no model
        (lambda m: nn.Sequential(m, nn.Softmax(1))(X), [7]),
        (lambda m: torch.func.functional_call(m, dict(m.named_parameters()), (X,)), [7]),
    ],
)
def test_a_pass_counts_once(call, passes: list[int]) -> None:
    assert counted(lambda: call(mlp())) == passes


def test_a_pass_that_fails_ends_too() -> None:
    model = mlp()

    def fail_then_go_on() -> None:
        with pytest.raises(RuntimeError):
            model(torch.zeros(2, 5))
        model(X)

    assert counted(fail_then_go_on) == [2, 7]


def test_nobody_counts_inside_and_everybody_goes_when_it_ends() -> None:
    model, found = mlp(), []
    with counting(found.append):
        with counting(None):
            model(X)
            logits_of(model, X)
        model(X)
        with counting(lambda n: found.append(-n)):  # the innermost alone
            model(X)
    model(X)
    assert found == [7, -7]
    modules = torch.nn.modules.module
    assert not modules._global_forward_pre_hooks
    assert not any(m._forward_hooks for m in model.modules())


def test_a_teacher_that_a_user_calls_as_a_function_is_part_of_the_cost() -> None:
    def teach(job: Job) -> None:
        batch = job.examples.fetch(job.indices("forget"))
        own, made = frozen_copy(job.model), copy.deepcopy(mlp(seed=1)).eval()
        own(batch.x)
        made(batch.x)

    job = job_for(mlp(), blobs())
    get_method(teach).run(job, None)
    assert job.cost.forward == 2 * len(job.indices("forget"))
