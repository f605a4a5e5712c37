"""What processes compute in tests: runs of every method, and single forward passes."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.methods import MethodSpec
from regun.training.job import Budget
from regun.training.recipes import Recipe
from toys import blobs, images, job_for

STEPS = 20
METHODS = {
    "finetune": "",
    "finetune-last": "layers=last:1",
    "neggrad": "",
    "neggrad_plus": "",
    "l1_sparse": "gamma=0.001",
    "salun": "",
    "scrub": "",
    "ssd": "",
    "ssd-batch": "fisher=batch",
    "regun": "",
    "regun-class": "granularity=class,batchnorm=reestimate",
    "regun-nearest": "selector=nearest,granularity=sample",
    "regun-moving": "source=moving,batchnorm=frozen",
    "regun@teacher": "",
    "regun@teacher_shrink": "",
    "lur": "sparsity=0.9",
    "amun": "epsilon=0.5",
    "amun@weighted": "",
    "bad_teacher": "",
    "crossfit": "steps=20",
    "ct": "",
    "fanchuan": "",
    "msg": "",
    "noisy_finetune": "",
    "retrain": "epochs=4,lr=0.05",
    "rum": "easy=finetune,hard=regun",
    "sfron": "",
    "sfron-example": "fisher=example,beta=0.5",
    "uam": "",
    "auto": "",
}
"""Settings of every registered method; the part of a key before `-` is the method."""
WITHOUT_BATCH = ("ssd", "auto", "crossfit", "rum")
"""Methods whose batch size has another name, or is that of the methods they run."""


def net(norm: bool, seed: int = 0) -> nn.Module:
    """A small convolutional network with dropout, with or without BatchNorm."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        norms = [nn.BatchNorm2d(8), nn.BatchNorm1d(12)] if norm else [nn.GroupNorm(2, 8), nn.LayerNorm(12)]
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), norms[0], nn.ReLU(), nn.Dropout2d(0.1), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Linear(32, 12), norms[1], nn.Tanh(), nn.Dropout(0.2), nn.Linear(12, 3),
        )  # fmt: skip


def run_method(name: str, norm: bool, batch: int = 13) -> dict[str, Tensor]:
    """Return the weights, buffers and cost after a run of `STEPS` steps; `batch` divides neither sets nor processes."""
    label = name.partition("-")[0]
    settings = METHODS[name]
    if label.partition("@")[0] not in WITHOUT_BATCH:
        settings = ",".join(part for part in (settings, f"batch_size={batch}") if part)
    spec = MethodSpec.parse(",".join(part for part in (label, settings) if part))
    job = job_for(
        net(norm),
        images(101),
        budget=Budget(steps=STEPS),
        rebuild=lambda seed: net(norm, seed % 1000),
        recipe=Recipe(epochs=3, batch_size=batch, lr=0.05),
    )
    if label == "crossfit":
        draw = torch.Generator().manual_seed(0)
        table = functional.softmax(torch.randn(len(job.indices("forget")), 3, generator=draw), dim=1)
        job = job_for(
            net(norm), images(101), budget=Budget(steps=STEPS), recipe=Recipe(epochs=3, lr=0.05), out_of_fold=table
        )
    spec.method.run(job, spec.configure())
    cost = torch.tensor([job.cost.steps, job.cost.forward, job.cost.backward])
    return {**job.model.state_dict(), "cost": cost}


def run_methods(names: Sequence[str], norm: bool) -> dict[str, Tensor]:
    """Return the results of `run_method` for several methods, by method and tensor."""
    return {f"{name}/{key}": value for name in names for key, value in run_method(name, norm).items()}
