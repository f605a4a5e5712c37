"""How much influence forgotten records still have: each compared with what models that never saw it say of it.

Out models saw neither the forgotten records nor the unseen ones; what they say of a record is its hardness. A model
that never saw a record treats it as it treats unseen ones that are as hard. So, for a model M and a record x, with phi
the log-odds of the true label,

    r_M(x)    = phi_M(x) - what M usually gives unseen records as hard as x
    effect(M) = sum of w(x) r_M(x) over forgotten x,   share left = effect(after) / effect(before)

If M never saw them, effect(M) is distributed as that of unseen records drawn in their places, at any number of records,
one too. The weights look at the out models, at unseen records and at how sure members usually are, never at M's word on
the forgotten records: w = gain / (spread^2 + gain^2 / 4), with gain what a member that hard usually gains. That is best
for telling a model that forgot from one that has half of the records left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from regun.auditing.checks import aligned, judged_sets
from regun.auditing.hardness import HardnessIndex, null_effects
from regun.auditing.intervals import Estimate, rng
from regun.auditing.predictions import FloatArray, Predictions, SplitPredictions
from regun.auditing.verdict import ERROR_RATE, InfluenceVerdict
from regun.errors import AuditError

ALLOWED = (-1.0, 0.5)
"""Shares of influence that must be ruled out before records count as forgotten: half of it left, and over-forgetting by
as much as was remembered."""
HALVED = 0.45
"""A record that has this part of its confidence left, or less, has lost half of it, with something to spare."""
TOGETHER = "unseen"
"""All unseen sets taken together."""
DRAWS = 2000
_FEWEST = 20  # unseen records from which on a set says anything
_MANY = 300  # records whose random halves are normal
_EXTREME = 12.0  # log-odds beyond it are rounding
_ROUNDING = 1e-6  # effects in log-odds that are nearer to each other are equal


@dataclass(frozen=True)
class InfluencePart:
    """Against one unseen set, or all together: effects in log-odds, the share left in percent, the chances that a model
    which never saw the records shows an effect as large (`p_before`, `p_after`)."""

    against: str
    unseen: int
    before: Estimate
    after: Estimate
    share: Estimate
    p_before: float
    p_after: float
    verdict: InfluenceVerdict


@dataclass(frozen=True)
class Influence:
    """How much influence the forgotten records still have.

    `share` is what is left in percent of the influence on the model before unlearning; each of its bounds holds in 95 %
    of cases. `halved` counts the records that lost half of the confidence that it had in their labels. `parts` are the
    looks that were taken: none where there are too few unseen records.
    """

    verdict: InfluenceVerdict
    share: Estimate
    records: int
    out_models: int
    halved: int
    parts: tuple[InfluencePart, ...]
    why: str

    @property
    def measurable(self) -> bool:
        """True if the model before unlearning shows an influence, so that a share of it means something."""
        p_value = self.p("before")
        return p_value is not None and p_value < ERROR_RATE

    def p(self, which: Literal["before", "after"]) -> float | None:
        """Return the p-value that a model which never saw the records shows as large an effect, over all comparisons;
        None if there were none."""
        p_values = [part.p_after if which == "after" else part.p_before for part in self.parts]
        return min(1.0, len(p_values) * min(p_values)) if p_values else None

    def to_json(self) -> dict[str, Any]:
        parts = [{**asdict(p), **{k: getattr(p, k).to_json() for k in _NUMBERS}} for p in self.parts]
        return {**asdict(self), "share": self.share.to_json(), "parts": parts}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Influence:
        parts: list[dict[str, Any]] = [{**p, **{k: Estimate(*p[k]) for k in _NUMBERS}} for p in value["parts"]]
        whole: dict[str, Any] = {"share": Estimate(*value["share"]), "parts": tuple(InfluencePart(**p) for p in parts)}
        return cls(**{**value, **whole})


_NUMBERS = ("before", "after", "share")


def influence(
    after: SplitPredictions,
    before: SplitPredictions,
    out_models: Sequence[SplitPredictions],
    *,
    unseen: Sequence[str] | None = None,
    seed: int = 0,
) -> Influence:
    """Return how much of the records' influence on `before` is left in `after`, compared with every unseen set.

    `out_models` are models that saw neither the forgotten nor the unseen records: retrained ones, or short trainings on
    retain. Leave out of `unseen` a set that a method trained towards (default: all of test, heldout, val there are).
    """
    names = judged_sets(after, unseen)
    needed = {name: after[name] for name in ("forget", *names)}
    if not out_models:
        raise AuditError("influence needs at least 1 model that never saw the forgotten records; give retrained ones.")
    models = [aligned(needed, before, "the model before unlearning"), needed]
    aligned_models = [aligned(needed, out, f"out model {k}") for k, out in enumerate(out_models)]
    sizes = {name: len(needed[name]) for name in names}
    every = ([(TOGETHER, names)] if len(names) > 1 else []) + [(name, (name,)) for name in names]
    sets = [(name, one) for name, one in every if sum(sizes[part] for part in one) >= _FEWEST]
    member = float(_odds(before["retain"]).mean()) if "retain" in before else _EXTREME
    parts = tuple(_part(name, one, models, aligned_models, member, len(sets), seed) for name, one in sets)
    fell = np.exp(after["forget"].true_log_prob - np.maximum(models[0]["forget"].true_log_prob, -_EXTREME)) <= HALVED
    records, halved = len(needed["forget"]), int(fell.sum())
    if not parts:
        have = f"{', '.join(sizes)} {'has' if len(sizes) == 1 else 'together have'} {sum(sizes.values())}"
        why = f"The test of {_who(records)} needs at least {_FEWEST} unseen records; {have}. It has no power."
        return Influence("inconclusive", Estimate(100.0), records, len(aligned_models), halved, (), why)
    # Significant against any set: remembered or over-forgotten. Forgotten: against all unseen records together, if a
    # model half-way between in its outputs, which leaves each at least half of its confidence, is ruled out.
    significant = [part for part in parts if part.verdict in ("remembered", "over-forgotten")]
    part = min(significant, key=lambda p: p.p_after) if significant else parts[0]
    verdict: InfluenceVerdict = part.verdict if significant or halved else "inconclusive"
    why = _why(verdict, part, records, len(parts))
    return Influence(verdict, part.share, records, len(aligned_models), halved, parts, why)


def _odds(predictions: Predictions) -> FloatArray:
    return np.clip(predictions.true_logit, -_EXTREME, _EXTREME)


def _part(
    against: str,
    sets: Sequence[str],
    models: Sequence[SplitPredictions],
    out_models: Sequence[SplitPredictions],
    member: float,
    comparisons: int,
    seed: int,
) -> InfluencePart:
    """Return the comparison with some unseen sets; `models` are those before and after."""

    def odds(model: SplitPredictions, names: Sequence[str]) -> FloatArray:
        return np.concatenate([_odds(model[name]) for name in names])

    hard, easy = (sum(odds(out, names) for out in out_models) / len(out_models) for names in (("forget",), sets))
    index = HardnessIndex.of(np.asarray(hard), np.asarray(easy))
    before, after = (index.residuals(odds(m, ("forget",)), odds(m, sets)) for m in models)
    gain = np.maximum(member - before.usual, 1e-3)
    weights = gain / (after.spread**2 + gain**2 / 4)
    weights /= weights.sum()
    effects = np.array([weights @ before.forget, weights @ after.forget])
    drawn = null_effects(index, (before, after), weights, DRAWS, rng(seed, "influence", against))
    centre = drawn.mean(axis=1)
    left = _halves(weights * before.forget, rng(seed, "influence left", against))
    return _judge_effects(against, len(index.unseen), effects - centre, drawn - centre[:, None], left, comparisons)


def _halves(parts: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Return how much it matters which half of the records is left: effects of random halves, less half of all.

    A record that had little influence may be left unseen, so few records say less than their number. Of very many, the
    normal that their sum then follows. A single record has no half.
    """
    n = len(parts)
    if n == 1:
        return np.zeros(DRAWS)
    if n > _MANY:
        return generator.standard_normal(DRAWS) * float((parts - parts.mean()).std()) * math.sqrt(n) / 2
    left = (
        generator.permuted(np.tile(np.arange(n), (DRAWS, 1)), axis=1) < (n + generator.integers(0, 2, (DRAWS, 1))) // 2
    )
    return left @ parts - parts.sum() / 2


