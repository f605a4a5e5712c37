"""What evidence of forgetting is worth: how often rules accept models whose truth is known.

    python research/evidence.py --cache digits.npz                # digits: some 8 minutes of one core to train
    python research/evidence.py --data DIR --cache cifar.npz      # CIFAR-10 in DIR: some 30 minutes
    python research/evidence.py --cache digits.npz --variants     # other scales, fewer out models, the old rule
    python research/evidence.py --cache digits.npz --tables       # prepared tables in place of out-of-sample models

Models are trained on a retain set with all, half or none of a pool of further records; requests of 1 to 100 records are
drawn from the pool. So for every request the truth is known: the untouched base; models half-way (probabilities or
log-odds averaged with those of a retrained model, or trained with half of the records); a truly retrained one. What
the models said is kept in the cache, and only models that it lacks are trained.

A prepared table counts as one out-of-sample model per repeat: each record has the prediction of the fold model that
never saw it. Its fold models were trained with the other records of the pool, as tables made before a request are.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np
import torch

import regun.auditing.influence as rule
from regun.artifacts.setup import read_data
from regun.auditing import Predictions, SplitPredictions
from regun.auditing.intervals import auc_interval
from regun.auditing.roc import Contrast
from regun.data.examples import Data, Examples
from regun.data.registry import load_data
from regun.forget_spec import ForgetSpec
from regun.models import ModelSpec, build_model
from regun.rng import derive
from regun.splits import make_splits, reserve
from regun.training.forward import eval_logits
from regun.training.job import Job, private_copy
from regun.training.recipes import RECIPES, Recipe
from regun.training.scratch import train_from_scratch

CPU = torch.device("cpu")
SIZES = (1, 2, 5, 10, 20, 30, 50, 100)
UNSEEN = ("test", "heldout", "val")
PARTS = ("retain", "forget", *UNSEEN)
SHARES = {"eighth": 1 / 8, "quarter": 1 / 4}
"""Short trainings: their share of the epochs."""


# ------------------------------------------------------------------------------------------------------------ training


@dataclass(frozen=True)
class Setup:
    """Where models are trained: data, model, recipe, the pool's share, how many splits and models of which kind."""

    data: str
    preset: str
    model: ModelSpec
    recipe: Recipe
    pool: float
    splits: int
    bases: int
    retrained: int = 10
    short: int = 4
    folds: int = 4
    repeats: int = 2


DIGITS = Setup("digits", "digits", ModelSpec("cnn"), RECIPES["digits"], 0.2, splits=4, bases=2)
CIFAR = Setup(
    "cifar10,limit=5000,test_limit=2000", "none", ModelSpec("resnet18", {"width": 8}),
    replace(RECIPES["resnet18-small"], epochs=16), 0.1, splits=1, bases=3,
)  # fmt: skip


def kinds(setup: Setup) -> Iterator[tuple[str, str, float]]:
    """Every model of a split: its name, what of the pool it is trained on, and for which share of the epochs."""
    for k in range(setup.bases):
        yield f"base{k}", "all", 1.0
        yield f"half{k}", f"half{k}", 1.0
    for part, share in SHARES.items():
        yield from ((f"{part}{k}", "none", share) for k in range(setup.short))
    yield from ((f"retrained{k}", "none", 1.0) for k in range(setup.retrained))


def train(setup: Setup, place: Path, root: str | None) -> None:
    """Train what the cache lacks; each model's logits on every set are kept."""
    data = load_data(read_data(setup.data, root), setup.preset)
    kept = dict(np.load(place)) if place.exists() else {}
    for split in range(setup.splits):
        splits = make_splits(data.train.labels, ForgetSpec.random(setup.pool), reserve(data.train.labels, split))
        sets = {name: (data.train, getattr(splits, name)) for name in ("retain", "forget", "val", "heldout")}
        sets["test"] = (data.test, np.arange(len(data.test.labels)))
        kept |= {f"{split}/{name}/labels": examples.labels[rows] for name, (examples, rows) in sets.items()}
        for name, what, share in kinds(setup):
            if f"{split}/test/{name}" in kept:
                continue
            started = time.process_time()
            some = np.random.default_rng(derive(split, what)).random(len(splits.forget)) < 0.5
            seen = {"all": np.ones_like(some), "none": np.zeros_like(some)}.get(what, some)
            kept[f"{split}/in/{name}"] = seen
            rows = np.union1d(splits.retain, splits.forget[seen])
            model = trained(setup, data, rows, share, derive(split, name))
            kept |= {f"{split}/{s}/{name}": eval_logits(model, *given).numpy() for s, given in sets.items()}
            np.savez_compressed(place, **kept)
            print(f"split {split}: {name}, {time.process_time() - started:.0f} s", file=sys.stderr, flush=True)
        for repeat, (part, share) in product(range(setup.repeats), SHARES.items()):
            name = f"table_{part}{repeat}"
            if f"{split}/test/{name}" not in kept:
                answers = table(setup, data, sets, share, derive(split, name))
                kept |= {f"{split}/{s}/{name}": logits for s, logits in answers.items()}
                kept[f"{split}/in/{name}"] = np.zeros(len(splits.forget), dtype=bool)
                np.savez_compressed(place, **kept)
                print(f"split {split}: {name}", file=sys.stderr, flush=True)


