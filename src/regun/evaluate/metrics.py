"""Numbers that need no attack: accuracy, entropy, divergence, gaps and their spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from regun.errors import AuditError
from regun.evaluate.signals import FloatArray, Signals, row_blocks

GAPS: dict[str, tuple[str, ...]] = {
    "gap_rftp": ("retain_acc", "forget_acc", "test_acc", "rmia_auc"),
    "gap_tp": ("test_acc", "rmia_auc"),
    "gap_rfvp": ("retain_acc", "forget_acc", "val_acc", "rmia_auc_val"),
    "gap_vp": ("val_acc", "rmia_auc_val"),
}
"""Terms of each gap; the two that end in `vp` are the same with validation in place of test, for tuning."""


def correct(signals: Signals) -> FloatArray:
    """1.0 where the most likely class is the label, else 0.0; (n,)."""
    return (signals.predictions == signals.labels).astype(np.float64)


def accuracy(signals: Signals) -> float:
    """Top-1 accuracy in percent."""
    return 100.0 * float(correct(signals).mean())


def entropy(signals: Signals) -> float:
    """Mean of -sum_k p_k log p_k over the examples, in nats."""
    return float(signals.entropy.mean())


def divergences(ours: Signals, theirs: Signals) -> FloatArray:
    """Jensen-Shannon divergence of two models on every example, (n,), in nats, between 0 and log 2.

    JSD = 1/2 KL(p || m) + 1/2 KL(q || m) = H(m) - 1/2 H(p) - 1/2 H(q) with m = (p + q) / 2 and 0 log 0 = 0, in fp64:
    rounding leaves 1e-15, which a clip at 0 keeps from turning negative.
    """
    same_examples(ours, theirs, "the two models")
    mixed = np.empty(len(ours))
    for rows in row_blocks(ours.log_probs):
        middle = np.exp(ours.log_probs[rows])
        middle += np.exp(theirs.log_probs[rows])
        middle /= 2.0
        logs = np.log(middle, out=np.zeros_like(middle), where=middle > 0)
        mixed[rows] = -np.einsum("ij,ij->i", middle, logs)
    return np.clip(mixed - (ours.entropy + theirs.entropy) / 2.0, 0.0, math.log(2.0))


def divergence(ours: Signals, theirs: Signals) -> float:
    """Mean Jensen-Shannon divergence, nats x 100; 0 is equal, 69.31 is nothing in common."""
    return 100.0 * float(divergences(ours, theirs).mean())


def gap(numbers: Mapping[str, float], retrain: Mapping[str, float], terms: Sequence[str]) -> float:
    """Mean of |number - retrain's number| over `terms`; one seed at a time, both models of the same seed."""
    missing = [name for name in terms if name not in numbers or name not in retrain]
    if missing:
        raise AuditError(
            f"the gap over {', '.join(terms)} lacks {', '.join(missing)}; audit with the splits they need."
        )
    return sum(abs(numbers[name] - retrain[name]) for name in terms) / len(terms)


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n - 1) over seeds; None in place of the deviation of a single value.

    >>> spread([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    if not values:
        raise AuditError("no values to average; give one per seed.")
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def same_examples(ours: Signals, theirs: Signals, who: str) -> None:
    """Raise unless both signals are of the same examples, in the same order, with the same labels and classes."""
    if ours.num_classes != theirs.num_classes:
        raise AuditError(
            f"{who} differ in their label space: {ours.num_classes} and {theirs.num_classes} classes; "
            "compare models with the same outputs."
        )
    for name, left, right in (("ids", ours.indices, theirs.indices), ("labels", ours.labels, theirs.labels)):
        if not np.array_equal(left, right):
            where = f"{len(left)} and {len(right)} examples"
            if len(left) == len(right):
                row = int((left != right).argmax())
                where = f"first in row {row}: {left[row]} and {right[row]}"
            raise AuditError(f"{who} have different {name} ({where}); run both on the same split, in the same order.")
