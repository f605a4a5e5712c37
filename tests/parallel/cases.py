"""What processes compute in tests: runs of every method, and single forward passes."""

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import regun
from regun.methods import MethodSpec
from regun.models.forward import counting, logits_of
from regun.parallel import current
from regun.training.forward import eval_features, eval_logits
from regun.training.job import Budget
from regun.training.recipes import Recipe
from regun.training.scratch import train_from_scratch
from regun.training.snapshots import Snapshot
from toys import images, job_for

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
    "crossfit": "steps=20,lr=0.01",
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
QUICK = ("regun", "lur", "salun", "ssd", "l1_sparse", "amun")
"""Methods of the default run: second derivatives, a mask, Fisher information, a penalty, gradients by inputs."""
WITHOUT_BATCH = ("ssd", "auto", "crossfit", "rum")
"""Methods whose batch size has another name, or is that of the methods they run."""


class RandomDepth(nn.Module):
    """Drops rows and adds noise by the functions that models of other packages use for it."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        shape = (len(x), *([1] * (x.ndim - 1)))
        kept = x.new_empty(shape).bernoulli_(0.8)
        scale = 1 + 0.1 * torch.rand(shape) + 0.1 * torch.rand(1)
        return x * kept * scale + 0.01 * torch.randn_like(x)


def net(norm: bool, seed: int = 0) -> nn.Module:
    """A small convolutional network with dropout, with or without BatchNorm.

    Layers before BatchNorm have no bias: its gradient would be rounding errors alone, which Adam scales up to a step.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        norms = [nn.BatchNorm2d(8), nn.BatchNorm1d(12)] if norm else [nn.GroupNorm(2, 8), nn.LayerNorm(12)]
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=not norm), norms[0], nn.ReLU(), nn.Dropout2d(0.1), RandomDepth(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Linear(32, 12, bias=not norm), norms[1], nn.Tanh(), nn.Dropout(0.2), nn.Linear(12, 3),
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


class Attention(nn.Module):
    """Attention that drops weights at random, on the pixels of an image as tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(x.flatten(1)[:, :10, None])).mean(1))


def forward_passes(rows: int = 7) -> dict[str, Tensor]:
    """Return logits, and gradients by weights and inputs, of one batch: of a network, of attention, of one example."""
    results: dict[str, Tensor] = {}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        models = {"net": net(True), "attention": Attention()}
        x = torch.randn(rows, 1, 8, 8, requires_grad=True)
        for name, model in models.items():
            torch.manual_seed(4)
            logits = logits_of(model, x)
            penalty = sum(p.square().sum() for p in model.parameters())
            loss = logits.logsumexp(1).square().mean() + 0.1 * penalty
            gradients = torch.autograd.grad(loss, [x, *model.parameters()])
            results |= {f"{name}/{n}": g for n, g in enumerate(gradients)}
            results |= {f"{name}/logits": logits, f"{name}/alone": logits_of(model.eval(), x[:1])}
            results |= {f"{name}/buffer/{n}": b for n, b in model.named_buffers()}
            results[f"{name}/next draw"] = torch.rand(1)
        model = net(True)  # a batch that is too small to be shared, then one that is
        (logits_of(model, x[:3]).square().mean() + logits_of(model, x).square().mean()).backward()
        results["both"] = model[0].weight.grad
    return results


class Kept:
    """A checkpoint in memory that wants a snapshot at one step."""

    def __init__(self, at: int | None = None, snapshot: Snapshot | None = None) -> None:
        self.at, self.snapshot, self.asked = at, snapshot, 0

    def due(self) -> bool:
        self.asked += 1
        return self.asked == self.at

    def load(self) -> Snapshot | None:
        return self.snapshot

    def save(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot


def train(checkpoint: Kept) -> dict[str, Tensor]:
    """Return the weights after a training that `checkpoint` watches."""
    job = job_for(net(True), images(101))
    train_from_scratch(job, job.indices("base"), Recipe(epochs=3, batch_size=13, lr=0.05), checkpoint=checkpoint)
    return job.model.state_dict()


def snapshot_of_training() -> dict[str, Tensor]:
    """Return the tensors of a snapshot within the second epoch, and its other values as bytes."""
    checkpoint = Kept(at=11)
    train(checkpoint)
    if checkpoint.snapshot is None:
        return {}  # only one process saves
    meta = torch.tensor(list(json.dumps(checkpoint.snapshot.meta).encode()), dtype=torch.uint8)
    return {**checkpoint.snapshot.tensors, "meta": meta}


def resumed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a training that goes on from a snapshot."""
    meta = json.loads(bytes(tensors["meta"].tolist()))
    rest = {name: tensor for name, tensor in tensors.items() if name != "meta"}
    return train(Kept(snapshot=Snapshot(rest, meta)))


def predictions() -> dict[str, Tensor]:
    """Return logits and features of 700 examples, which is three batches, and the passes that were counted."""
    counted: list[int] = []
    with counting(counted.append):
        model, examples = net(True), images(700)
        rows = np.arange(700)[::-1].copy()
        logits, features = eval_logits(model, examples, rows), eval_features(model, examples, rows)
    return {"logits": logits, "features": features, "counted": torch.tensor(sum(counted))}


def trained_by_user(dataset: Dataset[Any], seed: int) -> nn.Module:
    """A training of a user's own, which depends on the seed and on the order of the records."""
    model = net(False, seed % 1000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in DataLoader(dataset, batch_size=16):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def with_batchnorm(seed: int) -> nn.Module:
    return net(True, seed % 1000)


def prepared_tables(path: str | None = None) -> dict[str, Tensor]:
    """Return what `regun.prepare` makes of 70 records, by regun's loop and by a user's training; 3 folds, 2 repeats."""
    draw = torch.Generator().manual_seed(5)
    x, y = torch.randn(90, 1, 8, 8, generator=draw), torch.randint(3, (90,), generator=draw)
    settings: dict[str, Any] = {"data": (x[:70], y[:70]), "test": (x[70:], y[70:]), "folds": 3, "repeats": 2}
    recipe = {"epochs": 8, "lr": 0.05, "batch_size": 13}
    tables = {
        "recipe": regun.prepare(None, recipe=recipe, rebuild=with_batchnorm, share=0.25, path=path, **settings),
        "own": regun.prepare(trained_by_user, **settings),
    }
    results: dict[str, Tensor] = {}
    for name, table in tables.items():
        cost = [table.about["cost"][key] for key in ("steps", "forward", "backward")] if name == "recipe" else []
        arrays = {"log_probs": table.log_probs, "folds": table.folds, "keys": table.keys, "cost": np.asarray(cost)}
        results |= {f"{name}/{key}": torch.tensor(array) for key, array in arrays.items()}
    return results


def exchanges() -> dict[str, Tensor]:
    """Return sums over processes of (rank + 1) times known numbers, long and short, and what all processes have."""
    processes = current()
    assert processes is not None
    results = {"fast": torch.tensor(processes.local is not None)}
    numbers = torch.arange(700_000, dtype=torch.float32)
    image = torch.arange(24.0).view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    narrow = copy.copy(processes.local)
    if narrow is not None:
        narrow.areas = narrow.areas[:, : 2**20]  # where the long tensor does not fit
    ways = {"fast": processes, "narrow": replace(processes, local=narrow), "gloo": replace(processes, local=None)}
    for name, way in ways.items():
        for turn in range(3):
            results[f"{name}/long/{turn}"] = way.sum([numbers * (way.rank + 1)])[0]
        three = way.sum([part * (way.rank + 1) for part in torch.split(numbers, [600_000, 60_000, 40_000])])
        results[f"{name}/parts"] = torch.cat(three)
        parts = [numbers[:5] * (way.rank + 1), numbers[:3].long() * (way.rank + 1), image.clone() * (way.rank + 1)]
        short = way.sum(parts, [(1,), (1,), image.stride()])
        results |= {f"{name}/short/{n}": tensor for n, tensor in enumerate(short)}
        results[f"{name}/layout"] = torch.tensor(short[2].is_contiguous(memory_format=torch.channels_last))
        results[f"{name}/stack"] = way.stack(numbers[:4] + way.rank)
    return results


def quick_part() -> dict[str, Tensor]:
    """Return what the default run of the tests compares."""
    parts = {
        "forward": forward_passes(),
        "predictions": predictions(),
        "snapshot": snapshot_of_training(),
        "methods": run_methods(QUICK, norm=True),
        "tables": prepared_tables(),
        "exchanges": exchanges(),
    }
    return {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
