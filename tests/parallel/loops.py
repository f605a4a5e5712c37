"""Loops of a user's own, in one process or several: plain torch with DDP, and a Hugging Face Trainer."""

import tempfile
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import regun

SETTINGS: dict[str, Any] = {"epochs": 2, "lr": 0.05, "batch_size": 7, "momentum": 0.9}


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 3))


def data() -> dict[str, tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(110, 6, generator=draw), torch.randint(3, (110,), generator=draw)
    cuts = {"forget": slice(0, 20), "retain": slice(20, 80), "heldout": slice(80, 110)}
    return {name: (x[cut], y[cut]) for name, cut in cuts.items()}


def unlearned(method: str) -> dict[str, Tensor]:
    return dict(regun.unlearn(net(), **data(), method=method, settings=SETTINGS).model.state_dict())


def own_loop(method: str) -> dict[str, Tensor]:
    """Return the weights after a plain loop; with several processes DDP averages the gradients."""
    model = net()
    steps = regun.steps(method, model, **data(), settings=SETTINGS)
    wrapped = nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=SETTINGS["lr"], momentum=SETTINGS["momentum"])
    for step in steps:
        optimizer.zero_grad()
        step.loss(wrapped).backward()
        optimizer.step()
    return dict(model.state_dict())


def trained_by_trainer(method: str) -> dict[str, Tensor]:
    """Return the weights after a run of the Trainer with the method's updates."""
    from transformers import TrainingArguments

    from regun.trainer import UnlearnTrainer

    model = net()
    steps = regun.steps(method, model, **data(), settings=SETTINGS)
    optimizer = torch.optim.SGD(model.parameters(), lr=SETTINGS["lr"], momentum=SETTINGS["momentum"])
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder, num_train_epochs=1, max_grad_norm=0.0, use_cpu=True, save_strategy="no", report_to="none",
            disable_tqdm=True, logging_strategy="no",
        )  # fmt: skip
        UnlearnTrainer(model, steps, args, (optimizer, constant)).train()
    return dict(model.state_dict())
