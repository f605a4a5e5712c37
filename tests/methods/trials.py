"""What tests of methods share: runs on toys, the first batches a run sees, and examples that remember who was shown."""

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from regun.methods import get_method
from regun.splits import Splits
from regun.training.fit import Fitted
from regun.training.job import Job
from toys import blobs, job_for

RIVALS = ["bad_teacher", "ct", "fanchuan", "msg", "noisy_finetune", "rum", "sfron", "uam"]


def plain_net(seed: int = 0) -> nn.Module:
    """A small net without BatchNorm and dropout: it answers the same in training and evaluation."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def plain_conv(seed: int = 0) -> nn.Module:
    """The same with convolutions, for images of one channel."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 6, 3, padding=1), nn.Tanh()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))


def run(name: str, model: nn.Module, examples=None, **more) -> tuple[Job, Fitted]:
    """Run a method with the settings in `more`; what a job takes (budget, splits, ...) goes to the job."""
    own = {k: more.pop(k) for k in list(more) if k in ("budget", "splits", "seed", "teacher", "rebuild", "recipe")}
    own |= {k: more.pop(k) for k in list(more) if k in ("on_epoch",)}
    preset = more.pop("preset", None)
    method = get_method(name)
    job = job_for(model, blobs() if examples is None else examples, **own)
    if method.needs.out_of_fold:
        size, classes = len(job.indices("forget")), job.examples.num_classes
        job = replace(job, out_of_fold=torch.full((size, classes), 1 / classes))
    return job, method.run(job, method.configure(more, preset))


def gradient(loss: torch.Tensor, model: nn.Module) -> dict[str, torch.Tensor]:
    """Of a loss by every parameter, by name."""
    names = [name for name, _ in model.named_parameters()]
    return dict(zip(names, torch.autograd.grad(loss, list(model.parameters())), strict=True))


def ce(model: nn.Module, batch) -> torch.Tensor:
    return functional.cross_entropy(model(batch.x), batch.y)


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return copy.deepcopy({name: p.detach() for name, p in model.named_parameters()})


def one_forgotten(splits: Splits) -> Splits:
    """The same split with one forgotten example only."""
    return Splits(splits.retain, splits.forget[:1], splits.heldout, splits.val, splits.total)


class Watched:
    """Examples that remember which were trained on (`trained`, with augmentation) and which were looked at at all."""

    def __init__(self, examples) -> None:
        self.examples, self.seen, self.trained = examples, set(), set()

    def __getattr__(self, name: str):
        return getattr(self.examples, name)

    def __len__(self) -> int:
        return len(self.examples)

    def fetch(self, indices, **more):
        self.seen.update(np.asarray(indices).tolist())
        return self.examples.fetch(indices, **more)

    def stream(self, plan, **more):
        for indices in plan:
            self.seen.update(np.asarray(indices).tolist())
            if more.get("augment"):
                self.trained.update(np.asarray(indices).tolist())
        return self.examples.stream(plan, **more)
