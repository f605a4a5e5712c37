"""Whole steps of methods against their papers' formulas, worked out by hand. Every set fits into one batch."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional
from trials import gradient, plain_net, run, state

from expect import error
from regun.errors import RegunError
from regun.methods import amun, lur
from regun.splits import sample
from regun.training.gradients import fisher_by_batch, fisher_by_example
from regun.training.job import Budget
from regun.training.recipes import Recipe
from toys import blobs, job_for

WHOLE = dict(batch_size=200, momentum=0.0, weight_decay=0.0, schedule="constant")


def everything(part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels of a part of the split."""
    rows = job_for(plain_net(), blobs()).indices(part)
    return blobs().x[torch.from_numpy(rows)], torch.from_numpy(blobs().labels[rows])


def descend(model: nn.Module, loss: torch.Tensor, lr: float) -> None:
    found = gradient(loss, model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight -= lr * found[name]


def assert_same_weights(model: nn.Module, expected: nn.Module) -> None:
    for name, weight in model.named_parameters():
        assert torch.allclose(weight, dict(expected.named_parameters())[name], atol=1e-5), name


def test_scrub_leaves_its_teacher_on_forget_passes_and_follows_it_on_retain_passes() -> None:
    """L = -T^2 KL(teacher || model) and alpha T^2 KL(teacher || model) + gamma CE, in turns."""
    base, tau, alpha, gamma, lr = plain_net(), 3.0, 0.7, 0.4, 0.6
    twin = copy.deepcopy(base)

    def divergence(x: torch.Tensor) -> torch.Tensor:
        p, q = (base(x) / tau).softmax(1).detach(), (twin(x) / tau).softmax(1)
        return (p * (p / q).log()).sum(1).mean()

    for epoch in range(3):
        (forgotten, _), (x, y) = everything("forget"), everything("retain")
        if epoch < 2:
            before = float(divergence(forgotten).detach())
            descend(twin, -(tau**2) * divergence(forgotten), lr)
            assert epoch == 0 or float(divergence(forgotten).detach()) > before
        descend(twin, alpha * tau**2 * divergence(x) + gamma * functional.cross_entropy(twin(x), y), lr)
    settings = dict(epochs=3, forget_epochs=2, temperature=tau, alpha=alpha, gamma=gamma, lr=lr)
    job, _ = run("scrub", base, **settings, **WHOLE)
    assert_same_weights(job.model, twin)


@pytest.mark.parametrize("w", [0.0, 0.3, 1.0])
def test_weighted_amun_weighs_adversarial_and_retained_examples(w: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 2, 1, 1, 0])
    monkeypatch.setattr(amun, "adversarial_set", lambda job, config: (x, y.numpy(), 0))
    twin = plain_net()
    kept, labels = everything("retain")
    loss = (1 - w) * functional.cross_entropy(twin(x), y) + w * functional.cross_entropy(twin(kept), labels)
    descend(twin, loss, 0.3)
    job, _ = run("amun", plain_net(), train_on="weighted", w=w, lr=0.3, budget=Budget(steps=1), **WHOLE)
    assert_same_weights(job.model, twin)


@pytest.mark.parametrize(("failures", "step"), [("drop", 2), ("keep", 1)])
def test_amun_drops_or_keeps_what_was_never_fooled(failures: str, step: int, monkeypatch) -> None:
    job = job_for(plain_net(), blobs())
    size, x = len(job.indices("forget")), everything("forget")[0]
    labels, failed = torch.arange(size) % 3, torch.arange(size) % 2 == 1
    found = SimpleNamespace(x=x + 1, labels=labels, failed=failed, samples=7)
    monkeypatch.setattr(amun, "find", lambda view, y, attack: found)
    inputs, y, missed = amun.adversarial_set(job, amun.Config(failures=failures))
    rows = list(range(0, size, step))
    assert torch.equal(inputs, (x + 1)[rows])
    assert y.tolist() == [row % 3 for row in rows]
    assert (missed, job.cost.backward) == (size // 2, 7)


@pytest.mark.parametrize(("batch_size", "batches"), [(200, 1), (5, 3)])
def test_lur_redraws_the_weights_of_largest_size_times_gradient(batch_size: int, batches: int) -> None:
    """|theta_i| times the sum over batches of |sum of gradients|; weights within Kaiming's bound, biases 0."""
    model, config = plain_net(), lur.Config(sparsity=0.8, batch_size=batch_size, prune_batches=batches)
    job = job_for(model, blobs())
    rows = sample(job.indices("forget"), batch_size * batches, job.seed, "saliency")
    saliency = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for part in torch.from_numpy(rows).split(batch_size):
        y = torch.from_numpy(blobs().labels)[part]
        found = gradient(functional.cross_entropy(model(blobs().x[part]), y, reduction="sum"), model)
        for name, p in model.named_parameters():
            saliency[name] += p.detach().abs() * found[name].abs()
    every = torch.cat([s.flatten() for s in saliency.values()]).sort(descending=True).values
    count = lur.reinitialise(job, config)
    assert count == round(0.2 * len(every))
    before = state(model)
    for name, after in job.model.named_parameters():
        chosen = saliency[name] >= every[count - 1]
        assert torch.equal(after[~chosen], before[name][~chosen])
        if after.ndim > 1:
            assert (after[chosen] != before[name][chosen]).all()
            assert (after[chosen].abs() <= after.shape[1] ** -0.5).all()
        else:
            assert (after[chosen] == 0).all()


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (("*",), {"0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias"}),
        (("1.*", "4.weight"), {"1.weight", "1.bias", "4.weight"}),
    ],
)
def test_lur_redraws_linear_and_convolution_layers_only(patterns: tuple[str, ...], names: set[str]) -> None:
    """Not BatchNorm, not frozen weights, and only what a pattern matches."""
    layers = [nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 4), nn.Linear(4, 3)]
    model = nn.Sequential(*layers)
    model[5].requires_grad_(False)
    assert lur.eligible(model, patterns).keys() == names
    with error(RegunError, "lur.layers", "2.*"):
        lur.eligible(model, ("2.*",))


