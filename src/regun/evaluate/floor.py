"""The noise floor: how far one retrained model is from another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from scipy.special import stdtrit

from regun.errors import AuditError
from regun.evaluate.checks import aligned, check_distinct, check_splits, choose_attacks
from regun.evaluate.leakage import Pool, offline_a, trials
from regun.evaluate.membership import Attack, Scorer
from regun.evaluate.metrics import spread
from regun.evaluate.plain import differences, divergence_numbers, own_numbers
from regun.evaluate.signals import Signals

Verdict = Literal["indistinguishable", "borderline", "distinguishable"]


@dataclass(frozen=True)
class FloorSummary:
    """Mean and largest difference between two retrained models, and the limit that a further one would keep to."""

    mean: float
    largest: float
    limit: float

    def verdict(self, gap: float) -> Verdict:
        """Inside the largest difference seen, between it and the limit, or beyond both."""
        if gap <= self.largest:
            return "indistinguishable"
        return "borderline" if gap <= self.limit else "distinguishable"


@dataclass(frozen=True)
class NoiseFloor:
    """Differences between pairs of `models` retrained models, by metric; one value for each unordered pair."""

    models: int
    values: Mapping[str, tuple[float, ...]]

    def summary(self, name: str) -> FloorSummary:
        """limit = mean + t_{models-1, 0.975} * sd * sqrt(1 + 1/models) over the pairs, and never below the largest.

        A Student prediction limit for one more pair; the pairs share models, hence the degrees of freedom of models.
        """
        if name not in self.values:
            raise AuditError(f"the noise floor has no {name!r}; it has {', '.join(sorted(self.values))}.")
        pairs, largest = self.values[name], max(self.values[name])
        mean, deviation = spread(pairs)
        reach = float(stdtrit(self.models - 1, 0.975)) * (deviation or 0.0) * math.sqrt(1 + 1 / self.models)
        return FloorSummary(mean, largest, max(largest, mean + reach))

    def to_json(self) -> dict[str, Any]:
        return {"models": self.models, "values": {name: list(pairs) for name, pairs in self.values.items()}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> NoiseFloor:
        return cls(int(value["models"]), {name: tuple(pairs) for name, pairs in value["values"].items()})


def noise_floor(
    retrain: Mapping[str, Signals],
    references: Sequence[Mapping[str, Signals]],
    *,
    attacks: Sequence[str | Attack | Scorer] | None = None,
    seed: int = 0,
) -> NoiseFloor:
    """How far retrained models are from each other in every number: made once, used for every audited model."""
    check_splits(retrain)
    others = [aligned(retrain, reference, f"reference {k}") for k, reference in enumerate(references)]
    check_distinct([("Retrain", retrain)], others)
    chosen = choose_attacks(attacks, len(others), "val" in retrain)
    return floor_of([Pool.of(model) for model in (retrain, *others)], chosen, seed)


def floor_of(pools: Sequence[Pool], attacks: Sequence[Attack], seed: int) -> NoiseFloor:
    """Leave-one-out over Retrain and the references, which are retrained models too.

    Every pair is judged as an audit would: one plays the unlearned model, the other the truth, and only the remaining
    ones serve as references, so that neither sits in its own denominator. All differences are symmetric in the pair.
    """
    if len(pools) < 3:
        raise AuditError(
            f"a noise floor needs Retrain and at least 2 references, got {len(pools) - 1}; "
            "train more models without the forget set, with other seeds."
        )
    free = [attack for attack in attacks if not attack.uses_references]
    bound = [a for a in attacks if a.uses_references and a.references <= len(pools) - 2]
    alone = [own_numbers(pool.splits) | attack_numbers(free, pool, (), 1.0, seed) for pool in pools]
    values: dict[str, list[float]] = {}
    for i, j in combinations(range(len(pools)), 2):
        rest = [pool for k, pool in enumerate(pools) if k not in (i, j)]
        a = offline_a([pool.splits for pool in rest])
        left, right = (alone[k] | attack_numbers(bound, pools[k], rest, a, seed) for k in (i, j))
        between = differences(left, right) | divergence_numbers(pools[i].splits, pools[j].splits)
        for name, value in between.items():
            values.setdefault(name, []).append(value)
    return NoiseFloor(len(pools), {name: tuple(pairs) for name, pairs in values.items()})


def attack_numbers(
    attacks: Sequence[Attack], target: Pool, references: Sequence[Pool], a: float, seed: int
) -> dict[str, float]:
    """Every statistic of every attack on the target, by name, in percent."""
    numbers: dict[str, float] = {}
    for trial in trials(attacks, target, references, a, seed):
        numbers |= trial.values()
    return numbers
