"""Every method on digits (noise 0.3, 10 % forgotten), each with the best of a small grid of settings.

The grid is searched on the validation gap to Retrain (Gap RFVP); the table shows the test gap (Gap RFTP) of the
settings so chosen, their cost, and the noise floor between retrained models. Resumable: everything is in the store.

    python benchmarks/compare_digits.py [--store DIR] [--seed N] [--json FILE]
"""

import argparse
import json
from pathlib import Path

import torch

from regun.auditing import split_signals
from regun.data.catalogue import DataSpec, load_data
from regun.evaluate import evaluate, noise_floor
from regun.methods import get_method
from regun.models import ModelSpec
from regun.pipeline import Training, Unlearning, train_model, unlearn_model
from regun.recipes import RECIPES
from regun.splits import Request, make_splits, reserve
from regun.store import Store

CPU = torch.device("cpu")


def grid(**axes):
    """Every combination of the axes' values."""
    combinations = [{}]
    for name, values in axes.items():
        combinations = [{**c, name: v} for c in combinations for v in values]
    return combinations


RATES = (0.1, 0.05, 0.01, 0.005)
SMALL = dict(batch_size=[16])
GRIDS = {
    "finetune": grid(lr=RATES, batch_size=[64, 16]),
    "neggrad": grid(lr=(5e-2, 1e-2, 5e-3, 1e-3), batch_size=[64, 16]),
    "neggrad_plus": grid(lr=RATES, w=(0.8, 0.9, 0.95, 0.99), **SMALL),
    "l1_sparse": grid(lr=(0.05, 0.01), gamma=(5e-5, 5e-4, 1e-3, 5e-3), batch_size=[64]),
    "ssd": grid(alpha=(10.0, 3.0, 2.0, 1.5, 1.2, 1.0)),
    "salun": grid(lr=RATES, w=(0.5, 0.7, 0.9), **SMALL),
    "amun": grid(lr=(0.05, 0.01), train_on=("adv+retain", "adv+forget+retain", "adv+forget", "adv"), batch_size=[64]),
    "lur": grid(lr=(0.05, 0.01), w=(0.8, 0.95), sparsity=(0.97, 0.999), **SMALL),
    "scrub": grid(lr=(0.05, 0.01, 0.005), alpha=(0.5, 0.05), batch_size=[64]),
    "regun": grid(lr=RATES, w=(0.3, 0.5, 0.7, 0.9), **SMALL),
    "regun, wide retain": grid(lr=RATES, w=(0.5, 0.7, 0.8, 0.9), retain_batch=[64], **SMALL),
    "regun, class targets": grid(lr=RATES, w=(0.5, 0.7, 0.9), granularity=["class"], retain_batch=[64], **SMALL),
    "regun, sample targets": grid(lr=RATES, w=(0.5, 0.7, 0.9), granularity=["sample"], retain_batch=[64], **SMALL),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="demo/store")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    store = Store(args.store)
    data = load_data(DataSpec("digits"), "digits")
    kept = reserve(data.train.labels, args.seed)
    splits = make_splits(data.train.labels, Request.random(0.1), kept)

    def train(indices, seed, role):
        training = Training(data, indices, ModelSpec("cnn"), RECIPES["digits"], seed)
        about = {"role": role, "data_name": "digits", "data_settings": {}, "preset": "digits", "split_seed": args.seed,
                 "heldout": 0.1, "val": 0.1, "stratified": False}  # fmt: skip
        return train_model(training, store, CPU, about=about)

    def signals(artefact):
        return split_signals(artefact, data, splits, store)

    base = train(kept.base, args.seed, "base")
    retrained = [signals(train(splits.retain, s, "retrain")) for s in range(args.seed, args.seed + 5)]
    retrain, references = retrained[0], retrained[1:]

    def judge(artefact):
        return evaluate(signals(artefact), retrain, references, attacks=["rmia"], bootstrap=0, floor=False).values()

    floor = noise_floor(retrain, references, attacks=["rmia"])
    results = {"base": {"test": judge(base), "config": {}, "cost": base.info["cost"], "diverged": None}}
    for name, settings in GRIDS.items():
        method = get_method(name.split(",")[0])
        trials = []
        for values in settings:
            run = Unlearning(base, data, splits, method, method.configure(values), args.seed)
            artefact = unlearn_model(run, store, CPU, about={"data_name": "digits"})
            trials.append((judge(artefact), values, artefact.info))
        best, values, info = min(trials, key=lambda t: t[0]["gap_rfvp"])
        results[name] = {"test": best, "config": values, "cost": info["cost"], "diverged": info["diverged"]}
        show(name, results[name])
    summary = floor.summary("gap_rftp")
    print(f"\nnoise floor of Gap RFTP: mean {summary.mean:.2f}, largest {summary.largest:.2f}")
    ratio = results["regun"]["test"]["gap_rftp"] / results["finetune"]["test"]["gap_rftp"]
    wide = results["regun, wide retain"]["test"]["gap_rftp"] / results["finetune"]["test"]["gap_rftp"]
    print(f"Gap RFTP of ReGUn over Finetune: {ratio:.2f} as in the paper, {wide:.2f} with a wide retain batch")
    if args.json:
        args.json.write_text(json.dumps({"floor": [summary.mean, summary.largest], "results": results}, indent=1))


def show(name, result) -> None:
    t, cost = result["test"], result["cost"]
    settings = " ".join(f"{k}={v}" for k, v in result["config"].items())
    print(
        f"{name:22} retain {t['retain_acc']:6.2f}  forget {t['forget_acc']:6.2f}  test {t['test_acc']:6.2f}  "
        f"RMIA {t['rmia_auc']:6.2f}  Gap RFTP {t['gap_rftp']:5.2f}  val {t['gap_rfvp']:5.2f}  "
        f"{cost['steps']:4d} steps {cost['seconds']:6.1f} s  {settings}",
        flush=True,
    )


if __name__ == "__main__":
    main()
