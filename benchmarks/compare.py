"""Every method, 10 % forgotten, each with the best of a small grid of settings; on digits (noise 0.3) unless told.

The grid is searched on the validation gap to Retrain (Gap RFVP, mean over seeds); the table shows the test gap (Gap
RFTP) of the settings so chosen, its cost, and the noise floor between retrained models. With --steps N every iterative
method runs exactly N steps. Resumable: everything is in the store.

    python benchmarks/compare.py [--store DIR] [--seeds 0 1 2] [--steps 90] [--json FILE]
    python benchmarks/compare.py --data cifar10,root=DIR,limit=3000 --model resnet18,width=16 \\
        --recipe resnet18-small,epochs=20 --preset resnet --methods finetune regun --seeds 0
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch

from regun.data.catalogue import DataSpec, load_data
from regun.evaluate import evaluate, noise_floor
from regun.methods import get_method
from regun.models import ModelSpec
from regun.runs.audit import split_signals
from regun.runs.training import Training, Unlearning, train_model, unlearn_model
from regun.settings import bind, parse_spec
from regun.splits import Request, make_splits, reserve
from regun.store import Store
from regun.training.job import Budget
from regun.training.recipes import RECIPES, Recipe

CPU = torch.device("cpu")


def grid(**axes):
    """Every combination of the axes' values."""
    combinations = [{}]
    for name, values in axes.items():
        combinations = [{**c, name: v} for c in combinations for v in values]
    return combinations


WIDE = "regun, wide retain"


def grids(rates, weights):
    """Each method's settings to try; `weights` are retain weights of the methods that have one."""
    small = {"batch_size": [32]}
    wide = {"retain_batch": [64], "batch_size": [16]}
    sets = ("adv+retain", "adv+forget+retain", "adv+forget", "adv")
    return {
        "finetune": grid(lr=rates, batch_size=[64, 32, 16]),
        "neggrad": grid(lr=(5e-2, 1e-2, 5e-3, 1e-3), batch_size=[64, 16]),
        "neggrad_plus": grid(lr=rates, w=(0.8, 0.9, 0.95, 0.99), **small),
        "l1_sparse": grid(lr=(0.05, 0.01), gamma=(5e-5, 5e-4, 1e-3, 5e-3), batch_size=[64]),
        "ssd": grid(alpha=(10.0, 3.0, 2.0, 1.5, 1.2, 1.0)),
        "salun": grid(lr=rates, w=weights, **small),
        "amun": grid(lr=(0.05, 0.01), train_on=sets, batch_size=[64]),
        "lur": grid(lr=(0.05, 0.01), w=(0.8, 0.95), sparsity=(0.97, 0.999), **small),
        "scrub": grid(lr=(0.05, 0.01, 0.005), alpha=(0.5, 0.05), batch_size=[64]),
        "regun": grid(lr=rates, w=weights, **small),
        WIDE: grid(lr=rates, w=weights, **wide),
        "regun, class targets": grid(lr=rates, w=weights, granularity=["class"], **wide),
        "regun, sample targets": grid(lr=rates, w=weights, granularity=["sample"], **wide),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="demo/store")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="the same number of steps for every iterative method")
    parser.add_argument("--methods", nargs="+", default=list(grids((), ())), help="which rows")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1, 0.05, 0.02, 0.01], help="learning rates to try")
    parser.add_argument(
        "--weights", type=float, nargs="+", default=[0.7, 0.9, 0.95, 0.97], help="retain weights to try"
    )
    parser.add_argument("--data", default="digits")
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--recipe", default="digits")
    parser.add_argument("--preset", default="digits", help="input pipeline")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    seeds = [compare(args, seed) for seed in args.seeds]
    for name in seeds[0]["trials"]:
        choose(name, seeds)
    what = f"{args.steps} steps each" if args.steps else "the grid's own epochs"
    print(f"\nmean over seeds {args.seeds}, {what}\n{HEAD}")
    for name in seeds[0]["results"]:
        show(name, [s["results"][name] for s in seeds])
        print(" " * 22, " ".join(f"{k}={v}" for k, v in seeds[0]["results"][name]["config"].items()))
    mean, largest = np.mean([s["floor"] for s in seeds], axis=0)
    print(f"noise floor of Gap RFTP: mean {mean:.2f}, largest {largest:.2f}")
    gaps = {n: np.mean([s["results"][n]["test"]["gap_rftp"] for s in seeds]) for n in seeds[0]["results"]}
    for name in (n for n in gaps if n.startswith("regun") and "finetune" in gaps):
        print(f"Gap RFTP of {name} over Finetune's: {gaps[name] / gaps['finetune']:.2f}")
    if args.json:
        args.json.write_text(
            json.dumps(
                {"seeds": args.seeds, "steps": args.steps, "runs": [{**s, "trials": None} for s in seeds]}, indent=1
            )
        )


