"""From attacks to results: every attack on one model, forgotten examples against each set of unseen ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regun.auditing.attacks import ATTACKS, Attack, Evidence, estimate_offline_a
from regun.auditing.estimates import Metric, Ranked
from regun.auditing.intervals import (
    Number,
    Replicates,
    Resampling,
    auc_interval,
    balanced_share,
    distance,
    rng,
    share_above_bar,
    told_apart,
)
from regun.auditing.metrics import WORDS
from regun.auditing.predictions import UNSEEN, FloatArray, Predictions, SplitPredictions
from regun.auditing.roc import Contrast, cross_fitted_hits, roc_curve

STATISTICS = {
    "auc": (
        "AUC",
        "the chance that a forgotten example looks more like a member than a {unseen} example",
        "Retrain's value, near 50; well above: still remembered; well below: over-forgotten, which leaks too",
    ),
    "tpr1": (
        "TPR@1%",
        "forgotten examples found when 1 % of {unseen} ones are wrongly accused",
        "Retrain's value, near 1",
    ),
    "tpr01": (
        "TPR@0.1%",
        "forgotten examples found when 0.1 % of {unseen} ones are wrongly accused",
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
_ROC_POINTS = 200
GROUP = "smia"
"""The attack on which claims about forgotten examples as a group rest."""


def attack_metrics(attack: Attack, against: str) -> dict[str, Metric]:
    """The records of an attack's numbers against one unseen split, by name: `rmia_auc`, `rmia_auc_val`, ..."""
    where = "" if against == UNSEEN[0] else f" ({WORDS[against]})"
    own = f" ({attack.meaning})" if attack.meaning and attack.name not in ATTACKS else ""
    found: dict[str, Metric] = {}
    for statistic, (label, meaning, good) in STATISTICS.items():
        text = f"{attack.label} attack{own}: {meaning.format(unseen=WORDS[against])}"
        name = number_name(attack.name, statistic, against)
        found[name] = Metric(name, f"{attack.label} {label}{where}", "%", text, good)
    return found


def number_name(attack: str, statistic: str, against: str) -> str:
    """`rmia_auc` against test, `rmia_auc_val` against validation; without a statistic the attack's own."""
    suffix = "" if against == UNSEEN[0] else against
    return "_".join(part for part in (attack, statistic, suffix) if part)


@dataclass(frozen=True, eq=False)
class ScoredSplits:
    """One model's splits, and those an attack scores laid end to end so that it cannot tell them apart."""

    splits: SplitPredictions
    scored: Predictions
    places: Mapping[str, slice]

    @classmethod
    def of(cls, splits: SplitPredictions) -> ScoredSplits:
        names = [name for name in ("forget", *UNSEEN) if name in splits]
        ends = np.cumsum([0, *(len(splits[name]) for name in names)])
        places = {name: slice(int(ends[i]), int(ends[i + 1])) for i, name in enumerate(names)}
        return cls(splits, Predictions.join([splits[name] for name in names]), places)

    def sizes(self) -> dict[str, int]:
        """Examples in each scored split."""
        return {name: place.stop - place.start for name, place in self.places.items()}


