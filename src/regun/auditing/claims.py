"""What an audit found and what it can and cannot claim, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from regun.auditing.attack_results import LOSS_ATTACK, AttackResult, number_name
from regun.auditing.influence import Influence
from regun.auditing.intervals import Estimate
from regun.auditing.verdict import OF_INFLUENCE, Verdict


@dataclass(frozen=True)
class Finding:
    """One result of an audit: what it is about, whether that is good, and a sentence with the numbers.

    `influence`: what is left of the forgotten records' influence. `loss attack`: it separates forgotten from unseen
    examples. `power`: it did not separate them before unlearning either. `retained`: the exposure of retained ones.
    """

    about: Literal["influence", "loss attack", "power", "retained"]
    outcome: Verdict
    text: str


@dataclass(frozen=True, kw_only=True)
class AuditBasis:
    """The material of an audit: splits, judged unseen sets, models, and the numbers after and before unlearning."""

    splits: tuple[str, ...]
    judged: tuple[str, ...]
    retrain: bool
    references: int
    floor: bool
    numbers: Mapping[str, Estimate]
    before: Mapping[str, Estimate]
    influence: Influence | None
    loss_aucs: Mapping[str, Estimate]
    """AUC of the loss attack against each judged set, with intervals that hold all at once."""


def findings(basis: AuditBasis) -> Iterator[Finding]:
    """Yield what was found: influence left, what the loss attack shows and could have shown, harm to retained ones."""
    if (left := basis.influence) is not None:
        yield Finding("influence", OF_INFLUENCE[left.verdict], f"Influence left: {left.verdict}. {left.why}")
    apart = {name: auc for name, auc in basis.loss_aucs.items() if not _holds(auc, 50.0)}
    if apart:
        text = "The loss attack significantly separates forgotten from unseen examples"
        yield Finding("loss attack", "failed", f"{text} ({_aucs(apart)}).")
    names = {split: number_name(LOSS_ATTACK, "auc", split) for split in basis.judged}
    were = {split: basis.before[name] for split, name in names.items() if name in basis.before}
    powerless = {split: auc for split, auc in were.items() if _holds(auc, 50.0)}
    if powerless:
        text = (
            f"The loss attack did not separate forgotten from unseen examples before unlearning ({_aucs(powerless)}). "
            "It has no power here: a pass now would be inconclusive."
        )
        yield Finding("power", "inconclusive", text)
    name = next((n for s in basis.judged if (n := number_name("retain", "auc", s)) in basis.before), None)
    if name is not None:
        was, now = basis.before[name], basis.numbers[name]
        rose = was.high is not None and now.low is not None and now.low > was.high
        text = (
            f"Unlearning {'significantly increases' if rose else 'does not significantly increase'} the exposure of "
            f"retained examples: the loss attack's AUC on them changes from {_shown(was)} to {_shown(now)}."
        )
        yield Finding("retained", "failed" if rose else "passed", text)


def claims(basis: AuditBasis) -> Iterator[str]:
    """Yield one sentence for each claim: what this audit supports, or what it lacks."""
    lacking = [name for name in ("retain", "test") if name not in basis.splits]
    if lacking:
        yield f"Utility is measured in part only: give the {' and '.join(lacking)} split as well."
    else:
        yield "Utility is measured: accuracy on retained and unseen examples."
    *first, last = basis.judged
    judged = f"{', '.join(first)} and {last}" if first else last
    yield (
        "Forgotten examples as a group are compared with unseen ones by loss, confidence and entropy "
        f"(against {judged}). Such attacks overstate forgetting, so a pass is no proof."
    )
    if not basis.before:
        yield (
            "The power of these tests is unknown, so nothing here is evidence of forgetting: give the model before "
            "unlearning."
        )
    if basis.references >= 2:
        yield f"Single forgotten examples are compared with {basis.references} reference models."
    elif basis.references == 1:
        yield "Single examples are compared with 1 reference model (RMIA); LiRA and a stable RMIA need 2 or more."
    else:
        yield (
            "Nothing can be claimed about single forgotten examples: that needs reference models trained without the "
            "forget set (1 for RMIA, 2 for LiRA)."
        )
    if basis.influence is None:
        needed = "" if basis.before else "the model before unlearning and "
        yield (
            f"The influence left cannot be measured: that needs {needed}models that never saw the forgotten examples, "
            "retrained or trained for a short time."
        )
    if basis.retrain:
        yield "The distance to a model retrained without the forget set is measured (divergence and gaps)."
    else:
        yield (
            "'Behaves as if retrained' cannot be claimed: divergence and gaps need a model retrained without the "
            "forget set. The target of an AUC is Retrain's AUC, not 50."
        )
    yield _noise_floor(basis)


def _noise_floor(basis: AuditBasis) -> str:
    """Return the claim about gaps and the noise floor."""
    if basis.floor and basis.before:
        return (
            "Every gap is shown next to the noise floor (how far retrained models are from each other) and to the gap "
            "of the model before unlearning."
        )
    if basis.floor:
        return (
            "Every gap is shown next to the noise floor (how far retrained models are from each other). 'inside' "
            "cannot be claimed without the model before unlearning: it may be inside as well."
        )
    if basis.retrain and basis.references >= 2:
        return "The noise floor was switched off, so no gap can be called small or large."
    return (
        "'Inside the noise floor' cannot be claimed: the noise floor needs Retrain and at least 2 reference models of "
        "the same recipe with other seeds."
    )


def over_forgetting(results: Mapping[str, AttackResult], retrain_aucs: Mapping[str, Estimate]) -> Iterator[str]:
    """Yield a warning for each attack to which forgotten examples look less like members than they should."""
    for name, result in results.items():
        retrain, limit = retrain_aucs.get(name), "50"
        if retrain is not None and retrain.low is not None:
            limit = f"Retrain's {retrain.value:.1f} (from {retrain.low:.1f})"
        if result.over_forgetting:
            yield (
                f"over-forgetting: {result.attack} against {result.against} has an AUC of {result.auc.value:.1f} (up "
                f"to {result.auc.high:.1f}), below {limit}; examples that look too little like members are exposed too."
            )


def _holds(estimate: Estimate, value: float) -> bool:
    return estimate.low is None or estimate.high is None or estimate.low <= value <= estimate.high


def _aucs(estimates: Mapping[str, Estimate]) -> str:
    return "; ".join(f"AUC {_shown(auc)} against {split}" for split, auc in estimates.items())


def _shown(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.1f}"
    return f"{estimate.value:.1f} ({estimate.low:.1f} to {estimate.high:.1f})"
