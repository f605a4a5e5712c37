"""From attacks to results: every attack on one model, forgotten examples against each set of unseen ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regun.evaluate.intervals import (
    LEVEL,
    Number,
    Resampling,
    bootstrap_mean,
    delong,
    distance,
    percentile,
    proportion,
    resample,
    rng,
    told_apart,
)
from regun.evaluate.membership import Attack, Evidence, estimate_offline_a, run_attack
from regun.evaluate.roc import Contrast, Weights, cross_fitted_hits, roc_curve
from regun.evaluate.signals import FloatArray, Signals

UNSEEN = ("test", "heldout", "val")
"""Splits whose examples no model trained on; attack numbers against the first carry no suffix."""
STATISTICS = ("auc", "tpr1", "tpr01", "advantage", "bacc")
_ROC_POINTS = 200

Job = Callable[[Mapping[str, Weights]], FloatArray]
"""A statistic of the resampling weights of every scored split, by name; one row or several, a column a resample."""


@dataclass(frozen=True, eq=False)
class Pool:
    """One model's splits, and those an attack scores laid end to end so that it cannot tell them apart."""

    splits: Mapping[str, Signals]
    scored: Signals
    places: Mapping[str, slice]

    @classmethod
    def of(cls, splits: Mapping[str, Signals]) -> Pool:
        names = [name for name in ("forget", *UNSEEN) if name in splits]
        ends = np.cumsum([0, *(len(splits[name]) for name in names)])
        places = {name: slice(int(ends[i]), int(ends[i + 1])) for i, name in enumerate(names)}
        return cls(splits, Signals.join([splits[name] for name in names]), places)

    def sizes(self) -> dict[str, int]:
        """Examples in each scored split."""
        return {name: place.stop - place.start for name, place in self.places.items()}


@dataclass(frozen=True, eq=False)
class Trial:
    """The scores one attack gave to the forgotten examples (members) and to one unseen split."""

    attack: Attack
    against: str
    contrast: Contrast
    member_hits: FloatArray
    nonmember_hits: FloatArray

    @property
    def balanced_accuracy(self) -> float:
        return float(self.member_hits.mean() + self.nonmember_hits.mean()) / 2.0

    def name(self, statistic: str = "") -> str:
        """`rmia_auc` against test, `rmia_auc_val` against validation."""
        suffix = "" if self.against == UNSEEN[0] else self.against
        return "_".join(part for part in (self.attack.name, statistic, suffix) if part)

    def job(self) -> Job:
        return lambda weights: self.contrast.statistics(weights["forget"], weights[self.against])

    def values(self) -> dict[str, float]:
        """Every statistic by its full name, in percent."""
        numbers = [*self.contrast.statistics()[:, 0], self.balanced_accuracy]
        return {self.name(s): 100.0 * float(v) for s, v in zip(STATISTICS, numbers, strict=True)}


@dataclass(frozen=True)
class AttackResult:
    """What one attack finds, in percent: numbers with intervals, DeLong's interval and a thinned ROC curve."""

    attack: str
    against: str
    members: int
    nonmembers: int
    auc: Number
    tpr1: Number
    tpr01: Number
    bacc: Number
    advantage: Number
    delong: Number
    roc: tuple[tuple[float, float], ...]
    over_forgetting: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {name: getattr(self, name).to_json() for name in (*STATISTICS, "delong")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AttackResult:
        fields: dict[str, Any] = {name: Number(*value[name]) for name in (*STATISTICS, "delong")}
        fields["roc"] = tuple((float(x), float(y)) for x, y in value["roc"])
        return cls(**{**value, **fields})


def offline_a(references: Sequence[Mapping[str, Signals]]) -> float:
    """`a` of offline RMIA estimated on the references; 1 (no correction) where they lack retain or val."""
    able = [splits for splits in references if {"retain", "val"} <= set(splits)]
    return estimate_offline_a([(splits["retain"], splits["val"]) for splits in able]) if able else 1.0


def scores(attack: Attack, target: Pool, references: Sequence[Pool], a: float) -> dict[str, FloatArray]:
    """The attack's scores of the target, by split; the population is the validation split."""
    population = None
    if "val" in target.splits:
        population = Evidence(target.splits["val"], tuple(r.splits["val"] for r in references), None, a)
    evidence = Evidence(target.scored, tuple(r.scored for r in references), population, a)
    everything = run_attack(attack, evidence)
    return {name: everything[place] for name, place in target.places.items()}


def trials(attacks: Sequence[Attack], target: Pool, references: Sequence[Pool], a: float, seed: int) -> list[Trial]:
    """Every attack against every unseen split (not against the population it already compares with)."""
    found: list[Trial] = []
    for attack in attacks:
        by_split = scores(attack, target, references, a)
        members = by_split.pop("forget")
        for against, nonmembers in by_split.items():
            if not (attack.population and against == "val"):
                hits = cross_fitted_hits(members, nonmembers, rng(seed, "folds", against))
                found.append(Trial(attack, against, Contrast.of(members, nonmembers), *hits))
    return found


def run_jobs(jobs: Mapping[str, Job], sizes: Mapping[str, int], how: Resampling) -> dict[str, FloatArray]:
    """Each statistic under the same resamples of the examples, (rows, resamples) by name."""
    parts: dict[str, list[FloatArray]] = {name: [] for name in jobs}
    for weights in resample(sizes, how.resamples, how.seed):
        for name, job in jobs.items():
            parts[name].append(np.atleast_2d(job(weights)))
    none = np.empty((len(STATISTICS), 0))
    return {name: np.concatenate(drawn, axis=1) if drawn else none for name, drawn in parts.items()}


def result(
    trial: Trial, draws: FloatArray, retrain_auc: Number | None, seed: int, level: float = LEVEL
) -> AttackResult:
    """The trial's numbers with intervals from `draws` (4, resamples)."""
    contrast = trial.contrast
    auc, tpr1, tpr01, advantage = (float(v) for v in contrast.statistics()[:, 0])
    m, n = len(contrast.members), len(contrast.nonmembers)
    generator = rng(seed, "balanced accuracy", trial.against)
    sides = [bootstrap_mean(h, draws.shape[1], generator) for h in (trial.member_hits, trial.nonmember_hits)]
    auc_number, closed_form = percentile(auc, draws[0], level), delong(contrast, level)
    fpr, tpr = roc_curve(contrast, _ROC_POINTS)
    return AttackResult(
        attack=trial.attack.name,
        against=trial.against,
        members=m,
        nonmembers=n,
        auc=auc_number,
        tpr1=proportion(tpr1, draws[1], m, level),
        tpr01=proportion(tpr01, draws[2], m, level),
        bacc=percentile(trial.balanced_accuracy, (sides[0] + sides[1]) / 2, level),
        advantage=distance(advantage, draws[3], told_apart(advantage, m, n, level), level),
        delong=closed_form,
        roc=tuple((100.0 * float(x), 100.0 * float(y)) for x, y in zip(fpr, tpr, strict=True)),
        over_forgetting=over_forgetting(auc_number if draws.size else closed_form, retrain_auc),
    )


def over_forgetting(auc: Number, retrain: Number | None) -> bool:
    """Whether forgotten examples look less like members than they should: the interval lies below Retrain's, or 50."""
    limit = 50.0 if retrain is None or retrain.low is None else retrain.low
    return auc.high is not None and auc.high < limit
