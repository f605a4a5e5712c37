"""The evaluation of one model: every number with its interval, gaps to Retrain next to the noise floor, and claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from regun.auditing.attack_results import (
    GROUP,
    STATISTICS,
    AttackResult,
    AttackRun,
    attack_metrics,
    attack_result,
    number_name,
    offline_a,
)
from regun.auditing.attacks import ATTACKS, Attack, Scorer
from regun.auditing.checks import check_never_trained_on, choose, judged_sets
from regun.auditing.claims import Basis, claims, findings
from regun.auditing.estimates import Estimate, Measure, Metric, Share
from regun.auditing.floor import NoiseFloor, floor_of
from regun.auditing.gaps import Distances, Gap
from regun.auditing.influence import Influence
from regun.auditing.intervals import LEVEL, Number, Resampling, auc_interval, replicate
from regun.auditing.metrics import BUILT_IN, measured, own_values
from regun.auditing.models import AuditModels
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
    """What an audit found; all numbers by name (see `describe`), in percent unless its unit says otherwise."""

    numbers: Mapping[str, Number]
    attacks: Mapping[str, AttackResult]
    retrain: Mapping[str, float]
    gaps: Mapping[str, Gap]
    flags: tuple[str, ...]
    claims: tuple[str, ...]
    """What the audit can and cannot say, whatever it found."""
    settings: Mapping[str, Any]
    metrics: Mapping[str, Metric] = field(default_factory=dict[str, Metric])
    """What people are told about the numbers that are not in METRICS: those of the user's attacks and metrics."""
    before: Mapping[str, Number] = field(default_factory=dict[str, Number])
    """The numbers of the model before unlearning, where it is known."""
    influence: Influence | None = None
    """What is left of the forgotten records' influence, where models that never saw them are known too."""
    exposed: tuple[Exposed, ...] = ()
    """The retained examples that unlearning exposed most."""
    findings: tuple[str, ...] = ()
    """What was found, in sentences: influence left, what the loss attack sees and could have seen, harm to others."""

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
            "attacks": {name: found.to_json() for name, found in self.attacks.items()},
            "retrain": dict(self.retrain),
            "gaps": {name: asdict(value) for name, value in self.gaps.items()},
            "flags": list(self.flags),
            "claims": list(self.claims),
            "settings": dict(self.settings),
            "metrics": {name: metric.to_json() for name, metric in self.metrics.items()},
            "before": {name: number.to_json() for name, number in self.before.items()},
            "influence": self.influence.to_json() if self.influence else None,
            "exposed": [asdict(one) for one in self.exposed],
            "findings": list(self.findings),
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
            metrics={name: Metric(**parts) for name, parts in value["metrics"].items()},
            before={name: Number(*parts) for name, parts in value["before"].items()},
            influence=Influence.from_json(value["influence"]) if value["influence"] else None,
            exposed=tuple(Exposed(**one) for one in value["exposed"]),
            findings=tuple(value["findings"]),
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
    signals: SplitPredictions,
    retrain: SplitPredictions | None = None,
    references: Sequence[SplitPredictions] = (),
    *,
    before: SplitPredictions | None = None,
    outs: Sequence[SplitPredictions] = (),
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
    """Every number an audit can give from what the models said.

    `signals` maps split names (forget, one of test / heldout / val, and what else there is of retain, test, heldout,
    val) to the audited model's `Signals`; `retrain` and each of `references` hold the same splits. `before` is the
    model before unlearning: without it nobody knows what the tests could have seen. `outs` are further models that saw
    neither forgotten nor unseen examples, such as short trainings; they serve where no retrained ones do. `unseen` are
    the sets that are judged (default: all there are; leave out one that the method trained towards).

    `attacks` are those to run (default: all that can), `metrics` are further numbers; both by name, as
    `file.py:function` or as functions. `trained_on` may give, for each reference, the ids it trained on. `bootstrap`
    resamples make the intervals; 0: none.
    """
    how = Resampling(bootstrap, seed, level)
    parties = AuditModels.of(signals, retrain, references, before)
    judged = judged_sets(signals, unseen)
    check_never_trained_on(signals["forget"].indices, trained_on, len(references))
    chosen, measures = choose(attacks, metrics, len(references), "val" in signals)
    a = offline_a(references) if rmia_a is None else rmia_a
    ours = parties.attacked(parties.target, chosen, a, seed)
    theirs, past = (_summarised(parties.attacked(who, chosen, a, seed), level) for who in (parties.truth, parties.past))
    bars = {run.name: theirs[number_name(run.attack.name, "auc", run.against)] for run in ours if theirs}
    found = measured(measures, signals, retrain)
    numbers, results = _with_intervals(found, ours, bars, parties.target.sizes(), how)
    knew = _before(parties, past, measures, how)
    left = parties.influence([*parties.never, *([] if parties.never else outs)], judged, seed)
    retrained = own_values(measures, retrain) if retrain is not None else {}
    retrained |= {name: number.value for name, number in theirs.items()}
    if floor is True and parties.truth is not None and len(references) >= 2:
        floor = floor_of([parties.truth, *parties.others], chosen, measures, seed)
    noise = floor if isinstance(floor, NoiseFloor) else None
    gaps = Distances.of(numbers, knew, retrained, measures, judged, left).gaps(noise) if retrain is not None else {}
    numbers |= {m.name: Number(gaps[m.name].value) for m in measures if m.terms and m.name in gaps}
    numbers |= {"influence_left": left.share} if left is not None and left.known else {}
    basis = Basis(
        splits=tuple(signals),
        judged=judged,
        retrain=retrain is not None,
        references=len(references),
        floor=noise is not None,
        numbers=numbers,
        before=knew,
        influence=left,
        group=_group(ours, judged),
    )
    return Evaluation(
        numbers=numbers,
        attacks=results,
        retrain=retrained,
        gaps=gaps,
        flags=tuple(_flag(result, bars.get(name)) for name, result in results.items() if result.over_forgetting),
        claims=claims(basis),
        settings={"bootstrap": bootstrap, "seed": seed, "level": level, "references": len(references), "rmia_a": a},
        metrics=_described(numbers, found, ours, measures),
        before=knew,
        influence=left,
        exposed=tuple(exposed_list(signals, before, against=judged[0])) if before and "retain" in signals else (),
        findings=findings(basis),
    )


