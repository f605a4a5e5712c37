"""What a search minimises: from what models said to one score, its two sides and its parts.

gap        mean |difference| to Retrain over retain, forget and validation accuracy and RMIA AUC (Gap RFVP)
reference  (|AUC - 50| beyond its interval) + (KS distance beyond its critical value) of forgotten against unseen
           examples + (accuracy lost on unseen) + (accuracy lost on retained); no retrained model is needed
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regun.auditing import Predictions, evaluate
from regun.auditing.intervals import auc_interval, ks_bar
from regun.auditing.metrics import GAPS, correct
from regun.auditing.predictions import FloatArray
from regun.auditing.roc import Contrast
from regun.errors import AuditError, SettingsError, unknown

OBJECTIVES = {
    "gap": "Gap RFVP, the distance to Retrain on validation; needs the retrained model and the references",
    "reference": "forgotten examples look like unseen ones, at the least loss of accuracy; needs no retrained model",
}


@dataclass(frozen=True)
class Scored:
    """A score to minimise, what it says of forgetting and of utility (both to minimise), and its parts, in points.

    `diverged` says why there was nothing to score.
    """

    score: float
    forgetting: float
    utility: float
    parts: Mapping[str, float]
    diverged: str | None = None


def check_objective(name: str) -> None:
    """Raise unless there is such an objective."""
    if name not in OBJECTIVES:
        raise SettingsError([unknown("objective", name, OBJECTIVES)])


def worst(objective: str, diverged: str) -> Scored:
    """The highest score there can be, which a run that diverged gets."""
    highest = {"gap": (100.0, 100.0, 100.0), "reference": (350.0, 150.0, 200.0)}[objective]
    return Scored(*highest, {}, diverged)


def gap_score(
    target: Mapping[str, Predictions],
    retrain: Mapping[str, Predictions],
    references: Sequence[Mapping[str, Predictions]],
) -> Scored:
    """Gap RFVP; forgetting is the mean of its forget and RMIA terms, utility that of retain and validation."""
    found = evaluate(target, retrain, references, attacks=["rmia"], bootstrap=0, floor=False)
    terms = {name: found.gaps[name].value for name in GAPS["gap_rfvp"]}
    forgetting = (terms["forget_acc"] + terms["rmia_auc_val"]) / 2
    utility = (terms["retain_acc"] + terms["val_acc"]) / 2
    return Scored((forgetting + utility) / 2, forgetting, utility, terms)


def reference_score(target: Mapping[str, Predictions], before: Mapping[str, Predictions]) -> Scored:
    """How far forgotten examples are from looking unseen, plus the accuracy lost since `before`, the base model.

    Both hold forget, unseen and, if there are any, retain. The attack is on the loss, the distance between the
    distributions of confidence; only what chance does not explain counts. Only drops of accuracy count. A model that
    never saw a class treats it unlike the others, and rightly so: unseen examples of classes that are not forgotten do
    not take part in the comparison, nor those of classes that are gone in the accuracy.
    """
    contrast = Contrast.of(target["forget"].true_log_prob, _of_the_same_classes(target["forget"], target["unseen"]))
    auc, ks = auc_interval(contrast), float(contrast.advantage()[0])
    lost = {f"{name}_lost": _accuracy_lost(target, before, name) for name in ("unseen", "retain") if name in before}
    parts = {
        "auc": auc.value,
        "auc_beyond": beyond(auc.value, auc.low, auc.high),
        "ks": 100.0 * ks,
        "ks_beyond": 100.0 * max(0.0, ks - ks_bar(len(contrast.members), len(contrast.nonmembers))),
        **lost,
    }
    forgetting, utility = parts["auc_beyond"] + parts["ks_beyond"], sum(lost.values())
    return Scored(forgetting + utility, forgetting, utility, parts)


def beyond(value: float, low: float | None, high: float | None, target: float = 50.0) -> float:
    """How far an interval stays away from `target`; 0 if it holds it.

    >>> beyond(60.0, 53.0, 67.0), beyond(52.0, 45.0, 59.0), beyond(40.0, 34.0, 46.0)
    (3.0, 0.0, 4.0)
    """
    low, high = (value if low is None else low), (value if high is None else high)
    return max(0.0, low - target, target - high)


def _accuracy_lost(target: Mapping[str, Predictions], before: Mapping[str, Predictions], name: str) -> float:
    known = np.ones(len(before[name]), dtype=bool)
    if "retain" in before:
        known = np.isin(before[name].labels, before["retain"].labels)
    if not known.any():
        return 0.0
    return max(0.0, 100.0 * float((correct(before[name])[known] - correct(target[name])[known]).mean()))


def _of_the_same_classes(forget: Predictions, unseen: Predictions) -> FloatArray:
    chosen = unseen.true_log_prob[np.isin(unseen.labels, forget.labels)]
    if min(len(chosen), len(forget)) < 2:
        raise AuditError(
            f"the reference objective compares {len(forget)} forgotten with {len(chosen)} unseen examples of the same "
            f"classes; it needs at least 2 of each. Set more aside, as held-out or validation examples."
        )
    return chosen
