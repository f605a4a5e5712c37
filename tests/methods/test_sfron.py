"""SFRon: its stream of turns, its mask, its weighted and clipped ascent, its slow weights, its limits."""

import copy
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from trials import ce, gradient, plain_net, run, state

from regun.methods import sfron
from regun.training.gradients import fisher_by_batch, fisher_by_example
from regun.training.job import Budget
from regun.training.streams import interleaved
from toys import blobs, job_for, mlp, same_state

PLAIN = dict(batch_size=16, momentum=0.0, weight_decay=0.0, schedule="constant")


def kinds(parts) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(batch.indices.tolist())) for part in parts for name, batch in part.items()]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 30), st.integers(1, 40), st.integers(0, 3))
def test_turns(every: int, forget_batch: int, retain_batch: int, epoch: int) -> None:
    job = job_for(plain_net(), blobs(60))
    stream = interleaved(job, forget_batch, retain_batch, every)
    turns = kinds(stream.run(epoch, 0))
    assert len(turns) == stream.steps(epoch)
    names = [name for name, _ in turns]
    for place, name in enumerate(names):
        assert name == ("forget" if place % (every + 1) == 0 else "retain")
    assert names[-1] == "retain"
    retained = [i for name, rows in turns if name == "retain" for i in rows]
    assert sorted(retained) == job.indices("retain").tolist()  # an epoch is a pass over the retain set
    for start in range(0, len(turns) + 1, max(1, len(turns) // 4)):
        assert kinds(stream.run(epoch, start)) == turns[start:]  # resumable at every step


def test_the_forget_set_is_gone_through_pass_after_pass_across_epochs() -> None:
    job = job_for(plain_net(), blobs(200))
    stream = interleaved(job, 8, 10, 2)
    rows = [r for epoch in range(6) for name, r in kinds(stream.run(epoch, 0)) if name == "forget"]
    per_pass = -(-len(job.indices("forget")) // 8)
    for start in range(0, len(rows) - per_pass, per_pass):
        assert sorted(i for r in rows[start : start + per_pass] for i in r) == job.indices("forget").tolist()
    assert len({rows[0], rows[per_pass], rows[2 * per_pass]}) == 3  # reshuffled


def test_sfron_with_alpha_0_is_finetune() -> None:
    same = dict(batch_size=16, lr=0.05, weight_decay=0.01, schedule="constant", budget=Budget(steps=6))
    limit, _ = run("sfron", mlp(), alpha=0.0, **same)
    plain, _ = run("finetune", mlp(), **same)
    assert same_state(limit.model, plain.model)


def test_the_weighted_loss() -> None:
    logits, y = torch.randn(7, 3, generator=torch.Generator().manual_seed(0)), torch.arange(7) % 3
    each = functional.cross_entropy(logits, y, reduction="none")
    assert float(sfron.known_loss(logits, y, 0.0)) == pytest.approx(float(each.mean()))
    for power in (0.5, 1.0, 3.0):
        shares = [float(e) ** -power for e in each]
        expected = sum(s / sum(shares) * float(e) for s, e in zip(shares, each, strict=True))
        assert float(sfron.known_loss(logits, y, power)) == pytest.approx(expected, rel=1e-5)
    leaf = logits.clone().requires_grad_()
    (found,) = torch.autograd.grad(sfron.known_loss(leaf, y, 1.0), leaf)
    p = logits.softmax(1) - functional.one_hot(y, 3)
    assert torch.allclose(found, p * ((1 / each) / (1 / each).sum()).unsqueeze(1), atol=1e-6)  # weights are constants


def test_an_example_of_loss_0_does_not_take_all_the_weight() -> None:
    logits = torch.tensor([[200.0, 0.0], [1.0, 0.0]], requires_grad=True)
    value = sfron.known_loss(logits, torch.tensor([0, 0]), 0.5)
    (found,) = torch.autograd.grad(value, logits)
    assert float(found[1].abs().sum()) > 1e-4


@pytest.mark.parametrize("fisher", ["batch", "example"])
def test_the_mask_compares_the_fisher_information_of_both_sets(fisher: str) -> None:
    job = job_for(mlp(), blobs())
    config = sfron.Config(gamma=1.3, fisher=fisher, batch_size=16)
    mask = sfron.salient(job, config)
    if fisher == "batch":
        ours, theirs = (fisher_by_batch(job, job.indices(p), batch_size=16) for p in ("forget", "retain"))
    else:
        ours, theirs = (fisher_by_example(job, job.indices(p)) for p in ("forget", "retain"))
    for name in mask:
        assert torch.equal(mask[name], ours[name] / theirs[name].clamp(min=1e-30) >= 1.3)
    assert 0 < sum(int(m.sum()) for m in mask.values()) < sum(m.numel() for m in mask.values())
    assert all(m.all() for m in sfron.salient(job, sfron.Config(gamma=0.0)).values())


@pytest.mark.parametrize("bound", [1e9, 0.05])
def test_the_first_step_ascends_on_salient_weights_and_is_clipped(bound: float) -> None:
    model, lr, alpha = plain_net(), 0.1, 3.0
    start = job_for(model, blobs())
    mask = sfron.salient(start, sfron.Config(batch_size=16, gamma=0.8))
    batch = next(interleaved(start, 16, 16, 5).run(0, 0))["forget"]
    each = functional.cross_entropy(model(batch.x), batch.y, reduction="none")
    weight = each.detach() ** -0.5
    found = gradient((weight / weight.sum() * each).sum(), model)
    found = {n: alpha * g * mask[n] for n, g in found.items()}
    length = sum(float((g**2).sum()) for g in found.values()) ** 0.5
    scale = min(1.0, bound / length)
    job, _ = run("sfron", model, alpha=alpha, lr=lr, gamma=0.8, max_norm=bound, budget=Budget(steps=1), **PLAIN)
    before = state(model)
    for name, after in job.model.named_parameters():
        assert torch.allclose(after, before[name] + lr * scale * found[name], atol=1e-6)  # up, not down
        assert torch.equal(after[~mask[name]], before[name][~mask[name]])


def test_retain_steps_move_every_weight_and_slow_weights_follow() -> None:
    model, lr, beta, steps = plain_net(), 0.2, 0.3, 7
    job, _ = run(
        "sfron", model, alpha=2.0, lr=lr, beta=beta, every=2, gamma=0.0, power=0.0, max_norm=1e9,
        budget=Budget(steps=steps), **PLAIN,
    )  # fmt: skip
    twin, slow = copy.deepcopy(model), state(model)
    source = job_for(model, blobs())
    stream = interleaved(source, 16, 16, 2)
    epochs = -(-steps // stream.steps(0))
    for number, part in enumerate(islice(stream.run(0, 0), steps)):
        ((name, batch),) = part.items()
        strength = 1.0
        if name == "forget":
            strength = -2.0 * 0.5 * (1 + np.cos(np.pi * number / stream.steps(0) / epochs))
        found = gradient(strength * ce(twin, batch), twin)
        with torch.no_grad():
            for n, weight in twin.named_parameters():
                weight -= lr * found[n]
                if name == "retain":
                    slow[n] += beta * (weight - slow[n])
                    weight.copy_(slow[n])
    for n, weight in job.model.named_parameters():
        assert torch.allclose(weight, dict(twin.named_parameters())[n], atol=1e-5)
