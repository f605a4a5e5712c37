"""The noise floor: how far one retrained model is from another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from scipy.special import ndtri, stdtrit

from regun.auditing.attack_results import LOSS_ATTACK, offline_a, run_attacks
from regun.auditing.attacks import Attack, Scorer
from regun.auditing.checks import aligned, check_distinct, check_splits, choose
from regun.auditing.estimates import Fixed, Measure, Metric, Ranked, Statistic
from regun.auditing.metrics import BUILT_IN, differences, measured, spread
from regun.auditing.predictions import SplitPredictions
from regun.auditing.verdict import ERROR_RATE
from regun.errors import AuditError


@dataclass(frozen=True)
class FloorSummary:
    """Mean and largest difference between two retrained models, and the limit that a further one would keep to."""

    mean: float
    largest: float
    limit: float


@dataclass(frozen=True)
class NoiseFloor:
    """Differences between pairs of `models` retrained models, by metric; one value for each unordered pair.

    `examples` is how far apart a pair is by the choice of examples alone, as a deviation, where that is known: of many
    examples it is known far better than what few models say of themselves.
    """

    models: int
    values: Mapping[str, tuple[float, ...]]
    examples: Mapping[str, float] = field(default_factory=dict[str, float])

    def summary(self, name: str, comparisons: float = 1) -> FloorSummary:
        """Return mean, largest, and the limit that a retrained model keeps to in 95 % of cases.

        At error rate 5 % / comparisons, t and z the quantiles of Student's distribution (models - 1 degrees
        of freedom) and of the normal, v the mean square of the pairs and e what examples alone make of them,

            limit^2 = z^2 e^2 + t^2 max(0, v - e^2)

        and, where e is not known, a Student prediction limit for one more pair, mean + t sd sqrt(1 + 1 / models); the
        pairs share models, hence the degrees of freedom of models. No limit is below the largest.
        """
        if name not in self.values:
            raise AuditError(f"the noise floor has no {name!r}; it has {', '.join(sorted(self.values))}.")
        pairs, tail = self.values[name], ERROR_RATE / comparisons / 2
        mean, deviation = spread(pairs)
        student = float(stdtrit(self.models - 1, 1 - tail))
        by_examples = self.examples.get(name)
        if by_examples is None:
            limit = mean + student * (deviation or 0.0) * math.sqrt(1 + 1 / self.models)
        else:
            square = math.fsum(v * v for v in pairs) / len(pairs)
            shifts = max(0.0, square - by_examples**2)
            limit = math.hypot(float(ndtri(1 - tail)) * by_examples, student * math.sqrt(shifts))
        return FloorSummary(mean, max(pairs), max(*pairs, limit))

    def to_json(self) -> dict[str, Any]:
        values = {name: list(pairs) for name, pairs in self.values.items()}
        return {"models": self.models, "values": values, "examples": dict(self.examples)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> NoiseFloor:
        values = {name: tuple(pairs) for name, pairs in value["values"].items()}
        return cls(int(value["models"]), values, dict(value["examples"]))


def noise_floor(
    retrain: SplitPredictions,
    references: Sequence[SplitPredictions],
    *,
    attacks: Sequence[str | Attack | Scorer] | None = None,
    metrics: Sequence[str | Metric | Measure] = (),
    seed: int = 0,
) -> NoiseFloor:
    """Return how far retrained models are from each other in every number: made once, used for every audited model."""
    check_splits(retrain)
    aligned_references = [aligned(retrain, reference, f"reference {k}") for k, reference in enumerate(references)]
    check_distinct({"Retrain": retrain}, aligned_references)
    chosen, measures = choose(attacks, metrics, len(aligned_references), "val" in retrain)
    return floor_of([retrain, *aligned_references], chosen, measures, seed)


def floor_of(
    models: Sequence[SplitPredictions], attacks: Sequence[Attack], metrics: Sequence[Metric], seed: int
) -> NoiseFloor:
    """Return the differences of every pair of Retrain and the references, which are retrained models too.

    A pair is compared as in an audit: one is the unlearned model, the other the truth. Only the remaining models are
    references, so that neither is part of its own denominator. The roles make no difference to the built-in numbers;
    for a user's metric they may, and either order is one more draw of the same kind.
    """
    if len(models) < 3:
        raise AuditError(
            f"a noise floor needs Retrain and at least 2 references, got {len(models) - 1}; "
            "train more models without the forget set, with other seeds."
        )
    free = [attack for attack in attacks if not attack.uses_references]
    bound = [a for a in attacks if a.uses_references and a.references <= len(models) - 2]
    single = [metric for metric in metrics if not metric.distance]
    paired = [metric for metric in metrics if metric.distance or metric is not BUILT_IN.get(metric.name)]
    alone = [_attacked(free, model, (), 1.0, seed) | measured(single, model, model) for model in models]
    values: dict[str, list[float]] = {}
    noises: dict[str, list[float]] = {}
    for i, j in combinations(range(len(models)), 2):
        rest = [model for k, model in enumerate(models) if k not in (i, j)]
        a = offline_a(rest)
        left, right = (alone[k] | _attacked(bound, models[k], rest, a, seed) for k in (i, j))
        left |= measured(paired, models[i], models[j])
        ours, theirs = ({name: one.value for name, one in side.items()} for side in (left, right))
        for name, value in differences(ours, theirs, metrics).items():
            values.setdefault(name, []).append(value)
        for name, one in left.items():
            noise = one.noise(right[name]) if name in right else None
            if noise is not None:
                noises.setdefault(name, []).append(noise)
    examples = {name: math.sqrt(math.fsum(v * v for v in each) / len(each)) for name, each in noises.items()}
    return NoiseFloor(len(models), {name: tuple(pairs) for name, pairs in values.items()}, examples)


def _attacked(
    attacks: Sequence[Attack], target: SplitPredictions, references: Sequence[SplitPredictions], a: float, seed: int
) -> dict[str, Statistic]:
    """Return every statistic of every attack on the target, by name; AUCs that verdicts rest on with their ranks."""
    statistics: dict[str, Statistic] = {}
    for run in run_attacks(attacks, target, references, a, seed):
        values = run.values()
        statistics |= {name: Fixed(value) for name, value in values.items()}
        if run.attack.uses_references or run.attack.name == LOSS_ATTACK:
            statistics[run.auc_name] = Ranked(*run.contrast.scores(), computed=values[run.auc_name])
    return statistics
