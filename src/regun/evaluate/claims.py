"""What an audit can and cannot claim, in plain sentences."""

from __future__ import annotations

from collections.abc import Collection


def claims(splits: Collection[str], retrain: bool, references: int, floor: bool) -> tuple[str, ...]:
    """One sentence for each claim: supported by this audit, or what it would take."""
    return (
        _accuracy(splits),
        _population_attacks(splits),
        _per_example_attacks(references),
        _as_retrained(retrain),
        _within_noise(retrain, references, floor),
    )


def _accuracy(splits: Collection[str]) -> str:
    lacking = [name for name in ("retain", "test") if name not in splits]
    if lacking:
        return f"Utility is shown in part only: give the {' and '.join(lacking)} split to measure it."
    return "Utility (accuracy on retained and unseen examples) is measured."


def _population_attacks(splits: Collection[str]) -> str:
    unseen = " and ".join(name for name in ("test", "heldout", "val") if name in splits)
    return (
        "Whether forgotten examples as a group look like unseen ones is measured (loss, confidence and entropy against "
        f"{unseen}); such attacks are known to overstate forgetting, so a pass here is no proof."
    )


def _per_example_attacks(references: int) -> str:
    if references >= 2:
        return f"Whether single forgotten examples stand out is measured against {references} reference models."
    if references == 1:
        return "Single examples are compared with 1 reference model (RMIA); LiRA and a steady RMIA need 2 or more."
    return (
        "Whether single forgotten examples stand out cannot be claimed: that needs reference models trained without "
        "the forget set (1 for RMIA, 2 for LiRA)."
    )


def _as_retrained(retrain: bool) -> str:
    if retrain:
        return "How far the model is from one retrained without the forget set is measured (divergence and gaps)."
    return (
        "'Behaves as if retrained' cannot be claimed: divergence and gaps need a model retrained without the forget "
        "set. An AUC of 50 is not the target by itself; Retrain's own AUC is."
    )


def _within_noise(retrain: bool, references: int, floor: bool) -> str:
    if floor:
        return "Every gap is shown next to how far retrained models are from each other (the noise floor)."
    if retrain and references >= 2:
        return "The noise floor was not asked for, so no gap can be called small or large."
    return (
        "'Inside the noise floor' cannot be claimed: the noise floor needs Retrain and at least 2 reference models of "
        "the same recipe with other seeds."
    )
