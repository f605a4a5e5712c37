"""One evaluation the usual way against ours, same numbers, in one run.

The usual way: every metric and attack makes its own passes over the data and runs Retrain and the references again.
Ours: each model runs once a split, and signals of Retrain and the references are kept in the store, so that from the
second audited model on only the model itself runs. Both give the same numbers; the largest difference is printed.

    python benchmarks/audit.py [--width 16] [--images 2000]
"""

import argparse
import time

import numpy as np
import torch

from regun.auditing import Predictions, evaluate
from regun.auditing.metrics import accuracy, divergence, entropy
from regun.data.arrays import ArrayExamples
from regun.data.registry import get_pipeline
from regun.models import ModelSpec, build_model
from regun.training.forward import eval_logits
from regun.training.job import private_copy

CPU = torch.device("cpu")
ATTACKS = ("smia", "confidence", "entropy", "modified_entropy", "correctness", "rmia", "rmia_offline", "lira")


def make(width: int, count: int):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    examples = ArrayExamples(pixels, np.arange(count) % 10, 10, get_pipeline("none", "cifar10"))
    models = [
        private_copy(build_model(ModelSpec("resnet18", {"width": width}), 10, (3, 32, 32), seed), CPU)
        for seed in range(6)
    ]
    cuts = np.split(np.arange(count), [int(0.5 * count), int(0.6 * count), int(0.8 * count), int(0.9 * count)])
    return examples, models, dict(zip(("retain", "forget", "test", "val", "heldout"), cuts, strict=True))


def signals(model, examples, splits, names) -> dict[str, Predictions]:
    return {
        n: Predictions.from_logits(
            eval_logits(model, examples, splits[n]).numpy(), examples.labels[splits[n]], splits[n]
        )
        for n in names
    }


def judged(every: list[dict[str, Predictions]]) -> dict[str, float]:
    return evaluate(every[0], every[1], every[2:], attacks=ATTACKS, bootstrap=0, floor=False).values()


def usual(examples, models, splits) -> dict[str, float]:
    """Each number from passes of its own."""
    target, retrain, *references = models

    def fresh(model, *names):
        return signals(model, examples, splits, names)

    found = {}
    for name in splits:
        found[f"{name}_acc"] = accuracy(fresh(target, name)[name])
    for name in ("retain", "test"):
        found[f"{name}_div"] = divergence(fresh(target, name)[name], fresh(retrain, name)[name])
    found["forget_entropy"] = entropy(fresh(target, "forget")["forget"])
    for attack in ATTACKS:
        needs = attack in ("rmia", "rmia_offline", "lira")
        names = ("retain", "forget", "test", "val") if attack == "rmia_offline" else ("forget", "test")
        mine, truth = fresh(target, *names), fresh(retrain, *names)
        others = [fresh(r, *names) for r in references] if needs else []
        numbers = evaluate(mine, truth, others, attacks=[attack], bootstrap=0, floor=False).values()
        found |= {
            k: v for k, v in numbers.items() if k.startswith(f"{attack}_") and not k.endswith(("_val", "_heldout"))
        }
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--images", type=int, default=2000)
    args = parser.parse_args()
    examples, models, splits = make(args.width, args.images)
    few = {name: part[:64] for name, part in splits.items()}
    judged([signals(m, examples, few, few) for m in models])  # warm up
    started = time.perf_counter()
    known = [signals(m, examples, splits, splits) for m in models[1:]]
    second = time.perf_counter()
    mine = judged([signals(models[0], examples, splits, splits), *known])
    third = time.perf_counter()
    theirs = usual(examples, models, splits)
    ended = time.perf_counter()
    worst = max(abs(mine[k] - v) for k, v in theirs.items())
    first, later, other = third - started, third - second, ended - third
    print(f"{len(theirs)} numbers, largest difference {worst:.1e} (at most 1e-6)")
    print(f"usual way {other:.1f} s a model; ours {later:.1f} s a model: {other / later:.1f}x (at least 4)")
    print(
        f"  with running Retrain and {len(models) - 2} references for the first one: {first:.1f} s, {other / first:.1f}x"
    )
