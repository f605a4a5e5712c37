"""What unlearning costs; ratios measured side by side in one run.

1. ReGUn's reference target as a share of a ResNet-18 step, and a ReGUn step against a NegGrad+ step.
2. AMUN's attack on a trained model: early freezing against all steps for all examples.
3. SSD's per-example Fisher information: time against samples, memory against samples.
4. Every method's counted samples and seconds at 1, 10 and 50 % forgotten.

    python benchmarks/unlearning.py [--width 16] [--rounds 5]
"""

import argparse
import resource
import time
from dataclasses import replace

import numpy as np
import torch
from torch.nn import functional

from regun.data.arrays import ArrayExamples
from regun.data.digits import load_digits
from regun.data.registry import get_pipeline
from regun.forget_spec import ForgetSpec
from regun.methods import _adversarial, amun, get_method, method_names, neggrad_plus, regun
from regun.methods._adversarial import Attack, find
from regun.models import ModelSpec, build_model
from regun.splits import make_splits, reserve
from regun.training.fit import fit
from regun.training.forward import in_eval_mode
from regun.training.gradients import fisher_by_example
from regun.training.job import Budget, Cost, Job, Step, private_copy
from regun.training.recipes import RECIPES
from regun.training.streams import one_pass, paired

CPU = torch.device("cpu")


def seconds(function, rounds: int) -> float:
    """The best of some rounds: other work on the machine only ever adds."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return min(times)


def image_job(width: int, count: int = 6000) -> Job:
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 10
    pixels = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    examples = ArrayExamples(pixels, labels, 10, get_pipeline("resnet", "cifar10"))
    model = build_model(ModelSpec("resnet18", {"width": width}), 10, (3, 32, 32), 0)
    splits = make_splits(labels, ForgetSpec.random(0.1), reserve(labels, 0))
    return Job(model=private_copy(model, CPU), examples=examples, splits=splits, seed=0)


def unseen_target(width: int, rounds: int) -> None:
    job = image_job(width)
    config = regun.Config(batch_size=128, lr=1e-4)
    target = regun.unseen_target(job, config)
    step = Step(next(paired(job, 128, 128).run(0, 0)), 0, 1, 0)
    cost = seconds(lambda: target(step), 50)

    def run(method, settings, steps):
        twin = replace(job, model=private_copy(job.model, CPU), budget=Budget(steps=steps), cost=Cost())
        return seconds(lambda: method.unlearn(twin, settings), 1)

    both = {regun: config, neggrad_plus: neggrad_plus.Config(batch_size=128, lr=1e-4)}
    long, short = {m: [] for m in both}, {m: [] for m in both}
    for _ in range(rounds):
        for method, settings in both.items():
            short[method].append(run(method, settings, 1))
            long[method].append(run(method, settings, 6))
    each = {m: (min(long[m]) - min(short[m])) / 5 for m in both}  # what is done once, like caching, falls out
    print(
        f"ReGUn's target, ResNet-18 width {width}: {1000 * cost:.2f} ms, {100 * cost / each[regun]:.2f} % of a step (under 2 %)"
    )
    print(f"  a ReGUn step against a NegGrad+ step: {each[regun] / each[neggrad_plus]:.2f}x (at most 1.05)")


def trained_digits() -> tuple[torch.nn.Module, ArrayExamples]:
    examples = load_digits(get_pipeline("digits", "digits")).train
    model = build_model(ModelSpec("cnn"), 10, (1, 8, 8), 0)
    job = Job(model=private_copy(model, CPU), examples=examples, seed=0)
    base = reserve(examples.labels, 0).base
    stream = one_pass(job, "train", base, 64)
    recipe = replace(RECIPES["digits"], epochs=20)
    fit(job, stream, lambda s: functional.cross_entropy(job.logits(s.train.x), s.train.y), recipe)
    return job.model, examples


def attack(model, examples, rounds: int) -> None:
    splits = make_splits(examples.labels, ForgetSpec.random(0.5), reserve(examples.labels, 0))
    job = Job(model=private_copy(model, CPU), examples=examples, splits=splits, seed=0)
    batch = examples.fetch(splits.forget)
    view, _ = amun._view(job, batch, "pixel")
    config = amun.Config()
    how = Attack(config.epsilon, config.steps, config.step, config.rounds)
    with in_eval_mode(job.model):
        found = find(view, batch.y, how)
        took = int((found.epsilon.max() / config.epsilon).log2()) + 1
        frozen = seconds(lambda: find(view, batch.y, how), rounds)
        everything = seconds(lambda: all_steps(view, batch.y, how, took), rounds)
    samples = len(batch) * took * (config.steps + 1) / found.samples
    print(
        f"AMUN's attack on {len(batch)} digits, {took} rounds: freezing is {everything / frozen:.1f}x cheaper than all steps"
    )
    print(f"  for all examples, {samples:.1f}x in samples (at least 2)")


def all_steps(view, y, how: Attack, rounds: int) -> None:
    """The same attack without freezing: every example takes every step of every round."""
    current, rows = view.x.clone(), torch.arange(len(y))
    for number in range(rounds):
        epsilon = torch.full((len(y),), how.epsilon * 2**number)
        for _ in range(how.steps):
            _, gradient = _adversarial._look(view, current, rows, y, need_gradient=True)
            length = _adversarial._view(how.step * epsilon / _adversarial._norm(gradient).clamp(min=1e-12), current)
            current = _adversarial._project(current + length * gradient, view.x, epsilon, view)
        _adversarial._look(view, current, rows, y, need_gradient=False)


def fisher(model, examples) -> None:
    job = Job(model=private_copy(model, CPU), examples=examples, seed=0)
    fisher_by_example(job, np.arange(64))
    rows = []
    for count in (160, 320, 640, 1280):
        taken = seconds(lambda count=count: fisher_by_example(job, np.arange(count)), 3)
        rows.append((count, 1000 * taken / count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    print(
        "SSD's Fisher information: "
        + ", ".join(f"{n} samples {each:.2f} ms each, peak {mb:.0f} MB" for n, each, mb in rows)
    )


def cost_by_fraction(model, examples) -> None:
    print("counted samples (forward + backward) and seconds at 1 / 10 / 50 % forgotten, digits")
    kept = reserve(examples.labels, 0)
    for name in method_names():
        method = get_method(name)
        config = method.configure({"epochs": 2} if name == "retrain" else {})
        cells = []
        for fraction in (0.01, 0.1, 0.5):
            splits = make_splits(examples.labels, ForgetSpec.random(fraction), kept)
            job = Job(model=private_copy(model, CPU), examples=examples, splits=splits, seed=0)
            taken = seconds(lambda job=job, method=method, config=config: method.unlearn(job, config), 1)
            samples = job.cost.forward + job.cost.backward
            cells.append(f"{samples:9,d} {taken:7.2f} s {1e6 * taken / samples:5.0f} us")
        print(f"  {name:14}" + "  |  ".join(cells))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    unseen_target(args.width, args.rounds)
    model, examples = trained_digits()
    attack(model, examples, args.rounds)
    fisher(model, examples)
    cost_by_fraction(model, examples)
