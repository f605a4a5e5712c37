"""The search behind `crossfit`: its settings at a fixed cost on several setups, by the library itself.

    python research/crossfit_search.py --data DIR --store STORE --out rows.csv                # every setup and rule
    python research/crossfit_search.py ... --setups cifar10 --rules share=0.08 share=0.16,w=0.4 --seeds 0 1
    python research/crossfit_search.py ... --table-share 1                       # models of the table trained fully
    python research/crossfit_search.py ... --describe                            # what the table says, no update
    python research/crossfit_search.py --out results/crossfit/targets.csv --table             # docs/crossfit.md

Per setup one split, a base per training seed, three retrained models and a table of 4 folds, all in STORE: a stopped
run goes on. A row is an update with its gap: the mean absolute difference in retain, forget and test accuracy and in
the AUC of RMIA from a retrained model, averaged over the three (the other two are the attack's references). The same
after relearning: two epochs on retained images. Cost: samples of the update as a share of those of a retraining.
"""

import argparse
import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from regun.artifacts.out_of_fold import SHARE, CrossFitting, cross_fit, out_of_fold_probabilities
from regun.artifacts.setup import read_data
from regun.artifacts.store import Store
from regun.artifacts.trainings import Training, load_model, train_model
from regun.auditing import Predictions
from regun.auditing.attacks import Evidence, rmia
from regun.data.registry import load_data
from regun.forget_spec import ForgetSpec
from regun.methods import crossfit
from regun.models import ModelSpec
from regun.predict import predict
from regun.relearning import relearn_steps, relearn_updates
from regun.rng import derive
from regun.settings import bind, parse_spec
from regun.splits import Splits, make_splits, reserve
from regun.training.job import Job, private_copy
from regun.training.recipes import read_recipe

CPU = torch.device("cpu")
RETRAINED = (0, 1001, 1002)
Numbers = dict[str, float]


@dataclass(frozen=True)
class Setup:
    """Data, model and training of one setup."""

    data: str
    model: ModelSpec
    recipe: str
    pipeline: str


SETUPS = {
    "cifar10": Setup("cifar10,limit=3000,test_limit=2000", ModelSpec("resnet18", {"width": 8}),
                     "resnet18,epochs=60,batch_size=64", "resnet-code"),
    "cifar10-short": Setup("cifar10,limit=3000,test_limit=2000", ModelSpec("resnet18", {"width": 8, "stem": "tiny"}),
                           "resnet18,epochs=60,batch_size=64", "resnet-code"),
    "cifar20": Setup("cifar20,limit=3000,test_limit=1999", ModelSpec("resnet18", {"width": 8, "stem": "tiny"}),
                     "resnet18,epochs=80,batch_size=64", "resnet-code"),
    "swin": Setup("tiny-imagenet,limit=3000,test_limit=1000", ModelSpec("swin-nano", {"patch": 8, "drop_path": 0}),
                  "swin-small,epochs=70,lr=0.003,label_smoothing=0,batch_size=64", "flip"),
    "tiny": Setup("tiny-imagenet,limit=3000,test_limit=1000", ModelSpec("resnet18", {"width": 8, "stem": "imagenet"}),
                  "resnet18,epochs=60,batch_size=64", "resnet-code"),
}  # fmt: skip


