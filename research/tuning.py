"""How good is tuning without a retrained model? Every method on digits, 10 % forgotten, the same steps for each.

Per seed and method: the default settings, those chosen by the objective `reference` (no retrained model) and those
chosen by `gap` (Gap RFVP, needs the oracle), each run once on the full split and judged by Gap RFTP on *test* data,
which neither search has seen. Resumable: everything is in the store.

    python research/tuning.py [--store DIR] [--seeds 0 1 2] [--steps 90] [--trials 20] [--json FILE]
    python research/tuning.py --samplers 8       # how near searches of 10, 20, 40 trials come to a grid's best
    python research/tuning.py --forms            # how well forms of `reference` find what `gap` finds, on validation
"""

import argparse
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import torch

from regun.artifacts import Store
from regun.artifacts.audits import cached_predictions, split_predictions
from regun.artifacts.trainings import Training, train_model
from regun.artifacts.unlearnings import Unlearning, unlearn_model
from regun.auditing import evaluate, noise_floor
from regun.auditing.metrics import accuracy
from regun.data.registry import DataSpec, load_data
from regun.experiments.search import Search, Space, Trial, search
from regun.experiments.search.objectives import gap_score, reference_score
from regun.experiments.search.proposals import Proposer, run_trials
from regun.forget_spec import ForgetSpec
from regun.methods import Choice, MethodSpec, get_method
from regun.models import ModelSpec
from regun.splits import make_splits, reserve
from regun.training.job import Budget
from regun.training.recipes import RECIPES

CPU = torch.device("cpu")
METHODS = (
    "regun", "regun@wide_retain", "finetune", "neggrad", "neggrad_plus", "l1_sparse", "salun", "amun", "lur", "scrub",
    "ssd",
)  # fmt: skip
CHOICES = ("default", "reference", "gap")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="demo/store")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=90, help="of every iterative method")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--samplers", type=int, metavar="N", help="compare samplers instead, N searches a surface")
    parser.add_argument("--forms", action="store_true", help="compare forms of the objective instead (first seed)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.samplers:
        compare_samplers(args)
        return
    if args.forms:
        compare_forms(args)
        return
    seeds = [one_seed(args, seed) for seed in args.seeds]
    show(args, seeds)
    if args.json:
        args.json.write_text(json.dumps({"seeds": args.seeds, "steps": args.steps, "runs": seeds}, indent=1))


class Ground:
    """One seed's base, retrained models and splits."""

    def __init__(self, args: argparse.Namespace, seed: int) -> None:
        self.store, self.budget, self.seed = Store(args.store), Budget(steps=args.steps), seed
        self.data = load_data(DataSpec("digits"), "digits")
        reserved = reserve(self.data.train.labels, seed)
        self.splits = make_splits(self.data.train.labels, ForgetSpec.random(0.1), reserved)
        self.base = self.train(reserved.base, seed, "base")
        self.retrain, *self.references = [self.train(self.splits.retain, s, "retrain") for s in range(seed, seed + 5)]
        self.truth, *self.others = [self.predictions(a) for a in (self.retrain, *self.references)]

    def train(self, indices, training_seed, role):
        model, recipe = ModelSpec("cnn"), RECIPES["digits"]
        training = Training(data=self.data, trained_on=indices, model=model, recipe=recipe, seed=training_seed)
        return train_model(training, self.store, CPU, about={"role": role})

    def predictions(self, artifact):
        return split_predictions(artifact, self.data, self.splits, self.store)

    def run(self, method, config) -> Unlearning:
        where = {"base": self.base, "data": self.data, "splits": self.splits}
        return Unlearning(**where, method=method, config=config, seed=self.seed, budget=self.budget)

    def judge(self, method, config) -> dict:
        artifact = unlearn_model(self.run(method, config), self.store, CPU, about={})
        if artifact.info["diverged"]:
            return {"gap_rftp": 100.0, "gap_rfvp": 100.0}
        evaluation = evaluate(
            self.predictions(artifact), self.truth, self.others, attacks=["rmia"], bootstrap=0, floor=False
        )
        return {name: evaluation.values()[name] for name in ("gap_rftp", "gap_rfvp")}

    def search(self, method, start, objective, trials) -> Search:
        space, judges = (
            Space.of(method, start, "resnet"),
            {"retrain": self.retrain, "references": tuple(self.references)},
        )
        run = self.run(method, start)
        return Search(run=run, space=space, objective=objective, trials=trials, seed=self.seed, **judges)


def one_seed(args: argparse.Namespace, seed: int) -> dict:
    ground, rows = Ground(args, seed), {}
    for name in args.methods:
        method, start = get_method(name), MethodSpec.parse(name).configure()
        row = {"default": {"values": {}, **ground.judge(method, start)}}
        for objective in ("reference", "gap"):
            tuned = search(ground.search(method, start, objective, args.trials), ground.store, CPU)
            config = method.configure({**vars(start), **tuned.best_values})
            scores = {"score": tuned.best_score, "default_score": tuned.default_score, "trials": len(tuned.trials)}
            row[objective] = {"values": tuned.best_values, **scores, **ground.judge(method, config)}
        rows[name] = row
        print(f"seed {seed}: {name} " + " ".join(f"{c} {row[c]['gap_rftp']:.2f}" for c in CHOICES), file=sys.stderr, flush=True)  # fmt: skip
    floor = noise_floor(ground.truth, ground.others, attacks=["rmia"]).summary("gap_rftp")
    return {"rows": rows, "floor": [floor.mean, floor.largest]}


def show(args: argparse.Namespace, seeds: list[dict]) -> None:
    print(f"test Gap RFTP, mean over seeds {args.seeds} (each seed); {args.trials} trials, {args.steps} steps\n")
    print("| | default | by `reference` | by `gap` | settings by `reference` (first seed) | by `gap` |")
    print("|---|---|---|---|---|---|")
    means = {choice: [] for choice in CHOICES}
    for name in args.methods:
        cells = []
        for choice in CHOICES:
            gaps = [s["rows"][name][choice]["gap_rftp"] for s in seeds]
            means[choice].append(np.mean(gaps))
            cells.append(f"{np.mean(gaps):.2f} ({', '.join(f'{g:.1f}' for g in gaps)})")
        first = [seeds[0]["rows"][name][c]["values"] for c in ("reference", "gap")]
        cells += [" ".join(f"{k}={v}" for k, v in values.items()) or "-" for values in first]
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"| mean over methods | {' | '.join(f'{np.mean(means[c]):.2f}' for c in CHOICES)} | | |")
    print(f"| median over methods | {' | '.join(f'{np.median(means[c]):.2f}' for c in CHOICES)} | | |")
    mean, largest = np.mean([s["floor"] for s in seeds], axis=0)
    print(f"\nnoise floor of Gap RFTP: mean {mean:.2f}, largest {largest:.2f}")
    rows = [s["rows"][n] for s in seeds for n in args.methods if s["rows"][n]["gap"]["trials"] > 1]
    for choice in ("reference", "gap"):
        better = sum(r[choice]["gap_rftp"] < r["default"]["gap_rftp"] for r in rows)
        worse = sum(r[choice]["gap_rftp"] > r["default"]["gap_rftp"] for r in rows)
        print(f"{choice} against the default on test: better {better}, worse {worse} of {len(rows)} searches")


