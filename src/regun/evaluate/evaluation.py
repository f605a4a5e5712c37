"""The evaluation of one model: every number with its interval, gaps to Retrain next to the noise floor, and claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from regun.errors import AuditError, unknown
from regun.evaluate.checks import aligned, check_distinct, check_never_trained_on, check_splits, choose
from regun.evaluate.claims import claims
from regun.evaluate.estimates import Estimate, Measure, Metric, Share
from regun.evaluate.floor import NoiseFloor, Verdict, floor_of
from regun.evaluate.intervals import LEVEL, Number, Resampling, auc_interval, replicate
from regun.evaluate.leakage import (
    STATISTICS,
    AttackResult,
    AttackRun,
    Lineup,
    attack_metrics,
    attack_result,
    offline_a,
    run_attacks,
)
from regun.evaluate.membership import ATTACKS, Attack, Scorer
from regun.evaluate.metrics import BUILT_IN, differences, measured, own_values
from regun.evaluate.signals import UNSEEN, SplitSignals

METRICS: dict[str, Metric] = BUILT_IN | {
    name: metric
    for attack in ATTACKS.values()
    for against in UNSEEN
    for name, metric in attack_metrics(attack, against).items()
}
"""Every number that regun itself can give, by name."""


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
    """What an audit found; all numbers by name (see `describe`), in percent unless its unit says otherwise."""

    numbers: Mapping[str, Number]
    attacks: Mapping[str, AttackResult]
    retrain: Mapping[str, float]
    gaps: Mapping[str, Gap]
    flags: tuple[str, ...]
    claims: tuple[str, ...]
    settings: Mapping[str, Any]
    metrics: Mapping[str, Metric] = field(default_factory=dict[str, Metric])
    """What people are told about the numbers that are not in METRICS: those of the user's attacks and metrics."""

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
            "metrics": {name: metric.to_json() for name, metric in self.metrics.items()},
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
            metrics={name: Metric(**parts) for name, parts in value.get("metrics", {}).items()},
        )


def describe(name: str, *evaluations: Evaluation) -> Metric:
    """What a number is called, its unit, what it means and which value is good; of the user's own, as evaluations know.

    >>> describe("rmia_auc").label
    'RMIA AUC'
    """
    for known in (METRICS, *(evaluation.metrics for evaluation in evaluations)):
        if name in known:
            return known[name]
    raise AuditError(unknown("metric", name, {*METRICS, *(n for e in evaluations for n in e.metrics)}))


def evaluate(
    signals: SplitSignals,
    retrain: SplitSignals | None = None,
    references: Sequence[SplitSignals] = (),
    *,
    attacks: Sequence[str | Attack | Scorer] | None = None,
    metrics: Sequence[str | Metric | Measure] = (),
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = LEVEL,
    floor: NoiseFloor | bool = True,
    trained_on: Sequence[Iterable[int] | None] = (),
    rmia_a: float | None = None,
) -> Evaluation:
    """Every number an audit can give from what the models said.

    `signals` maps split names (forget, one of test / heldout / val, and what else there is of retain, test, heldout,
    val) to the audited model's `Signals`; `retrain` and each of `references` hold the same splits. `attacks` are those
    to run (default: all that can), `metrics` are further numbers; both by name, as `file.py:function` or as functions.
    `trained_on` may give, for each reference, the ids it trained on. `bootstrap` resamples make the intervals; 0: none.
    """
    how = Resampling(bootstrap, seed, level)
    target, truth, others = _lineups(signals, retrain, references)
    check_never_trained_on(signals["forget"].indices, trained_on, len(others))
    chosen, measures = choose(attacks, metrics, len(others), "val" in signals)
    a = offline_a(references) if rmia_a is None else rmia_a
    ours = run_attacks(chosen, target, others, a, seed)
    theirs = run_attacks(chosen, truth, others, a, seed) if truth else []
    bars = {run.name: auc_interval(run.contrast, level) for run in theirs}
    found = measured(measures, target.splits, truth.splits if truth else None)
    numbers, results = _with_intervals(found, ours, bars, target.sizes(), how)
    retrained = own_values(measures, truth.splits) if truth else {}
    retrained |= {name: value for run in theirs for name, value in run.values().items()}
    if floor is True:
        floor = floor_of([truth, *others], chosen, measures, seed) if truth and len(others) >= 2 else False
    gaps = _gaps(numbers, retrained, measures, floor or None) if truth else {}
    numbers |= {m.name: Number(gaps[m.name].value) for m in measures if m.terms and m.name in gaps}
    return Evaluation(
        numbers=numbers,
        attacks=results,
        retrain=retrained,
        gaps=gaps,
        flags=tuple(_flag(result, bars.get(name)) for name, result in results.items() if result.over_forgetting),
        claims=claims(signals, truth is not None, len(others), bool(floor)),
        settings={"bootstrap": bootstrap, "seed": seed, "level": level, "references": len(others), "rmia_a": a},
        metrics=_described(numbers, found, ours, measures),
    )


