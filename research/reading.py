"""How often items of a data set are read, and what looking for equal examples and counting forward passes cost.

python research/reading.py
"""

import logging
import time
from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import regun
from regun.data.overlap import content_digests
from regun.data.tensors import TensorExamples
from regun.forget_spec import ForgetSpec
from regun.methods import get_method
from regun.models import ModelSpec, build_model, calls
from regun.splits import make_splits, reserve
from regun.training.job import Job, private_copy

SIZES = {"forget": 200, "retain": 4000, "heldout": 400, "test": 1000}


class Counted(Dataset[tuple[Tensor, int]]):
    """Items without stated labels, which count how often they are read."""

    def __init__(self, count: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.x, self.reads = torch.randn(count, 6, generator=draw), 0

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.reads += 1
        return self.x[index], int(self.x[index, :3].argmax())


def reads(*names: str) -> dict[str, Counted]:
    return {name: Counted(SIZES[name], seed) for seed, name in enumerate(names)}


def step_seconds(model: nn.Module, examples: TensorExamples, steps: int) -> float:
    """Processor seconds of a fine-tuning step."""
    splits = make_splits(examples.labels, ForgetSpec.random(0.1), reserve(examples.labels, 0))
    job = Job(
        model=private_copy(model, torch.device("cpu")),
        examples=examples,
        splits=splits,
        seed=0,
        budget=regun.Budget(steps=steps),
    )
    method = get_method("finetune")
    started = time.process_time()
    method.run(job, method.configure({"batch_size": 32}))
    return (time.process_time() - started) / steps


def counting_cost() -> None:
    """Steps with the hook that counts passes, and without, in turns; the quickest of seven each."""
    labels = np.arange(600) % 3
    kinds = {
        "MLP": (nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)), torch.randn(600, 6), 100),
        "ResNet-18, width 16": (
            build_model(ModelSpec("resnet18", {"width": 16}), 3, (3, 32, 32), 0),
            torch.randn(600, 3, 32, 32),
            4,
        ),
    }
    for name, (model, x, steps) in kinds.items():
        examples, seconds = TensorExamples(x, labels, 3), {"with": [], "without": []}
        for _ in range(7):
            seconds["with"].append(step_seconds(model, examples, steps))
            with patch.object(calls, "register_module_forward_pre_hook", lambda _: nullcontext()):
                seconds["without"].append(step_seconds(model, examples, steps))
        best = {how: f"{min(times) * 1e3:.2f} ms" for how, times in seconds.items()}
        print(f"a step of an {name}: {best['with']} with passes counted, {best['without']} without")


def main() -> None:
    logging.getLogger("regun").setLevel(logging.ERROR)
    model, *others = (nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)) for _ in range(4))
    for method in ("regun", "finetune", "salun"):
        sets = reads("forget", "retain", "heldout")
        cost = regun.unlearn(model, **sets, method=method, run=regun.RunOptions(budget=regun.Budget(steps=20))).cost
        reads = {name: some.reads for name, some in sets.items()}
        print(f"{method}, 20 steps of {cost.backward} examples: {sum(reads.values())} items read, {reads}")
    sets = reads("forget", "retain", "test")
    regun.audit(model, **sets, retrained=others, bootstrap=10)
    reads = {name: some.reads for name, some in sets.items()}
    print(f"audit of four models on {sum(map(len, sets.values()))} examples: {sum(reads.values())} items read, {reads}")
    pictures = TensorExamples(torch.randn(20_000, 3, 32, 32), np.zeros(20_000, dtype=np.int64), 2)
    started = time.process_time()
    content_digests(pictures)
    print(f"equal examples: {(time.process_time() - started) / 20_000 * 1e6:.0f} us for each image of 3x32x32")
    counting_cost()


if __name__ == "__main__":
    main()
