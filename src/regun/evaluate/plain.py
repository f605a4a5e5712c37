"""The numbers of a model that no attack makes: their values, their differences, and their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from regun.evaluate.intervals import (
    Number,
    Resampling,
    bootstrap_mean,
    distance,
    percentile,
    proportion,
    rng,
    told_apart,
)
from regun.evaluate.leakage import UNSEEN, Job
from regun.evaluate.metrics import GAPS, accuracy, correct, divergence, divergences, entropy, gap
from regun.evaluate.roc import Contrast
from regun.evaluate.signals import FloatArray, Signals

Splits = Mapping[str, Signals]


@dataclass(frozen=True, eq=False)
class Mean:
    """A number that is the mean of `values` over the examples of a split, times `scale`."""

    split: str
    scale: float
    values: FloatArray

    def job(self) -> Job:
        return lambda weights: self.values @ weights[self.split] / len(self.values)


def own_numbers(splits: Splits) -> dict[str, float]:
    """Numbers of one model by itself: accuracies, forget entropy, distances of confidence to unseen data."""
    numbers = {f"{name}_acc": accuracy(split) for name, split in splits.items()}
    numbers["forget_entropy"] = entropy(splits["forget"])
    for against, contrast in confidence_contrasts(splits).items():
        ks, wasserstein = contrast.distances()[:, 0]
        numbers[f"confidence_ks_{against}"] = 100.0 * float(ks)
        numbers[f"confidence_wasserstein_{against}"] = 100.0 * float(wasserstein)
    return numbers


def divergence_numbers(ours: Splits, theirs: Splits) -> dict[str, float]:
    """Mean Jensen-Shannon divergence on every split both models have."""
    return {f"{name}_div": divergence(ours[name], theirs[name]) for name in ours if name in theirs}


def differences(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
    """|difference| of every number both have, and every gap whose terms they have."""
    shared = {name: abs(value - theirs[name]) for name, value in ours.items() if name in theirs}
    return shared | {name: gap(ours, theirs, terms) for name, terms in GAPS.items() if set(terms) <= set(shared)}


def confidence_contrasts(splits: Splits) -> dict[str, Contrast]:
    """Confidence in the true label on the forget set, set against each unseen split."""
    confidence = {name: np.exp(splits[name].true_log_prob) for name in ("forget", *UNSEEN) if name in splits}
    forget = confidence.pop("forget")
    return {against: Contrast.of(forget, unseen) for against, unseen in confidence.items()}


def means(ours: Splits, retrain: Splits | None) -> dict[str, Mean]:
    """Forget entropy and, with Retrain, its difference and the divergence on every split."""
    found = {"forget_entropy": Mean("forget", 1.0, ours["forget"].entropy)}
    if retrain is not None:
        found["forget_entropy_diff"] = Mean("forget", 1.0, ours["forget"].entropy - retrain["forget"].entropy)
        for name, split in ours.items():
            found[f"{name}_div"] = Mean(name, 100.0, divergences(split, retrain[name]))
    return found


def plain_jobs(found: Mapping[str, Mean], contrasts: Mapping[str, Contrast]) -> dict[str, Job]:
    """What to draw with the resamples of the scored splits; the retain set, the largest, is drawn by itself."""
    jobs = {f"mean {name}": mean.job() for name, mean in found.items() if mean.split != "retain"}
    for against, contrast in contrasts.items():
        jobs[f"distance {against}"] = _distance_job(contrast, against)
    return jobs


def accuracy_numbers(splits: Splits, how: Resampling) -> dict[str, Number]:
    """Accuracy on every split, with its interval."""
    numbers: dict[str, Number] = {}
    for name, split in splits.items():
        hits = correct(split)
        drawn = bootstrap_mean(hits, how.resamples, rng(how.seed, "accuracy", name))
        numbers[f"{name}_acc"] = proportion(float(hits.mean()), drawn, len(split), how.level)
    return numbers


def mean_numbers(found: Mapping[str, Mean], draws: Mapping[str, FloatArray], how: Resampling) -> dict[str, Number]:
    """The means with their intervals."""
    numbers: dict[str, Number] = {}
    for name, mean in found.items():
        alone = mean.split == "retain"
        drawn = bootstrap_mean(mean.values, how.resamples, rng(how.seed, name)) if alone else draws[f"mean {name}"][0]
        numbers[name] = percentile(float(mean.values.mean()), drawn, how.level, mean.scale)
    return numbers


def distance_numbers(
    contrasts: Mapping[str, Contrast], draws: Mapping[str, FloatArray], how: Resampling
) -> dict[str, Number]:
    """Kolmogorov-Smirnov and Wasserstein distance of confidence to each unseen split, with intervals."""
    numbers: dict[str, Number] = {}
    for against, contrast in contrasts.items():
        ks, wasserstein = (float(v) for v in contrast.distances()[:, 0])
        apart = told_apart(ks, len(contrast.members), len(contrast.nonmembers), how.level)
        drawn = draws[f"distance {against}"]
        numbers[f"confidence_ks_{against}"] = distance(ks, drawn[0], apart, how.level)
        numbers[f"confidence_wasserstein_{against}"] = distance(wasserstein, drawn[1], apart, how.level)
    return numbers


def _distance_job(contrast: Contrast, against: str) -> Job:
    return lambda weights: contrast.distances(weights["forget"], weights[against])