def _judge_effects(
    against: str, unseen: int, effects: FloatArray, drawn: FloatArray, left: FloatArray, comparisons: int
) -> InfluencePart:
    """Return p-values, intervals and the verdict of the effects before and after, from `drawn` under the null."""
    p_values, estimates = list[float](), list[Estimate]()
    for effect, null in zip(effects, drawn, strict=True):
        p_values.append(two_sided_p(float(effect), null))
        low, high = np.quantile(effect - null, [ERROR_RATE / 2, 1 - ERROR_RATE / 2])
        estimates.append(Estimate(float(effect), float(low), float(high)))
    (p_before, p_after), (before, after) = p_values, estimates
    share = Estimate(100.0)
    if effects[0] > 0:
        bounds = np.quantile((effects[1] - drawn[1] - left) / effects[0], [ERROR_RATE, 1 - ERROR_RATE])
        share = Estimate(*(100.0 * float(v) for v in (effects[1] / effects[0], *bounds)))
    measurable = p_before < ERROR_RATE / comparisons and effects[0] > 0
    verdict: InfluenceVerdict = "inconclusive"
    if p_after < ERROR_RATE / comparisons:
        verdict = "remembered" if effects[1] > 0 else "over-forgotten"
    elif measurable and 100 * ALLOWED[0] < (share.low or 0.0) and (share.high or 0.0) < 100 * ALLOWED[1]:
        verdict = "forgotten"
    return InfluencePart(against, unseen, before, after, share, p_before, p_after, verdict)


