"""What limits an audit, and what it warns about, in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from scipy.special import ndtri, stdtrit

from regun.auditing.attack_results import LOSS_ATTACK, number_name
from regun.auditing.intervals import Estimate
from regun.render.numbers import fixed, many, names, with_interval

if TYPE_CHECKING:
    from regun.auditing.evaluation import Evaluation

WEAK = 0.5
"""Share of an attack's lead that unlearning must remove; less gives a warning."""
WIDE_FLOOR = 2.0
"""How many times as wide as with many models the noise floor's limits must be to be a limit of the audit."""
WIDE = 5.0
"""Points of AUC beyond which an interval that the number of records gives is a limit of the audit."""


def limits(evaluation: Evaluation) -> Iterator[str]:
    """Yield one sentence for each thing that this audit cannot show, with what it would take."""
    settings, numbers = evaluation.settings, evaluation.numbers
    judged: Sequence[str] = settings["unseen"]
    references: int = settings["references"]
    if not evaluation.before:
        yield "The power of the tests is unknown: pass the model before unlearning (before=)."
    sizes = [(one.members, one.nonmembers) for one in evaluation.attacks.values() if one.against in judged]
    m, n = max(sizes, default=(0, 0))
    points = 196 * math.sqrt((m + n + 1) / (12 * m * n)) if m else 0.0  # of a model that never saw the records
    if points > WIDE:
        yield f"{many(m, 'forgotten record')}: an AUC near 50 is known to within about {points:.0f} points only."
    if evaluation.judgement is not None and evaluation.judgement.test == "loss attack":
        yield (
            "The loss attack compares forgotten with unseen records as groups and overstates forgetting. Stronger: "
            "retrained models (retrained=), short trainings without the records (out_models=), or a prepared table "
            "(prepared=)."
        )
    if evaluation.judgement is not None and evaluation.judgement.test == "noise floor":
        yield (
            "The noise floor assumes that the retrained models were trained as the audited one was: a model retrained "
            "by another recipe can differ from them although it never saw the records."
        )
        tail = evaluation.judgement.level / 2
        width = float(stdtrit(references, 1 - tail) / ndtri(1 - tail))  # next to a floor of many models
        if width > WIDE_FLOOR:
            yield (
                f"{references + 1} retrained models say little about how much such models differ: limits of the noise "
                f"floor are up to {width:.0f} times as wide as with many. More of them make the tests stricter."
            )
    if not references:
        yield "Nothing is shown about single records: that needs reference models (2 or more retrained models)."
    elif references == 1:
        yield "With 1 reference model RMIA is noisy, and LiRA cannot run: both need 2 references or more."
    if not evaluation.retrain:
        yield "Likeness to a retrained model is not tested: that needs 3 or more retrained models."
    elif not any(gap.floor_limit is not None for gap in evaluation.gaps.values()):
        need = "it was switched off" if references >= 2 else "it needs Retrain and 2 references or more"
        yield f"There is no noise floor ({need}), so no distance to the retrained model can be called small or large."
    lacking = [name for name in ("retain", "test") if f"{name}_acc" not in numbers]
    if lacking:
        yield f"Utility is measured in part only: the {names(lacking)} split was not given."


def warnings(evaluation: Evaluation, retrain_aucs: Mapping[str, Estimate]) -> Iterator[str]:
    """Yield what looks wrong: weak forgetting, over-forgetting, exposed retained examples, lost accuracy."""
    judged: Sequence[str] = evaluation.settings["unseen"]
    yield from _weak(evaluation, judged)
    yield from _over_forgetting(evaluation, retrain_aucs)
    exposure = next((n for s in judged if (n := number_name("retain", "auc", s)) in evaluation.before), None)
    if exposure is not None:
        was, now = evaluation.before[exposure], evaluation.numbers[exposure]
        if was.high is not None and now.low is not None and now.low > was.high:
            yield (
                f"unlearning exposes retained examples: the loss attack's AUC on them rose from "
                f"{with_interval(was.value, was.low, was.high)} to {with_interval(now.value, now.low, now.high)}."
            )
    accuracy = next((n for s in judged if (n := f"{s}_acc") in evaluation.before), None)
    if accuracy is not None:
        was, now = evaluation.before[accuracy], evaluation.numbers[accuracy]
        if was.low is not None and now.high is not None and now.high < was.low:
            yield (
                f"accuracy on {accuracy.removesuffix('_acc')} examples fell from "
                f"{with_interval(was.value, was.low, was.high)} to {with_interval(now.value, now.low, now.high)}."
            )


def _weak(evaluation: Evaluation, judged: Sequence[str]) -> Iterator[str]:
    """Yield a warning if an attack that saw the records before kept more than half of its lead over Retrain or 50."""
    for attack, label in (("rmia", "RMIA"), (LOSS_ATTACK, "the loss attack")):
        name = number_name(attack, "auc", judged[0])
        if name not in evaluation.before or name not in evaluation.numbers:
            continue
        was, now = evaluation.before[name], evaluation.numbers[name]
        target = evaluation.retrain.get(name, 50.0)
        lead, left = was.value - target, now.value - target
        if was.low is not None and was.low > target and left > WEAK * lead:
            of = f"the retrained model's {fixed(target, 1)}" if name in evaluation.retrain else "50"
            yield (
                f"weak forgetting: the AUC of {label} went from {fixed(was.value, 1)} to {fixed(now.value, 1)} only. "
                f"{100 * left / lead:.0f} % of its lead over {of} is left."
            )
            return


def _over_forgetting(evaluation: Evaluation, retrain_aucs: Mapping[str, Estimate]) -> Iterator[str]:
    """Yield one warning if forgotten examples look less like members than they should, with the clearest attack."""
    below = {name: result for name, result in evaluation.attacks.items() if result.over_forgetting}
    if not below:
        return
    name = min(below, key=lambda one: below[one].auc.high or 0.0)
    result, retrain = below[name], retrain_aucs.get(name)
    limit = "50"
    if retrain is not None and retrain.low is not None:
        limit = f"Retrain's {fixed(retrain.value, 1)} (from {fixed(retrain.low, 1)})"
    others = f"; so do {len(below) - 1} of {len(evaluation.attacks) - 1} others" if len(below) > 1 else ""
    alone = ""
    if evaluation.judgement is not None and evaluation.judgement.verdict == "passed":
        alone = " Each attack alone errs in 5 % of cases; the verdict corrects for the number of its tests."
    yield (
        f"over-forgetting: {result.attack} against {result.against} has an AUC of {fixed(result.auc.value, 1)} (up to "
        f"{fixed(result.auc.high or 0.0, 1)}), below {limit}{others}. Examples that look too little like members are "
        f"exposed too.{alone}"
    )
