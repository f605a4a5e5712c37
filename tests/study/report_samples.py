"""Small studies for tests of figures and the report: made by hand where numbers matter, evaluated where all must fit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from regun.evaluate import Evaluation, Gap, Number, Signals, evaluate
from regun.study.results import Block, Closeup, Entry, Point, Results, Run, TradeOff

SIZES = {"retain": 60, "forget": 40, "heldout": 30, "val": 30, "test": 50}
COST = {"steps": 90, "forward": 5000, "backward": 4000, "seconds": 7.6}
EPOCHS = tuple({"number": k + 1, "epochs": 3, "loss": 1.0 / (k + 1), "lr": 0.1} for k in range(3))


def hand_made(
    gap: float, *, floor: tuple[float, float, float] | None = (1.0, 2.0, 3.0), **numbers: float
) -> Evaluation:
    """An evaluation with this Gap RFTP, judged by the noise floor (mean, largest, limit)."""
    verdict = None
    if floor is not None:
        verdict = "indistinguishable" if gap <= floor[1] else "borderline" if gap <= floor[2] else "distinguishable"
    return Evaluation(
        numbers={"gap_rftp": Number(gap)} | {n: Number(v, v - 1, v + 1) for n, v in numbers.items()},
        attacks={},
        retrain={name: value + 0.5 for name, value in numbers.items()},
        gaps={"gap_rftp": Gap(gap, *(floor or (None, None, None)), verdict)},
        flags=(),
        claims=("A claim.",),
        settings={"level": 0.95},
    )


def run(evaluation: Evaluation | None, seed: int = 0, **more) -> Run:
    return Run(
        **({"seed": seed, "key": f"{seed:064x}", "evaluation": evaluation, "cost": COST, "epochs": EPOCHS} | more)
    )


def method(title: str, *gaps: float, **more) -> Entry:
    """A method with one run a gap."""
    runs = tuple(run(hand_made(gap, **more), seed) for seed, gap in enumerate(gaps))
    return Entry(title.lower(), title, "method", runs)


def block(*entries: Entry, base: float | None = 9.0, seeds: int = 1, **more) -> Block:
    """A request with Retrain (twice the steps, four times the seconds of a method), Base and these entries."""
    slow = COST | {"steps": 900, "seconds": 76.0}
    known = [Entry("retrain", "Retrain", "retrain", tuple(run(None, s, cost=slow) for s in range(seeds)))]
    known = [replace(known[0], runs=tuple(replace(r, evaluation=hand_made(0.0, floor=None)) for r in known[0].runs))]
    if base is not None:
        known.append(Entry("base", "Base", "base", tuple(run(hand_made(base, **more), s) for s in range(seeds))))
    return Block("0.1", "10 %", SIZES, (*known, *entries))


def results(*blocks: Block, seeds: Sequence[int] = (0,), **more) -> Results:
    about = {"data": "noise", "model": "none"}
    return Results(
        **({"name": "toy", "title": "A toy", "about": about, "seeds": tuple(seeds), "blocks": blocks} | more)
    )


def signals(seed: int, sharpness: Mapping[str, float]) -> dict[str, Signals]:
    """Answers of a model that is so sure of the label on each split; ids and labels are the same for every model."""
    found: dict[str, Signals] = {}
    for k, (split, size) in enumerate(SIZES.items()):
        labels = np.arange(size) % 3
        logits = np.random.default_rng((seed, k)).standard_normal((size, 3))
        logits[np.arange(size), labels] += sharpness.get(split, 1.0)
        found[split] = Signals.from_logits(logits, labels, 100 * k + np.arange(size))
    return found


@cache
def evaluated(methods: int = 3, titles: tuple[str, ...] = ()) -> tuple[Results, Closeup]:
    """A study of one request with real evaluations of made-up answers, and a diverged run."""
    retrain, *others = (signals(seed, {"retain": 4.0}) for seed in range(4))
    models = {"base": signals(10, {"retain": 4.0, "forget": 4.0})}
    models |= {f"m{k}": signals(11 + k, {"retain": 4.0, "forget": 1.0 + k}) for k in range(methods)}
    made = {name: evaluate(s, retrain, others, bootstrap=20) for name, s in models.items()}
    own = evaluate(retrain, None, others, bootstrap=20)
    named = {f"m{k}": title for k, title in enumerate(titles)} | {"base": "Base"}
    entries = [Entry("retrain", "Retrain", "retrain", (run(own, cost=COST | {"seconds": 76.0}),))]
    for k, (name, evaluation) in enumerate(made.items()):
        kind = "base" if name == "base" else "method"
        spent = COST | {"seconds": 3.0 * ((7 * k) % 5) + 1.0, "steps": 10 * k}
        entries.append(
            Entry(name, named.get(name, f"Method {k}"), kind, (run(evaluation, cost=spent, settings={"lr": 0.1 * k}),))
        )
    lost = run(None, diverged="the loss was not finite at step 3", epochs=({"number": 1, "loss": float("nan")},))
    entries.append(Entry("lost", "Lost", "method", (lost,)))
    whole = results(Block("0.1", "10 %", SIZES, tuple(entries)), versions={"regun": "0"})
    return whole, Closeup("0.1", 0, {"retrain": retrain} | models, others)


def tradeoff(**more) -> TradeOff:
    curve = tuple(Point(80 + 10 * w, 55 - 4 * w, 0.5, 0.4, w) for w in (0.1, 0.5, 0.9))
    given = {
        "forget": "0.1",
        "label": "10 %",
        "retrain": Point(90.0, 50.0, 0.3, 0.2),
        "base": Point(91.0, 62.0),
        "curves": {"ReGUn": curve, "SalUn": curve[:2]},
        "fixed": {"Finetune": Point(89.0, 60.0)},
        "noise": (1.5, 2.5),
    }
    return TradeOff(**(given | more))
