"""Fanchuan: its two losses, the order of its rounds, and three optimizers in one loop."""

import copy
import math

import pytest
import torch
from trials import ce, gradient, plain_net, run

from expect import error
from regun.errors import SettingsError
from regun.methods import fanchuan
from regun.training.job import Budget
from regun.training.streams import one_pass, paired
from toys import blobs, job_for


def test_flatness_is_the_divergence_from_uniform() -> None:
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    p = logits.softmax(1)
    assert float(fanchuan.flatness(logits)) == pytest.approx(float((0.25 * (0.25 / p).log()).sum(1).mean()), rel=1e-5)
    assert float(fanchuan.flatness(torch.ones(3, 4))) == pytest.approx(0, abs=1e-7)


def slow_contrast(forget: torch.Tensor, retain: torch.Tensor, tau: float) -> float:
    total = 0.0
    for f in forget.tolist():
        products = [sum(a * b for a, b in zip(f, r, strict=True)) / tau for r in retain.tolist()]
        top = max(products)
        log_sum = top + math.log(sum(math.exp(p - top) for p in products))
        total += sum(log_sum - p for p in products)
    return total / len(forget) / len(retain)


def test_the_contrast_is_the_mean_over_pairs_and_leaves_the_retain_side_alone() -> None:
    job = job_for(plain_net(), blobs())
    from regun.training.job import Step

    parts = next(paired(job, 6, 9, epoch="shorter").run(0, 0))
    value = fanchuan.contrast_loss(job, Step(parts, 0, 1, 0), 1.15)
    ours, theirs = (job.model(parts[p].x).detach() for p in ("forget", "retain"))
    assert float(value.detach()) == pytest.approx(slow_contrast(ours, theirs, 1.15), rel=1e-5)
    leaf = job.model(parts["forget"].x)
    by_hand = -torch.log_softmax(leaf @ theirs.T / 1.15, dim=1).mean()
    for a, b in zip(gradient(value, job.model).values(), gradient(by_hand, job.model).values(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def rounds(job, epochs: int, size: int) -> list[tuple[str, int, dict]]:
    """Every step of the method in order: its kind, its number among the forget rounds' steps, its batches."""
    contrast = paired(job_for(plain_net(), blobs(), seed=job.derive("contrast")), size, size, epoch="shorter")
    steps = [("flatten", 0, p) for p in one_pass(job, "forget", job.indices("forget"), size).run(0, 0)]
    for epoch in range(epochs):
        steps += [("contrast", epoch * contrast.steps(0) + n, p) for n, p in enumerate(contrast.run(epoch, 0))]
        steps += [("repair", 0, p) for p in one_pass(job, "retain", job.indices("retain"), size).run(epoch, 0)]
    return steps


def test_the_whole_run_is_that_of_three_optimizers() -> None:
    rates = dict(first_lr=0.05, forget_lr=0.02, least_lr=0.005, lr=0.03)
    model, size, epochs = plain_net(), 16, 2
    job, _ = run("fanchuan", model, batch_size=size, epochs=epochs, weight_decay=0.1, momentum=0.9, **rates)
    twin = copy.deepcopy(model)
    sgd = {
        "flatten": torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9),
        "contrast": torch.optim.SGD(twin.parameters(), lr=0.02, momentum=0.9),
        "repair": torch.optim.SGD(twin.parameters(), lr=0.03, momentum=0.9, weight_decay=0.1),
    }
    steps = rounds(job_for(model, blobs()), epochs, size)
    total = sum(kind == "contrast" for kind, _, _ in steps)
    assert job.cost.steps == len(steps)
    for kind, number, parts in steps:
        if kind == "flatten":
            loss = fanchuan.flatness(twin(parts["forget"].x))
        elif kind == "contrast":
            ours, theirs = twin(parts["forget"].x), twin(parts["retain"].x).detach()
            loss = -torch.log_softmax(ours @ theirs.T / 1.15, dim=1).mean()
            rate = 0.005 + 0.015 * 0.5 * (1 + math.cos(math.pi * number / total))
            sgd["contrast"].param_groups[0]["lr"] = rate
        else:
            loss = ce(twin, parts["retain"])
        sgd[kind].zero_grad()
        loss.backward()
        sgd[kind].step()
    for name, weight in job.model.named_parameters():
        assert torch.allclose(weight, dict(twin.named_parameters())[name], atol=1e-4)


def test_without_its_forget_rates_fanchuan_is_finetune() -> None:
    limit, _ = run("fanchuan", plain_net(), batch_size=16, epochs=3, first_lr=0.0, forget_lr=0.0, least_lr=0.0, lr=0.05)
    plain, _ = run("finetune", plain_net(), batch_size=16, epochs=3, weight_decay=1e-2, lr=0.05)
    for ours, theirs in zip(limit.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_the_first_step_flattens_the_answers_on_the_forget_batch() -> None:
    model = plain_net()
    job, _ = run("fanchuan", model, batch_size=64, first_lr=0.1, budget=Budget(steps=1))
    x = blobs().x[torch.from_numpy(job.indices("forget"))]
    assert fanchuan.flatness(job.model(x)) < fanchuan.flatness(model(x))


@pytest.mark.parametrize("wrong", [dict(optimizer="adamw"), dict(schedule="cosine"), dict(nesterov=True)])
def test_what_three_optimizers_cannot_have_is_refused(wrong) -> None:
    with error(SettingsError, f"fanchuan.{next(iter(wrong))}"):
        fanchuan.Config(**wrong)
