"""The one verdict of an audit. It rests on the strongest test that the given models allow:

    noise floor   three or more retrained models: every part of the main gap, and the influence left
    influence     the model before unlearning, and models that never saw the records: record by record
    loss attack   nothing but unseen records: the loss separates forgotten from unseen records, or it does not

All tests of a verdict together have an error rate of 5 %, so a retrained model fails in at most about 5 % of cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import ndtri

from regun.auditing.estimates import Metric, Ranked
from regun.auditing.floor import NoiseFloor
from regun.auditing.gaps import INFLUENCE, is_utility, times_limit, verdict_of, verdict_tests
from regun.auditing.influence import TOGETHER, Influence
from regun.auditing.intervals import Estimate, auc_interval
from regun.auditing.predictions import LOG_FLOOR, SplitPredictions
from regun.auditing.roc import Contrast
from regun.auditing.verdict import ERROR_RATE, OF_INFLUENCE, Judgement, Part, Verdict
from regun.render.numbers import fixed, interval, many

NOT_GIVEN = "The model before unlearning was not given (before=), so nobody knows what these tests could have shown."


def judge_by_floor(
    floor: NoiseFloor,
    distances: tuple[Mapping[str, float], Mapping[str, float]],
    values: tuple[Mapping[str, float], Mapping[str, float], Mapping[str, float]],
    metrics: Mapping[str, Metric],
    judged: Sequence[str],
    influence: Influence | None,
) -> Judgement:
    """Return the verdict by the noise floor.

    `distances` to Retrain are those of the audited model and of the one before unlearning (empty if unknown); `values`
    are the numbers of these two and of Retrain. `metrics` describe all numbers. `judged` are the sets that count.
    """
    tests = verdict_tests(distances[0], floor, metrics, judged, influence)
    now = times_limit(tests, distances[0], floor, len(tests), influence, before=False)
    then = times_limit(tests, distances[1], floor, len(tests), influence, before=True) if distances[1] else {}
    limits = {
        name: ERROR_RATE / len(tests) if name == INFLUENCE else floor.summary(name, len(tests)).limit for name in tests
    }
    parts: list[Part] = []
    for name in tests:
        utility = is_utility(name, metrics)
        flagged = None if utility or name not in then else then[name] > 1
        off, past = (_distance(name, each, influence, k) for k, each in enumerate(distances))
        was = f", before {past}" if past else ""
        unit = "" if name == INFLUENCE else " from retrained"
        text = f"{_label(name, metrics)}: {off}{unit}{was}; limit {limits[name]:.2g}"
        parts.append(Part(name, verdict_of(now[name] > 1, utility or bool(flagged)), text, flagged))

    def shown(name: str, which: int) -> str:
        return _value(name, which, metrics, values, limits[name], influence)

    telling = [part.name for part in parts if part.flagged]
    told = min(telling, key=lambda name: (not name.startswith("rmia"), name == INFLUENCE), default=None)
    failed = sorted((p.name for p in parts if p.verdict == "failed"), key=lambda n: (is_utility(n, metrics), -now[n]))
    worst = failed[0] if failed else max(now, key=lambda name: now[name])
    before = f"Before: the forgotten records were recognisable ({shown(told, 1)}). " if told else ""
    if failed and is_utility(worst, metrics):
        forgot = "the forgotten records pass, but the model" if told else "the model"
        reason = f"{before}Now: {forgot} differs from a retrained one ({shown(worst, 0)}, limit {limits[worst]:.2g})."
    elif failed:
        kind = _failure(worst, values, influence, known=bool(told))
        reason = f"{before}Now: {kind} ({shown(worst, 0)})."
    elif told:
        all_tests = f"not distinguishable from a retrained model by any of {many(len(tests), 'test')}"
        reason = f"{before}Now: not recognisable ({shown(told, 0)}), and {all_tests}."
    elif then:
        reason = (
            f"None of {many(len(tests), 'test')} flags the model before unlearning: the influence of the forgotten "
            "records was too small to measure, so passing shows nothing."
        )
    else:
        reason = f"Not distinguishable from a retrained model by any of {many(len(tests), 'test')}. But: {NOT_GIVEN}"
    return Judgement(verdict_of(bool(failed), bool(told)), "noise floor", reason, tuple(parts), worst)


def _label(name: str, metrics: Mapping[str, Metric]) -> str:
    return "influence, record by record" if name == INFLUENCE else metrics[name].label.removesuffix(".")


def _distance(name: str, distances: Mapping[str, float], influence: Influence | None, before: int) -> str:
    """Return how far a model is from retrained ones in one test; empty if that is not known."""
    if name == INFLUENCE and influence is not None:
        return f"p = {influence.p('before' if before else 'after') or 0.0:.2g}"
    return f"{distances[name]:.2g}" if name in distances else ""


def _value(
    name: str,
    which: int,
    metrics: Mapping[str, Metric],
    values: tuple[Mapping[str, float], Mapping[str, float], Mapping[str, float]],
    limit: float,
    influence: Influence | None,
) -> str:
    """Return a model's number (0: now, 1: before) next to the retrained model's."""
    if name == INFLUENCE:
        return f"{_label(name, metrics)}: {_distance(name, {}, influence, which)}"
    now = f"{_label(name, metrics)} {fixed(values[which][name], 1)}"
    if name in values[2]:
        return f"{now}, retrained {fixed(values[2][name], 1)}"
    return f"{now}, retrained models up to {fixed(limit, 1)}"


def _failure(
    name: str,
    values: tuple[Mapping[str, float], Mapping[str, float], Mapping[str, float]],
    influence: Influence | None,
    *,
    known: bool,
) -> str:
    """Return what a failed test on forgotten records shows; `known`: they were recognisable before."""
    if name == INFLUENCE and influence is not None:
        above = min(influence.parts, key=lambda part: part.p_after).after.value > 0
    elif name in values[2]:
        above = values[0][name] > values[2][name]
    else:
        return "treated differently than by a retrained model"
    return ("still recognisable" if known else "recognisable") if above else "over-forgotten"


def judge_by_influence(left: Influence) -> Judgement:
    """Return the verdict by the influence that forgotten records have left."""
    p_before = left.p("before")
    before = f"Before: the forgotten records were recognisable (p = {p_before:.2g}). " if left.known else ""
    now = {
        "forgotten": "Now: not recognisable. ",
        "remembered": "Now: still recognisable. " if left.known else "Now: recognisable. ",
        "over-forgotten": "Now: over-forgotten. ",
        "inconclusive": "Now: inconclusive. " if left.known else "",
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
        reason = f"The forgotten records are not recognisable (loss attack AUC {now}). But: {NOT_GIVEN}"
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
