"""Small data and models that tests share."""

import numpy as np
import torch
from torch import nn

from regun.data.tensors import TensorExamples
from regun.forget_spec import ForgetSpec
from regun.splits import Splits, make_splits, reserve
from regun.training.job import Job, private_copy


def blobs(n: int = 120, classes: int = 3, features: int = 6, seed: int = 0) -> TensorExamples:
    """Gaussian clouds, one a class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    centres = 2 * rng.standard_normal((classes, features))
    x = centres[labels] + rng.standard_normal((n, features))
    return TensorExamples(torch.tensor(x, dtype=torch.float32), labels, classes)


def images(n: int = 60, classes: int = 3, size: int = 8, channels: int = 1, seed: int = 0) -> TensorExamples:
    """Noise images with a class-dependent brightness."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    x = 0.5 * rng.standard_normal((n, channels, size, size)) + labels[:, None, None, None]
    return TensorExamples(torch.tensor(x, dtype=torch.float32), labels, classes)


def splits_of(examples: TensorExamples, fraction: float = 0.2, seed: int = 0) -> Splits:
    return make_splits(examples.labels, ForgetSpec.random(fraction), reserve(examples.labels, seed))


def mlp(features: int = 6, classes: int = 3, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(features, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, classes))


def conv_net(classes: int = 3, channels: int = 1, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        features = [nn.Conv2d(channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
        return nn.Sequential(*features, nn.Flatten(), nn.Linear(8, classes))


def job_for(model: nn.Module, examples: TensorExamples, splits: Splits | None = None, seed: int = 5, **more) -> Job:
    device = torch.device("cpu")
    return Job(
        model=private_copy(model, device),
        examples=examples,
        splits=splits or splits_of(examples),
        seed=seed,
        device=device,
        **more,
    )


def same_state(a: nn.Module, b: nn.Module) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


def same_parameters(a: nn.Module, b: nn.Module) -> bool:
    theirs = dict(b.named_parameters())
    return all(torch.equal(p, theirs[n]) for n, p in a.named_parameters())