def surface(ground: Ground, name: str):
    """Gap RFVP over a grid of lr and a range, joined linearly along the range; its best and its median."""
    method, start = get_method(name), MethodSpec.parse(name).configure()
    space = Space.of(method, start, "resnet")
    (rate, rates), (other, span) = space.axes.items()
    assert isinstance(rates, Choice)
    lines = {}
    for lr, unit in itertools.product(rates.values, [(k + 0.5) / 9 for k in range(9)]):
        values = space.rounded({rate: lr, other: space.point([0, unit])[other]})
        gap = ground.judge(method, method.configure({**vars(start), **values}))["gap_rfvp"]
        lines.setdefault(lr, []).append((np.log(values[other]) if span.log else values[other], gap))

    def at(values) -> float:
        xs, ys = zip(*lines[values[rate]], strict=True)
        return float(np.interp(np.log(values[other]) if span.log else values[other], xs, ys))

    gaps = [gap for line in lines.values() for _, gap in line]
    return space, at, min(gaps), float(np.median(gaps))


def compare_samplers(args: argparse.Namespace) -> None:
    """What is left of the way from a grid's median to its best after so many trials, in percent."""
    from optuna.samplers import GPSampler, RandomSampler

    ground = Ground(args, args.seeds[0])
    surfaces = [
        surface(ground, n) for n in ("regun", "regun@wide_retain", "salun", "neggrad_plus", "l1_sparse", "scrub")
    ]
    kinds = {
        "random": (1, lambda seed: RandomSampler(seed=seed)),
        "even spread": (99, None),
        **{f"TPE after {k}": (k, None) for k in (4, 6, 10)},
        "GP after 6": (6, lambda seed: GPSampler(seed=seed, n_startup_trials=1)),
    }
    for name, (spread, sampler) in kinds.items():
        left: dict[int, list[float]] = {10: [], 20: [], 40: []}
        for (space, at, best, median), seed in itertools.product(surfaces, range(args.samplers)):

            def attempt(number, values, at=at) -> Trial:
                return Trial(number=number, values=values, score=at(values), forgetting=0.0, utility=0.0)

            proposer = Proposer(space=space, seed=seed, spread=spread, sampler=sampler)
            trials = run_trials(proposer, max(left), attempt)
            for count, values in left.items():
                values.append(100 * (min(t.score for t in trials[:count]) - best) / (median - best))
        print(f"{name:12}", "  ".join(f"{count} trials: {np.mean(v):4.1f}" for count, v in left.items()), flush=True)


