"""UAM: where the retain gradient is taken, the step it makes, and its limit."""

import copy

import pytest
import torch
from trials import ce, gradient, plain_net, run

from regun.methods import uam
from regun.training.job import Budget, Job
from regun.training.streams import paired
from toys import blobs, job_for, mlp, same_parameters, same_state

SAME = dict(batch_size=16, lr=0.05, weight_decay=0.01, epochs=2, budget=Budget(steps=6))


@pytest.mark.parametrize(
    "net", [mlp, lambda: torch.nn.Sequential(mlp(), torch.nn.Dropout(0.2))], ids=["plain", "dropout"]
)
def test_uam_with_rho_0_is_finetune(net) -> None:
    limit, _ = run("uam", net(), rho=0.0, **SAME)
    plain, _ = run("finetune", net(), **SAME)
    assert same_state(limit.model, plain.model)
    assert limit.cost.backward == plain.cost.backward


def test_a_step_of_uam_is_taken_at_theta_by_the_gradient_found_uphill() -> None:
    model, rho, lr = plain_net(), 0.7, 0.3
    step = next(paired(job_for(model, blobs()), 16, 16, epoch="retain").run(0, 0))
    uphill = gradient(ce(model, step["forget"]), model)
    length = sum(float((g**2).sum()) for g in uphill.values()) ** 0.5
    there = copy.deepcopy(model)
    with torch.no_grad():
        for name, weight in there.named_parameters():
            weight += rho * uphill[name] / length
    assert ce(there, step["forget"]) > ce(model, step["forget"])
    found = gradient(ce(there, step["retain"]), there)
    job, _ = run("uam", model, batch_size=16, rho=rho, lr=lr, momentum=0.0, weight_decay=0.0, budget=Budget(steps=1))
    for name, weight in job.model.named_parameters():
        assert torch.allclose(weight, dict(model.named_parameters())[name] - lr * found[name], atol=1e-6)


def test_the_point_is_rho_away_whatever_the_size_of_the_forget_loss(monkeypatch) -> None:
    seen = []
    original = uam.logits_with

    def watching(model, weights, x):
        own = dict(model.named_parameters())
        seen.append(sum(float((weights[n] - own[n]).detach().square().sum()) for n in own) ** 0.5)
        return original(model, weights, x)

    monkeypatch.setattr(uam, "logits_with", watching)
    run("uam", mlp(), batch_size=16, rho=0.25, budget=Budget(steps=5))
    assert seen == pytest.approx([0.25] * 5, rel=1e-4)


def test_no_forget_gradient_means_no_detour() -> None:
    model = plain_net()
    job = job_for(model, blobs(), budget=Budget(steps=3))
    flat = [torch.zeros(3)]
    assert float(uam.norm_of(flat)) == 0
    from unittest.mock import patch

    with patch.object(Job, "logits", lambda job, x: torch.zeros(len(x), 3, requires_grad=True)):
        uam.unlearn(job, uam.Config(batch_size=16, rho=1.0, weight_decay=0.0))
    plain, _ = run("finetune", model, batch_size=16, budget=Budget(steps=3))
    for ours, theirs in zip(job.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_rho_can_fall_to_0() -> None:
    config = uam.Config(rho=2.0, rho_schedule="cosine")
    assert [uam.rho_at(config, e, 2) for e in range(3)] == pytest.approx([2.0, 1.0, 0.0])
    assert uam.rho_at(uam.Config(rho=2.0), 1, 2) == 2.0
    assert not same_parameters(
        *(run("uam", mlp(), rho_schedule=s, rho=1.0, **SAME)[0].model for s in ("constant", "cosine"))
    )
