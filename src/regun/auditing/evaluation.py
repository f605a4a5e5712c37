"""The evaluation of one model: every number with its interval, gaps to Retrain next to the noise floor, and claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from regun.auditing.checks import (
    aligned,
    check_distinct,
    check_never_trained_on,
    check_splits,
    choose,
    judged_sets,
)
from regun.auditing.claims import AuditBasis, Finding, claims, findings
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
        """The numbers without their intervals."""
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
    """What a number is called, its unit, what it means and which value is good; of the user's own, as evaluations know.

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
    trained_on: Sequence[Iterable[int] | None] = (),
    rmia_a: float | None = None,
) -> Evaluation:
    """Return every number that the predictions allow, with intervals, gaps and verdicts.

    `predictions` maps split names (forget, one of test / heldout / val, and what else there is of retain, test, heldout,
    val) to the audited model's `Predictions`; `retrain` and each of `references` hold the same splits. `before` is the
    model before unlearning: without it the power of the tests is unknown. `out_models` are further models that saw
    neither forgotten nor unseen examples, such as short trainings; they serve where no retrained ones do. `unseen` are
    the sets that are judged (default: all there are; leave out one that the method trained towards).

    `attacks` are those to run (default: all that can), `metrics` are further numbers; both by name, as
    `file.py:function` or as functions. `trained_on` may give, for each reference, the ids it trained on. `bootstrap`
    resamples make the intervals; 0: none.
    """
    how = Resampling(bootstrap, seed, level)
    check_splits(predictions)
    truth = aligned(predictions, retrain, "Retrain") if retrain is not None else None
    others = [aligned(predictions, reference, f"reference {k}") for k, reference in enumerate(references)]
    past = aligned(predictions, before, "the model before unlearning") if before is not None else None
    check_distinct([("the audited model", predictions)] + ([("Retrain", truth)] if truth is not None else []), others)
    judged = judged_sets(predictions, unseen)
    check_never_trained_on(predictions["forget"].indices, trained_on, len(references))
    chosen, measures = choose(attacks, metrics, len(references), "val" in predictions)
    a = offline_a(references) if rmia_a is None else rmia_a

    runs = run_attacks(chosen, predictions, others, a, seed)
    theirs = _summarized(run_attacks(chosen, truth, others, a, seed), level) if truth is not None else {}
    retrain_aucs = {run.name: theirs[run.auc_name] for run in runs if theirs}
    statistics = measured(measures, predictions, truth)
    sizes = {name: len(predictions[name]) for name in ("forget", *UNSEEN) if name in predictions}
    numbers, results = _with_intervals(statistics, runs, retrain_aucs, sizes, how)
    numbers_before: dict[str, Estimate] = {}
    if past is not None:
        plain, no_draws = replace(how, resamples=0), np.empty(0)
        numbers_before = {
            name: statistic.number(name, no_draws, plain) for name, statistic in measured(measures, past, truth).items()
        }
        numbers_before |= _summarized(run_attacks(chosen, past, others, a, seed), level)
    retrained = own_values(measures, truth) if truth is not None else {}
    retrained |= {name: number.value for name, number in theirs.items()}

    never = [model for model in (truth, *others) if model is not None] or out_models
    left = influence(predictions, past, never, unseen=judged, seed=seed) if past is not None and never else None
    if floor is True and truth is not None and len(references) >= 2:
        floor = floor_of([truth, *others], chosen, measures, seed)
    noise = floor if isinstance(floor, NoiseFloor) else None
    gaps: dict[str, Gap] = {}
    if truth is not None:
        ours, then = (
            differences({name: number.value for name, number in known.items()}, retrained, measures)
            for known in (numbers, numbers_before)
        )
        gaps = judge_gaps(ours, then, noise, {metric.name: metric for metric in measures}, judged, left)
    numbers |= {m.name: Estimate(gaps[m.name].value) for m in measures if m.terms and m.name in gaps}
    numbers |= {"influence_left": left.share} if left is not None and left.known else {}
    at_once = 1 - (1 - LEVEL) / len(judged)
    loss = [run for run in runs if run.attack.name == LOSS_ATTACK and run.against in judged]
    basis = AuditBasis(
        splits=tuple(predictions),
        judged=judged,
        retrain=truth is not None,
        references=len(references),
        floor=noise is not None,
        numbers=numbers,
        before=numbers_before,
        influence=left,
        loss_aucs={run.against: auc_interval(run.contrast, at_once) for run in loss},
    )
    return Evaluation(
        numbers=numbers,
        attacks=results,
        retrain=retrained,
        gaps=gaps,
        flags=tuple(_flag(one, retrain_aucs.get(name)) for name, one in results.items() if one.over_forgetting),
        claims=tuple(claims(basis)),
        settings={"bootstrap": bootstrap, "seed": seed, "level": level, "references": len(references), "rmia_a": a},
        metrics=_described(numbers, statistics, runs, measures),
        before=numbers_before,
        influence=left,
        exposed=tuple(exposed_list(predictions, past, against=judged[0])) if past and "retain" in predictions else (),
        findings=tuple(findings(basis)),
    )


def _summarized(runs: Sequence[AttackRun], level: float) -> dict[str, Estimate]:
    """Return the numbers of attacks on a model that the audited one is compared with; only AUCs have intervals."""
    numbers: dict[str, Estimate] = {}
    for run in runs:
        numbers |= {name: Estimate(value) for name, value in run.values().items()}
        numbers[run.auc_name] = auc_interval(run.contrast, level)
    return numbers


def _with_intervals(
    statistics: Mapping[str, Statistic],
    runs: Sequence[AttackRun],
    retrain_aucs: Mapping[str, Estimate],
    sizes: Mapping[str, int],
    how: Resampling,
) -> tuple[dict[str, Estimate], dict[str, AttackResult]]:
    """Return every number by name, and the attacks' results, all from the same resamples."""
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


def _described(
    numbers: Mapping[str, Estimate],
    statistics: Mapping[str, Statistic],
    runs: Sequence[AttackRun],
    metrics: Sequence[Metric],
) -> dict[str, Metric]:
    """The records of numbers that METRICS does not have; a share without a unit is in percent."""
    known = {
        m.name: replace(m, unit=m.unit or "%") if isinstance(statistics.get(m.name), Share) else m for m in metrics
    }
    for run in runs:
        known |= attack_metrics(run.attack, run.against)
    return {name: known[name] for name in numbers if known[name] != METRICS.get(name)}


def _flag(result: AttackResult, retrain: Estimate | None) -> str:
    limit = (
        "50" if retrain is None or retrain.low is None else f"Retrain's {retrain.value:.1f} (from {retrain.low:.1f})"
    )
    return (
        f"over-forgetting: {result.attack} against {result.against} has an AUC of {result.auc.value:.1f} "
        f"(up to {result.auc.high:.1f}), below {limit}; examples that look too little like members are exposed as well."
    )