def table(
    setup: Setup, data: Data, sets: Mapping[str, tuple[Examples, np.ndarray]], share: float, seed: int
) -> dict[str, np.ndarray]:
    """Return out-of-fold logits: folds of the retain set and the pool; unseen records are dealt to the folds."""
    rng = np.random.default_rng(seed)
    fold = {name: rng.permutation(len(rows)) % setup.folds for name, (_, rows) in sets.items()}
    logits = {name: np.empty((len(rows), data.train.num_classes), np.float32) for name, (_, rows) in sets.items()}
    for k in range(setup.folds):
        rows = np.concatenate([sets[name][1][fold[name] != k] for name in ("retain", "forget")])
        model = trained(setup, data, np.sort(rows), share, derive(seed, "fold", k))
        for name, (examples, every) in sets.items():
            logits[name][fold[name] == k] = eval_logits(model, examples, every[fold[name] == k]).numpy()
    return logits


def trained(setup: Setup, data: Data, rows: np.ndarray, share: float, seed: int) -> torch.nn.Module:
    recipe = replace(setup.recipe, epochs=max(1, round(share * setup.recipe.epochs)))
    fresh = build_model(setup.model, data.train.num_classes, data.image_size, derive(seed, "init"))
    job = Job(model=private_copy(fresh, CPU), examples=data.train, seed=derive(seed, "train"), device=CPU)
    train_from_scratch(job, rows, recipe, "train")
    return job.model


# ------------------------------------------------------------------------------------------------------------- judging


class Said:
    """What the models of one split said, as the cache has it."""

    def __init__(self, kept: Mapping[str, np.ndarray], split: int) -> None:
        self.kept, self.split = kept, split
        self.names = [key.split("/")[2] for key in kept if key.startswith(f"{split}/in/")]
        self.model = cache(self._model)

    def __getitem__(self, key: str) -> np.ndarray:
        return self.kept[f"{self.split}/{key}"]

    def of(self, kind: str) -> list[str]:
        return [name for name in self.names if name.startswith(kind)]

    def _model(self, name: str) -> dict[str, Predictions]:
        return {part: self._signals(part, self[f"{part}/{name}"]) for part in PARTS}

    def _signals(self, part: str, logits: np.ndarray) -> Predictions:
        labels = self[f"{part}/labels"]
        return Predictions.from_logits(logits, labels, np.arange(len(labels)))

    def averaged(self, one: str, two: str, *, odds: bool) -> dict[str, Predictions]:
        """The model whose probabilities, or logits, are the mean of two models'."""
        if odds:
            return {p: self._signals(p, (self[f"{p}/{one}"] + self[f"{p}/{two}"]) / 2) for p in PARTS}
        pairs = {p: (self.model(one)[p].log_probs, self.model(two)[p].log_probs) for p in PARTS}
        return {p: self._signals(p, np.logaddexp(*pair) - np.log(2)) for p, pair in pairs.items()}


