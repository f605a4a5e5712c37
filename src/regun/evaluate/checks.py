"""Refusals: what must hold before the numbers of an audit mean anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from regun.errors import AuditError, unknown
from regun.evaluate.leakage import UNSEEN
from regun.evaluate.membership import ATTACKS, Attack, Scorer, resolve
from regun.evaluate.metrics import same_examples
from regun.evaluate.signals import IntArray, Signals

SPLITS = ("retain", "forget", "test", "val", "heldout")


def check_splits(signals: Mapping[str, Signals]) -> None:
    """Raise unless there is a forget set and an unseen one, of two examples or more, all with the same classes."""
    for name in signals:
        if name not in SPLITS:
            raise AuditError(unknown("split", name, SPLITS))
    if "forget" not in signals or not set(signals) & set(UNSEEN):
        raise AuditError(
            f"an audit needs the forget set and one of {', '.join(UNSEEN)}, got {', '.join(signals) or 'nothing'}: "
            "membership is told by comparing forgotten with unseen examples."
        )
    for name, split in signals.items():
        if name != "retain" and len(split) < 2:
            raise AuditError(f"the {name} split has {len(split)} example; an attack needs at least 2 on each side.")
        if split.num_classes != signals["forget"].num_classes:
            raise AuditError(
                f"the {name} split has {split.num_classes} classes and the forget split "
                f"{signals['forget'].num_classes}; both must come from the same model."
            )


def aligned(signals: Mapping[str, Signals], other: Mapping[str, Signals], who: str) -> dict[str, Signals]:
    """`other` on the splits of `signals` only; raise unless it has them all, on the same examples and label space."""
    missing = [name for name in signals if name not in other]
    if missing:
        raise AuditError(f"{who} lacks the {', '.join(missing)} split; run it on every split of the audited model.")
    for name, split in signals.items():
        same_examples(split, other[name], f"the audited model and {who} on {name}")
    return {name: other[name] for name in signals}


def check_distinct(
    models: Sequence[tuple[str, Mapping[str, Signals]]], references: Sequence[Mapping[str, Signals]]
) -> None:
    """Raise if a reference is the same model as another one: in its own denominator a model looks closer than it is."""
    known = list(models)
    for number, reference in enumerate(references):
        for who, other in known:
            if np.array_equal(reference["forget"].log_probs, other["forget"].log_probs):
                raise AuditError(
                    f"reference {number} gives exactly the outputs of {who} on the forget set: the same model twice. "
                    "Use references of other seeds, each once."
                )
        known.append((f"reference {number}", reference))


def check_never_trained_on(forget: IntArray, trained_on: Sequence[Iterable[int] | None], references: int) -> None:
    """Raise if a reference trained on a forgotten example: it would no longer show what unseen data looks like."""
    if trained_on and len(trained_on) != references:
        raise AuditError(
            f"trained_on has {len(trained_on)} entries for {references} references; give one each, or None."
        )
    for number, ids in enumerate(trained_on):
        if ids is None:
            continue
        both = np.intersect1d(forget, np.array(list(ids), dtype=np.int64))
        if len(both):
            raise AuditError(
                f"reference {number} trained on {len(both)} of the {len(forget)} forgotten examples (first id "
                f"{both[0]}); a reference must never have seen them. Use models trained on the retain set only."
            )


def choose_attacks(attacks: Sequence[str | Attack | Scorer] | None, references: int, population: bool) -> list[Attack]:
    """The attacks asked for, refused if they cannot run; with None, all of the table that can."""
    if attacks is None:
        able = (a for a in ATTACKS.values() if a.references <= references)
        return [a for a in able if population or not a.population]
    chosen = [resolve(attack) for attack in attacks]
    if len({attack.name for attack in chosen}) < len(chosen):
        raise AuditError(f"two attacks share a name: {', '.join(a.name for a in chosen)}; give each its own.")
    for attack in chosen:
        if attack.references > references or (attack.population and not population):
            raise AuditError(
                f"the attack {attack.name!r} needs {attack.references} or more reference models"
                f"{' and a val split' if attack.population else ''}; got {references} references"
                f"{'' if population else ' and no val split'}."
            )
    return chosen