def _group(runs: Sequence[AttackRun], judged: Sequence[str]) -> dict[str, Number]:
    """The AUC of the loss attack against each judged set, with intervals that hold all at once in 95 % of cases."""
    level = 1 - (1 - LEVEL) / len(judged)
    loss = [run for run in runs if run.attack.name == GROUP and run.against in judged]
    return {run.against: auc_interval(run.contrast, level) for run in loss}


def _before(
    parties: AuditModels, attacked: Mapping[str, Number], metrics: Sequence[Metric], how: Resampling
) -> dict[str, Number]:
    """The numbers of the model before unlearning, with the intervals that need no resamples."""
    if parties.past is None:
        return {}
    plain, nothing = replace(how, resamples=0), np.empty(0)
    found = measured(metrics, parties.past.splits, parties.truth.splits if parties.truth else None)
    numbers = {name: estimate.number(name, nothing, plain) for name, estimate in found.items()}
    return numbers | dict(attacked)


def _summarised(runs: Sequence[AttackRun], level: float) -> dict[str, Number]:
    """The numbers of attacks on a model that the audited one is compared with; their scores need not be kept."""
    numbers: dict[str, Number] = {}
    for run in runs:
        numbers |= {name: Number(value) for name, value in run.values().items()}
        numbers[number_name(run.attack.name, "auc", run.against)] = auc_interval(run.contrast, level)
    return numbers


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


def _flag(found: AttackResult, retrain: Number | None) -> str:
    limit = (
        "50" if retrain is None or retrain.low is None else f"Retrain's {retrain.value:.1f} (from {retrain.low:.1f})"
    )
    return (
        f"over-forgetting: {found.attack} against {found.against} has an AUC of {found.auc.value:.1f} "
        f"(up to {found.auc.high:.1f}), below {limit}; examples that look too little like members give themselves away."
    )
