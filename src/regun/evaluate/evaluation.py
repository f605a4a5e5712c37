"""The evaluation of one model: every number with its interval, gaps to Retrain next to the noise floor, and claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regun.evaluate.checks import aligned, check_distinct, check_never_trained_on, check_splits, choose_attacks
from regun.evaluate.claims import claims
from regun.evaluate.floor import NoiseFloor, Verdict, floor_of
from regun.evaluate.intervals import LEVEL, Number, Resampling, delong
from regun.evaluate.leakage import STATISTICS, AttackResult, Pool, Trial, offline_a, result, run_jobs, trials
from regun.evaluate.membership import Attack, Scorer
from regun.evaluate.metrics import GAPS, spread
from regun.evaluate.plain import (
    Splits,
    accuracy_numbers,
    confidence_contrasts,
    differences,
    distance_numbers,
    mean_numbers,
    means,
    own_numbers,
    plain_jobs,
)


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
    trained_on: Sequence[Iterable[int] | None] = (),
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
    plain, contrasts = means(target.splits, truth.splits if truth else None), confidence_contrasts(target.splits)
    draws = run_jobs({t.name(): t.job() for t in ours} | plain_jobs(plain, contrasts), target.sizes(), how)
    bars = {t.name(): delong(t.contrast, level) for t in theirs}
    results = {t.name(): result(t, draws[t.name()], bars.get(t.name()), seed, level) for t in ours}
    numbers = accuracy_numbers(target.splits, how) | mean_numbers(plain, draws, how)
    numbers |= distance_numbers(contrasts, draws, how) | _named(ours, results)
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
    known = [("the audited model", signals)] + ([("Retrain", retrain)] if retrain is not None else [])
    check_distinct(known, references)
    return Pool.of(signals), truth, others


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
