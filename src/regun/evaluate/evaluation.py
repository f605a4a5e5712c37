"""The evaluation of one model: every number with its interval, gaps to Retrain next to the noise floor, and claims.

Belongs here: `Evaluation`, `Gap`, their JSON form, and `evaluate`, which puts the parts together.
Does not: running models, storing, printing. May import: errors and every other file of evaluate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regun.evaluate.checks import aligned, check_never_trained_on, check_splits, choose_attacks
from regun.evaluate.claims import claims
from regun.evaluate.floor import (
    NoiseFloor,
    Verdict,
    confidence_contrasts,
    differences,
    floor_of,
    own_numbers,
)
from regun.evaluate.intervals import (
    LEVEL,
    Number,
    bootstrap_mean,
    delong,
    distance,
    percentile,
    proportion,
    rng,
    told_apart,
)
from regun.evaluate.leakage import STATISTICS, AttackResult, Job, Pool, Trial, offline_a, result, run_jobs, trials
from regun.evaluate.membership import Attack, Scorer
from regun.evaluate.metrics import GAPS, correct, divergences, spread
from regun.evaluate.signals import FloatArray, IntArray, Signals

Splits = Mapping[str, Signals]


@dataclass(frozen=True)
class Gap:
    """The distance of one number to Retrain's, next to how far retrained models are from each other."""

    value: float
    floor_mean: float | None = None
    floor_largest: float | None = None
    floor_limit: float | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True)
