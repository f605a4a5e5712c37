"""How much faster two processes are than one, with one thread each, and what the shared path costs by itself.

1. `fit` steps of ResNet-18 (width 16, batch 128, CIFAR size, augmentation included) and of an MLP (3,072 inputs, two
   layers of 1,024 units, batch 512): seconds of one process over seconds of two.
2. Processor time of the same steps in one process through the shared path (a group of one process, so that every
   exchange takes place) over the plain path. A run with one process takes the plain path, also under `torchrun`.

Rounds of one and two processes are interleaved; the best of each counts. Run it on an idle machine with two cores.

    python benchmarks/parallel.py [--steps 10] [--rounds 3]
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn import functional

from regun.data.arrays import ArrayExamples
from regun.data.registry import get_pipeline
from regun.data.tensors import TensorExamples
from regun.models import ModelSpec, build_model
from regun.parallel import Processes, processes
from regun.training.fit import fit
from regun.training.job import Budget, Job, private_copy
from regun.training.recipes import Recipe
from regun.training.streams import one_pass

EXAMPLES = 4096
CPU = torch.device("cpu")
GOALS = {"resnet18": 1.7, "mlp": 1.5}


def job_of(name: str, steps: int) -> tuple[Job, int]:
    rng = np.random.default_rng(0)
    labels = np.arange(EXAMPLES) % 10
    if name == "resnet18":
        pixels = rng.integers(0, 256, (EXAMPLES, 32, 32, 3), dtype=np.uint8)
        examples = ArrayExamples(pixels, labels, 10, get_pipeline("resnet", "cifar10"))
        model, batch = build_model(ModelSpec("resnet18", {"width": "16"}), 10, (3, 32, 32), 0), 128
    else:
        examples = TensorExamples(torch.tensor(rng.standard_normal((EXAMPLES, 3072), dtype=np.float32)), labels, 10)
        settings = {"hidden": "1024", "depth": "2", "features": "3072"}
        model, batch = build_model(ModelSpec("mlp", settings), 10, None, 0), 512
    return Job(model=private_copy(model, CPU), examples=examples, seed=0, budget=Budget(steps=steps)), batch


def seconds_per_step(name: str, steps: int) -> tuple[float, float]:
    """Seconds and processor seconds of a step of `fit`, after two steps that are not counted."""
    for count in (2, steps):
        job, batch = job_of(name, count)
        stream = one_pass(job, "train", np.arange(EXAMPLES), batch)

        def loss(step, job=job):
            return functional.cross_entropy(job.logits(step.train.x), step.train.y)

        started, worked = time.perf_counter(), time.process_time()
        fit(job, stream, loss, Recipe(lr=0.01))
    return (time.perf_counter() - started) / steps, (time.process_time() - worked) / steps


def in_group(rank: int, world: int, name: str, steps: int, folder: str, shared: bool) -> None:
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world)
    token = processes._CURRENT.set(processes.of_group() if world > 1 else Processes(0, 1)) if shared else None
    seconds = seconds_per_step(name, steps)
    if token is not None:
        processes._CURRENT.reset(token)
    (Path(folder) / str(rank)).write_text(" ".join(map(str, seconds)))
    dist.barrier()
    dist.destroy_process_group()


def measured(world: int, name: str, steps: int, *, shared: bool) -> tuple[float, float]:
    """Seconds and processor seconds per step of the slowest process."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(in_group, (world, name, steps, folder, shared), nprocs=world)
        texts = [(Path(folder) / str(rank)).read_text().split() for rank in range(world)]
    return max(float(wall) for wall, _ in texts), max(float(cpu) for _, cpu in texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    for name, goal in GOALS.items():
        plain, shared, two = list[tuple[float, float]](), list[tuple[float, float]](), list[tuple[float, float]]()
        for _ in range(args.rounds):
            plain.append(measured(1, name, args.steps, shared=False))
            two.append(measured(2, name, args.steps, shared=True))
            shared.append(measured(1, name, args.steps, shared=True))
        one, both = min(plain)[0], min(two)[0]
        cost = min(cpu for _, cpu in shared) / min(cpu for _, cpu in plain) - 1
        print(
            f"{name}: one process {1e3 * one:.0f} ms per step, two {1e3 * both:.0f} ms: {one / both:.2f}x (goal {goal}x)"
        )
        print(f"{name}: shared path with one process, processor time {cost:+.1%} (goal under 3 %)")


if __name__ == "__main__":
    main()
