"""Small studies for tests of what is shown: made by hand where numbers matter, evaluated where all must fit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from regun.auditing import Estimate, Evaluation, Gap, Judgement, Predictions, evaluate
from regun.auditing.metrics import GAPS, gap
from regun.experiments.study.details import RowDetails
from regun.experiments.study.results import PAPER_COLUMNS, Block, Kind, Results, Row, Run, block_of, metrics_of, row_of
from regun.experiments.study.tradeoff import TradeOff, TradeOffPoint

SIZES = {"retain": 900, "forget": 100, "heldout": 50, "val": 100, "test": 1000}
COST = {"steps": 90, "forward": 5000, "backward": 4000, "seconds": 7.6}
SLOW = COST | {"steps": 900, "seconds": 76.0}
EPOCHS = tuple({"number": k + 1, "epochs": 3, "loss": 1.0 / (k + 1), "lr": 0.1} for k in range(3))
FLOOR = (0.5, 1.0, 1.5)
TRUTH = {"retain_acc": 99.0, "forget_acc": 90.0, "test_acc": 90.0, "smia_auc": 51.0, "rmia_auc": 50.0}


def judged(
    values: Mapping[str, float] | None = None,
    truth: Mapping[str, float] | None = None,
    floor: tuple[float, float, float] | None = FLOOR,
    half: float | None = 1.0,
) -> Evaluation:
    """An evaluation with these numbers: what is not given is Retrain's, gaps follow, intervals are ± half."""
    truth = TRUTH if truth is None else truth
    numbers = {**truth, "retain_div": 0.0, "test_div": 0.0, **(values or {})}
    gaps = {name: gap(numbers, truth, terms) for name, terms in GAPS.items() if name in ("gap_rftp", "gap_tp")}
    numbers = gaps | numbers  # a gap that is given stands
    found = {name: _gap(abs(value - truth.get(name, 0.0)), floor) for name, value in numbers.items()}
    ends = {name: (v - half, v + half) if half and "gap" not in name else () for name, v in numbers.items()}
    made = {name: Estimate(v, *ends[name]) for name, v in numbers.items()}
    return _evaluation(made, dict(truth), found)


def _gap(away: float, floor: tuple[float, float, float] | None) -> Gap:
    if floor is None:
        return Gap(away)
    return Gap(away, *floor, "passed" if away <= floor[1] else "inconclusive" if away <= floor[2] else "failed")


def _evaluation(numbers: Mapping[str, Estimate], truth: Mapping[str, float], gaps: Mapping[str, Gap]) -> Evaluation:
    verdict = gaps["gap_rftp"].verdict
    judgement = Judgement(verdict, "noise floor", "A reason.", worst=gaps["gap_rftp"].worst) if verdict else None
    settings = {"level": 0.95, "unseen": ["test"], "references": 3}
    return Evaluation(numbers, {}, truth, gaps, settings, judgement, limits=("A limit.",))


def hand_made(gap_rftp: float, *, floor: tuple[float, float, float] | None = (1.0, 2.0, 3.0)) -> Evaluation:
    """An evaluation that has this Gap RFTP and nothing else, judged by the noise floor (mean, largest, limit)."""
    number = {"gap_rftp": Estimate(gap_rftp)}
    return _evaluation(number, {}, {"gap_rftp": _gap(gap_rftp, floor)})


def run(evaluation: Evaluation | None, seed: int = 0, repeat: int = 0, **more: Any) -> Run:
    given = {"key": f"{seed:032x}{repeat:032x}", "cost": COST, "epochs": EPOCHS, "settings": {"lr": 0.1}}
    return Run(**({"seed": seed, "repeat": repeat, "evaluation": evaluation} | given | more))


def found(
    name: str,
    *runs: Evaluation | Run | None,
    repeats: int = 1,
    planned: int | None = None,
    kind: Kind = "method",
    title: str | None = None,
) -> Row:
    """A row with these runs, seed after seed, `repeats` of each."""
    made = [one if isinstance(one, Run) else run(one, *divmod(k, repeats)) for k, one in enumerate(runs)]
    count = len(made) if planned is None else planned
    return row_of(name=name, title=title or name.title(), kind=kind, runs=tuple(made), planned=count)


def method(title: str, *gaps: float, repeats: int = 1, planned: int | None = None, **more: Any) -> Row:
    """A method with one run a gap."""
    return found(title.lower(), *(hand_made(g, **more) for g in gaps), repeats=repeats, planned=planned, title=title)


