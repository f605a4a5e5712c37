"""Augmentation and batches on a fake accelerator: the pixels of the CPU, without a wait of the host."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from devices.fake_device import DEVICE, DeviceTensor, fake_device, on_host
from devices.test_methods_on_device import small_images
from regun.data.augment import CentreCrop, ColorJitter, Flip, PadCrop, RandomErasing, RandomResizedCrop, Resize
from regun.data.dataset import DatasetExamples
from regun.data.randaugment import OPERATIONS, RandAugment
from regun.data.tensors import TensorExamples
from regun.data.views import Joined, Selected
from regun.devices import send
from regun.rng import generator

TRANSFORMS = [
    *(PadCrop(2), Flip(), ColorJitter(hue=0.3), RandomResizedCrop(size=8), RandomErasing(p=0.9), Resize(shorter=12)),
    *(CentreCrop(size=6), RandAugment(n=4)),
]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: type(t).__name__)
def test_a_transform_on_the_device_is_that_of_the_cpu(transform, layout: torch.memory_format) -> None:
    images = torch.randint(256, (40, 3, 10, 12), dtype=torch.uint8, generator=generator(0)).contiguous(
        memory_format=layout
    )
    images = images[..., :10].contiguous(memory_format=layout)
    with fake_device() as device:
        here = transform(images, generator(1))
        there = transform(send(images, DEVICE), generator(1))
        assert isinstance(there, DeviceTensor)
        assert device.syncs == []
    # resizing uint8 has a kernel of its own on the CPU, which may round a pixel the other way
    most = 1 if isinstance(transform, Resize | RandomResizedCrop) else 1e-6
    assert (on_host(there).double() - here.double()).abs().max() <= most


def test_all_operations_of_randaugment_are_drawn() -> None:
    chosen, _ = RandAugment(n=4).draw(40, generator(1))
    assert len(chosen.unique()) == len(OPERATIONS)


def sets() -> dict[str, object]:
    images = small_images()
    x = torch.randn(20, 4, generator=generator(0))
    labels = np.arange(20) % 3
    tensors = TensorExamples(x, labels, 3)
    mapping = TensorExamples({"a": x, "b": x + 1}, labels, 3)
    return {
        "images": images,
        "tensors": tensors,
        "mapping": mapping,
        "dataset": DatasetExamples(TensorDataset(x, torch.from_numpy(labels)), 3),
        "joined": Joined((tensors, TensorExamples(x + 5, labels, 3))),
        "joined images": Joined((images, small_images())),
        "selected": Selected(images, np.arange(40)[::-1].copy()),
    }


@pytest.mark.parametrize("name", sets())
def test_batches_on_the_device_are_those_of_the_cpu(name: str) -> None:
    examples = sets()[name]
    rows = np.random.default_rng(0).permutation(len(examples))
    plan = [rows[:5], rows[5:12]]
    with fake_device() as device:
        here = list(examples.stream(plan, augment=True, seed=4))
        there = list(examples.stream(plan, augment=True, seed=4, device=DEVICE))
        assert device.syncs == []
        for ours, theirs in zip(here, there, strict=True):
            pairs = [(ours.y, theirs.y)]
            pairs += [(ours.x, theirs.x)] if name != "mapping" else [(ours.x[k], theirs.x[k]) for k in ours.x]
            for mine, other in pairs:
                assert isinstance(other, DeviceTensor)
                assert torch.equal(mine, on_host(other))
            assert torch.equal(ours.indices, theirs.indices)
            assert not isinstance(theirs.indices, DeviceTensor)
