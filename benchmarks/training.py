"""How close a training step is to what the machine can do; every claim is a ratio measured side by side in one run.

1. ResNet-18 (width 64, batch 128, CIFAR size): a full `fit` step against the same step in plain contiguous layout, and
   its FLOPs a second (counted by torch) against the matmul peak, and how near the convolution kernels themselves come.
2. Small CNN on digits: share of `fit` spent outside forward, backward and update (data, augmentation, bookkeeping).

    python benchmarks/training.py [--batch 128] [--width 64] [--rounds 3]
"""

import argparse
import time
from statistics import median

import numpy as np
import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from regun.data.arrays import ArrayExamples
from regun.data.digits import load_digits
from regun.data.registry import get_pipeline
from regun.models import ModelSpec, build_model
from regun.training.fit import fit
from regun.training.job import Budget, Job, private_copy
from regun.training.recipes import RECIPES, build_optimizer
from regun.training.streams import one_pass

CPU = torch.device("cpu")


def cross_entropy(job):
    return lambda step: functional.cross_entropy(job.logits(step.train.x).float(), step.train.y)


def matmul_peak(size: int = 2048, rounds: int = 8) -> float:
    """GFLOP/s of the best of some square fp32 products."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = 0.0
    for _ in range(rounds):
        started = time.perf_counter()
        a @ b
        best = max(best, 2 * size**3 / (time.perf_counter() - started) / 1e9)
    return best


def images(count: int) -> ArrayExamples:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return ArrayExamples(pixels, np.arange(count) % 10, 10, get_pipeline("resnet", "cifar10"))


def our_steps(model, examples, batch: int, steps: int) -> float:
    """Seconds a step of `fit`, augmentation included."""
    job = Job(model=private_copy(model, CPU), examples=examples, seed=0, budget=Budget(steps=steps))
    started = time.perf_counter()
    fit(job, one_pass(job, "train", np.arange(len(examples)), batch), cross_entropy(job), RECIPES["resnet18"])
    return (time.perf_counter() - started) / steps


def plain_steps(model, examples, batch: int, steps: int) -> float:
    """Seconds a step of the same update on ready contiguous batches: no data work at all."""
    twin = private_copy(model, CPU).to(memory_format=torch.contiguous_format).train()
    optimizer = build_optimizer(twin, RECIPES["resnet18"])
    data = examples.fetch(np.arange(batch))
    x, y = data.x.contiguous(), data.y
    started = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(twin(x), y).backward()
        optimizer.step()
    return (time.perf_counter() - started) / steps


def resnet(batch: int, width: int, rounds: int) -> None:
    model = build_model(ModelSpec("resnet18", {"width": width}), 10, (3, 32, 32), 0)
    examples = images(2 * batch)
    with FlopCounterMode(display=False) as counter:
        functional.cross_entropy(
            model(examples.fetch(np.arange(batch)).x), torch.zeros(batch, dtype=torch.long)
        ).backward()
    flops = counter.get_total_flops()
    ours, plain, peaks = [], [], []
    our_steps(model, examples, batch, 1)
    for _ in range(rounds):
        peaks.append(matmul_peak())
        ours.append(our_steps(model, examples, batch, 2))
        plain.append(plain_steps(model, examples, batch, 2))
    speed = flops / median(ours) / 1e9
    kernels = convolution_seconds(model, examples, batch)
    print(f"ResNet-18 width {width}, batch {batch}: {median(ours):.2f} s a step, {batch / median(ours):.1f} images/s")
    print(f"  against plain contiguous layout: {median(plain) / median(ours):.2f}x as fast (at least 1.25)")
    print(f"  {speed:.0f} GFLOP/s of a matmul peak of {max(peaks):.0f}: {speed / max(peaks):.2f} of it (at least 0.85)")
    print(
        f"  convolution kernels alone: {flops / kernels / 1e9:.0f} GFLOP/s, {flops / kernels / 1e9 / max(peaks):.2f} of the peak"
    )


def convolution_seconds(model, examples, batch: int) -> float:
    """Seconds a step spends inside convolution kernels: the bound for everything around them."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        our_steps(model, examples, batch, 1)
    names = ("aten::mkldnn_convolution", "aten::convolution_backward")
    return sum(e.self_cpu_time_total for e in seen.key_averages() if e.key in names) / 1e6


def small_cnn(rounds: int) -> None:
    examples = load_digits(get_pipeline("digits", "digits")).train
    model = build_model(ModelSpec("cnn"), 10, (1, 8, 8), 0)
    recipe = RECIPES["digits"]
    ours, bare = [], []
    for _ in range(rounds):
        job = Job(model=private_copy(model, CPU), examples=examples, seed=0, budget=Budget(steps=200))
        started = time.perf_counter()
        fit(job, one_pass(job, "train", np.arange(len(examples)), 64), cross_entropy(job), recipe)
        ours.append(time.perf_counter() - started)
        bare.append(bare_steps(model, examples, recipe, 200))
    print(
        f"small CNN on digits: {100 * (1 - min(bare) / min(ours)):.1f} % of `fit` is data and bookkeeping (at most 15 %)"
    )


def bare_steps(model, examples, recipe, steps: int) -> float:
    """Seconds of forward, loss, backward and update alone, on one ready batch."""
    twin = private_copy(model, CPU).train()
    optimizer = build_optimizer(twin, recipe)
    batch = examples.fetch(np.arange(64))
    started = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(twin(batch.x), batch.y).backward()
        optimizer.step()
    return time.perf_counter() - started


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    small_cnn(args.rounds)
    resnet(args.batch, args.width, args.rounds)
