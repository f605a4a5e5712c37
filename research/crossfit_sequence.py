"""Many small deletion requests against one large one: does the gap to retraining grow from request to request?

    python research/crossfit_sequence.py --data DIR --out rows.csv    # CIFAR-10 in DIR: about 15 minutes of one core

A model of 1,500 images receives 20 requests of 1 % each, answered by `crossfit` one after the other, each from the
model that the last one left. Compared with one request for all 20 %, with tables prepared again after 10 %, and with
models retrained without all of them. Retain, forget and test accuracy, the AUC of a reference attack, and the mean
absolute difference of the four from the retrained models (gap). `forget` are all records requested so far.
"""

import argparse
import csv
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from regun.artifacts.setup import read_data
from regun.auditing import Predictions
from regun.data.registry import load_data
from regun.methods import crossfit
from regun.models import ModelSpec, build_model
from regun.predict import predict
from regun.rng import derive
from regun.splits import Splits
from regun.training.job import Job, private_copy
from regun.training.recipes import RECIPES, shorten
from regun.training.scratch import train_from_scratch

CPU = torch.device("cpu")
RECORDS, REQUESTS, EACH, FOLDS = 1500, 20, 15, 4
RECIPE = replace(RECIPES["resnet18"], epochs=40, batch_size=64)
Numbers = dict[str, float]


@dataclass
class Bench:
    """Data, the order of deletion, and the models retrained without all of it."""

    root: str

    def __post_init__(self) -> None:
        self.data = load_data(read_data(f"cifar10,limit={RECORDS},test_limit=2000", self.root), "flip")
        self.order = np.random.default_rng(0).permutation(RECORDS)[: REQUESTS * EACH]
        self.left = np.setdiff1d(np.arange(RECORDS), self.order)
        self.test = np.arange(len(self.data.test.labels))

    def trained(self, rows: np.ndarray, seed: int, share: float = 1.0) -> nn.Module:
        fresh = build_model(ModelSpec("resnet18", {"width": 8}), 10, self.data.image_size, derive(seed, "init"))
        job = Job(model=private_copy(fresh, CPU), examples=self.data.train, seed=derive(seed, "train"), device=CPU)
        train_from_scratch(job, rows, shorten(RECIPE, share), "train")
        return job.model.eval()

    def table(self, rows: np.ndarray, seed: int) -> dict[int, Tensor]:
        """Return the out-of-fold probabilities of every record of `rows`."""
        place = np.random.default_rng(seed).permutation(len(rows)) % FOLDS
        found: dict[int, Tensor] = {}
        for fold in range(FOLDS):
            out = rows[place == fold]
            model = self.trained(np.sort(rows[place != fold]), derive(seed, "fold", fold), 0.25)
            probabilities = torch.from_numpy(np.exp(predict(model, self.data.train, out, CPU).log_probs)).float()
            found |= dict(zip(out.tolist(), probabilities, strict=True))
        return found

    def forget(
        self, model: nn.Module, rows: np.ndarray, gone: np.ndarray, table: dict[int, Tensor], share: float, seed: int
    ) -> nn.Module:
        """Return the model after one request for `rows`; `gone` were deleted earlier."""
        forget, none = np.sort(rows), np.arange(0)
        retain = np.setdiff1d(np.arange(RECORDS), np.concatenate([rows, gone]))
        job = Job(
            model=private_copy(model, CPU), examples=self.data.train, seed=seed, device=CPU, recipe=RECIPE,
            splits=Splits(retain=retain, forget=forget, heldout=none, val=none, total=RECORDS),
            out_of_fold=torch.stack([table[row] for row in forget.tolist()]),
        )  # fmt: skip
        crossfit.unlearn(job, crossfit.Config(share=share))
        return job.model.eval()

    def measured(self, model: nn.Module, gone: np.ndarray, references: list[nn.Module]) -> Numbers:
        sets = {"retain": (self.data.train, self.left), "forget": (self.data.train, np.sort(gone))}
        sets["test"] = (self.data.test, self.test)

        def odds(one: nn.Module) -> dict[str, Predictions]:
            return {name: predict(one, examples, rows, CPU) for name, (examples, rows) in sets.items()}

        mine, others = odds(model), [odds(reference) for reference in references]
        numbers = {name: 100 * float((p.predicted == p.labels).mean()) for name, p in mine.items()}
        scores = [
            mine[name].true_logit - np.mean([other[name].true_logit for other in others], axis=0)
            for name in ("forget", "test")
        ]
        truth = np.repeat([1, 0], [len(part) for part in scores])
        return numbers | {"auc": 100 * float(roc_auc_score(truth, np.concatenate(scores)))}


def gap(one: Numbers, other: Numbers) -> float:
    return sum(abs(one[name] - other[name]) for name in other) / len(other)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="where CIFAR-10 is")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="rows as CSV")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.04, 0.16], help="cost of each small request")
    args = parser.parse_args()
    torch.set_num_threads(1)
    bench, started = Bench(args.data), time.process_time()
    everything, none = np.arange(RECORDS), np.arange(0)
    base = bench.trained(everything, 0)
    retrained = [bench.trained(bench.left, seed) for seed in (1, 2, 3)]
    table, rows = bench.table(everything, 10), list[dict[str, object]]()

    def add(name: str, requests: int, cost: float, model: nn.Module, references: list[nn.Module]) -> None:
        gone = bench.order[: requests * EACH]
        now = bench.measured(model, gone, references)
        truths = [bench.measured(r, gone, [o for o in retrained if o is not r]) for r in retrained if r is not model]
        apart = sum(gap(now, truth) for truth in truths) / len(truths)
        values = {name: round(value, 1) for name, value in now.items()}
        rows.append({"what": name, "requests": requests, "cost": round(cost, 2), "gap": round(apart, 2), **values})
        print(f"{time.process_time() - started:5.0f} s", rows[-1], flush=True)
        with args.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    for model in retrained:
        add("retrained", REQUESTS, 1.0, model, [other for other in retrained if other is not model])
    add("base", REQUESTS, 0.0, base, retrained)
    for seed in (0, 1):
        add("one request", REQUESTS, 0.16, bench.forget(base, bench.order, none, table, 0.16, seed), retrained)
    for share in args.shares:
        for again in (False, True):
            model, answers, cost = base, table, 0.0
            for number in range(REQUESTS):
                if again and number == REQUESTS // 2:
                    answers = bench.table(np.setdiff1d(everything, bench.order[: number * EACH]), 20)
                gone, part = bench.order[: number * EACH], bench.order[number * EACH : (number + 1) * EACH]
                model = bench.forget(model, part, gone, answers, share, derive(number, "request"))
                cost += share
                if (number + 1) % 5 == 0 or number == 0:
                    name = f"{share:.0%} a request{', prepared again after 10 %' if again else ''}"
                    add(name, number + 1, cost, model, retrained)


if __name__ == "__main__":
    main()