@dataclass(frozen=True)
class Case:
    """One base, one retrained model and models that never saw the pool."""

    said: Said
    base: str
    half: str
    retrained: str
    outs: tuple[str, ...]

    def models(self) -> dict[str, SplitPredictions]:
        """The models to be judged, by what they are."""
        said, base, again = self.said, self.base, self.retrained
        return {
            "base": said.model(base),
            "probabilities half-way": said.averaged(base, again, odds=False),
            "log-odds half-way": said.averaged(base, again, odds=True),
            "half of the records": said.model(self.half),
            "retrained": said.model(again),
        }

    def rows(self, kind: str, size: int, rng: np.random.Generator) -> np.ndarray | None:
        """A random request; where half of the records are in the model, just half of these are."""
        seen = self.said[f"in/{self.half}"]
        if kind != "half of the records":
            return rng.choice(len(seen), size, replace=False)
        if size == 1:
            return None
        sides = (np.flatnonzero(seen), size - size // 2), (np.flatnonzero(~seen), size // 2)
        return np.concatenate([rng.choice(side, count, replace=False) for side, count in sides])


def cases(said: Said, outs: str, count: int, seed: int) -> Iterator[Case]:
    """Each base with two retrained models in turn; out models are other retrained ones, or short trainings."""
    for k, (base, half) in enumerate(zip(said.of("base"), said.of("half"), strict=True)):
        for again in said.of("retrained")[2 * k : 2 * k + 2]:
            rng = np.random.default_rng([seed, said.split, k])
            others = [name for name in said.of(outs) if name != again]
            yield Case(said, base, half, again, tuple(rng.permutation(others)[:count].tolist()))


Rule = Callable[[SplitPredictions, SplitPredictions, Sequence[SplitPredictions], int], str]


def by_influence(after: SplitPredictions, before: SplitPredictions, outs: Sequence[SplitPredictions], seed: int) -> str:
    return rule.influence(after, before, outs, seed=seed).verdict


def by_interval(after: SplitPredictions, before: SplitPredictions, outs: Sequence[SplitPredictions], seed: int) -> str:
    """The rule of old: the interval of the loss attack's AUC against test contains 50."""
    auc = auc_interval(Contrast.of(after["forget"].true_log_prob, after["test"].true_log_prob))
    return "forgotten" if (auc.low or 0) <= 50 <= (auc.high or 0) else "remembered"


def on_scale(scale: Callable[[Predictions], np.ndarray], *given: object) -> str:
    """The rule, on another scale than log-odds."""
    usual, rule._odds = rule._odds, scale
    try:
        return by_influence(*given)
    finally:
        rule._odds = usual


def judged(
    every: Sequence[Said], outs: str, count: int, by: Rule, requests: int
) -> dict[tuple[str, int], Counter[str]]:
    """How often each answer is given, by what the model is and the size of the request."""
    found: dict[tuple[str, int], Counter[str]] = {}
    for case in (case for said in every for case in cases(said, outs, count, 0)):
        base, others = case.said.model(case.base), [case.said.model(name) for name in case.outs]
        for kind, model in case.models().items():
            for size in SIZES:
                rng = np.random.default_rng([case.said.split, int(case.base[-1]), int(case.retrained[-1]), size])
                for number in range(requests):
                    rows = case.rows(kind, size, rng)
                    if rows is not None:
                        given = [only(m, rows) for m in (model, base, *others)]
                        answer = by(given[0], given[1], given[2:], number)
                        found.setdefault((kind, size), Counter())[answer] += 1
    return found


def only(model: SplitPredictions, rows: np.ndarray) -> dict[str, Predictions]:
    """The model with these records as its forget set."""
    whole = model["forget"]
    return {**model, "forget": Predictions(whole.log_probs[rows], whole.labels[rows], whole.indices[rows])}


def show(title: str, found: Mapping[tuple[str, int], Counter[str]]) -> None:
    """Percent of requests that are accepted; of the last kind also how often it is wrongly told apart."""
    print(f"\n| {title} | " + " | ".join(map(str, SIZES)) + " |\n|---" * 1 + "|---" * len(SIZES) + "|")
    names = list(dict.fromkeys(kind for kind, _ in found))
    for kind in names:
        print(row(f"{kind}, accepted", [percent(found.get((kind, size)), "forgotten") for size in SIZES]))
    told = ("remembered", "over-forgotten")
    print(row(f"{names[-1]}, rejected", [percent(found.get((names[-1], size)), *told) for size in SIZES]))
    print(f"\n{max(sum(c.values()) for c in found.values())} requests a cell", flush=True)


def percent(count: Counter[str] | None, *answers: str) -> str:
    return "" if count is None else f"{100 * sum(count[a] for a in answers) / sum(count.values()):.0f}"


def row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="DIR", help="where CIFAR-10 is; without it, digits")
    parser.add_argument("--cache", type=Path, required=True, metavar="FILE", help="an .npz file")
    parser.add_argument("--requests", type=int, default=10, help="for each pair of base and retrained model")
    parser.add_argument("--variants", action="store_true", help="judge by other rules as well")
    parser.add_argument("--tables", action="store_true", help="judge with prepared tables as well")
    args = parser.parse_args()
    torch.set_num_threads(1)
    train(CIFAR if args.data else DIGITS, args.cache, args.data)
    kept = dict(np.load(args.cache))
    every = [Said(kept, split) for split in sorted({int(key.split("/")[0]) for key in kept})]
    rules: list[tuple[str, str, int, Rule]] = [
        ("8 retrained models", "retrained", 8, by_influence),
        ("4 short trainings, a quarter of the epochs", "quarter", 4, by_influence),
    ]
    if args.tables:
        rules += [
            (f"table of 4 folds, {count} repeats, an {part} of the epochs", f"table_{part}", count, by_influence)
            for part, count in product(SHARES, (1, 2))
        ]
    if args.variants:
        scales = {"probability": lambda s: np.exp(s.true_log_prob), "log p": lambda s: np.maximum(s.true_log_prob, -12)}
        rules += [("the old rule, smia_auc~50", "quarter", 1, by_interval)]
        rules += [(f"{k} retrained models", "retrained", k, by_influence) for k in (1, 2, 4)]
        rules += [(f"{k} short, a quarter of the epochs", "quarter", k, by_influence) for k in (1, 2)]
        rules += [(f"{k} short, an eighth of the epochs", "eighth", k, by_influence) for k in (1, 2, 4)]
        rules += [
            (f"8 retrained models, on {name}", "retrained", 8, partial(on_scale, f)) for name, f in scales.items()
        ]
    for title, outs, count, by in rules:
        show(title, judged(every, outs, count, by, args.requests))


if __name__ == "__main__":
    main()