class Bench:
    """Models and measurements of one setup."""

    def __init__(self, setup: Setup, root: str, store: Store, split_seed: int, table_share: float = SHARE) -> None:
        self.data, self.store = load_data(read_data(setup.data, root), setup.pipeline), store
        self.recipe, self.table_share = read_recipe(setup.recipe), table_share
        labels = self.data.train.labels
        self.splits: Splits = make_splits(labels, ForgetSpec.random(0.1), reserve(labels, split_seed))
        self.training = Training(
            data=self.data, trained_on=self.splits.base, model=setup.model, recipe=self.recipe, seed=0
        )
        self.sets = {
            "retain": (self.data.train, self.splits.retain),
            "forget": (self.data.train, self.splits.forget),
            "test": (self.data.test, np.arange(len(self.data.test.labels))),
        }

    def trained(self, seed: int, *, without: bool) -> nn.Module:
        """Return the model of a training seed, on all records or without the forgotten ones."""
        training = replace(self.training, trained_on=self.splits.retain if without else self.splits.base, seed=seed)
        return load_model(train_model(training, self.store, CPU, about={})).eval()

    @cached_property
    def table(self) -> torch.Tensor:
        """The out-of-fold probabilities of the forgotten records."""
        fitting = CrossFitting(training=self.training, share=self.table_share)
        return out_of_fold_probabilities(cross_fit(fitting, self.store, CPU), self.splits.forget)

    def job(self, model: nn.Module, seed: int) -> Job:
        return Job(
            model=private_copy(model, CPU), examples=self.data.train, splits=self.splits, seed=seed, device=CPU,
            recipe=self.recipe, out_of_fold=self.table,
        )  # fmt: skip

    def predicted(self, model: nn.Module) -> dict[str, Predictions]:
        return {name: predict(model, examples, rows, CPU) for name, (examples, rows) in self.sets.items()}

    def relearned(self, model: nn.Module) -> nn.Module:
        job = self.job(model, derive(0, "relearn"))
        relearn_steps(job, relearn_updates(self.recipe), lambda _: None)
        return job.model.eval()

    @cached_property
    def retrained(self) -> list[dict[str, Predictions]]:
        return [self.predicted(self.trained(seed, without=True)) for seed in RETRAINED]

    @cached_property
    def retrained_later(self) -> list[dict[str, Predictions]]:
        return [self.predicted(self.relearned(self.trained(seed, without=True))) for seed in RETRAINED]

    def compared(self, model: nn.Module) -> Numbers:
        """Return the numbers of a model and its mean gap, before and after relearning."""
        now = compare(self.predicted(model), self.retrained, self.retrained)
        later = compare(self.predicted(self.relearned(model)), self.retrained_later, self.retrained)
        return now | {f"relearned_{name}": value for name, value in later.items()}

    def floor(self) -> Numbers:
        """Return the same for retrained models: each against the others."""
        rows: list[Numbers] = []
        for number in range(len(self.retrained)):
            others = [model for other, model in enumerate(self.retrained) if other != number]
            later = [model for other, model in enumerate(self.retrained_later) if other != number]
            now = compare(self.retrained[number], others, others)
            then = compare(self.retrained_later[number], later, others)
            rows.append(now | {f"relearned_{name}": value for name, value in then.items()})
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def compare(
    model: Mapping[str, Predictions], truths: Sequence[Mapping[str, Predictions]], models: Sequence[Mapping[str, Any]]
) -> Numbers:
    """Return the numbers of a model and its gap, averaged over the retrained models that it is compared with.

    The attack's references are the `models` but the one that is compared with.
    """
    gaps: list[Numbers] = []
    for number, truth in enumerate(truths):
        references = [other for place, other in enumerate(models) if place != number]
        now, there = measured(model, references), measured(truth, references)
        gaps.append({"gap": sum(abs(now[name] - there[name]) for name in now) / len(now), **now})
    return {name: float(np.mean([row[name] for row in gaps])) for name in gaps[0]}


def measured(model: Mapping[str, Predictions], references: Sequence[Mapping[str, Predictions]]) -> Numbers:
    """Return accuracies and the AUC of RMIA, in percent."""
    numbers = {name: 100 * float((p.predicted == p.labels).mean()) for name, p in model.items()}
    scores = [rmia(Evidence(model[name], tuple(r[name] for r in references))) for name in ("forget", "test")]
    truth = np.repeat([1, 0], [len(part) for part in scores])
    return numbers | {"auc": 100 * float(roc_auc_score(truth, np.concatenate(scores)))}


