"""The numbers that need no attack: each a function with its record, and the tables of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from regun.auditing.estimates import Apart, Measure, Metric, MetricResult, PerExample, Ranked, Share, Statistic
from regun.auditing.predictions import (
    LOG_FLOOR,
    SPLITS,
    UNSEEN,
    FloatArray,
    Predictions,
    SplitPredictions,
    row_blocks,
    same_examples,
)
from regun.auditing.roc import Contrast
from regun.auditing.user_functions import name_of
from regun.errors import AuditError, unknown
from regun.plugins import find_function

WORDS = {"retain": "retained", "forget": "forgotten", "test": "test", "val": "validation", "heldout": "held-out"}
"""A split's examples in a sentence."""


def correct(predictions: Predictions) -> FloatArray:
    """Return 1.0 where the most likely class is the label, else 0.0; (n,)."""
    return (predictions.predicted == predictions.labels).astype(np.float64)


def accuracy(predictions: Predictions) -> float:
    """Return Top-1 accuracy in percent."""
    return 100.0 * float(correct(predictions).mean())


def _accuracy_on(split: str) -> Metric:
    good = {
        "retain": "high, and Retrain's value",
        "forget": "Retrain's value, not 0: a model that never saw an example may still get it right",
    }

    def measure(splits: SplitPredictions, retrain: SplitPredictions | None) -> MetricResult:
        return Share(correct(splits[split])) if split in splits else None

    return Metric(
        f"{split}_acc",
        f"{split} acc.",
        "%",
        f"{WORDS[split]} examples classified rightly",
        good.get(split, "high, and not below Retrain's"),
        measure=measure,
        utility=split != "forget",
    )


def divergences(ours: Predictions, theirs: Predictions) -> FloatArray:
    """Return Jensen-Shannon divergence of two models on every example, (n,), in nats, between 0 and log 2.

    JSD = 1/2 KL(p || m) + 1/2 KL(q || m) = H(m) - 1/2 H(p) - 1/2 H(q) with m = (p + q) / 2 and 0 log 0 = 0, in fp64:
    rounding leaves 1e-15, which a clip at 0 keeps from turning negative.
    """
    same_examples(ours, theirs, "the two models")
    mixed = np.empty(len(ours))
    for rows in row_blocks(ours.log_probs, theirs.log_probs):
        middle = np.exp(ours.log_probs[rows])
        middle += np.exp(theirs.log_probs[rows])
        middle /= 2.0
        logs = np.log(middle, out=np.zeros_like(middle), where=middle > 0)
        mixed[rows] = -np.einsum("ij,ij->i", middle, logs)
    return np.clip(mixed - (ours.entropy + theirs.entropy) / 2.0, 0.0, math.log(2.0))


def divergence(ours: Predictions, theirs: Predictions) -> float:
    """Return mean Jensen-Shannon divergence, nats x 100; 0 is equal, 69.31 is nothing in common."""
    return 100.0 * float(divergences(ours, theirs).mean())


def _divergence_on(split: str) -> Metric:
    def measure(splits: SplitPredictions, retrain: SplitPredictions | None) -> MetricResult:
        if split not in splits or retrain is None or not (splits[split].complete and retrain[split].complete):
            return None
        return PerExample(divergences(splits[split], retrain[split]), 100.0, split if split != "retain" else None)

    return Metric(
        f"{split}_div",
        f"{split} div.",
        "nats x 100",
        f"mean Jensen-Shannon divergence of the outputs from Retrain's on {WORDS[split]} examples (ceiling 69.31)",
        "0; as low as between two retrained models",
        measure=measure,
        distance=True,
        utility=split != "forget",
    )


def entropy(predictions: Predictions) -> float:
    """Return mean of -sum_k p_k log p_k over the examples, in nats."""
    return float(predictions.entropy.mean())


def _confidence_distances(against: str) -> Iterator[Metric]:
    """Yield the distances between confidence on the forget set and on unseen examples."""
    who = f"confidence in the true label on forgotten and on {WORDS[against]} examples"

    def contrast(splits: SplitPredictions) -> Contrast:
        return Contrast.of(*(np.exp(splits[name].true_log_prob) for name in ("forget", against)))

    def ks(splits: SplitPredictions, retrain: SplitPredictions | None) -> MetricResult:
        return Apart(contrast(splits), against) if against in splits else None

    def wasserstein(splits: SplitPredictions, retrain: SplitPredictions | None) -> MetricResult:
        return Apart(contrast(splits), against, wasserstein=True) if against in splits else None

    meaning = f"largest difference of the distributions of {who}"
    yield Metric(f"confidence_ks_{against}", f"KS {against}", "%", meaning, "0", measure=ks)
    meaning = f"how far, on average, one must move {who} to make them equal"
    yield Metric(
        f"confidence_wasserstein_{against}", f"Wasserstein {against}", "points", meaning, "0", measure=wasserstein
    )


