"""Every method on a fake accelerator: the weights of the CPU, and no step that makes the host wait."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from devices.fake_device import DEVICE, FakeDevice, fake_device, on_host
from regun.data.arrays import ArrayExamples
from regun.data.augment import Flip, PadCrop
from regun.data.examples import InputPipeline
from regun.forget_spec import ForgetSpec
from regun.methods import MethodSpec, method_names
from regun.splits import make_splits, reserve
from regun.training.fit import _Run
from regun.training.job import Job, private_copy
from regun.training.recipes import Recipe

PIPELINE = InputPipeline("small", (0.5,) * 3, (0.25,) * 3, (PadCrop(1), Flip()))
FEW = "epochs=2,batch_size=8"
SETTINGS = {
    "amun": f"{FEW},steps=3,epsilon=0.5,rounds=3,failures=keep",
    "auto": "",
    "ssd": "alpha=0.9,micro_batch=8",
    "retrain": f"{FEW},lr=0.01",
    "rum": "",
    "crossfit": "steps=6,batch_size=8,retain_batch=8",
    "sfron": f"{FEW}",
}
VARIANTS = [
    "amun,train_on=weighted,epochs=2,batch_size=8,steps=3,epsilon=0.5,rounds=3,failures=keep,freeze=false,restart=true",
    "regun,selector=nearest,granularity=sample,epochs=2,batch_size=8",
    "regun,selector=uniform,epochs=2,batch_size=8",
    "regun,granularity=class,aggregation=logits,batchnorm=reestimate,epochs=2,batch_size=8",
    "regun@teacher_shrink,epochs=2,teacher_epochs=4",
    "ssd,alpha=0.9,fisher=batch",
    "neggrad_plus,mode=sequential,ascent_epochs=1,epochs=2,batch_size=8",
]


def small_images() -> ArrayExamples:
    labels = np.arange(60) % 3
    pixels = np.random.default_rng(0).integers(0, 120, (60, 8, 8, 3)) + 40 * labels[:, None, None, None]
    return ArrayExamples(pixels.astype(np.uint8), labels, 3, PIPELINE)


def small_net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(16, 3))


def run(text: str, device: torch.device | str) -> tuple[Job, object]:
    examples, device = small_images(), torch.device(device)
    splits = make_splits(examples.labels, ForgetSpec.random(0.2), reserve(examples.labels, 0, heldout=0.2, val=0.1))
    spec = MethodSpec.parse(text)
    job = Job(
        model=private_copy(small_net(), device),
        examples=examples,
        splits=splits,
        seed=3,
        device=device,
        recipe=Recipe(epochs=2, batch_size=16, lr=0.01),
        out_of_fold=torch.full((len(splits.forget), 3), 1 / 3),
    )
    return job, spec.method.run(job, spec.configure())


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What makes the host wait in the steps of `fit`, apart from its own looks at the losses."""
    found: list[str] = []
    epoch, look, end = _Run.one_epoch, _Run._diverged, _Run._end_epoch

    def unrecorded(function):
        def call(self):
            syncs = FakeDevice.in_use().syncs
            before = len(syncs)
            result = function(self)
            del syncs[before:]
            return result

        return call

    def one_epoch(self):
        syncs = FakeDevice.in_use().syncs
        before = len(syncs)
        epoch(self)
        found.extend(syncs[before:])

    monkeypatch.setattr(_Run, "one_epoch", one_epoch)
    monkeypatch.setattr(_Run, "_diverged", unrecorded(look))
    monkeypatch.setattr(_Run, "_end_epoch", unrecorded(end))
    return found


@pytest.mark.parametrize("text", [*(f"{n},{SETTINGS.get(n, FEW)}".rstrip(",") for n in method_names()), *VARIANTS])
def test_a_method_on_the_device_gives_the_weights_of_the_cpu(text: str, waits: list[str]) -> None:
    with fake_device():
        here, outcome = run(text, "cpu")
        there, theirs = run(text, DEVICE)
        weights = {name: on_host(value) for name, value in there.model.state_dict().items()}
    assert waits == []
    assert theirs.diverged == outcome.diverged
    assert replace(there.cost, seconds=0) == replace(here.cost, seconds=0)
    for name, value in here.model.state_dict().items():
        assert torch.allclose(weights[name], value, rtol=1e-5, atol=1e-6), name  # MKL rounds by memory alignment
