"""The loop on a fake accelerator: divergence that the host learns of later, snapshots, and dropout by seed."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from devices.fake_device import DEVICE, fake_device, on_host
from devices.test_methods_on_device import small_images
from regun.methods._fresh_weights import fresh_model, reset, shuffled
from regun.rng import own_torch_rng
from regun.training.divergence import EVERY
from regun.training.fit import fit
from regun.training.job import Budget, Job, private_copy
from regun.training.recipes import Recipe
from regun.training.snapshots import Snapshot
from regun.training.streams import one_pass
from toys import conv_net, splits_of

RECIPES = [Recipe(epochs=40, batch_size=8, lr=0.01), Recipe(epochs=40, batch_size=8, optimizer="adamw", lr=0.01)]


def job_on(device: torch.device | str, model: nn.Module | None = None, **more) -> Job:
    examples, device = small_images(), torch.device(device)
    model = private_copy(model or conv_net(channels=3), device)
    return Job(model=model, examples=examples, splits=splits_of(examples), seed=5, device=device, **more)


def train(job: Job, recipe: Recipe, change=lambda value, number: value, checkpoint=None):
    calls = 0

    def loss(step):
        nonlocal calls
        value = nn.functional.cross_entropy(job.logits(step.retain.x), step.retain.y)
        calls += 1
        return change(value, calls - 1)

    stream = one_pass(job, "retain", job.indices("retain"), recipe.batch_size)
    return fit(job, stream, loss, recipe, checkpoint=checkpoint)


def state(job: Job) -> dict[str, torch.Tensor]:
    return {name: on_host(value).clone() for name, value in job.model.state_dict().items()}


def assert_same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    for name, value in ours.items():
        assert torch.allclose(value, theirs[name], rtol=1e-5, atol=1e-6), name


FAULTS = {
    "loss": lambda value, number: value * math.inf if number == 9 else value,
    "loss is NaN": lambda value, number: value * math.nan if number >= 9 else value,
    "gradient": lambda value, number: value + (value - value).sqrt() if number == 9 else value,
}


@pytest.mark.parametrize("recipe", RECIPES, ids=["sgd", "adamw"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_divergence_is_undone_although_the_host_learns_of_it_later(fault: str, recipe: Recipe) -> None:
    with fake_device():
        here, there = job_on("cpu"), job_on(DEVICE)
        fitted = train(here, recipe, FAULTS[fault])
        later = train(there, recipe, FAULTS[fault])
        assert fitted.diverged is not None
        assert fitted.diverged == later.diverged
        assert (
            (here.cost.steps, here.cost.backward) == (there.cost.steps, there.cost.backward) == (9, there.cost.backward)
        )
        assert here.cost.forward == there.cost.forward
        assert [e.loss for e in fitted.epochs] == pytest.approx([e.loss for e in later.epochs])
        assert_same(state(here), state(there))


def test_weights_that_overflow_go_back_to_the_start_of_the_epoch() -> None:
    recipe = Recipe(epochs=2, batch_size=8, lr=3e38, momentum=0)
    with fake_device():
        model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
        here, there = job_on("cpu", model), job_on(DEVICE, model)
        start = state(there)
        steep = (lambda value, number: 1000 * value,)
        assert train(here, recipe, *steep).diverged == train(there, recipe, *steep).diverged is not None
        for name, _ in here.model.named_parameters():
            assert torch.equal(state(there)[name], start[name])


def test_the_host_reads_losses_every_few_steps() -> None:
    with fake_device() as device:
        job = job_on(DEVICE, budget=Budget(steps=2 * EVERY))
        examples = len(job.indices("retain"))
        device.syncs.clear()
        train(job, Recipe(batch_size=math.ceil(examples / (2 * EVERY))))
        reads = [line for line in device.syncs if "divergence" in line]
        assert len(reads) == len(device.syncs) <= 2 * 3  # two transfers after EVERY steps, and at the end of the epoch


class Memory:
    def __init__(self, saved: Snapshot | None = None) -> None:
        self.saved, self.all = saved, []

    def due(self) -> bool:
        return True

    def load(self) -> Snapshot | None:
        return self.saved

    def save(self, snapshot: Snapshot) -> None:
        self.all.append(snapshot)


@pytest.mark.parametrize("recipe", RECIPES, ids=["sgd", "adamw"])
def test_a_run_on_the_device_resumes_to_the_same_weights(recipe: Recipe) -> None:
    recipe, model, memory = replace(recipe, epochs=2), nn.Sequential(conv_net(channels=3), nn.Dropout(0.3)), Memory()
    with fake_device():
        whole = job_on(DEVICE, model)
        done = train(whole, recipe, checkpoint=memory)
        again = job_on(DEVICE, model)
        redone = train(again, recipe, checkpoint=Memory(memory.all[3]))
        assert_same(state(whole), state(again))
        assert [e.loss for e in done.epochs] == pytest.approx([e.loss for e in redone.epochs])


def test_what_a_model_draws_on_the_device_follows_from_the_seed() -> None:
    model = nn.Sequential(conv_net(channels=3), nn.Dropout(0.5))
    with fake_device() as device:
        first, second = job_on(DEVICE, model), job_on(DEVICE, model)
        before = device.state.clone()
        train(first, Recipe(epochs=1, batch_size=8))
        assert torch.equal(before, device.state)
        torch.get_device_module(DEVICE).manual_seed(99)
        train(second, Recipe(epochs=1, batch_size=8))
        assert_same(state(first), state(second))
        with own_torch_rng(1, DEVICE):
            drawn = torch.rand(4, device=DEVICE)
        with own_torch_rng(2, DEVICE):
            assert not torch.equal(on_host(drawn), on_host(torch.rand(4, device=DEVICE)))


@pytest.mark.parametrize("make", [reset, shuffled])
def test_fresh_weights_are_those_of_the_cpu(make) -> None:
    with fake_device() as device:
        here, there = job_on("cpu"), job_on(DEVICE)
        made = make(there.model, 7)
        device.state = torch.Generator().manual_seed(1).get_state()
        assert all(p.device == DEVICE for p in made.parameters())
        for ours, theirs in zip(make(here.model, 7).parameters(), made.parameters(), strict=True):
            assert torch.equal(ours, on_host(theirs))


def test_a_fresh_model_of_a_job_is_on_its_device() -> None:
    with fake_device():
        here, there = job_on("cpu"), job_on(DEVICE)
        pairs = zip(fresh_model(here, "x").parameters(), fresh_model(there, "x").parameters(), strict=True)
        assert all(torch.equal(ours, on_host(theirs)) for ours, theirs in pairs)
        rebuilt = replace(there, rebuild=lambda seed: conv_net(channels=3, seed=seed % 100))  # on the CPU
        assert all(p.device == DEVICE for p in fresh_model(rebuilt, "x").parameters())
