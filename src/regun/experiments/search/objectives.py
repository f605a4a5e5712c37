"""What a search minimises: from predictions to one score, its two sides and its parts.

gap        mean |difference| to Retrain over retain, forget and validation accuracy and RMIA AUC (Gap RFVP)
reference  (|AUC - 50| beyond its interval) + (KS distance beyond its critical value) of forgotten against unseen
           examples + (accuracy lost on unseen) + (accuracy lost on retained); no retrained model is needed
"""

from collections.abc import Mapping, Sequence

import numpy as np

from regun.auditing import Predictions, evaluate
from regun.auditing.intervals import auc_interval, ks_bar
from regun.auditing.metrics import GAPS, correct
from regun.auditing.roc import Contrast
from regun.errors import AuditError, SettingsError, unknown
from regun.experiments.search.trials import TrialScore

OBJECTIVES = {
    "gap": "Gap RFVP, the distance to Retrain on validation; needs the retrained model and the references",
    "reference": "forgotten examples look like unseen ones, at the least loss of accuracy; needs no retrained model",
}


def check_objective(name: str) -> None:
    """Raise unless there is such an objective."""
    if name not in OBJECTIVES:
        raise SettingsError([unknown("objective", name, OBJECTIVES)])


def worst(objective: str, diverged: str) -> TrialScore:
    """Return the highest possible score, which a diverged run gets."""
    score, forgetting, utility = {"gap": (100.0, 100.0, 100.0), "reference": (350.0, 150.0, 200.0)}[objective]
    return TrialScore(score=score, forgetting=forgetting, utility=utility, diverged=diverged)


def gap_score(
    target: Mapping[str, Predictions],
    retrain: Mapping[str, Predictions],
    references: Sequence[Mapping[str, Predictions]],
) -> TrialScore:
    """Return Gap RFVP; forgetting is the mean of its forget and RMIA terms, utility that of retain and validation."""
    evaluation = evaluate(target, retrain, references, attacks=["rmia"], bootstrap=0, floor=False)
    terms = {name: evaluation.gaps[name].value for name in GAPS["gap_rfvp"]}
    forgetting = (terms["forget_acc"] + terms["rmia_auc_val"]) / 2
    utility = (terms["retain_acc"] + terms["val_acc"]) / 2
    return TrialScore(score=(forgetting + utility) / 2, forgetting=forgetting, utility=utility, parts=terms)


def reference_score(target: Mapping[str, Predictions], before: Mapping[str, Predictions]) -> TrialScore:
    """Return how much forgotten examples differ from unseen ones, plus the accuracy lost since `before`, the base.

    Both hold forget, unseen and, if there are any, retain. The attack uses the loss; the distance is between the
    distributions of confidence. Only what is significant counts, and only drops of accuracy. A model that was not
    trained on a class rightly treats it differently: the comparison uses unseen examples of forgotten classes only,
    and the accuracy uses retained classes only.
    """
    forget, unseen = target["forget"], target["unseen"]
    same_classes = np.isin(unseen.labels, forget.labels)
    if min(same_classes.sum(), len(forget)) < 2:
        raise AuditError(
            f"the reference objective needs at least 2 forgotten and 2 unseen examples of the same classes; got "
            f"{len(forget)} and {same_classes.sum()}. Set more aside as held-out or validation examples."
        )
    contrast = Contrast.of(forget.true_log_prob, unseen.true_log_prob[same_classes])
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
    return TrialScore(score=forgetting + utility, forgetting=forgetting, utility=utility, parts=parts)


def beyond(value: float, low: float | None, high: float | None) -> float:
    """Return the distance of the interval of an AUC to 50 %, a guess; 0 if it contains it.

    >>> beyond(60.0, 53.0, 67.0), beyond(52.0, 45.0, 59.0), beyond(40.0, 34.0, 46.0)
    (3.0, 0.0, 4.0)
    """
    low, high = (value if low is None else low), (value if high is None else high)
    return max(0.0, low - 50.0, 50.0 - high)


def _accuracy_lost(target: Mapping[str, Predictions], before: Mapping[str, Predictions], name: str) -> float:
    retained = np.ones(len(before[name]), dtype=bool)
    if "retain" in before:
        retained = np.isin(before[name].labels, before["retain"].labels)
    if not retained.any():
        return 0.0
    return max(0.0, 100.0 * float((correct(before[name])[retained] - correct(target[name])[retained]).mean()))