FORMS = {
    "as it is": lambda p: p["auc_beyond"] + p["ks_beyond"] + p["unseen_lost"] + p["retain_lost"],
    "no retain term": lambda p: p["auc_beyond"] + p["ks_beyond"] + p["unseen_lost"],
    "no intervals": lambda p: abs(p["auc"] - 50) + p["ks"] + p["unseen_lost"] + p["retain_lost"],
    "neither": lambda p: abs(p["auc"] - 50) + p["ks"] + p["unseen_lost"],
    "AUC only": lambda p: p["auc_beyond"] + p["unseen_lost"] + p["retain_lost"],
    "KS only": lambda p: p["ks_beyond"] + p["unseen_lost"] + p["retain_lost"],
    "with forget accuracy": lambda p: FORMS["as it is"](p) + abs(p["forget_acc"] - p["base_unseen_acc"]),
}


def grid(space: Space) -> list[dict]:
    """All choices times nine points of a range; forty random points where there is more than one axis besides lr."""
    if len(space.axes) > 2:
        draw = np.random.default_rng(0)
        return [dict(space.start), *(space.rounded(space.point(draw.random(len(space.axes)))) for _ in range(40))]
    sides = [a.values if isinstance(a, Choice) else [(k + 0.5) / 9 for k in range(9)] for a in space.axes.values()]
    points = [dict(space.start)]
    for place in itertools.product(*sides):
        unit = [0.0 if isinstance(a, Choice) else u for a, u in zip(space.axes.values(), place, strict=True)]
        chosen = {n: v for (n, a), v in zip(space.axes.items(), place, strict=True) if isinstance(a, Choice)}
        points.append(space.rounded({**space.point(unit), **chosen}))
    return points


def compare_forms(args: argparse.Namespace) -> None:
    """Gap RFVP of the settings a form would choose from a grid, beyond that of the grid's best; rank correlation."""
    from scipy.stats import spearmanr

    ground = Ground(args, args.seeds[0])
    beyond, ranks = {name: [] for name in FORMS}, {name: [] for name in FORMS}
    settings = 0
    for name in (m for m in args.methods if m != "ssd"):
        method, start = get_method(name), MethodSpec.parse(name).configure()
        order = ground.search(method, start, "reference", 1)
        forms = [f for f in (form_parts(ground, order, values) for values in grid(order.space)) if f]
        settings += len(forms)
        gaps = np.array([gap for gap, _ in forms])
        for form, score in FORMS.items():
            scores = [score(parts) for _, parts in forms]
            beyond[form].append(gaps[int(np.argmin(scores))] - gaps.min())
            ranks[form].append(spearmanr(scores, gaps)[0])
        print(f"{name}: {len(forms)} settings", file=sys.stderr, flush=True)
    print(f"{settings} settings of {len(ranks['as it is'])} methods, seed {ground.seed}")
    for form, values in beyond.items():
        print(f"{form:22} beyond the best {np.mean(values):.2f}, at most {np.max(values):.2f}; rank correlation {np.mean(ranks[form]):.2f}")  # fmt: skip


def form_parts(ground: Ground, order: Search, values: dict) -> tuple[float, dict] | None:
    """Gap RFVP and the parts of the objective `reference` of one setting; None if it diverged."""
    artifact = unlearn_model(order.trial(values), ground.store, CPU, about={})
    if artifact.info["diverged"]:
        return None
    splits, unseen = ground.splits, order.scoring_parts["unseen"]

    def on(model, **parts):
        return {name: cached_predictions(model, ground.data.train, part, ground.store) for name, part in parts.items()}

    after = on(artifact, retain=splits.retain, forget=splits.forget, val=splits.val)
    truth, *others = ({k: model[k] for k in after} for model in (ground.truth, *ground.others))
    gap = gap_score(after, truth, others)
    before = on(ground.base, unseen=unseen, retain=splits.retain)
    parts = reference_score({**after, **on(artifact, unseen=unseen)}, before).parts
    return gap.score, {**parts, "forget_acc": accuracy(after["forget"]), "base_unseen_acc": accuracy(before["unseen"])}


if __name__ == "__main__":
    main()
