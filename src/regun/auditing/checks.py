"""Checks of an audit's inputs: what must hold before its numbers mean anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from regun.auditing.attack_results import attack_metrics, number_name
from regun.auditing.attacks import ATTACKS, Attack, Scorer, resolve_attack
from regun.auditing.estimates import Measure, Metric
from regun.auditing.metrics import BUILT_IN, resolve_metric
from regun.auditing.predictions import (
    SPLITS,
    UNSEEN,
    FloatArray,
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


def align_models(
    predictions: SplitPredictions,
    retrain: SplitPredictions | None,
    before: SplitPredictions | None,
    references: Sequence[SplitPredictions],
) -> tuple[SplitPredictions | None, SplitPredictions | None, list[SplitPredictions]]:
    """Return Retrain, the model before unlearning and the references on the splits of the audited model, checked."""
    truth = aligned(predictions, retrain, "Retrain") if retrain is not None else None
    past = aligned(predictions, before, "the model before unlearning") if before is not None else None
    same_splits: list[SplitPredictions] = [
        aligned(predictions, one, f"reference {k}") for k, one in enumerate(references)
    ]
    check_distinct({"the audited model": predictions, "Retrain": truth}, same_splits)
    return truth, past, same_splits


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


def check_distinct(models: Mapping[str, SplitPredictions | None], references: Sequence[SplitPredictions]) -> None:
    """Raise if a reference is the same model as another one: in its own denominator a model looks closer than it is."""

    def answers(model: SplitPredictions) -> FloatArray:
        forget = model["forget"]
        return forget.log_probs if forget.complete else np.stack([forget.true_log_prob, forget.entropy], axis=1)

    earlier = {who: answers(model) for who, model in models.items() if model is not None}
    for number, reference in enumerate(references):
        ours = answers(reference)
        for who, theirs in earlier.items():
            if all(np.array_equal(ours[rows], theirs[rows]) for rows in row_blocks(ours, theirs)):
                raise AuditError(
                    f"reference {number} gives exactly the outputs of {who} on the forget set: the same model twice. "
                    "Use references of other seeds, each once."
                )
        earlier[f"reference {number}"] = ours


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
    numbers = [name for attack in chosen for against in UNSEEN for name in attack_metrics(attack, against)]
    resolved = [resolve_metric(metric) for metric in metrics if metric not in numbers]  # these come by themselves
    measures = [*BUILT_IN.values(), *(metric for metric in resolved if metric is not BUILT_IN.get(metric.name))]
    # `x` against validation and `x_val` against test share a name, too
    _check_unique("attacks", (number_name(attack.name, "", against) for attack in chosen for against in UNSEEN))
    _check_unique("numbers", (*numbers, *(metric.name for metric in measures)))
    return chosen, measures


def _check_unique(what: str, names: Iterable[str]) -> None:
    shared = [name for name, count in Counter(names).items() if count > 1]
    if shared:
        raise AuditError(f"two {what} share a name: {', '.join(shared)}; rename your attack or metric.")