def two_sided_p(effect: float, drawn: FloatArray) -> float:
    """Return the two-sided p-value of an effect by its rank among the drawn ones; the effect itself is one more."""
    above, below = int((drawn >= effect - _ROUNDING).sum()), int((drawn <= effect + _ROUNDING).sum())
    return min(1.0, 2.0 * (1 + min(above, below)) / (len(drawn) + 1))


def _who(records: int) -> str:
    return "the forgotten record" if records == 1 else f"the {records} forgotten records"


def _why(verdict: InfluenceVerdict, part: InfluencePart, records: int, comparisons: int) -> str:
    """Return the verdict in one sentence, with its numbers."""
    who = _who(records)
    them = "it" if records == 1 else "them"
    like = f"{'unseen' if part.against == TOGETHER else f'unseen ({part.against})'} records that are as hard"
    share, low, high = (max(0, round(v or 0.0)) for v in (part.share.value, part.share.low, part.share.high))
    left = f"{f'About {share} %' if share else 'None'} of the influence of {who} is left, at most {high} %"
    measurable = part.p_before < ERROR_RATE / comparisons and part.before.value > 0
    if verdict == "forgotten":
        return f"{left}, and the model treats {them} like {like} (p = {part.p_after:.2g})."
    if verdict in ("remembered", "over-forgotten"):
        side = "surer" if verdict == "remembered" else "less sure"
        rest = f"; about {share} % of the influence is left" if measurable and share else ""
        return f"The model is {side} of {who} than of {like} (p = {part.p_after:.2g}){rest}."
    if not measurable:
        return (
            f"The model before unlearning already treated {who} like {like} (p = {part.p_before:.2g}): the test has no "
            "power."
        )
    if part.verdict == "forgotten":
        return (
            f"{left}; but no record lost half of the confidence in its label, so a model that is half-way to a "
            "retrained one cannot be ruled out."
        )
    least = f"{low} %" if low else "none"
    return f"Between {least} and {high} % of the influence of {who} may be left: too uncertain to call it forgotten."
