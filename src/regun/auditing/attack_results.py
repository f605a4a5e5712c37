"""From attacks to results: every attack on one model, forgotten examples against each set of unseen ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regun.auditing.attacks import ATTACKS, Attack, Evidence, estimate_offline_a
from regun.auditing.estimates import Metric
from regun.auditing.intervals import (
    Estimate,
    Replicates,
    Resampling,
    auc_interval,
    balanced_share,
    distance,
    rng,
    share_above_bar,
    significantly_apart,
)
from regun.auditing.metrics import BUILT_IN, WORDS
from regun.auditing.predictions import UNSEEN, FloatArray, Predictions, SplitPredictions
from regun.auditing.roc import Contrast, cross_fitted_hits

STATISTICS = {
    "auc": (
        "AUC",
        "the probability that a forgotten example looks more like a member than a {unseen} example",
        "Retrain's value, near 50; well above: still remembered; well below: over-forgotten, which leaks too",
    ),
    "tpr1": (
        "TPR@1%",
        "forgotten examples detected when 1 % of {unseen} ones are flagged by mistake",
        "Retrain's value, near 1",
    ),
    "tpr01": (
        "TPR@0.1%",
        "forgotten examples detected when 0.1 % of {unseen} ones are flagged by mistake",
        "Retrain's value, near 0.1 (needs 1,000 or more unseen examples to be resolved)",
    ),
    "advantage": (
        "advantage",
        "max |TPR - FPR|: the best any threshold can do, in either direction",
        "Retrain's value, near 0; it grows with over-forgetting as well",
    ),
    "bacc": (
        "balanced acc.",
        "right guesses at a threshold chosen on the other half of the examples, both kinds weighing the same",
        "Retrain's value, near 50",
    ),
}
"""The numbers of an attack: label, meaning and good value; the first four in the order of `Contrast.statistics`."""
LOSS_ATTACK = "smia"
"""The attack on which claims about forgotten examples as a group rest."""


def attack_metrics(attack: Attack, against: str) -> dict[str, Metric]:
    """Return the records of an attack's numbers against one unseen split, by name: `rmia_auc`, `rmia_auc_val`, ..."""
    where = "" if against == UNSEEN[0] else f" ({WORDS[against]})"
    about = f" ({attack.meaning})" if attack.meaning and attack.name not in ATTACKS else ""
    metrics: dict[str, Metric] = {}
    for statistic, (label, meaning, good) in STATISTICS.items():
        text = f"{attack.label} attack{about}: {meaning.format(unseen=WORDS[against])}"
        name = number_name(attack.name, statistic, against)
        metrics[name] = Metric(name, f"{attack.label} {label}{where}", "%", text, good)
    return metrics


def number_name(attack: str, statistic: str, against: str) -> str:
    """Return `rmia_auc` against test, `rmia_auc_val` against validation; without a statistic the attack's own name."""
    suffix = "" if against == UNSEEN[0] else against
    return "_".join(part for part in (attack, statistic, suffix) if part)


METRICS: dict[str, Metric] = BUILT_IN | {
    name: metric
    for attack in ATTACKS.values()
    for against in UNSEEN
    for name, metric in attack_metrics(attack, against).items()
}
"""Every number that regun itself can give, by name."""


