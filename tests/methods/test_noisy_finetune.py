"""Noisy fine-tuning: its step, its bound against formula, limits and an exact case, and when it may be claimed."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from torch import nn
from trials import ce, gradient, plain_net, run, state

from expect import error
from regun.errors import SettingsError
from regun.methods import noisy_finetune
from regun.methods._certificate import divergence_rate, epsilon_of
from regun.rng import generator
from regun.training.job import Budget
from regun.training.streams import one_pass
from toys import blobs, conv_net, images, job_for, mlp

TERMS = dict(steps=20, lr=0.1, weight_decay=0.3, radius=4.0, clip=1.5, noise=0.2)
STATED = dict(radius=3.0, noise=0.01, secret_seed=True, lr=0.05, batch_size=16)

bounds = st.fixed_dictionaries(
    dict(
        steps=st.integers(1, 30),
        lr=st.floats(0.01, 1.0),
        weight_decay=st.floats(0.0, 0.9),
        radius=st.floats(0.1, 10),
        clip=st.floats(0.1, 10),
        noise=st.floats(0.1, 10),
    )
)


# ---- the bound -----------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(bounds)
def test_constant_gradients_at_opposite_ends_attain_the_bound(terms) -> None:
    """Two one-dimensional runs from +R and -R, pushed apart by -C and +C: Gaussians whose divergence is known exactly."""
    shrink = 1 - terms["lr"] * terms["weight_decay"]
    low, high, variance = -terms["radius"], terms["radius"], 0.0
    for _ in range(terms["steps"]):
        low = shrink * low - terms["lr"] * terms["clip"]
        high = shrink * high + terms["lr"] * terms["clip"]
        variance = shrink**2 * variance + terms["noise"] ** 2
    for alpha in (1.5, 2.0, 10.0):
        exact = alpha * (high - low) ** 2 / (2 * variance)  # Renyi divergence of N(low, v) and N(high, v)
        assert alpha * divergence_rate(**terms) == pytest.approx(exact, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(bounds, st.integers(0, 1000))
def test_no_other_way_to_buy_the_shifts_is_cheaper_and_the_best_one_is_allowed(terms, seed: int) -> None:
    steps, lr, noise = terms["steps"], terms["lr"], terms["noise"]
    shrink, push = 1 - lr * terms["weight_decay"], 2 * lr * terms["clip"]
    powers = np.array([shrink ** (steps - t) for t in range(1, steps + 1)])
    apart = 2 * terms["radius"] * shrink**steps + push * powers.sum()
    rho = divergence_rate(**terms)

    def left_over(shifts) -> float:
        left = 2 * terms["radius"]
        for shift in shifts:
            left = shrink * left + push - shift
            assert left > -1e-6 * apart  # never more bought than there is
        return left

    best = powers * apart / (powers**2).sum()
    assert left_over(best) == pytest.approx(0, abs=1e-6 * apart)
    assert (best**2).sum() / (2 * noise**2) == pytest.approx(rho, rel=1e-9)
    other = np.random.default_rng(seed).exponential(size=steps)
    other *= apart / (powers * other).sum()  # another purchase of the same total
    assert (other**2).sum() / (2 * noise**2) >= rho * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-4, 5.0), st.sampled_from([1e-2, 1e-5, 1e-8]))
def test_the_exact_delta_of_two_gaussians_at_epsilon_is_below_delta(rho: float, delta: float) -> None:
    mu, epsilon = math.sqrt(2 * rho), epsilon_of(rho, delta)
    exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert exact <= delta
    orders = np.linspace(1.0001, 1 + 20 * math.sqrt(math.log(1 / delta) / rho), 100_000)
    assert epsilon <= (orders * rho + math.log(1 / delta) / (orders - 1)).min() + 1e-9


def test_one_step_is_the_gaussian_mechanism() -> None:
    apart = 2 * 4.0 * (1 - 0.03) + 2 * 0.1 * 1.5
    assert divergence_rate(**{**TERMS, "steps": 1}) == pytest.approx(apart**2 / (2 * 0.2**2))


def test_without_decay_it_is_the_published_form() -> None:
    free = {**TERMS, "weight_decay": 0.0}
    assert divergence_rate(**free) == pytest.approx(2 * (4.0 + 0.1 * 1.5 * 20) ** 2 / (20 * 0.2**2))
    delta = 1e-5
    for epsilon in (0.1, 0.5, 1.0, 2.5):  # below log(1/delta) / 4, where the published constant 9 suffices
        noise = math.sqrt(9 * math.log(1 / delta) / (epsilon**2 * 20)) * (4.0 + 0.1 * 1.5 * 20)
        assert epsilon_of(divergence_rate(**{**free, "noise": noise}), delta) <= epsilon


def test_limits_and_monotonicity() -> None:
    def epsilon(**changed) -> float:
        return epsilon_of(divergence_rate(**{**TERMS, **changed}), 1e-5)

    assert epsilon(noise=1e9) == pytest.approx(0, abs=1e-6)
    assert epsilon(noise=0.1) > epsilon(noise=0.2) > epsilon(noise=0.4)
    assert epsilon(radius=8.0) > epsilon() > epsilon(radius=0.0)
    assert epsilon(clip=3.0) > epsilon() > epsilon(clip=0.0)
    assert epsilon(steps=2000) == pytest.approx(epsilon(steps=2000, radius=400.0), rel=1e-9)  # the start is forgotten
    assert epsilon_of(0.5, 1.0) == 0.5  # delta 1 leaves the mean


# ---- the method ----------------------------------------------------------------------------------------------------


def test_a_step_is_clipped_decayed_and_noisy() -> None:
    model, lr, decay, clip, noise, radius = plain_net(), 0.5, 0.1, 0.2, 0.03, 1.5
    settings = dict(batch_size=16, lr=lr, weight_decay=decay, clip=clip, noise=noise, radius=radius)
    job, _ = run("noisy_finetune", model, budget=Budget(steps=1), **settings)
    inside = copy.deepcopy(model)
    length = math.sqrt(sum(float(p.detach().square().sum()) for p in model.parameters()))
    assert length > radius
    with torch.no_grad():
        for weight in inside.parameters():
            weight *= radius / length
    batch = next(one_pass(job, "retain", job.indices("retain"), 16).run(0, 0))["retain"]
    found = gradient(ce(inside, batch), inside)
    size = math.sqrt(sum(float(g.square().sum()) for g in found.values()))
    assert size > clip
    draw = generator(job.seed, "noise", 0, 0)
    for name, weight in inside.named_parameters():
        step = lr * (found[name] * clip / size + decay * weight.detach())
        expected = weight.detach() - step + noise * torch.randn(weight.shape, generator=draw)
        assert torch.allclose(dict(job.model.named_parameters())[name], expected, atol=1e-5)


def test_without_noise_ball_and_clipping_it_is_finetune_without_momentum() -> None:
    quiet, _ = run("noisy_finetune", plain_net(), noise=0.0, clip=1e9, lr=0.1, batch_size=16, epochs=2)
    plain, _ = run("finetune", plain_net(), momentum=0.0, lr=0.1, batch_size=16, epochs=2)
    for ours, theirs in zip(quiet.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_every_noise_is_new_and_of_the_size_said() -> None:
    zeros = nn.Linear(6, 200)
    nn.init.zeros_(zeros.weight)
    settings = dict(lr=1e-6, clip=1e-9, noise=0.5, batch_size=16)
    once, many = (run("noisy_finetune", zeros, budget=Budget(steps=n), **settings)[0].model for n in (1, 25))
    assert float(once.weight.detach().std()) == pytest.approx(0.5, rel=0.1)
    assert float(many.weight.detach().std()) == pytest.approx(0.5 * 5, rel=0.1)  # independent: 5 times one


def test_a_start_inside_the_ball_stays_where_it_is() -> None:
    still = dict(lr=1e-9, noise=0.0, batch_size=16, budget=Budget(steps=1))
    inside, _ = run("noisy_finetune", plain_net(), radius=1e3, **still)
    for name, weight in inside.model.named_parameters():
        assert torch.allclose(weight, state(plain_net())[name], atol=1e-7)
    outside, _ = run("noisy_finetune", plain_net(), radius=0.5, **still)
    assert sum(float(p.detach().square().sum()) for p in outside.model.parameters()) == pytest.approx(0.25, rel=1e-4)


def test_what_batchnorm_remembered_of_the_base_is_gone() -> None:
    """Two bases of equal weights and different statistics end as the same model: buffers carry nothing over."""
    ends = []
    for shift in (0.0, 5.0):
        model = mlp()
        model[1].running_mean += shift
        model[1].num_batches_tracked += int(shift)
        ends.append(run("noisy_finetune", model, batch_size=16, epochs=2)[0].model.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(*(end.values() for end in ends), strict=True))


# ---- the claim -----------------------------------------------------------------------------------------------------


def test_the_bound_of_a_run_is_that_of_its_noisy_steps() -> None:
    job, fitted = run("noisy_finetune", mlp(), epochs=3, repair_epochs=1, weight_decay=0.2, clip=2.0, **STATED)
    found = fitted.notes["certificate"]
    per_epoch = -(-len(job.indices("retain")) // 16)
    assert job.cost.steps == 3 * per_epoch
    assert found["steps"] == 2 * per_epoch
    rho = divergence_rate(steps=2 * per_epoch, lr=0.05, weight_decay=0.2, radius=3.0, clip=2.0, noise=0.01)
    assert found["epsilon"] == pytest.approx(epsilon_of(rho, 1e-5))
    assert (found["delta"], found["holds"], found["missing"]) == (1e-5, True, [])
    assert any("secret" in text for text in found["assumptions"])
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    budgeted = run("noisy_finetune", mlp(), budget=Budget(steps=7), **STATED)[1].notes["certificate"]
    assert budgeted["steps"] == 7


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (dict(radius=None), "no radius was given"),
        (dict(noise=0.0), "there was no noise"),
        (dict(epochs=2, repair_epochs=2), "there was no noise"),
        (dict(secret_seed=False), "secret_seed was not stated"),
        (dict(batch_size=1, epochs=1), "batches of one example were normalised by statistics of earlier weights"),
    ],
)
def test_one_assumption_that_is_not_met_or_stated_and_nothing_is_claimed(change, reason: str) -> None:
    found = run("noisy_finetune", mlp(), **{"epochs": 1, **STATED, **change})[1].notes["certificate"]
    assert found["missing"] == [reason]
    assert not found["holds"]
    assert (found["epsilon"] is None) == ("radius" in reason or "no noise" in reason)


def test_parts_without_noise_must_be_stated_clean() -> None:
    frozen = conv_net()
    frozen[0].requires_grad_(False)
    buffered = nn.Sequential(plain_net())
    buffered.register_buffer("prior", torch.zeros(3))
    for model, examples in ((frozen, images()), (buffered, blobs())):
        found = [
            run("noisy_finetune", model, examples, epochs=1, rest_is_clean=clean, **STATED)[1].notes["certificate"]
            for clean in (False, True)
        ]
        assert [f["holds"] for f in found] == [False, True]
        assert found[0]["missing"] == ["some weights or buffers got no noise, and rest_is_clean was not stated"]
    diverged = noisy_finetune.proven(job_for(mlp(), blobs()), noisy_finetune.Config(**STATED), 5, whole=False)
    assert diverged["missing"] == ["the run diverged"]


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        (dict(momentum=0.9), ("momentum", 0.9, 0)),
        (dict(optimizer="adamw"), ("optimizer", "adamw", "sgd")),
        (dict(schedule="cosine"), ("schedule", "cosine", "constant")),
        (dict(decay="weights"), ("decay", "weights", "all")),
        (dict(lr=0.0), ("lr", 0, "weight_decay")),
        (dict(lr=2.0, weight_decay=0.5), ("lr", 0, "weight_decay")),
    ],
)
def test_updates_the_bound_does_not_know_are_refused(wrong, names: tuple[object, ...]) -> None:
    with error(SettingsError, *names):
        noisy_finetune.Config(**wrong)
