"""The evaluation of one model: every number with its interval, gaps to Retrain next to the noise floor, one verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from regun.auditing.attack_results import (
    METRICS,
    STATISTICS,
    AttackResult,
    AttackRun,
    attack_metrics,
    offline_a,
    run_attacks,
)
from regun.auditing.attacks import Attack, Scorer
from regun.auditing.checks import align_models, check_splits, choose, judged_sets
from regun.auditing.estimates import Measure, Metric, Share, Statistic
from regun.auditing.floor import NoiseFloor, floor_of
from regun.auditing.floor_verdict import judge_by_floor
from regun.auditing.gaps import MAIN_GAPS, Gap, judge_gaps
from regun.auditing.influence import Influence, influence
from regun.auditing.intervals import LEVEL, Estimate, Resampling, auc_interval, replicate
from regun.auditing.judge import judge_by_influence, judge_by_loss
from regun.auditing.limits import limits, warnings
from regun.auditing.metrics import differences, measured, own_values
from regun.auditing.predictions import UNSEEN, SplitPredictions
from regun.auditing.risk import Exposed, exposed_list
from regun.auditing.text import report_html, report_text, summary
from regun.auditing.verdict import Judgement, Verdict


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The results of an audit; all numbers by name (see `describe`), in percent unless their unit says otherwise.

    `print(evaluation)` shows the main numbers, the verdict with its reason, and what limits it.
    """

    numbers: Mapping[str, Estimate]
    attacks: Mapping[str, AttackResult]
    retrain: Mapping[str, float]
    gaps: Mapping[str, Gap]
    settings: Mapping[str, Any]
    judgement: Judgement | None = None
    """The verdict, its reason in plain words, and the tests behind it."""
    warnings: tuple[str, ...] = ()
    """What looks wrong: in the inputs, weak forgetting, over-forgetting, exposed examples, lost accuracy."""
    limits: tuple[str, ...] = ()
    """What the audit cannot show, with what that would take."""
    metrics: Mapping[str, Metric] = field(default_factory=dict[str, Metric])
    """Descriptions of the numbers that are not in METRICS: those of the user's attacks and metrics."""
    before: Mapping[str, Estimate] = field(default_factory=dict[str, Estimate])
    """The numbers of the model before unlearning, where it is known."""
    influence: Influence | None = None
    """What is left of the forgotten records' influence, where models that never saw them are known too."""
    exposed: tuple[Exposed, ...] = ()
    """The retained examples that unlearning exposed most."""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of the audit: passed, inconclusive or failed."""
        return self.judgement.verdict if self.judgement else None

    @property
    def worst(self) -> str | None:
        """The test that decides the verdict: a number's name, or `influence`."""
        return self.judgement.worst if self.judgement else None

    def values(self) -> dict[str, float]:
        """Return the numbers without their intervals."""
        return {name: number.value for name, number in self.numbers.items()}

    @property
    def summary(self) -> str:
        """The reason of the verdict, and the accuracy on unseen examples, in plain words."""
        return summary(self)

    def __repr__(self) -> str:
        return f"Evaluation(verdict={self.verdict!r}, {len(self.numbers)} numbers; print it for the report)"

    def __str__(self) -> str:
        return report_text(self)

    def _repr_html_(self) -> str:
        return report_html(self)

    def to_json(self) -> dict[str, Any]:
        return {
            "numbers": {name: number.to_json() for name, number in self.numbers.items()},
            "attacks": {name: result.to_json() for name, result in self.attacks.items()},
            "retrain": dict(self.retrain),
            "gaps": {name: asdict(value) for name, value in self.gaps.items()},
            "settings": dict(self.settings),
            "judgement": self.judgement.to_json() if self.judgement else None,
            "warnings": list(self.warnings),
            "limits": list(self.limits),
            "metrics": {name: metric.to_json() for name, metric in self.metrics.items()},
            "before": {name: number.to_json() for name, number in self.before.items()},
            "influence": self.influence.to_json() if self.influence else None,
            "exposed": [asdict(one) for one in self.exposed],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Evaluation:
        return cls(
            numbers={name: Estimate(*parts) for name, parts in value["numbers"].items()},
            attacks={name: AttackResult.from_json(parts) for name, parts in value["attacks"].items()},
            retrain=dict(value["retrain"]),
            gaps={name: Gap(**parts) for name, parts in value["gaps"].items()},
            settings=dict(value["settings"]),
            judgement=Judgement.from_json(value["judgement"]) if value["judgement"] else None,
            warnings=tuple(value["warnings"]),
            limits=tuple(value["limits"]),
            metrics={name: Metric(**parts) for name, parts in value["metrics"].items()},
            before={name: Estimate(*parts) for name, parts in value["before"].items()},
            influence=Influence.from_json(value["influence"]) if value["influence"] else None,
            exposed=tuple(Exposed(**one) for one in value["exposed"]),
        )


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
    check_splits(predictions)
    judged = judged_sets(predictions, unseen)
    a = offline_a(references) if rmia_a is None else rmia_a  # also from splits that the audited model lacks
    retrain, before, references = align_models(predictions, retrain, before, references)
    chosen, measures = choose(attacks, metrics, len(references), "val" in predictions)
    runs, runs_before, runs_retrain = (
        run_attacks(chosen, model, references, a, seed) if model is not None else []
        for model in (predictions, before, retrain)
    )
    options = {"bootstrap": bootstrap, "seed": seed, "level": level}
    how, statistics = Resampling(bootstrap, seed, level), measured(measures, predictions, retrain)
    retrain_attacks = _attack_numbers(runs_retrain, level)
    retrain_aucs = {run.name: retrain_attacks[run.auc_name] for run in runs_retrain}
    numbers, results = _with_intervals(statistics, runs, retrain_aucs, predictions, how)
    evaluation = Evaluation(
        numbers=numbers,
        attacks=results,
        retrain=(own_values(measures, retrain) if retrain else {}) | _values(retrain_attacks),
        gaps={},
        settings={**options, "references": len(references), "rmia_a": a, "unseen": list(judged)},
        metrics=_descriptions(statistics, runs, measures),
        before=_closed_forms(measures, before, retrain, how) | _attack_numbers(runs_before, level) if before else {},
        exposed=tuple(exposed_list(predictions, before, against=judged[0])) if before and "retain" in before else (),
    )
    never_saw = [model for model in (retrain, *references) if model is not None] or out_models
    left = influence(predictions, before, never_saw, unseen=judged, seed=seed) if before and never_saw else None
    if floor is True and retrain is not None and len(references) >= 2:
        floor = floor_of([retrain, *references], chosen, measures, seed)
    noise = floor if isinstance(floor, NoiseFloor) and retrain is not None else None
    return _judge(replace(evaluation, influence=left), (predictions, before, retrain), retrain_aucs, measures, noise)


def _judge(
    evaluation: Evaluation,
    models: tuple[SplitPredictions, SplitPredictions | None, SplitPredictions | None],
    retrain_aucs: Mapping[str, Estimate],
    metrics: Sequence[Metric],
    floor: NoiseFloor | None,
) -> Evaluation:
    """Return the evaluation with gaps to Retrain, the verdict, warnings and limits.

    `models` are the audited one, the one before unlearning and Retrain.
    """
    left, judged, records = evaluation.influence, evaluation.settings["unseen"], {m.name: m for m in metrics}
    values = evaluation.values(), _values(evaluation.before), evaluation.retrain
    ours, past = (differences(each, values[2], metrics) if models[2] else {} for each in values[:2])
    gaps = judge_gaps(ours, past, floor, records, judged, left)
    numbers = {
        **evaluation.numbers,
        **{m.name: Estimate(gaps[m.name].value) for m in metrics if m.terms and m.name in gaps},
    }
    numbers |= {"influence_left": left.share} if left is not None and left.measurable else {}
    described = {name: record for name, record in evaluation.metrics.items() if name in numbers}
    if floor is not None and any(gaps[name].verdict for name in MAIN_GAPS if name in gaps):
        every = {**METRICS, **records, **described}
        judgement = judge_by_floor(floor, (ours, past), values, every, judged, left)
    else:
        judgement = judge_by_influence(left) if left is not None else judge_by_loss(*models, judged)
    evaluation = replace(evaluation, numbers=numbers, gaps=gaps, metrics=described, judgement=judgement)
    evaluation = replace(evaluation, warnings=tuple(warnings(evaluation, retrain_aucs)))
    return replace(evaluation, limits=tuple(limits(evaluation)))


def _values(numbers: Mapping[str, Estimate]) -> dict[str, float]:
    return {name: number.value for name, number in numbers.items()}


def _closed_forms(
    metrics: Sequence[Metric], model: SplitPredictions, retrain: SplitPredictions | None, how: Resampling
) -> dict[str, Estimate]:
    """Return the numbers of a model that the audited one is compared with, with intervals that need no resamples."""
    plain, no_draws = replace(how, resamples=0), np.empty(0)
    return {name: one.number(name, no_draws, plain) for name, one in measured(metrics, model, retrain).items()}


def _attack_numbers(runs: Sequence[AttackRun], level: float) -> dict[str, Estimate]:
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
    predictions: SplitPredictions,
    how: Resampling,
) -> tuple[dict[str, Estimate], dict[str, AttackResult]]:
    """Return every number by name, and the attacks' results, all from the same resamples."""
    sizes = {name: len(predictions[name]) for name in ("forget", *UNSEEN) if name in predictions}
    resampled = {name: replicates for name, s in statistics.items() if (replicates := s.replicates()) is not None}
    drawn = replicate(resampled | {f"attack {run.name}": run.replicates() for run in runs}, sizes, how)
    no_draws = np.empty((len(STATISTICS), 0))
    numbers = {name: s.number(name, drawn.get(name, no_draws)[0], how) for name, s in statistics.items()}
    results: dict[str, AttackResult] = {}
    for run in runs:
        draws = drawn.get(f"attack {run.name}", no_draws)
        results[run.name] = run.result(draws, retrain_aucs.get(run.name), how)
        numbers |= results[run.name].numbers()
    return numbers, results


def _descriptions(
    statistics: Mapping[str, Statistic], runs: Sequence[AttackRun], metrics: Sequence[Metric]
) -> dict[str, Metric]:
    """Return the records of numbers that METRICS does not have; a share without a unit is in percent."""
    records = {
        m.name: replace(m, unit=m.unit or "%") if isinstance(statistics.get(m.name), Share) else m for m in metrics
    }
    for run in runs:
        records |= attack_metrics(run.attack, run.against)
    return {name: record for name, record in records.items() if record != METRICS.get(name)}