def rows(bench: Bench, rules: Sequence[str], seeds: Sequence[int]) -> Iterator[dict[str, object]]:
    """Yield the rows of one setup: retrained models, then per seed the base and each rule."""
    yield {"rule": "retrained", "seed": 0, "cost": 1.0, **bench.floor()}
    for seed in seeds:
        base = bench.trained(seed, without=False)
        yield {"rule": "base", "seed": seed, "cost": 0.0, **bench.compared(base)}
        for rule in rules:
            job = bench.job(base, derive(seed, "unlearn"))
            crossfit.unlearn(job, bind(crossfit.Config, parse_spec(f"crossfit,{rule}")[1], "crossfit"))
            cost = job.cost.backward / (bench.recipe.epochs * len(bench.splits.retain))
            yield {"rule": rule, "seed": seed, "cost": round(cost, 3), **bench.compared(job.model.eval())}


def described(bench: Bench) -> Iterator[str]:
    """Yield what the table and retrained models predict for the forgotten records, on average."""
    table_says = bench.table.double().numpy()
    retrained = [np.exp(model["forget"].log_probs) for model in bench.retrained]
    labels = bench.data.train.labels[bench.splits.forget]
    for name, models in ((f"table, share {bench.table_share:g}", [table_says]), ("retrained", retrained)):
        p, y = np.concatenate(models), np.tile(labels, len(models))
        accuracy, label = (p.argmax(1) == y).mean(), p[np.arange(len(y)), y].mean()
        yield f"{name}: accuracy {accuracy:.1%}, probability of the label {label:.3f}, largest {p.max(1).mean():.3f}"


def table(path: Path) -> Iterator[str]:
    """Yield the rows of a file as Markdown."""
    yield "| setup | update | cost | gap | retain / forget / test / AUC | relearned: gap, forget |"
    yield "|---|---|---:|---:|---|---|"
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            four = " / ".join(f"{float(row[name]):.1f}" for name in ("retain", "forget", "test", "auc"))
            later = f"{float(row['relearned_gap']):.1f}, {float(row['relearned_forget']):.1f}"
            cost, gap = f"{float(row['cost']):.0%}".replace("%", " %"), f"{float(row['gap']):.1f}"
            yield f"| {row['setup']} | {row['rule']} | {cost} | {gap} | {four} | {later} |"


RULES = ("share=0.04", "share=0.08", "share=0.16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="DIR", help="with the folders of the data sets")
    parser.add_argument("--store", type=Path, metavar="STORE", help="where models are kept")
    parser.add_argument("--out", type=Path, metavar="FILE", help="rows as CSV, which are added to")
    parser.add_argument("--setups", nargs="+", choices=SETUPS, default=list(SETUPS))
    parser.add_argument("--rules", nargs="+", default=RULES, help="settings of crossfit")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="training seeds of the base")
    parser.add_argument("--split", type=int, default=1, help="seed of the split; studies report 0")
    parser.add_argument("--table-share", type=float, default=SHARE, metavar="S", help="epochs of a model of the table")
    parser.add_argument("--describe", action="store_true", help="print what the table says and stop")
    parser.add_argument("--table", action="store_true", help="print the rows of FILE and stop")
    args = parser.parse_args()
    if args.out is None and not args.describe:
        parser.error("the following arguments are required: --out")
    if args.table:
        print(*table(args.out), sep="\n")
        return
    torch.set_num_threads(1)
    for name in args.setups:
        bench = Bench(SETUPS[name], args.data, Store(args.store), args.split, args.table_share)
        if args.describe:
            print(name, *described(bench), sep="\n  ")
            continue
        for row in rows(bench, args.rules, args.seeds):
            new = not args.out.exists()
            full = {
                "setup": name,
                "table_share": args.table_share,
                **{k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()},
            }
            print(*full.values(), flush=True)
            with args.out.open("a+", newline="") as file:
                file.seek(0)
                if next(csv.reader(file), list(full)) != list(full):
                    parser.error(f"--out {args.out} has other columns; give another file.")
                writer = csv.DictWriter(file, list(full))
                if new:
                    writer.writeheader()
                writer.writerow(full)


if __name__ == "__main__":
    main()
