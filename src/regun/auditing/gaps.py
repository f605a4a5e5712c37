"""From distances to Retrain to verdicts: each number by its own limit, a gap by its worst part.

No verdict is `inside` unless the same test flags the model before unlearning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regun.auditing.attack_results import number_name
from regun.auditing.estimates import Metric
from regun.auditing.floor import NoiseFloor
from regun.auditing.influence import Influence
from regun.auditing.predictions import UNSEEN
from regun.auditing.verdict import ERROR_RATE, Verdict

INFLUENCE = "influence"
"""The part of a verdict that compares record by record."""


@dataclass(frozen=True)
class Gap:
    """The distance of one number to Retrain's, next to how far retrained models are from each other.

    `before` is that of the model before unlearning. `worst` names the part of a gap that is farthest off, measured by
    its own limit.
    """

    value: float
    floor_mean: float | None = None
    floor_largest: float | None = None
    floor_limit: float | None = None
    verdict: Verdict | None = None
    before: float | None = None
    worst: str | None = None


def judge_gaps(
    ours: Mapping[str, float],
    before: Mapping[str, float],
    floor: NoiseFloor | None,
    metrics: Mapping[str, Metric],
    judged: Sequence[str] = (),
    influence: Influence | None = None,
) -> dict[str, Gap]:
    """Return every distance to Retrain with its noise floor and verdict.

    `ours` and `before` are the distances of the audited model and of the one before unlearning (empty if unknown).
    `metrics` are those that are no attack's; `judged` are the unseen sets that count.
    """
    gaps: dict[str, Gap] = {}
    for name, value in ours.items():
        if floor is None or name not in floor.values:
            gaps[name] = Gap(value, before=before.get(name))
            continue
        noise, metric, worst = floor.summary(name), metrics.get(name), None
        if metric is not None and metric.terms:
            verdict, worst = _by_parts(metric, ours, before, floor, metrics, judged, influence)
        else:
            powerful = _is_utility(name, metrics) or before.get(name, 0.0) > noise.limit
            verdict = _verdict(value > noise.limit, powerful)
        gaps[name] = Gap(value, noise.mean, noise.largest, noise.limit, verdict, before.get(name), worst)
    return gaps


def _by_parts(
    gap: Metric,
    ours: Mapping[str, float],
    before: Mapping[str, float],
    floor: NoiseFloor,
    metrics: Mapping[str, Metric],
    judged: Sequence[str],
    influence: Influence | None,
) -> tuple[Verdict, str]:
    """Return the verdict on a gap and its worst part. Any part outside puts the gap outside: a mean would hide it.

    Each part has an error rate of 5 % over the number of parts. There is power if the model before unlearning is
    outside in a part that is about forgetting.
    """
    parts = [name for name in parts_of(gap, judged) if name in ours and name in floor.values]
    now, then = (influence.p(which) if influence else None for which in ("after", "before"))
    comparisons = len(parts) + (now is not None)
    limits = {name: floor.summary(name, comparisons).limit for name in parts}
    far = {name: _times(ours[name], limit) for name, limit in limits.items()}
    powerful = any(before.get(name, 0.0) > limits[name] for name in parts if not _is_utility(name, metrics))
    if now is not None and then is not None:
        far[INFLUENCE] = _times(ERROR_RATE / comparisons, now)
        powerful = powerful or then < ERROR_RATE / comparisons
    worst = max(far, key=lambda name: far[name])
    return _verdict(far[worst] > 1, powerful), worst


def parts_of(gap: Metric, judged: Sequence[str]) -> tuple[str, ...]:
    """Return the numbers that decide the verdict on a gap.

    These are its terms; with forget accuracy, the divergence on forgotten examples too; and with an attack against test
    examples, the same attack against every other unseen set that is judged.
    """
    parts = list(gap.terms)
    if "forget_acc" in gap.terms:
        parts.append("forget_div")
    attacks = [term.removesuffix("_auc") for term in gap.terms if term.endswith("_auc")]
    parts += [number_name(attack, "auc", name) for attack in attacks for name in judged if name != UNSEEN[0]]
    return tuple(dict.fromkeys(parts))


def _verdict(outside: bool, powerful: bool) -> Verdict:
    return "failed" if outside else "passed" if powerful else "inconclusive"


def _is_utility(name: str, metrics: Mapping[str, Metric]) -> bool:
    """Return True for numbers about retained and unseen examples: no evidence of forgetting, so they need no power."""
    return name in metrics and metrics[name].utility


def _times(value: float, limit: float) -> float:
    """Return how many times the limit; 0 of 0 is nothing."""
    return value / limit if limit > 0 else float("inf") if value > 0 else 0.0