def block(*methods: Row, base: float | None = 9.0, seeds: int = 1, forget: str = "0.1", **more: Any) -> Block:
    """A request with Retrain (ten times the steps and seconds of a method), Base and these methods."""
    known = [found("retrain", *(run(hand_made(0.0, floor=None), s, cost=SLOW) for s in range(seeds)), kind="retrain")]
    if base is not None:
        known.append(found("base", *(hand_made(base, **more) for _ in range(seeds)), kind="base"))
    return block_of(forget, "10 %", SIZES, [*known, *methods])


def results(*blocks: Block, seeds: Sequence[int] = (0,), repeats: int = 1, **more: Any) -> Results:
    given: dict[str, Any] = {
        "name": "toy",
        "title": "A toy study",
        "about": {"data": "noise", "model": "none"},
        "seeds": tuple(seeds),
        "repeats": repeats,
        "blocks": blocks,
        "metrics": metrics_of(blocks),
        "columns": PAPER_COLUMNS,
        "level": 0.95,
        "machine": {"processor": "x86_64", "instructions": "AVX2", "threads": 1},
    }
    return Results(**(given | more))


def study(*methods: Row, seeds: int = 1, forget: Sequence[str] = ("0.1",), **more: Any) -> Results:
    """Retrain, Base and these methods on each forget request, with all of the paper's columns."""
    away = judged({"forget_acc": 99.0, "rmia_auc": 60.0})
    first = [found("retrain", *[judged()] * seeds, kind="retrain"), found("base", *[away] * seeds, kind="base")]
    labels = {text: f"{100 * float(text):g} %" if text[0] == "0" else text for text in forget}
    blocks = [block_of(text, label, SIZES, [*first, *methods]) for text, label in labels.items()]
    return results(*blocks, seeds=range(seeds), **more)


def signals(seed: int, sharpness: Mapping[str, float]) -> dict[str, Predictions]:
    """Answers of a model that is so sure of the label on each split; ids and labels are the same for every model."""
    made: dict[str, Predictions] = {}
    for k, (split, size) in enumerate({"retain": 60, "forget": 40, "heldout": 30, "val": 30, "test": 50}.items()):
        labels = np.arange(size) % 3
        logits = np.random.default_rng((seed, k)).standard_normal((size, 3))
        logits[np.arange(size), labels] += sharpness.get(split, 1.0)
        made[split] = Predictions.from_logits(logits, labels, 100 * k + np.arange(size))
    return made


@cache
def evaluated(methods: int = 3, titles: tuple[str, ...] = ()) -> tuple[Results, RowDetails]:
    """A study of one request with real evaluations of made-up answers, and a diverged run."""
    retrain, *others = (signals(seed, {"retain": 4.0}) for seed in range(4))
    models = {"base": signals(10, {"retain": 4.0, "forget": 4.0})}
    models |= {f"m{k}": signals(11 + k, {"retain": 4.0, "forget": 1.0 + k}) for k in range(methods)}
    made = {name: evaluate(s, retrain, others, bootstrap=20) for name, s in models.items()}
    own = evaluate(retrain, None, others, bootstrap=20)
    named = {f"m{k}": title for k, title in enumerate(titles)} | {"base": "Base"}
    rows = [found("retrain", run(own, cost=COST | {"seconds": 76.0}), kind="retrain")]
    for k, (name, evaluation) in enumerate(made.items()):
        spent = COST | {"seconds": 3.0 * ((7 * k) % 5) + 1.0, "steps": 10 * k}
        one = run(evaluation, cost=spent, settings={"lr": 0.1 * k})
        rows.append(found(name, one, kind="base" if k == 0 else "method", title=named.get(name, f"Method {k}")))
    lost = run(None, diverged="the loss was not finite at step 3", epochs=({"number": 1, "loss": float("nan")},))
    rows.append(found("lost", lost))
    whole = results(block_of("0.1", "10 %", SIZES, rows), versions={"regun": "0"})
    return whole, RowDetails("0.1", 0, {"retrain": retrain} | models, others)


def relabelled(whole: Results, label: str, forget: str = "0.5") -> Results:
    """The results with their first request a second time, under another name."""
    return replace(whole, blocks=(*whole.blocks, replace(whole.blocks[0], forget=forget, label=label)))


def tradeoff(**more: Any) -> TradeOff:
    curve = tuple(TradeOffPoint(80 + 10 * w, 55 - 4 * w, 0.5, 0.4, w) for w in (0.1, 0.5, 0.9))
    given = {
        "forget": "0.1",
        "label": "10 %",
        "retrain": TradeOffPoint(90.0, 50.0, 0.3, 0.2),
        "base": TradeOffPoint(91.0, 62.0),
        "curves": {"ReGUn": curve, "SalUn": curve[:2]},
        "fixed": {"Finetune": TradeOffPoint(89.0, 60.0)},
        "noise": (1.5, 2.5),
    }
    return TradeOff(**(given | more))