def _exposure(against: str) -> Metric:
    """Return the metric of the exposure of retained examples to the loss attack."""

    def measure(splits: SplitPredictions, retrain: SplitPredictions | None) -> MetricResult:
        if not {"retain", against} <= splits.keys():
            return None
        return Ranked(*(np.maximum(splits[name].true_log_prob, LOG_FLOOR) for name in ("retain", against)))

    where = "" if against == UNSEEN[0] else f" ({WORDS[against]})"
    return Metric(
        f"retain_auc{'' if against == UNSEEN[0] else f'_{against}'}",
        f"retain AUC{where}",
        "%",
        f"loss attack on retained examples: the probability that a retained example looks more like a member than a "
        f"{WORDS[against]} example",
        "not above what it was before unlearning",
        measure=measure,
        utility=True,
    )


def _gap(letters: str, accuracies: str, terms: tuple[str, ...]) -> Metric:
    """Return the record of a gap; those with V are for tuning, with validation in place of test."""
    meaning = f"mean distance to Retrain over {accuracies} and RMIA AUC"
    good = "0; at or below the noise floor is as good as retraining"
    return Metric(f"gap_{letters.lower()}", f"Gap {letters}", "points", meaning, good, terms=terms, distance=True)


BUILT_IN: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *map(_accuracy_on, SPLITS),
        Metric(
            "forget_entropy",
            "forget entropy",
            "nats",
            "mean uncertainty of the outputs on forgotten examples",
            measure=lambda splits, retrain: PerExample(splits["forget"].entropy, of="forget"),
        ),
        Metric(
            "forget_entropy_diff",
            "entropy diff.",
            "nats",
            "forget entropy minus Retrain's",
            "0",
            measure=lambda splits, retrain: (
                PerExample(splits["forget"].entropy - retrain["forget"].entropy, of="forget") if retrain else None
            ),
            distance=True,
        ),
        *map(_divergence_on, SPLITS),
        *(metric for against in UNSEEN for metric in _confidence_distances(against)),
        *map(_exposure, UNSEEN),
        Metric(
            "influence_left",
            "influence left",
            "%",
            "what is left of the influence that forgotten examples had on the model before unlearning, each compared "
            "with what models that never saw it say of it",
            "0; forgotten where its upper bound is below 50",
        ),
        _gap("RFTP", "retain, forget and test accuracy", ("retain_acc", "forget_acc", "test_acc", "rmia_auc")),
        _gap("TP", "test accuracy", ("test_acc", "rmia_auc")),
        _gap("RFVP", "retain, forget and val accuracy", ("retain_acc", "forget_acc", "val_acc", "rmia_auc_val")),
        _gap("VP", "val accuracy", ("val_acc", "rmia_auc_val")),
    )
}
"""The numbers that are not an attack's; those with `terms` are gaps."""

GAPS: dict[str, tuple[str, ...]] = {name: metric.terms for name, metric in BUILT_IN.items() if metric.terms}
"""Terms of each gap; the two that end in `vp` are the same with validation in place of test, for tuning."""


def resolve_metric(metric: str | Metric | Measure) -> Metric:
    """Return the metric of that name, of `file.py:function` or `module:function`, or a function as a metric."""
    if isinstance(metric, str):
        if metric in BUILT_IN:
            return BUILT_IN[metric]
        if ":" not in metric:
            raise AuditError(unknown("metric", metric, [*BUILT_IN, "file.py:function", "module:function"]))
        metric = find_function(metric, "measures a model: f(splits, retrain)")
    return metric if isinstance(metric, Metric) else Metric(name_of(metric), measure=metric)


def measured(
    metrics: Iterable[Metric], splits: SplitPredictions, retrain: SplitPredictions | None
) -> dict[str, Statistic]:
    """Return the statistic of each metric that applies to one model, by name."""
    statistics = {metric.name: metric(splits, retrain) for metric in metrics}
    return {name: statistic for name, statistic in statistics.items() if statistic is not None}


def own_values(metrics: Iterable[Metric], splits: SplitPredictions) -> dict[str, float]:
    """Return Retrain's numbers; metrics that compare with Retrain compare it with itself."""
    return {
        name: estimate.value
        for name, estimate in measured((m for m in metrics if not m.distance), splits, splits).items()
    }


def differences(ours: Mapping[str, float], retrain: Mapping[str, float], metrics: Sequence[Metric]) -> dict[str, float]:
    """Return |difference| to Retrain of every number, and every gap that has its terms."""
    truth = {metric.name: 0.0 for metric in metrics if metric.distance} | dict(retrain)
    shared = {name: abs(value - truth[name]) for name, value in ours.items() if name in truth}
    return shared | {m.name: gap(ours, truth, m.terms) for m in metrics if m.terms and set(m.terms) <= set(shared)}


def gap(numbers: Mapping[str, float], retrain: Mapping[str, float], terms: Sequence[str]) -> float:
    """Return mean of |number - retrain's number| over `terms`; one seed at a time, both models of the same seed."""
    missing = [name for name in terms if name not in numbers or name not in retrain]
    if missing:
        raise AuditError(
            f"the gap over {', '.join(terms)} lacks {', '.join(missing)}; audit with the splits they need."
        )
    return sum(abs(numbers[name] - retrain[name]) for name in terms) / len(terms)


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Return mean and sample standard deviation (n - 1) over seeds; None in place of the deviation of a single value.

    >>> spread([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    if not values:
        raise AuditError("no values to average; give one per seed.")
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
