"""The public functions on a fake accelerator give the numbers of the CPU."""

import pytest
import torch
from torch import nn

import regun
from devices.fake_device import DEVICE, fake_device, on_host
from expect import error
from regun.devices import as_device, best_kind
from regun.errors import RegunError

N, CLASSES = 40, 3


def sets() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(4 * N) % CLASSES
    x = torch.randn(4 * N, 6, generator=draw) + labels[:, None]
    names = ("forget", "retain", "heldout", "test")
    return {name: (x[k * N : (k + 1) * N], labels[k * N : (k + 1) * N]) for k, name in enumerate(names)}


def model(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES))


def parts(*names: str) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    return {name: value for name, value in sets().items() if name in names}


def on(device: torch.device | str) -> regun.InputOptions:
    return regun.InputOptions(device=device)


@pytest.mark.parametrize("method", ["regun,epochs=2", "auto"])
def test_unlearn(method: str) -> None:
    with fake_device():
        outcomes = [
            regun.unlearn(model(), method=method, **parts("forget", "retain", "heldout"), inputs=on(device), seed=3)
            for device in ("cpu", DEVICE)
        ]
        states = [{n: on_host(t) for n, t in outcome.model.state_dict().items()} for outcome in outcomes]
        assert all(torch.allclose(t, states[1][n], rtol=1e-4, atol=1e-5) for n, t in states[0].items())


def test_audit() -> None:
    with fake_device():
        here, there = (
            regun.audit(
                model(1),
                **parts("forget", "retain", "test"),
                before=model(),
                retrained=[model(2), model(3), model(4)],
                inputs=on(device),
            )
            for device in ("cpu", DEVICE)
        )
    assert here.to_json() == there.to_json()


def test_a_model_that_is_on_the_device_stays_there() -> None:
    with fake_device():
        placed = model().to(DEVICE)
        outcome = regun.unlearn(placed, method="finetune,epochs=1", **parts("forget", "retain"), seed=3)
        assert {p.device for p in outcome.model.parameters()} == {DEVICE}


def test_relearn() -> None:
    chosen = parts("forget", "retain", "heldout", "test")
    with fake_device():
        curves = [regun.relearn(model(), **chosen, retrained=model(1), inputs=on(d), seed=2) for d in ("cpu", DEVICE)]
        assert str(curves[0]) == str(curves[1])


def test_a_device_that_is_not_there_is_named_with_those_that_are() -> None:
    missing = "cuda:7"
    with error(RegunError, "device", missing, "cpu", "auto"):
        regun.unlearn(model(), method="finetune", **parts("forget", "retain"), inputs=on(missing))
    with error(RegunError, "device", "gpu", "cpu"):
        as_device("gpu")
    assert as_device("cpu") == torch.device("cpu")
    with fake_device():
        assert as_device("lazy") == DEVICE  # with its number


@pytest.mark.parametrize(
    ("available", "chosen"), [(("cuda", "xpu", "mps"), "cuda"), (("xpu", "mps"), "xpu"), (("mps",), "mps"), ((), "cpu")]
)
def test_auto_takes_the_first_accelerator(available, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("cuda", "xpu", "mps"):
        monkeypatch.setattr(torch.get_device_module(kind), "is_available", lambda kind=kind: kind in available)
    assert best_kind() == chosen
