"""The fake device itself: what it refuses, what it records, and that it computes as the CPU does."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from devices.fake_device import DEVICE, FakeDevice, fake_device, on_host


@pytest.fixture
def device():
    with fake_device() as made:
        yield made


def there(values) -> torch.Tensor:
    """A tensor on the device, without a record."""
    return torch.as_tensor(values).pin_memory().to(DEVICE, non_blocking=True)


def test_two_devices_cannot_meet(device: FakeDevice) -> None:
    x = there([1.0, 2.0])
    with pytest.raises(RuntimeError, match="meet"):
        x + torch.ones(2)
    with pytest.raises(RuntimeError, match="meet"):
        x[torch.tensor([0])]
    assert on_host(x + torch.tensor(1.0)).tolist() == [2.0, 3.0]  # a scalar of the CPU may
    assert on_host(x * 2).tolist() == [2.0, 4.0]


def test_no_numpy_no_lists_and_no_foreign_generator(device: FakeDevice) -> None:
    x = there([1.0])
    with pytest.raises((RuntimeError, TypeError)):
        x.numpy()
    with pytest.raises((RuntimeError, TypeError)):
        np.asarray(x)
    with pytest.raises(NotImplementedError):
        torch.tensor([1.0], device=DEVICE)  # a blocking copy on a real one
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(2, device=DEVICE, generator=torch.Generator())


WAITING = {
    "item": lambda x: x[0].item(),
    "float": lambda x: float(x.sum()),
    "bool": lambda x: bool((x > 0).all()),
    "cpu": lambda x: x.cpu(),
    "tolist": lambda x: x.tolist(),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 1],
    "set by mask": lambda x: x.clone().index_put_((x > 1,), torch.zeros((), device=DEVICE)),
    "equal": lambda x: torch.equal(x, x),
    "unique": lambda x: x.unique(),
    "bincount": lambda x: x.long().bincount(),
    "copy to the host": lambda x: torch.empty(2).copy_(x),
    "blocking copy": lambda x: torch.ones(2).to(DEVICE),
    "pageable copy": lambda x: torch.ones(2).to(DEVICE, non_blocking=True),
}


@pytest.mark.parametrize("name", WAITING)
def test_what_makes_the_host_wait_is_recorded(device: FakeDevice, name: str) -> None:
    x = there([1.0, 2.0])
    assert not device.syncs
    WAITING[name](x)
    assert device.syncs


def test_training_there_is_training_here() -> None:
    """The same weights, bit for bit; and no wait in a step."""
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)]
    here = nn.Sequential(*layers)
    x, y = torch.randn(5, 1, 8, 8), torch.arange(5) % 3
    other = copy.deepcopy(here)

    def steps(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
        for _ in range(3):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    steps(here, x, y)
    with fake_device() as device:
        there_model, there_x, there_y = other.to(DEVICE), there(x), there(y)
        device.syncs.clear()
        steps(there_model, there_x, there_y)
        assert device.syncs == []
        states = zip(here.state_dict().values(), there_model.state_dict().values(), strict=True)
        assert all(torch.equal(ours, on_host(theirs)) for ours, theirs in states)


def test_the_device_has_a_generator_of_its_own(device: FakeDevice) -> None:
    before = torch.get_rng_state()
    torch.get_device_module(DEVICE).manual_seed(3)
    first = on_host(functional.dropout(torch.ones(50, device=DEVICE)))
    torch.get_device_module(DEVICE).manual_seed(3)
    assert torch.equal(first, on_host(functional.dropout(torch.ones(50, device=DEVICE))))
    assert torch.equal(before, torch.get_rng_state())
