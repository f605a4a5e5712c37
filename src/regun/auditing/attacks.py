"""Membership attacks: from predictions to one score per example; higher means 'more like a member'."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from regun.auditing.lira import offline_lira
from regun.auditing.metrics import correct
from regun.auditing.predictions import LOG_FLOOR, FloatArray, Predictions, log_sum_exp
from regun.auditing.user_functions import at_the_border, check_name, first_line, name_of
from regun.errors import AuditError, unknown
from regun.plugins import find_function


@dataclass(frozen=True, eq=False)
class Evidence:
    """The input of an attack: examples it must score; it does not see which are members.

    `target` is the audited model on them, `references` are models that never trained on them, `population` is the
    same for examples that no model trained on, `offline_a` the tuned `a` of offline RMIA.
    """

    target: Predictions
    references: tuple[Predictions, ...] = ()
    population: Evidence | None = None
    offline_a: float = 1.0


Scorer = Callable[[Evidence], FloatArray]
"""An attack's function: from the evidence on n examples to n finite scores. Allowed wherever an attack's name is."""


@dataclass(frozen=True)
class Attack:
    """A named attack and its needs: the least number of references, a population, whether it uses references at all."""

    name: str
    score: Scorer
    label: str = ""
    references: int = 0
    population: bool = False
    uses_references: bool = True

    def __post_init__(self) -> None:
        check_name(self.name, "attack")
        object.__setattr__(self, "label", self.label or self.name.replace("_", " "))

    @property
    def meaning(self) -> str:
        """The first line of its function's docstring."""
        return first_line(self.score)

    def __call__(self, evidence: Evidence) -> FloatArray:
        """Return the attack's scores, checked: one finite number per example."""
        if len(evidence.references) < self.references:
            raise AuditError(
                f"the attack {self.name!r} needs at least {self.references} reference models, got "
                f"{len(evidence.references)}; train references without the forget set, or leave the attack out."
            )
        with at_the_border(f"the attack {self.name!r}"):
            scores = np.asarray(self.score(evidence), dtype=np.float64)
        if scores.shape != (len(evidence.target),) or not np.isfinite(scores).all():
            raise AuditError(
                f"the attack {self.name!r} gave scores of shape {scores.shape}, "
                f"{int((~np.isfinite(scores)).sum())} of them not finite; give {len(evidence.target)} finite numbers."
            )
        return scores


def loss(evidence: Evidence) -> FloatArray:
    """Return log p_y, minus the cross-entropy loss (SMIA)."""
    return np.maximum(evidence.target.true_log_prob, LOG_FLOOR)


def confidence(evidence: Evidence) -> FloatArray:
    """Return p_y; the ranking of `loss` up to ties where p_y rounds to 1."""
    return np.exp(evidence.target.true_log_prob)


def negative_entropy(evidence: Evidence) -> FloatArray:
    """Return sum_k p_k log p_k: a certain answer, right or wrong, looks like a member."""
    return -evidence.target.entropy


def negative_modified_entropy(evidence: Evidence) -> FloatArray:
    """Return (1 - p_y) log p_y + sum_{k != y} p_k log(1 - p_k): 0 if certain and right, low if certain and wrong."""
    return -evidence.target.modified_entropy


def correctness(evidence: Evidence) -> FloatArray:
    """Return 1 where the target's answer is the label, else 0."""
    return correct(evidence.target)


def rmia(evidence: Evidence) -> FloatArray:
    """Return log p_y - log mean_k p_k,y over the references: RMIA as in the paper's tables (a = 1, no population)."""
    return _log_ratio(evidence, a=1.0)


def rmia_offline(evidence: Evidence, *, a: float | None = None, gamma: float = 1.0) -> FloatArray:
    """Return offline RMIA as published: the share of population z with ratio(x) / ratio(z) >= gamma.

    ratio(x) = p_y / (1/2 [(1 + a) P_out + (1 - a)]), P_out the references' mean p_y.
    """
    if evidence.population is None:
        raise AuditError(
            "offline RMIA compares with a population of unseen examples and none was given; add a val split."
        )
    a = evidence.offline_a if a is None else a
    if not 0.0 <= a <= 1.0 or gamma <= 0.0:
        raise AuditError(f"offline RMIA got a={a} and gamma={gamma}; give 0 <= a <= 1 and gamma > 0.")
    population = np.sort(_log_ratio(evidence.population, a))
    bar = _log_ratio(evidence, a) - math.log(gamma)
    return np.searchsorted(population, bar, side="right").astype(np.float64) / len(population)


def lira(evidence: Evidence) -> FloatArray:
    """Return offline LiRA: how many pooled standard deviations phi lies above the references' mean."""
    return offline_lira(evidence.target.true_logit, np.stack([r.true_logit for r in evidence.references]))


ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (
        Attack("smia", loss, "loss", uses_references=False),
        Attack("confidence", confidence, "confidence", uses_references=False),
        Attack("entropy", negative_entropy, "entropy", uses_references=False),
        Attack("modified_entropy", negative_modified_entropy, "modified entropy", uses_references=False),
        Attack("correctness", correctness, "correctness", uses_references=False),
        Attack("rmia", rmia, "RMIA", references=1),
        Attack("rmia_offline", rmia_offline, "offline RMIA", references=1, population=True),
        Attack("lira", lira, "offline LiRA", references=2),
    )
}


def resolve_attack(attack: str | Attack | Scorer) -> Attack:
    """Return the attack of that name, of `file.py:function` or `module:function`, or a function as an attack."""
    if isinstance(attack, str):
        if attack in ATTACKS:
            return ATTACKS[attack]
        if ":" not in attack:
            raise AuditError(unknown("attack", attack, [*ATTACKS, "file.py:function", "module:function"]))
        attack = find_function(attack, "scores examples: score(evidence)")
    return attack if isinstance(attack, Attack) else Attack(name_of(attack), attack)


def estimate_offline_a(references: Sequence[tuple[Predictions, Predictions]]) -> float:
    """Return `a` estimated from references as targets, each as (its training examples, examples it never saw).

    P_in = a P_out + (1 - a) on average, hence a = (1 - mean p_y on seen) / (1 - mean p_y on unseen), kept in 0..1.
    """
    members = np.mean([1.0 - np.exp(inside.true_log_prob).mean() for inside, _ in references])
    unseen = np.mean([1.0 - np.exp(outside.true_log_prob).mean() for _, outside in references])
    return float(np.clip(members / unseen, 0.0, 1.0)) if unseen > 0 else 1.0


def _log_ratio(evidence: Evidence, a: float) -> FloatArray:
    """Return log of p_y / (1/2 [(1 + a) P_out + (1 - a)]); exactly log p_y - log P_out for a = 1."""
    if not evidence.references:
        raise AuditError(
            "this attack compares with reference models and none were given; train some without the forget set."
        )
    each = np.maximum(np.stack([reference.true_log_prob for reference in evidence.references]), LOG_FLOOR)
    out = log_sum_exp(each, axis=0) - np.log(len(each))
    if a < 1.0:
        out = np.logaddexp(out + np.log1p(a), np.log1p(-a)) - np.log(2.0)
    return np.maximum(evidence.target.true_log_prob, LOG_FLOOR) - out
