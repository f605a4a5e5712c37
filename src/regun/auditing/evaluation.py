"""The evaluation of one model: every number with its interval, gaps to Retrain next to the noise floor, and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from regun.auditing.attack_results import (
    LOSS_ATTACK,
    STATISTICS,
    AttackResult,
    AttackRun,
    attack_metrics,
    offline_a,
    run_attacks,
)
from regun.auditing.attacks import ATTACKS, Attack, Scorer
from regun.auditing.checks import aligned, check_distinct, check_splits, choose, judged_sets
from regun.auditing.claims import AuditBasis, Finding, claims, findings, over_forgetting
from regun.auditing.estimates import Measure, Metric, Share, Statistic
from regun.auditing.floor import NoiseFloor, floor_of
from regun.auditing.gaps import Gap, judge_gaps
from regun.auditing.influence import Influence, influence
from regun.auditing.intervals import LEVEL, Estimate, Resampling, auc_interval, replicate
from regun.auditing.metrics import BUILT_IN, differences, measured, own_values
from regun.auditing.predictions import UNSEEN, SplitPredictions
from regun.auditing.risk import Exposed, exposed_list
from regun.auditing.verdict import Verdict
from regun.errors import AuditError, unknown

METRICS: dict[str, Metric] = BUILT_IN | {
    name: metric
    for attack in ATTACKS.values()
    for against in UNSEEN
    for name, metric in attack_metrics(attack, against).items()
}
"""Every number that regun itself can give, by name."""


@dataclass(frozen=True)
class Evaluation:
    """The results of an audit; all numbers by name (see `describe`), in percent unless their unit says otherwise."""

    numbers: Mapping[str, Estimate]
    attacks: Mapping[str, AttackResult]
    retrain: Mapping[str, float]
    gaps: Mapping[str, Gap]
    flags: tuple[str, ...]
    claims: tuple[str, ...]
    """What the audit can and cannot claim, whatever the numbers are."""
    settings: Mapping[str, Any]
    metrics: Mapping[str, Metric] = field(default_factory=dict[str, Metric])
    """Descriptions of the numbers that are not in METRICS: those of the user's attacks and metrics."""
    before: Mapping[str, Estimate] = field(default_factory=dict[str, Estimate])
    """The numbers of the model before unlearning, where it is known."""
    influence: Influence | None = None
    """What is left of the forgotten records' influence, where models that never saw them are known too."""
    exposed: tuple[Exposed, ...] = ()
    """The retained examples that unlearning exposed most."""
    findings: tuple[Finding, ...] = ()
    """What was found: influence left, what the loss attack shows and could have shown, harm to retained examples."""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on Gap RFTP (on its validation form where there is no test split); None without a noise floor."""
        return next((self.gaps[name].verdict for name in ("gap_rftp", "gap_rfvp") if name in self.gaps), None)

    @property
    def worst(self) -> str | None:
        """The part that decides the verdict: a number's name, or `influence`."""
        return next((self.gaps[name].worst for name in ("gap_rftp", "gap_rfvp") if name in self.gaps), None)

    def values(self) -> dict[str, float]:
        """Return the numbers without their intervals."""
        return {name: number.value for name, number in self.numbers.items()}

    def to_json(self) -> dict[str, Any]:
        return {
            "numbers": {name: number.to_json() for name, number in self.numbers.items()},
            "attacks": {name: result.to_json() for name, result in self.attacks.items()},
            "retrain": dict(self.retrain),
            "gaps": {name: asdict(value) for name, value in self.gaps.items()},
            "flags": list(self.flags),
            "claims": list(self.claims),
            "settings": dict(self.settings),
            "metrics": {name: metric.to_json() for name, metric in self.metrics.items()},
            "before": {name: number.to_json() for name, number in self.before.items()},
            "influence": self.influence.to_json() if self.influence else None,
            "exposed": [asdict(one) for one in self.exposed],
            "findings": [asdict(one) for one in self.findings],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Evaluation:
        return cls(
            numbers={name: Estimate(*parts) for name, parts in value["numbers"].items()},
            attacks={name: AttackResult.from_json(parts) for name, parts in value["attacks"].items()},
            retrain=dict(value["retrain"]),
            gaps={name: Gap(**parts) for name, parts in value["gaps"].items()},
            flags=tuple(value["flags"]),
            claims=tuple(value["claims"]),
            settings=dict(value["settings"]),
            metrics={name: Metric(**parts) for name, parts in value["metrics"].items()},
            before={name: Estimate(*parts) for name, parts in value["before"].items()},
            influence=Influence.from_json(value["influence"]) if value["influence"] else None,
            exposed=tuple(Exposed(**one) for one in value["exposed"]),
            findings=tuple(Finding(**one) for one in value["findings"]),
        )


def describe(name: str, *evaluations: Evaluation) -> Metric:
    """Return a number's label, unit, meaning and good value; for the user's metrics, from `evaluations`.

    >>> describe("rmia_auc").label
    'RMIA AUC'
    """
    for known in (METRICS, *(evaluation.metrics for evaluation in evaluations)):
        if name in known:
            return known[name]
    raise AuditError(unknown("metric", name, {*METRICS, *(n for e in evaluations for n in e.metrics)}))


def evaluate(
    predictions: SplitPredictions,
    retrain: SplitPredictions | None = None,
    references: Sequence[SplitPredictions] = (),
    *,
    before: SplitPredictions | None = None,
    out_models: Sequence[SplitPredictions] = (),
    unseen: Sequence[str] | None = None,
    attacks: Sequence[str | Attack | Scorer] | None = None,
    metrics: Sequence[str | Metric | Measure] = (),
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = LEVEL,
    floor: NoiseFloor | bool = True,
    rmia_a: float | None = None,
) -> Evaluation:
    """Return every number that the predictions allow, with intervals, gaps and verdicts.

    `predictions` are those of the audited model, by split: forget, at least one of test, heldout and val, and retain.
    `retrain` and each of `references` hold the same splits. Without `before`, the model before unlearning, the power
    of the tests is unknown. `out_models` saw neither forgotten nor unseen examples, such as short trainings; they serve
    where there are no retrained models. `unseen` names the sets that are judged (default: all there are; leave out one
    that the method trained towards).

    `attacks` are those to run (default: all that can), `metrics` are further numbers; both by name, as
    `file.py:function` or as functions. `bootstrap` resamples make the intervals; 0: none.
    """
    how = Resampling(bootstrap, seed, level)
    check_splits(predictions)
    a = offline_a(references) if rmia_a is None else rmia_a  # also from splits that the audited model lacks
    retrain = aligned(predictions, retrain, "Retrain") if retrain is not None else None
    before = aligned(predictions, before, "the model before unlearning") if before is not None else None
    references = [aligned(predictions, reference, f"reference {k}") for k, reference in enumerate(references)]
    check_distinct({"the audited model": predictions, "Retrain": retrain}, references)
    judged = judged_sets(predictions, unseen)
    chosen, measures = choose(attacks, metrics, len(references), "val" in predictions)

    runs, runs_before, runs_retrain = (
        run_attacks(chosen, model, references, a, seed) if model is not None else []
        for model in (predictions, before, retrain)
    )
    retrain_attacks = _attack_numbers(runs_retrain, level)
    retrain_aucs = {run.name: retrain_attacks[run.auc_name] for run in runs_retrain}
    statistics = measured(measures, predictions, retrain)
    numbers, results = _with_intervals(statistics, runs, retrain_aucs, predictions, how)
    numbers_before: dict[str, Estimate] = {}
    if before is not None:
        plain, no_draws = replace(how, resamples=0), np.empty(0)
        numbers_before = {n: s.number(n, no_draws, plain) for n, s in measured(measures, before, retrain).items()}
        numbers_before |= _attack_numbers(runs_before, level)
    retrain_values = own_values(measures, retrain) if retrain is not None else {}
    retrain_values |= _values(retrain_attacks)

    never_saw = [model for model in (retrain, *references) if model is not None] or out_models
    left = influence(predictions, before, never_saw, unseen=judged, seed=seed) if before and never_saw else None
    noise = floor if isinstance(floor, NoiseFloor) else None
    gaps: dict[str, Gap] = {}
    if retrain is not None:
        if floor is True and len(references) >= 2:
            noise = floor_of([retrain, *references], chosen, measures, seed)
        ours, past = (differences(_values(each), retrain_values, measures) for each in (numbers, numbers_before))
        gaps = judge_gaps(ours, past, noise, {m.name: m for m in measures}, judged, left)
    numbers |= {m.name: Estimate(gaps[m.name].value) for m in measures if m.terms and m.name in gaps}
    numbers |= {"influence_left": left.share} if left is not None and left.known else {}
    basis = AuditBasis(
        splits=tuple(predictions),
        judged=judged,
        retrain=retrain is not None,
        references=len(references),
        floor=noise is not None,
        numbers=numbers,
        before=numbers_before,
        influence=left,
        loss_aucs=_loss_aucs(runs, judged),
    )
    return Evaluation(
        numbers=numbers,
        attacks=results,
        retrain=retrain_values,
        gaps=gaps,
        flags=tuple(over_forgetting(results, retrain_aucs)),
        claims=tuple(claims(basis)),
        settings={"bootstrap": bootstrap, "seed": seed, "level": level, "references": len(references), "rmia_a": a},
        metrics=_descriptions(numbers, statistics, runs, measures),
        before=numbers_before,
        influence=left,
        exposed=tuple(exposed_list(predictions, before, against=judged[0])) if before and "retain" in before else (),
        findings=tuple(findings(basis)),
    )


def _values(numbers: Mapping[str, Estimate]) -> dict[str, float]:
    return {name: number.value for name, number in numbers.items()}


def _attack_numbers(runs: Sequence[AttackRun], level: float) -> dict[str, Estimate]:
    """Return the numbers of attacks on a model that the audited one is compared with; only AUCs have intervals."""
    numbers: dict[str, Estimate] = {}
    for run in runs:
        numbers |= {name: Estimate(value) for name, value in run.values().items()}
        numbers[run.auc_name] = auc_interval(run.contrast, level)
    return numbers


def _loss_aucs(runs: Sequence[AttackRun], judged: Sequence[str]) -> dict[str, Estimate]:
    """Return the loss attack's AUC against each judged set, with intervals that hold all at once."""
    at_once = 1 - (1 - LEVEL) / len(judged)
    loss = [run for run in runs if run.attack.name == LOSS_ATTACK and run.against in judged]
    return {run.against: auc_interval(run.contrast, at_once) for run in loss}


def _with_intervals(
    statistics: Mapping[str, Statistic],
    runs: Sequence[AttackRun],
    retrain_aucs: Mapping[str, Estimate],
    predictions: SplitPredictions,
    how: Resampling,
) -> tuple[dict[str, Estimate], dict[str, AttackResult]]:
    """Return every number by name, and the attacks' results, all from the same resamples."""
    sizes = {name: len(predictions[name]) for name in ("forget", *UNSEEN) if name in predictions}
    wanted = {name: replicates for name, s in statistics.items() if (replicates := s.replicates()) is not None}
    drawn = replicate(wanted | {f"attack {run.name}": run.replicates() for run in runs}, sizes, how)
    no_draws = np.empty((len(STATISTICS), 0))
    numbers = {name: s.number(name, drawn.get(name, no_draws)[0], how) for name, s in statistics.items()}
    results: dict[str, AttackResult] = {}
    for run in runs:
        draws = drawn.get(f"attack {run.name}", no_draws)
        results[run.name] = run.result(draws, retrain_aucs.get(run.name), how)
        numbers |= results[run.name].numbers()
    return numbers, results


def _descriptions(
    numbers: Mapping[str, Estimate],
    statistics: Mapping[str, Statistic],
    runs: Sequence[AttackRun],
    metrics: Sequence[Metric],
) -> dict[str, Metric]:
    """Return the records of numbers that METRICS does not have; a share without a unit is in percent."""
    records = {
        m.name: replace(m, unit=m.unit or "%") if isinstance(statistics.get(m.name), Share) else m for m in metrics
    }
    for run in runs:
        records |= attack_metrics(run.attack, run.against)
    return {name: records[name] for name in numbers if records[name] != METRICS.get(name)}