class Evaluation:
    """What an audit found; all numbers by name (see METRICS), in percent unless its unit says otherwise."""

    numbers: Mapping[str, Number]
    attacks: Mapping[str, AttackResult]
    retrain: Mapping[str, float]
    gaps: Mapping[str, Gap]
    flags: tuple[str, ...]
    claims: tuple[str, ...]
    settings: Mapping[str, Any]

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on Gap RFTP (on its validation form where there is no test split); None without a noise floor."""
        return next((self.gaps[name].verdict for name in ("gap_rftp", "gap_rfvp") if name in self.gaps), None)

    def values(self) -> dict[str, float]:
        """The numbers without their intervals."""
        return {name: number.value for name, number in self.numbers.items()}

    def gap_to(self, other: Evaluation) -> dict[str, float]:
        """|difference| of every number both evaluations hold."""
        theirs = other.values()
        return {name: abs(value - theirs[name]) for name, value in self.values().items() if name in theirs}

    def to_json(self) -> dict[str, Any]:
        return {
            "numbers": {name: number.to_json() for name, number in self.numbers.items()},
            "attacks": {name: found.to_json() for name, found in self.attacks.items()},
            "retrain": dict(self.retrain),
            "gaps": {name: asdict(value) for name, value in self.gaps.items()},
            "flags": list(self.flags),
            "claims": list(self.claims),
            "settings": dict(self.settings),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Evaluation:
        return cls(
            numbers={name: Number(*parts) for name, parts in value["numbers"].items()},
            attacks={name: AttackResult.from_json(found) for name, found in value["attacks"].items()},
            retrain=dict(value["retrain"]),
            gaps={name: Gap(**parts) for name, parts in value["gaps"].items()},
            flags=tuple(value["flags"]),
            claims=tuple(value["claims"]),
            settings=dict(value["settings"]),
        )


def evaluate(
    signals: Splits,
    retrain: Splits | None = None,
    references: Sequence[Splits] = (),
    *,
    attacks: Sequence[str | Attack | Scorer] | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = LEVEL,
    floor: NoiseFloor | bool = True,
    trained_on: Sequence[Iterable[int] | IntArray | None] = (),
    rmia_a: float | None = None,
) -> Evaluation:
    """Every number an audit can give from what the models said.

    `signals` maps split names (forget, one of test / heldout / val, and what else there is of retain, test, heldout,
    val) to the audited model's `Signals`; `retrain` and each of `references` hold the same splits. `trained_on` may
    give, for each reference, the ids it trained on. `bootstrap` resamples (0 for none) make the intervals.
    """
    how = Resampling(bootstrap, seed, level)
    target, truth, others = _pools(signals, retrain, references)
    check_never_trained_on(signals["forget"].indices, trained_on, len(others))
    chosen = choose_attacks(attacks, len(others), "val" in signals)
    a = offline_a(references) if rmia_a is None else rmia_a
    ours = trials(chosen, target, others, a, seed)
    theirs = trials(chosen, truth, others, a, seed) if truth else []
    draws = _resampled(target, ours, theirs, how)
    bars = _bars(theirs, draws, level)
    results = {t.name(): result(t, draws[t.name()], bars.get(t.name()), seed, level) for t in ours}
    numbers = _own(target, draws, how) | _named(ours, results) | (_compared(target, truth, how) if truth else {})
    retrained = _merged([own_numbers(truth.splits), *(t.values() for t in theirs)]) if truth else {}
    if floor is True:
        floor = floor_of([truth, *others], chosen, seed) if truth and len(others) >= 2 else False
    gaps = _gaps(numbers, retrained, floor or None)
    return Evaluation(
        numbers=numbers | {name: Number(gaps[name].value) for name in gaps if name in GAPS},
        attacks=results,
        retrain=retrained,
        gaps=gaps,
        flags=tuple(_flag(found, bars.get(name)) for name, found in results.items() if found.over_forgetting),
        claims=claims(signals, truth is not None, len(others), bool(floor)),
        settings={"bootstrap": bootstrap, "seed": seed, "level": level, "references": len(others), "rmia_a": a},
    )


def over_seeds(evaluations: Sequence[Evaluation]) -> dict[str, tuple[float, float | None]]:
    """Mean and sample standard deviation over seeds of every number (gaps too) that all evaluations hold."""
    each = [evaluation.values() for evaluation in evaluations]
    shared = [name for name in each[0] if all(name in values for values in each)] if each else []
    return {name: spread([values[name] for values in each]) for name in shared}


def _pools(
    signals: Splits, retrain: Splits | None, references: Sequence[Splits]
) -> tuple[Pool, Pool | None, list[Pool]]:
    check_splits(signals)
    truth = Pool.of(aligned(signals, retrain, "Retrain")) if retrain is not None else None
    others = [Pool.of(aligned(signals, reference, f"reference {k}")) for k, reference in enumerate(references)]
    return Pool.of(signals), truth, others


def _resampled(target: Pool, ours: Sequence[Trial], theirs: Sequence[Trial], how: Resampling) -> dict[str, FloatArray]:
    """All statistics of the target's trials, the AUC of Retrain's and the distances, under the same resamples."""
    jobs: dict[str, Job] = {t.name(): (t.against, t.contrast.statistics) for t in ours}
    jobs |= {"retrain " + t.name(): (t.against, t.contrast.auc) for t in theirs}
    jobs |= {f"distance {split}": (split, c.distances) for split, c in confidence_contrasts(target.splits).items()}
    sizes = {name: place.stop - place.start for name, place in target.places.items()}
    return run_jobs(jobs, sizes, how.resamples, how.seed)


def _bars(theirs: Sequence[Trial], draws: Mapping[str, FloatArray], level: float) -> dict[str, Number]:
    """Retrain's AUC for each trial, with its bootstrap interval or, without resamples, DeLong's."""
    bars: dict[str, Number] = {}
    for trial in theirs:
        drawn = draws["retrain " + trial.name()][0]
        auc = float(trial.contrast.auc()[0])
        bars[trial.name()] = percentile(auc, drawn, level) if drawn.size else delong(trial.contrast, level)
    return bars


def _own(target: Pool, draws: Mapping[str, FloatArray], how: Resampling) -> dict[str, Number]:
    """Accuracies, forget entropy and distances of confidence, with intervals."""
    numbers: dict[str, Number] = {}
    for name, split in target.splits.items():
        hits = correct(split)
        drawn = bootstrap_mean(hits, how.resamples, rng(how.seed, "accuracy", name))
        numbers[f"{name}_acc"] = proportion(float(hits.mean()), drawn, len(split), how.level)
    numbers["forget_entropy"] = _mean(target.splits["forget"].entropy, 1.0, how)
    for against, contrast in confidence_contrasts(target.splits).items():
        ks, wasserstein = (float(v) for v in contrast.distances()[:, 0])
        apart = told_apart(ks, len(contrast.members), len(contrast.nonmembers), how.level)
        drawn = draws[f"distance {against}"]
        numbers[f"confidence_ks_{against}"] = distance(ks, drawn[0], apart, how.level)
        numbers[f"confidence_wasserstein_{against}"] = distance(wasserstein, drawn[1], apart, how.level)
    return numbers


def _compared(target: Pool, truth: Pool, how: Resampling) -> dict[str, Number]:
    """Divergence from Retrain on every split and the difference in forget entropy, with intervals over examples."""
    pairs = {name: divergences(split, truth.splits[name]) for name, split in target.splits.items()}
    numbers = {f"{name}_div": _mean(each, 100.0, how) for name, each in pairs.items()}
    difference = target.splits["forget"].entropy - truth.splits["forget"].entropy
    return numbers | {"forget_entropy_diff": _mean(difference, 1.0, how)}


def _mean(values: FloatArray, scale: float, how: Resampling) -> Number:
    drawn = bootstrap_mean(values, how.resamples, rng(how.seed, "mean"))
    return percentile(float(values.mean()), drawn, how.level, scale)


def _named(ours: Sequence[Trial], results: Mapping[str, AttackResult]) -> dict[str, Number]:
    return {t.name(s): getattr(results[t.name()], s) for t in ours for s in STATISTICS}


def _merged(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    return {name: value for part in parts for name, value in part.items()}


def _gaps(numbers: Mapping[str, Number], retrain: Mapping[str, float], floor: NoiseFloor | None) -> dict[str, Gap]:
    """|difference| to Retrain of every number, divergences as they are, and the named gaps; each with its floor."""
    if not retrain:
        return {}
    values = {name: number.value for name, number in numbers.items()}
    found = differences(values, retrain) | {name: v for name, v in values.items() if name.endswith("_div")}
    gaps: dict[str, Gap] = {}
    for name, value in found.items():
        if floor is None or name not in floor.values:
            gaps[name] = Gap(value)
        else:
            noise = floor.summary(name)
            gaps[name] = Gap(value, noise.mean, noise.largest, noise.limit, noise.verdict(value))
    return gaps


def _flag(found: AttackResult, retrain: Number | None) -> str:
    interval = found.auc if found.auc.high is not None else found.delong
    limit = (
        "50" if retrain is None or retrain.low is None else f"Retrain's {retrain.value:.1f} (from {retrain.low:.1f})"
    )
    return (
        f"over-forgetting: {found.attack} against {found.against} has an AUC of {found.auc.value:.1f} "
        f"(up to {interval.high:.1f}), below {limit}; examples that look too little like members give themselves away."
    )