def test_lur_s_fresh_weights_follow_from_the_seed() -> None:
    first, again, other = (job_for(plain_net(), blobs(), seed=seed) for seed in (3, 3, 4))
    for job in (first, again, other):
        lur.reinitialise(job, lur.Config(sparsity=0.0))
    same, changed = (
        [torch.equal(a, b) for a, b in zip(first.model.parameters(), job.model.parameters(), strict=True) if a.ndim > 1]
        for job in (again, other)
    )
    assert all(same)
    assert not any(changed)


@pytest.mark.parametrize("fisher", ["example", "batch"])
def test_ssd_adds_epsilon_to_the_fisher_information_of_the_forget_set(fisher: str) -> None:
    """theta *= min(lambda F_all / (F_forget + epsilon), 1) where F_forget > alpha F_all."""
    model = plain_net()
    source = job_for(model, blobs())
    estimate = fisher_by_example if fisher == "example" else lambda job, rows: fisher_by_batch(job, rows, batch_size=7)
    f_all, f_forget = (estimate(source, source.indices(part)) for part in ("base", "forget"))
    epsilon = float(torch.cat([f.flatten() for f in f_forget.values()]).median())
    settings = dict(alpha=0.9, dampening=0.8, epsilon=epsilon, fisher=fisher, batch_size=7)
    job, fitted = run("ssd", model, **settings)
    selected = 0
    for name, after in job.model.named_parameters():
        chosen = f_forget[name] > 0.9 * f_all[name]
        factor = (0.8 * f_all[name] / (f_forget[name] + epsilon)).clamp(max=1)
        expected = torch.where(chosen, factor.float() * state(model)[name], state(model)[name])
        assert torch.allclose(after, expected, rtol=1e-5)
        selected += int(chosen.sum())
    assert fitted.notes["selected"] == selected > 0


def test_l1_sparse_adds_the_sign_of_every_weight_to_the_gradient() -> None:
    twin, gamma = plain_net(), 0.02
    x, y = everything("retain")
    size = sum(p.abs().sum() for p in twin.parameters())
    descend(twin, functional.cross_entropy(twin(x), y) + gamma * size, 0.3)
    settings = dict(gamma=gamma, penalty="constant", lr=0.3, budget=Budget(steps=1))
    job, _ = run("l1_sparse", plain_net(), **settings, **WHOLE)
    assert_same_weights(job.model, twin)


def test_crossfit_distills_first_and_repairs_on_retained_examples_afterwards() -> None:
    base, w = plain_net(), 0.6
    twin = copy.deepcopy(base)
    (forgotten, _), (x, y) = everything("forget"), everything("retain")
    keep = functional.cross_entropy(twin(x), y)
    forget = (1 / 3 * (1 / 3 / twin(forgotten).softmax(1)).log()).sum() / 200  # the table says 1/3 everywhere
    descend(twin, (1 - w) * forget + w * keep, 0.8)
    descend(twin, functional.cross_entropy(twin(x), y), 0.4)  # a cosine over two rounds
    settings = dict(batch_size=200, retain_batch=200, w=w, plain=1.0, repair=0.5, lr=0.8, steps=2)
    job, _ = run("crossfit", base, recipe=Recipe(epochs=5, momentum=0.0), **settings)
    assert_same_weights(job.model, twin)
