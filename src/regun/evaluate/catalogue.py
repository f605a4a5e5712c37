"""The catalogue of numbers: what each is called, what it means and which value is good."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from regun.errors import AuditError, unknown
from regun.evaluate.leakage import UNSEEN
from regun.evaluate.membership import ATTACKS


@dataclass(frozen=True)
class Metric:
    """A number's name, short label, unit, one-line meaning, and which value is good."""

    name: str
    label: str
    unit: str
    meaning: str
    good: str


_WORDS = {"retain": "retained", "forget": "forgotten", "test": "test", "val": "validation", "heldout": "held-out"}
_AS_RETRAIN = "Retrain's value"

_ATTACK_NUMBERS = {
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
    "bacc": (
        "balanced acc.",
        "right guesses at a threshold chosen on the other half of the examples, both kinds weighing the same",
        "Retrain's value, near 50",
    ),
    "advantage": (
        "advantage",
        "max |TPR - FPR|: the best any threshold can do, in either direction",
        "Retrain's value, near 0; it grows with over-forgetting as well",
    ),
}

_GAPS = {
    "gap_rftp": ("Gap RFTP", "mean distance to Retrain over retain, forget and test accuracy and RMIA AUC"),
    "gap_tp": ("Gap TP", "mean distance to Retrain over test accuracy and RMIA AUC"),
    "gap_rfvp": ("Gap RFVP", "Gap RFTP with validation in place of test, for tuning"),
    "gap_vp": ("Gap VP", "Gap TP with validation in place of test, for tuning"),
}


def describe(name: str) -> Metric:
    """The catalogue entry of a number; attacks of your own are described by the same pattern of names."""
    if name in METRICS:
        return METRICS[name]
    for metric in _own_attack(name):
        return metric
    raise AuditError(unknown("metric", name, METRICS))


def _split_metrics() -> Iterator[Metric]:
    good = {
        "retain": "high, and Retrain's value",
        "forget": "Retrain's value, not 0: a model that never saw an example may still get it right",
    }
    for split, word in _WORDS.items():
        yield Metric(
            f"{split}_acc",
            f"{split} acc.",
            "%",
            f"{word} examples classified rightly",
            good.get(split, "high, and not below Retrain's"),
        )
        meaning = f"mean Jensen-Shannon divergence of the outputs from Retrain's on {word} examples (ceiling 69.31)"
        yield Metric(
            f"{split}_div", f"{split} div.", "nats x 100", meaning, "0; as low as between two retrained models"
        )


def _distance_metrics() -> Iterator[Metric]:
    for split in UNSEEN:
        who = f"confidence in the true label on forgotten and on {_WORDS[split]} examples"
        yield Metric(
            f"confidence_ks_{split}", f"KS {split}", "%", f"largest difference of the distributions of {who}", "0"
        )
        yield Metric(
            f"confidence_wasserstein_{split}",
            f"Wasserstein {split}",
            "points",
            f"how far, on average, one must move {who} to make them equal",
            "0",
        )


def _attack_metrics(attack: str, label: str) -> Iterator[Metric]:
    for against in UNSEEN:
        suffix, unseen = ("", "test") if against == UNSEEN[0] else (f"_{against}", _WORDS[against])
        for statistic, (short, meaning, good) in _ATTACK_NUMBERS.items():
            where = "" if not suffix else f" ({unseen})"
            name = f"{attack}_{statistic}{suffix}"
            yield Metric(name, f"{label} {short}{where}", "%", f"{label} attack: {meaning.format(unseen=unseen)}", good)


def _own_attack(name: str) -> Iterator[Metric]:
    base = next((name.removesuffix(f"_{split}") for split in UNSEEN[1:] if name.endswith(f"_{split}")), name)
    attack, _, statistic = base.rpartition("_")
    if attack and statistic in _ATTACK_NUMBERS:
        yield from (m for m in _attack_metrics(attack, attack.replace("_", " ")) if m.name == name)


def _all() -> Iterator[Metric]:
    yield from _split_metrics()
    yield Metric(
        "forget_entropy", "forget entropy", "nats", "mean uncertainty of the outputs on forgotten examples", _AS_RETRAIN
    )
    yield Metric("forget_entropy_diff", "entropy diff.", "nats", "forget entropy minus Retrain's", "0")
    yield from _distance_metrics()
    for attack in ATTACKS.values():
        yield from _attack_metrics(attack.name, attack.label)
    for name, (label, meaning) in _GAPS.items():
        yield Metric(name, label, "points", meaning, "0; at or below the noise floor is as good as retraining")


METRICS: dict[str, Metric] = {metric.name: metric for metric in _all()}