@dataclass(frozen=True, eq=False)
class AttackRun:
    """The scores one attack gave to the forgotten examples (members) and to one unseen split.

    `hits` is 1.0 for each member and each non-member that a cross-fitted threshold classifies correctly; None if there
    is a single member.
    """

    attack: Attack
    against: str
    contrast: Contrast
    hits: tuple[FloatArray, FloatArray] | None

    @property
    def name(self) -> str:
        """`rmia` against test, `rmia_val` against validation."""
        return number_name(self.attack.name, "", self.against)

    @property
    def auc_name(self) -> str:
        return number_name(self.attack.name, "auc", self.against)

    def replicates(self) -> Replicates:
        return lambda weights: self.contrast.statistics(weights["forget"], weights[self.against])

    def values(self) -> dict[str, float]:
        """Return every statistic by its full name, in percent."""
        numbers = [*self.contrast.statistics()[:, 0]]
        if self.hits is not None:
            numbers.append((self.hits[0].mean() + self.hits[1].mean()) / 2.0)
        names = [number_name(self.attack.name, statistic, self.against) for statistic in STATISTICS]
        return {name: 100.0 * float(value) for name, value in zip(names, numbers, strict=False)}

    def result(self, drawn: FloatArray, retrain_auc: Estimate | None, how: Resampling) -> AttackResult:
        """Return the numbers with intervals from `drawn`, the statistics under resampling (4, resamples)."""
        level, m, n = how.level, len(self.contrast.members), len(self.contrast.nonmembers)
        _, tpr1, tpr01, advantage = (float(v) for v in self.contrast.statistics()[:, 0])
        auc = auc_interval(self.contrast, level)
        limit = 50.0 if retrain_auc is None or retrain_auc.low is None else retrain_auc.low
        return AttackResult(
            attack=self.attack.name,
            against=self.against,
            members=m,
            nonmembers=n,
            auc=auc,
            tpr1=share_above_bar(tpr1, drawn[1], m, level),
            tpr01=share_above_bar(tpr01, drawn[2], m, level),
            bacc=balanced_share(*self.hits, level) if self.hits else None,
            advantage=distance(advantage, drawn[3], significantly_apart(advantage, m, n, level), level),
            over_forgetting=auc.high is not None and auc.high < limit,
        )


@dataclass(frozen=True)
class AttackResult:
    """The numbers of one attack against one unseen split, in percent, with intervals.

    `over_forgetting`: forgotten examples look less like members than they should; the interval of the AUC lies below
    that of Retrain, or below 50 without a retrained model.
    """

    attack: str
    against: str
    members: int
    nonmembers: int
    auc: Estimate
    tpr1: Estimate
    tpr01: Estimate
    bacc: Estimate | None
    advantage: Estimate
    over_forgetting: bool

    def numbers(self) -> dict[str, Estimate]:
        """Return every statistic by its full name."""
        numbers = {number_name(self.attack, name, self.against): getattr(self, name) for name in STATISTICS}
        return {name: number for name, number in numbers.items() if number is not None}

    def to_json(self) -> dict[str, Any]:
        numbers = {name: getattr(self, name) for name in STATISTICS}
        return asdict(self) | {name: number and number.to_json() for name, number in numbers.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AttackResult:
        numbers: dict[str, Any] = {name: value[name] and Estimate(*value[name]) for name in STATISTICS}
        return cls(**{**value, **numbers})


def offline_a(references: Sequence[SplitPredictions]) -> float:
    """Return `a` of offline RMIA estimated on the references; 1 (no correction) where they lack retain or val."""
    able = [splits for splits in references if {"retain", "val"} <= set(splits)]
    return estimate_offline_a([(splits["retain"], splits["val"]) for splits in able]) if able else 1.0


def attack_scores(
    attacks: Sequence[Attack], target: SplitPredictions, references: Sequence[SplitPredictions], a: float
) -> dict[str, dict[str, FloatArray]]:
    """Return the scores of forgotten and unseen examples, by attack and split; the population is the validation split.

    An attack gets all examples end to end, in the same order of every model: it cannot see where a split ends.
    """
    names = [name for name in ("forget", *UNSEEN) if name in target]
    whole, *joined_references = (Predictions.join([model[name] for name in names]) for model in (target, *references))
    population = None
    if "val" in target:
        population = Evidence(target["val"], tuple(reference["val"] for reference in references), None, a)
    evidence = Evidence(whole, tuple(joined_references), population, a)
    ends = np.cumsum([len(target[name]) for name in names])[:-1]
    return {attack.name: dict(zip(names, np.split(attack(evidence), ends), strict=True)) for attack in attacks}


def run_attacks(
    attacks: Sequence[Attack], target: SplitPredictions, references: Sequence[SplitPredictions], a: float, seed: int
) -> list[AttackRun]:
    """Return every attack against every unseen split (not against the population it already compares with)."""
    runs: list[AttackRun] = []
    for attack, scores in zip(attacks, attack_scores(attacks, target, references, a).values(), strict=True):
        members = scores.pop("forget")
        for against, nonmembers in scores.items():
            if not (attack.population and against == "val"):
                several = len(members) > 1
                hits = cross_fitted_hits(members, nonmembers, rng(seed, "folds", against)) if several else None
                runs.append(AttackRun(attack, against, Contrast.of(members, nonmembers), hits))
    return runs