@dataclass(frozen=True, eq=False)
class AttackRun:
    """The scores one attack gave to the forgotten examples (members) and to one unseen split.

    `hits` says of members and of non-members whom a cross-fitted threshold judges rightly; None of a single member.
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
    def ranked(self) -> Ranked:
        """The AUC, as an estimate."""
        return Ranked(*self.contrast.scores())

    def replicates(self) -> Replicates:
        return lambda weights: self.contrast.statistics(weights["forget"], weights[self.against])

    def values(self) -> dict[str, float]:
        """Every statistic by its full name, in percent."""
        numbers = [*self.contrast.statistics()[:, 0]]
        if self.hits is not None:
            numbers.append((self.hits[0].mean() + self.hits[1].mean()) / 2.0)
        names = [number_name(self.attack.name, statistic, self.against) for statistic in STATISTICS]
        return {name: 100.0 * float(value) for name, value in zip(names, numbers, strict=False)}


@dataclass(frozen=True)
class AttackResult:
    """What one attack finds, in percent: numbers with intervals, and a thinned ROC curve."""

    attack: str
    against: str
    members: int
    nonmembers: int
    auc: Number
    tpr1: Number
    tpr01: Number
    bacc: Number | None
    advantage: Number
    roc: tuple[tuple[float, float], ...]
    over_forgetting: bool

    def numbers(self) -> dict[str, Number]:
        """Every statistic by its full name."""
        found = {number_name(self.attack, name, self.against): getattr(self, name) for name in STATISTICS}
        return {name: number for name, number in found.items() if number is not None}

    def to_json(self) -> dict[str, Any]:
        numbers = {name: getattr(self, name) for name in STATISTICS}
        return asdict(self) | {name: number and number.to_json() for name, number in numbers.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AttackResult:
        fields: dict[str, Any] = {name: value[name] and Number(*value[name]) for name in STATISTICS}
        fields["roc"] = tuple((float(x), float(y)) for x, y in value["roc"])
        return cls(**{**value, **fields})


def offline_a(references: Sequence[SplitPredictions]) -> float:
    """`a` of offline RMIA estimated on the references; 1 (no correction) where they lack retain or val."""
    able = [splits for splits in references if {"retain", "val"} <= set(splits)]
    return estimate_offline_a([(splits["retain"], splits["val"]) for splits in able]) if able else 1.0


def scores(attack: Attack, target: ScoredSplits, references: Sequence[ScoredSplits], a: float) -> dict[str, FloatArray]:
    """The attack's scores of the target, by split; the population is the validation split."""
    population = None
    if "val" in target.splits:
        population = Evidence(target.splits["val"], tuple(r.splits["val"] for r in references), None, a)
    everything = attack(Evidence(target.scored, tuple(r.scored for r in references), population, a))
    return {name: everything[place] for name, place in target.places.items()}


def run_attacks(
    attacks: Sequence[Attack], target: ScoredSplits, references: Sequence[ScoredSplits], a: float, seed: int
) -> list[AttackRun]:
    """Every attack against every unseen split (not against the population it already compares with)."""
    found: list[AttackRun] = []
    for attack in attacks:
        by_split = scores(attack, target, references, a)
        members = by_split.pop("forget")
        for against, nonmembers in by_split.items():
            if not (attack.population and against == "val"):
                several = len(members) > 1
                hits = cross_fitted_hits(members, nonmembers, rng(seed, "folds", against)) if several else None
                found.append(AttackRun(attack, against, Contrast.of(members, nonmembers), hits))
    return found


def attack_result(run: AttackRun, drawn: FloatArray, retrain_auc: Number | None, how: Resampling) -> AttackResult:
    """The run's numbers with intervals from `drawn`, its statistics under resampling (4, resamples)."""
    contrast, level = run.contrast, how.level
    _, tpr1, tpr01, advantage = (float(v) for v in contrast.statistics()[:, 0])
    m, n = len(contrast.members), len(contrast.nonmembers)
    auc = auc_interval(contrast, level)
    fpr, tpr = roc_curve(contrast, _ROC_POINTS)
    return AttackResult(
        attack=run.attack.name,
        against=run.against,
        members=m,
        nonmembers=n,
        auc=auc,
        tpr1=share_above_bar(tpr1, drawn[1], m, level),
        tpr01=share_above_bar(tpr01, drawn[2], m, level),
        bacc=balanced_share(*run.hits, level) if run.hits else None,
        advantage=distance(advantage, drawn[3], told_apart(advantage, m, n, level), level),
        roc=tuple((100.0 * float(x), 100.0 * float(y)) for x, y in zip(fpr, tpr, strict=True)),
        over_forgetting=over_forgetting(auc, retrain_auc),
    )


def over_forgetting(auc: Number, retrain: Number | None) -> bool:
    """Whether forgotten examples look less like members than they should: the interval lies below Retrain's, or 50."""
    limit = 50.0 if retrain is None or retrain.low is None else retrain.low
    return auc.high is not None and auc.high < limit
