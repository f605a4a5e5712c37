"""From distances to Retrain to verdicts: every number by its own limit, a gap by its worst part, and all of them by
whether the same test tells the model before unlearning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regun.auditing.attack_results import number_name
from regun.auditing.estimates import Metric
from regun.auditing.floor import CHANCE, NoiseFloor
from regun.auditing.influence import Influence
from regun.auditing.intervals import Number
from regun.auditing.metrics import differences
from regun.auditing.predictions import UNSEEN
from regun.auditing.verdict import Verdict

INFLUENCE = "influence"
"""The part of a verdict that looks record by record."""


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


@dataclass(frozen=True)
class Distances:
    """How far the audited model, and the one before unlearning where it is known, are from Retrain in every number."""

    ours: Mapping[str, float]
    before: Mapping[str, float]
    """Empty where it is not known."""
    metrics: Mapping[str, Metric]
    """Those that are no attack's; an attack's numbers are all about forgetting."""
    judged: Sequence[str]
    """The unseen sets that are judged."""
    influence: Influence | None = None

    @classmethod
    def of(
        cls,
        numbers: Mapping[str, Number],
        before: Mapping[str, Number],
        retrain: Mapping[str, float],
        metrics: Sequence[Metric],
        judged: Sequence[str],
        influence: Influence | None,
    ) -> Distances:
        ours, past = (
            differences({name: number.value for name, number in found.items()}, retrain, metrics)
            for found in (numbers, before)
        )
        return cls(ours, past, {metric.name: metric for metric in metrics}, judged, influence)

    def gaps(self, floor: NoiseFloor | None) -> dict[str, Gap]:
        """Every distance with its noise floor and verdict."""
        return {name: self._gap(name, floor) for name in self.ours}

    def _gap(self, name: str, floor: NoiseFloor | None) -> Gap:
        before = self.before.get(name)
        if floor is None or name not in floor.values:
            return Gap(self.ours[name], before=before)
        noise = floor.summary(name)
        metric = self.metrics.get(name)
        if metric is not None and metric.terms:
            verdict, worst = self._by_parts(metric, floor)
        else:
            verdict, worst = self._alone(name, noise.limit), None
        return Gap(self.ours[name], noise.mean, noise.largest, noise.limit, verdict, before, worst)

    def _alone(self, name: str, limit: float) -> Verdict:
        if self.ours[name] > limit:
            return "outside"
        return "inside" if self._is_utility(name) or self._was_beyond(name, limit) else "inconclusive"

    def _by_parts(self, gap: Metric, floor: NoiseFloor) -> tuple[Verdict, str]:
        """Outside where any part is: a mean of several hides one that leaks. Each is looked at with a chance of 5 %
        over the number of looks; the model before unlearning must be outside in a part that is about forgetting."""
        parts = [name for name in parts_of(gap, self.judged) if name in self.ours and name in floor.values]
        now, then = (self.influence.p(which) if self.influence else None for which in ("after", "before"))
        looks = len(parts) + (now is not None)
        limits = {name: floor.summary(name, looks).limit for name in parts}
        far = {name: _times(self.ours[name], limit) for name, limit in limits.items()}
        seen = any(self._was_beyond(name, limits[name]) for name in parts if not self._is_utility(name))
        if now is not None and then is not None:
            far[INFLUENCE] = _times(CHANCE / looks, now)
            seen = seen or then < CHANCE / looks
        worst = max(far, key=lambda name: far[name])
        return "outside" if far[worst] > 1 else "inside" if seen else "inconclusive", worst

    def _was_beyond(self, name: str, limit: float) -> bool:
        return self.before.get(name, 0.0) > limit

    def _is_utility(self, name: str) -> bool:
        metric = self.metrics.get(name)
        return metric is not None and metric.utility


def parts_of(gap: Metric, judged: Sequence[str]) -> tuple[str, ...]:
    """What the verdict on a gap looks at: its terms, with forget accuracy the divergence on forgotten examples too, and
    an attack against test examples against every other unseen set that is judged as well."""
    found = list(gap.terms)
    if "forget_acc" in gap.terms:
        found.append("forget_div")
    attacks = [term.removesuffix("_auc") for term in gap.terms if term.endswith("_auc")]
    found += [number_name(attack, "auc", name) for attack in attacks for name in judged if name != UNSEEN[0]]
    return tuple(dict.fromkeys(found))


def _times(value: float, limit: float) -> float:
    """How many times the limit; 0 of 0 is nothing."""
    return value / limit if limit > 0 else float("inf") if value > 0 else 0.0