def _lineups(
    signals: SplitSignals, retrain: SplitSignals | None, references: Sequence[SplitSignals]
) -> tuple[Lineup, Lineup | None, list[Lineup]]:
    check_splits(signals)
    truth = Lineup.of(aligned(signals, retrain, "Retrain")) if retrain is not None else None
    others = [Lineup.of(aligned(signals, reference, f"reference {k}")) for k, reference in enumerate(references)]
    known = [("the audited model", signals)] + ([("Retrain", retrain)] if retrain is not None else [])
    check_distinct(known, references)
    return Lineup.of(signals), truth, others


def _with_intervals(
    found: Mapping[str, Estimate],
    runs: Sequence[AttackRun],
    bars: Mapping[str, Number],
    sizes: Mapping[str, int],
    how: Resampling,
) -> tuple[dict[str, Number], dict[str, AttackResult]]:
    """Every number by name, and the attacks' results, all from the same resamples."""
    wanted = {name: replicates for name, e in found.items() if (replicates := e.replicates()) is not None}
    drawn = replicate(wanted | {f"attack {run.name}": run.replicates() for run in runs}, sizes, how)
    nothing = np.empty((len(STATISTICS), 0))
    numbers = {name: e.number(name, drawn.get(name, nothing)[0], how) for name, e in found.items()}
    results: dict[str, AttackResult] = {}
    for run in runs:
        results[run.name] = attack_result(run, drawn.get(f"attack {run.name}", nothing), bars.get(run.name), how)
        numbers |= results[run.name].numbers()
    return numbers, results


def _described(
    numbers: Mapping[str, Number], found: Mapping[str, Estimate], runs: Sequence[AttackRun], metrics: Sequence[Metric]
) -> dict[str, Metric]:
    """The records of numbers that METRICS does not have; a share without a unit is in percent."""
    known = {m.name: replace(m, unit=m.unit or "%") if isinstance(found.get(m.name), Share) else m for m in metrics}
    for run in runs:
        known |= attack_metrics(run.attack, run.against)
    return {name: known[name] for name in numbers if known[name] != METRICS.get(name)}


def _gaps(
    numbers: Mapping[str, Number], retrain: Mapping[str, float], metrics: Sequence[Metric], floor: NoiseFloor | None
) -> dict[str, Gap]:
    """The distance to Retrain of every number that has one, and the named gaps; each with its floor."""
    gaps: dict[str, Gap] = {}
    for name, value in differences({n: number.value for n, number in numbers.items()}, retrain, metrics).items():
        if floor is None or name not in floor.values:
            gaps[name] = Gap(value)
        else:
            noise = floor.summary(name)
            gaps[name] = Gap(value, noise.mean, noise.largest, noise.limit, noise.verdict(value))
    return gaps


def _flag(found: AttackResult, retrain: Number | None) -> str:
    limit = (
        "50" if retrain is None or retrain.low is None else f"Retrain's {retrain.value:.1f} (from {retrain.low:.1f})"
    )
    return (
        f"over-forgetting: {found.attack} against {found.against} has an AUC of {found.auc.value:.1f} "
        f"(up to {found.auc.high:.1f}), below {limit}; examples that look too little like members give themselves away."
    )