def compare(args: argparse.Namespace, seed: int) -> dict:
    """Base, five retrained models and every method's best settings of one seed."""
    store, budget = Store(args.store), Budget(steps=args.steps) if args.steps else None
    data = load_data(DataSpec.read(*parse_spec(args.data)), args.preset)
    model = ModelSpec(*parse_spec(args.model))
    name, values = parse_spec(args.recipe)
    recipe = bind(Recipe, values, "recipe", RECIPES[name])
    kept = reserve(data.train.labels, seed)
    splits = make_splits(data.train.labels, Request.random(0.1), kept)

    def train(indices, training_seed, role):
        training = Training(data, indices, model, recipe, training_seed)
        return train_model(training, store, CPU, about={"role": role})

    def signals(artefact):
        return split_signals(artefact, data, splits, store)

    base = train(kept.base, seed, "base")
    retrain, *references = [signals(train(splits.retain, s, "retrain")) for s in range(seed, seed + 5)]

    def judge(artefact):
        return evaluate(signals(artefact), retrain, references, attacks=["rmia"], bootstrap=0, floor=False).values()

    every: dict[str, list[dict]] = {}
    results = {"base": {"test": judge(base), "config": {}, "cost": base.info["cost"], "diverged": None}}
    for name in args.methods:
        method = get_method(name.split(",")[0])
        trials = []
        for values in grids(args.rates, args.weights)[name]:
            run = Unlearning(base, data, splits, method, method.configure(values), seed, budget)
            artefact = unlearn_model(run, store, CPU, about={})
            trials.append((judge(artefact), values, artefact.info))
        every[name] = [
            {"test": numbers, "config": values, "cost": info["cost"], "diverged": info["diverged"]}
            for numbers, values, info in trials
        ]
        print(f"seed {seed}: {name}, {len(trials)} settings tried", file=sys.stderr, flush=True)
    summary = noise_floor(retrain, references, attacks=["rmia"]).summary("gap_rftp")
    return {"floor": [summary.mean, summary.largest], "results": results, "trials": every}


def choose(name: str, seeds: list[dict]) -> None:
    """The settings with the smallest mean validation gap over the seeds become every seed's result."""
    means = [
        np.mean([s["trials"][name][k]["test"]["gap_rfvp"] for s in seeds]) for k in range(len(seeds[0]["trials"][name]))
    ]
    for one in seeds:
        one["results"][name] = one["trials"][name][int(np.argmin(means))]


HEAD = f"{'':22} {'retain':>7} {'forget':>7} {'test':>7} {'RMIA':>7} {'Gap RFTP':>14} {'steps':>6} {'seconds':>8}"


def show(name: str, runs: list[dict]) -> None:
    def mean(metric: str) -> float:
        return float(np.mean([r["test"][metric] for r in runs]))

    gaps = [r["test"]["gap_rftp"] for r in runs]
    spread = f" +- {np.std(gaps, ddof=1):.2f}" if len(gaps) > 1 else ""
    steps, seconds = (np.mean([r["cost"][k] for r in runs]) for k in ("steps", "seconds"))
    cells = " ".join(f"{mean(m):7.2f}" for m in ("retain_acc", "forget_acc", "test_acc", "rmia_auc"))
    print(f"{name:22} {cells} {np.mean(gaps):6.2f}{spread:8} {steps:6.0f} {seconds:8.1f}", flush=True)


if __name__ == "__main__":
    main()
