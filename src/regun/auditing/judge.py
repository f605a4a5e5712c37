"""The one verdict of an audit. It rests on the strongest test that the available models allow:

    noise floor   three or more retrained models: the main gap and each of its parts, the influence left, and how many
                  of all numbers are beyond their limits (floor_verdict.py)
    influence     the model before unlearning, and models that never saw the records: record by record
    loss attack   nothing but unseen records: the loss separates forgotten from unseen records, or it does not

All tests of a verdict together have an error rate of 5 %, so a retrained model fails in at most about 5 % of cases.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from regun.auditing.estimates import Ranked
from regun.auditing.gaps import INFLUENCE
from regun.auditing.influence import TOGETHER, Influence
from regun.auditing.intervals import Estimate, auc_interval
from regun.auditing.predictions import LOG_FLOOR, SplitPredictions
from regun.auditing.roc import Contrast
from regun.auditing.verdict import ERROR_RATE, OF_INFLUENCE, UNKNOWN_POWER, Judgement, Part, Verdict
from regun.render.numbers import fixed, interval


def judge_by_influence(left: Influence) -> Judgement:
    """Return the verdict by the influence that forgotten records have left."""
    p_before = left.p("before")
    before = f"Before: the forgotten records were recognisable (p = {p_before:.2g}). " if left.measurable else ""
    now = {
        "forgotten": "Now: not recognisable. ",
        "remembered": "Now: still recognisable. " if left.measurable else "Now: recognisable. ",
        "over-forgotten": "Now: over-forgotten. ",
        "inconclusive": "Now: inconclusive. " if left.measurable else "",
    }[left.verdict]
    level = ERROR_RATE / max(1, len(left.parts))
    parts = tuple(
        Part(
            INFLUENCE,
            OF_INFLUENCE[part.verdict],
            f"influence, against {'all unseen' if part.against == TOGETHER else part.against} records "
            f"({part.unseen:,}): p = {part.p_after:.2g}, before p = {part.p_before:.2g}; limit {level:.2g}",
            part.p_before < level and part.before.value > 0,
        )
        for part in left.parts
    )
    return Judgement(OF_INFLUENCE[left.verdict], "influence", f"{before}{now}{left.why}", parts, INFLUENCE)


def judge_by_loss(
    predictions: SplitPredictions,
    before: SplitPredictions | None,
    retrain: SplitPredictions | None,
    judged: Sequence[str],
) -> Judgement:
    """Return the verdict by the loss attack against each judged set.

    A model that never saw the records gives an AUC of 50, if they are like unseen ones. A set passes if its interval
    now holds 50, did not before, and the AUC lost significantly more than half of its lead. One set that fails is
    enough; otherwise the sets count that flag the model before unlearning.
    """
    level = 1 - ERROR_RATE / len(judged)
    tests = [
        _loss_test([_loss_ranks(m, split) for m in (predictions, before, retrain)], split, level) for split in judged
    ]
    counted = [one for one in tests if one[0].flagged or one[0].verdict == "failed"] or tests
    part, reason = min(counted, key=lambda one: ("failed", "inconclusive", "passed").index(one[0].verdict))
    return Judgement(part.verdict, "loss attack", reason, tuple(part for part, _ in tests), part.name)


def _loss_test(models: Sequence[Ranked | None], split: str, level: float) -> tuple[Part, str]:
    """Return the loss attack against one set, and its result in plain words.

    `models` are the audited one, the one before unlearning and Retrain, as far as there are such.
    """
    auc, was, truth = (_auc(ranks, level) for ranks in models)
    assert auc is not None
    now, before = (_shown(ranks, level) for ranks in models[:2])
    flagged = None if was is None else (was.low or 0.0) > 50
    start = f"Before: the forgotten records were recognisable (loss attack AUC {before}). " if flagged else ""
    verdict: Verdict = "inconclusive"
    if truth is not None and not _holds_50(truth):
        reason = (
            f"The loss attack flags the forgotten records in a retrained model too (AUC {_shown(models[2], level)}). "
            f"They are not like {split} records, so it shows nothing here."
        )
    elif not _holds_50(auc):
        verdict = "failed"
        still = "still recognisable" if flagged else "the forgotten records are recognisable"
        over = "over-forgotten: the forgotten records look less like members than unseen ones"
        reason = f"{start}Now: {still if auc.value > 50 else over} (loss attack AUC {now})."
    elif flagged and _fell(models, auc, was, level):
        verdict = "passed"
        reason = f"{start}Now: not recognisable ({now})."
    elif flagged:
        reason = f"{start}Now: {now}. That holds 50, but the AUC did not significantly lose half of its lead."
    elif flagged is None:
        reason = f"The forgotten records are not recognisable (loss attack AUC {now}). But: {UNKNOWN_POWER}"
    else:
        reason = (
            f"The forgotten records were not recognisable before unlearning either (loss attack AUC {before}; now "
            f"{now}): this test has no power."
        )
    name, change = f"loss attack against {split}", f", before {_ends(was)}" if was is not None else ""
    return Part(name, verdict, f"{name}: AUC {_ends(auc)}{change}", flagged), reason


def _loss_ranks(model: SplitPredictions | None, split: str) -> Ranked | None:
    if model is None:
        return None
    return Ranked(*(np.maximum(model[name].true_log_prob, LOG_FLOOR) for name in ("forget", split)))


def _auc(ranks: Ranked | None, level: float) -> Estimate | None:
    return auc_interval(Contrast.of(ranks.members, ranks.nonmembers), level) if ranks is not None else None


def _fell(models: Sequence[Ranked | None], auc: Estimate, was: Estimate | None, level: float) -> bool:
    """Return True if the AUC fell significantly, and by more than half of its lead over 50."""
    now, before = models[:2]
    if now is None or before is None or was is None or auc.value - 50 > (was.value - 50) / 2:
        return False
    return was.value - auc.value > float(ndtri((1 + level) / 2)) * (now.noise(before) or 0.0)


def _holds_50(auc: Estimate) -> bool:
    return auc.low is None or auc.high is None or auc.low <= 50 <= auc.high


def _shown(ranks: Ranked | None, level: float) -> str:
    """Return the AUC with its 95 % interval; at `level`, if that decides otherwise on whether it holds 50."""
    plain, corrected = _auc(ranks, 1 - ERROR_RATE), _auc(ranks, level)
    if plain is None or corrected is None:
        return ""
    return _ends(plain) if _holds_50(plain) == _holds_50(corrected) else f"{_ends(corrected)} at {100 * level:.3g} %"


def _ends(auc: Estimate) -> str:
    return f"{fixed(auc.value, 1)}, {interval(auc.low, auc.high)}"
