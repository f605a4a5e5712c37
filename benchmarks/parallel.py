"""How much faster two processes are than one, with one thread each, and what the shared path costs by itself.

`fit` steps of ResNet-18 (width 16, batch 128, CIFAR size, augmentation included) and of an MLP (3,072 inputs, two layers
of 1,024 units, batch 512), each process on a core of its own:

    one       one process
    two       two processes that share the batches: the number that counts is one / two
    halves    two processes side by side, each with batches of half the size and nothing to exchange: one / halves is
              the most that the machine allows
    shared    one process on the shared path, in a group of one process. Its processor time over that of `one` is the cost
              of the path. A run with one process takes the plain path, also under `torchrun`.

The processes are started once. Short rounds of all kinds alternate, and the best of each kind counts. Run it on an idle
machine with two cores; `--gloo` exchanges everything by gloo.

    python benchmarks/parallel.py [--steps 5] [--rounds 8] [--gloo]
"""

import argparse
import json
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


def seconds_per_step(name: str, steps: int, part: int = 1) -> tuple[float, float]:
    """Seconds and processor seconds of a step of `fit`, after a step that is not counted."""
    job, batch = job_of(name, steps + 1)
    stream = one_pass(job, "train", np.arange(EXAMPLES), batch // part)
    times: list[tuple[float, float]] = []

    def loss(step):
        times.append((time.perf_counter(), time.process_time()))
        return functional.cross_entropy(job.logits(step.train.x), step.train.y)

    fit(job, stream, loss, Recipe(lr=0.01))
    times.append((time.perf_counter(), time.process_time()))
    return tuple((last - first) / steps for first, last in zip(times[1], times[-1], strict=True))


def in_group(rank: int, world: int, name: str, steps: int, rounds: int, folder: str, gloo: bool) -> None:
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world)
    group = processes.of_group() if world > 1 and not gloo else Processes(rank, world)
    results: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for kind in ("one", "two", "halves") if world > 1 else ("one", "shared"):
            dist.barrier()
            if kind == "one" and rank > 0:
                continue
            token = processes._CURRENT.set(group if kind in ("two", "shared") else None)
            results.setdefault(kind, []).append(seconds_per_step(name, steps, 2 if kind == "halves" else 1))
            processes._CURRENT.reset(token)
    if rank == 0:
        (Path(folder) / "results").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


def measured(world: int, name: str, steps: int, rounds: int, gloo: bool) -> dict[str, tuple[float, float]]:
    """Best seconds and best processor seconds per step by kind, as the first process sees them."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(in_group, (world, name, steps, rounds, folder, gloo), nprocs=world)
        results = json.loads((Path(folder) / "results").read_text())
    return {kind: tuple(map(min, zip(*values, strict=True))) for kind, values in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--gloo", action="store_true")
    args = parser.parse_args()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    for name, goal in GOALS.items():
        best = measured(2, name, args.steps, args.rounds, args.gloo)
        for unit, which in (("ms", 0), ("ms of processor time", 1)):
            one, two, halves = (1e3 * best[kind][which] for kind in ("one", "two", "halves"))
            print(
                f"{name}: one process {one:.0f} {unit} per step, two {two:.0f}: {one / two:.2f}x (goal {goal}x); "
                f"half batches side by side {halves:.0f}: {one / halves:.2f}x"
            )
        alone = measured(1, name, args.steps, args.rounds, args.gloo)
        cost = alone["shared"][1] / alone["one"][1] - 1
        print(f"{name}: shared path with one process, processor time {cost:+.1%} (goal under 3 %)")


if __name__ == "__main__":
    main()
