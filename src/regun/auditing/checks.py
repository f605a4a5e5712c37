"""Checks of an audit's inputs: what must hold before its numbers mean anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from regun.auditing.attack_results import attack_metrics, number_name
from regun.auditing.attacks import ATTACKS, Attack, Scorer, resolve_attack
from regun.auditing.estimates import Measure, Metric
from regun.auditing.metrics import BUILT_IN, resolve_metric
from regun.auditing.predictions import (
    SPLITS,
    UNSEEN,
    FloatArray,
    IntArray,
    Predictions,
    SplitPredictions,
    row_blocks,
    same_examples,
)
from regun.errors import AuditError, unknown


def check_splits(predictions: SplitPredictions) -> None:
    """Raise unless there is a forget set and an unseen one, of two examples or more, all with the same classes.

    One forgotten example is enough: it has a place among the unseen ones.
    """
    for name in predictions:
        if name not in SPLITS:
            raise AuditError(unknown("split", name, SPLITS))
    if "forget" not in predictions or not set(predictions) & set(UNSEEN):
        raise AuditError(
            f"an audit needs the forget set and one of {', '.join(UNSEEN)}, got {', '.join(predictions) or 'nothing'}: "
            "attacks compare forgotten with unseen examples."
        )
    for name, split in predictions.items():
        if name in UNSEEN and len(split) < 2:
            raise AuditError(f"the {name} split has {len(split)} example; an attack needs at least 2 unseen ones.")
        if split.num_classes != predictions["forget"].num_classes:
            raise AuditError(
                f"the {name} split has {split.num_classes} classes and the forget split "
                f"{predictions['forget'].num_classes}; both must come from the same model."
            )


def aligned(predictions: SplitPredictions, other: SplitPredictions, who: str) -> dict[str, Predictions]:
    """Return `other` on the splits of `predictions`; raise unless it has them all, on the same examples and classes."""
    missing = [name for name in predictions if name not in other]
    if missing:
        raise AuditError(f"{who} lacks the {', '.join(missing)} split; run it on every split of the audited model.")
    for name, split in predictions.items():
        same_examples(split, other[name], f"the audited model and {who} on {name}")
    return {name: other[name] for name in predictions}


def judged_sets(predictions: SplitPredictions, unseen: Sequence[str] | None) -> tuple[str, ...]:
    """Return the unseen sets that are judged: those named, or all there are; raise if one is missing or not unseen."""
    names = tuple(name for name in UNSEEN if name in predictions) if unseen is None else tuple(unseen)
    wrong = [name for name in names if name not in UNSEEN or name not in predictions]
    if wrong or not names or "forget" not in predictions:
        raise AuditError(
            f"an audit needs the forget set and unseen ones; got {', '.join(predictions) or 'nothing'} and "
            f"unseen={', '.join(names) or 'nothing'}. Give forget and at least one of {', '.join(UNSEEN)}."
        )
    return names


def check_distinct(models: Sequence[tuple[str, SplitPredictions]], references: Sequence[SplitPredictions]) -> None:
    """Raise if a reference is the same model as another one: in its own denominator a model looks closer than it is."""
    known = list(models)
    for number, reference in enumerate(references):
        for who, other in known:
            if _same_outputs(reference["forget"].log_probs, other["forget"].log_probs):
                raise AuditError(
                    f"reference {number} gives exactly the outputs of {who} on the forget set: the same model twice. "
                    "Use references of other seeds, each once."
                )
        known.append((f"reference {number}", reference))


def _same_outputs(one: FloatArray, other: FloatArray) -> bool:
    if one.shape != other.shape:
        return False
    return all(np.array_equal(one[rows], other[rows]) for rows in row_blocks(one, other))


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


def choose(
    attacks: Sequence[str | Attack | Scorer] | None,
    metrics: Sequence[str | Metric | Measure],
    references: int,
    population: bool,
) -> tuple[list[Attack], list[Metric]]:
    """Return the chosen attacks (None: all built-in ones that can run) and the built-in metrics with further ones."""
    if attacks is None:
        able = (a for a in ATTACKS.values() if a.references <= references)
        chosen = [a for a in able if population or not a.population]
    else:
        chosen = [resolve_attack(attack) for attack in attacks]
    for attack in chosen:
        if attack.references > references or (attack.population and not population):
            raise AuditError(
                f"the attack {attack.name!r} needs {attack.references} or more reference models"
                f"{' and a val split' if attack.population else ''}; got {references} references"
                f"{'' if population else ' and no val split'}."
            )
    given = [resolve_metric(metric) for metric in metrics]
    measures = [*BUILT_IN.values(), *(metric for metric in given if metric is not BUILT_IN.get(metric.name))]
    _check_shared_names(chosen, measures)
    return chosen, measures


def _check_shared_names(attacks: Sequence[Attack], metrics: Sequence[Metric]) -> None:
    """`x` against validation and `x_val` against test would share theirs, too."""
    shared = _twice(number_name(attack.name, "", against) for attack in attacks for against in UNSEEN)
    if shared:
        raise AuditError(f"two attacks share a name: {', '.join(shared)}; give each its own.")
    numbers = (name for attack in attacks for against in UNSEEN for name in attack_metrics(attack, against))
    shared = _twice((*numbers, *(metric.name for metric in metrics)))
    if shared:
        raise AuditError(f"two numbers share a name: {', '.join(shared)}; give your attack or metric another one.")


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]
