"""The noise floor: how far one retrained model is from another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from scipy.special import stdtrit

from regun.errors import AuditError
from regun.evaluate.checks import aligned, check_distinct, check_splits, choose
from regun.evaluate.estimates import Measure, Metric
from regun.evaluate.leakage import Lineup, offline_a, run_attacks
from regun.evaluate.membership import Attack, Scorer
from regun.evaluate.metrics import differences, measured, own_values, spread
from regun.evaluate.signals import SplitSignals

Verdict = Literal["inside", "edge", "outside"]
"""Where a gap lies: inside the noise floor, at its edge, or outside it. A fourth, that the test cannot tell, comes with
the power of the test: whether it would have told the model before unlearning apart."""


@dataclass(frozen=True)
class VerdictWords:
    """A verdict as people read it: in a cell, in a sentence ("the model is ..."), and what it means."""

    short: str
    phrase: str
    meaning: str


VERDICTS: dict[Verdict, VerdictWords] = {
    "inside": VerdictWords(
        "inside", "inside the noise floor", "two retrained models were at least as far from each other"
    ),
    "edge": VerdictWords(
        "at edge",
        "at the edge of the noise floor",
        "farther off than any two retrained models here, but with so few models that can happen to a retrained one",
    ),
    "outside": VerdictWords(
        "outside", "outside the noise floor", "farther off than a retrained model would be, given how they differ"
    ),
}
"""The words of the verdict, the good one first: the only ones in which tables, pages and the docs say it."""


@dataclass(frozen=True)
class FloorSummary:
    """Mean and largest difference between two retrained models, and the limit that a further one would keep to."""

    mean: float
    largest: float
    limit: float

    def verdict(self, gap: float) -> Verdict:
        """Inside the largest difference seen, between it and the limit, or beyond both."""
        if gap <= self.largest:
            return "inside"
        return "edge" if gap <= self.limit else "outside"


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
    retrain: SplitSignals,
    references: Sequence[SplitSignals],
    *,
    attacks: Sequence[str | Attack | Scorer] | None = None,
    metrics: Sequence[str | Metric | Measure] = (),
    seed: int = 0,
) -> NoiseFloor:
    """How far retrained models are from each other in every number: made once, used for every audited model."""
    check_splits(retrain)
    others = [aligned(retrain, reference, f"reference {k}") for k, reference in enumerate(references)]
    check_distinct([("Retrain", retrain)], others)
    chosen, measures = choose(attacks, metrics, len(others), "val" in retrain)
    return floor_of([Lineup.of(model) for model in (retrain, *others)], chosen, measures, seed)


def floor_of(models: Sequence[Lineup], attacks: Sequence[Attack], metrics: Sequence[Metric], seed: int) -> NoiseFloor:
    """Leave-one-out over Retrain and the references, which are retrained models too.

    Every pair is judged as an audit would: one plays the unlearned model, the other the truth, and only the remaining
    ones serve as references, so that neither sits in its own denominator. Which of the two plays what makes no
    difference to the built-in numbers; to one of the user's it may, and either is one more draw of the same kind.
    """
    if len(models) < 3:
        raise AuditError(
            f"a noise floor needs Retrain and at least 2 references, got {len(models) - 1}; "
            "train more models without the forget set, with other seeds."
        )
    free = [attack for attack in attacks if not attack.uses_references]
    bound = [a for a in attacks if a.uses_references and a.references <= len(models) - 2]
    alone = [_attacked(free, model, (), 1.0, seed) for model in models]
    own = [own_values(metrics, model.splits) for model in models]
    values: dict[str, list[float]] = {}
    for i, j in combinations(range(len(models)), 2):
        rest = [model for k, model in enumerate(models) if k not in (i, j)]
        a = offline_a([model.splits for model in rest])
        left, right = (alone[k] | _attacked(bound, models[k], rest, a, seed) for k in (i, j))
        left |= {name: e.value for name, e in measured(metrics, models[i].splits, models[j].splits).items()}
        for name, value in differences(left, right | own[j], metrics).items():
            values.setdefault(name, []).append(value)
    return NoiseFloor(len(models), {name: tuple(pairs) for name, pairs in values.items()})


def _attacked(
    attacks: Sequence[Attack], target: Lineup, references: Sequence[Lineup], a: float, seed: int
) -> dict[str, float]:
    """Every statistic of every attack on the target, by name, in percent."""
    runs = run_attacks(attacks, target, references, a, seed)
    return {name: value for run in runs for name, value in run.values().items()}
