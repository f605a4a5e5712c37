"""What an audit found and what it can and cannot claim, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from regun.auditing.attack_results import GROUP, number_name
from regun.auditing.influence import Influence
from regun.auditing.intervals import Number


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What an audit rests on: the splits and which unseen ones are judged, whether there is a Retrain, how many
    references, whether there is a noise floor, and what was found before and after."""

    splits: tuple[str, ...]
    judged: tuple[str, ...]
    retrain: bool
    references: int
    floor: bool
    numbers: Mapping[str, Number]
    before: Mapping[str, Number]
    influence: Influence | None
    group: Mapping[str, Number] = field(default_factory=dict[str, Number])
    """AUC of the loss attack against each judged set, with intervals that hold all at once."""


def findings(basis: Basis) -> tuple[str, ...]:
    """What was found of this model: the influence left, what the loss attack sees and could have seen, and harm."""
    left = basis.influence
    influence = [f"Influence left: {left.verdict}. {left.why}"] if left is not None else []
    return (*influence, *_told_apart(basis), *_blind(basis), *_harm(basis))


def claims(basis: Basis) -> tuple[str, ...]:
    """One sentence for each claim: supported by this audit, or what it would take."""
    return (
        _utility(basis),
        _as_a_group(basis),
        *_power(basis),
        _single_examples(basis.references),
        *_influence(basis),
        _as_retrained(basis.retrain),
        _within_noise(basis),
    )


def _utility(basis: Basis) -> str:
    lacking = [name for name in ("retain", "test") if name not in basis.splits]
    if lacking:
        return f"Utility is shown in part only: give the {' and '.join(lacking)} split to measure it."
    return "Utility (accuracy on retained and unseen examples) is measured."


def _harm(basis: Basis) -> Iterable[str]:
    """Unlearning may expose examples that stay."""
    name = next((n for s in basis.judged if (n := number_name("retain", "auc", s)) in basis.before), None)
    if name is None:
        return
    was, now = basis.before[name], basis.numbers[name]
    rose = was.high is not None and now.low is not None and now.low > was.high
    yield (
        f"Retained examples are {'exposed more' if rose else 'not shown to be exposed more'} by unlearning: the loss "
        f"attack's AUC on them went from {_shown(was)} to {_shown(now)}."
    )


def _told_apart(basis: Basis) -> Iterable[str]:
    apart = [name for name, auc in basis.group.items() if not _holds(auc, 50.0)]
    if apart:
        told = "; ".join(f"AUC {_shown(basis.group[name])} against {name}" for name in apart)
        yield f"Forgotten examples as a group do not look like unseen ones: the loss attack tells them apart ({told})."


def _blind(basis: Basis) -> Iterable[str]:
    """Where the loss attack saw nothing before unlearning either."""
    were = {s: basis.before[n] for s in basis.judged if (n := number_name(GROUP, "auc", s)) in basis.before}
    blind = [name for name, auc in were.items() if _holds(auc, 50.0)]
    if blind:
        told = "; ".join(f"AUC {_shown(were[name])} against {name}" for name in blind)
        yield (
            f"The loss attack could not tell forgotten examples from unseen ones before unlearning either ({told}), so "
            "that it cannot tell them now would show nothing."
        )


def _as_a_group(basis: Basis) -> str:
    return (
        "Whether forgotten examples as a group look like unseen ones is measured (loss, confidence and entropy against "
        f"{_names(basis.judged)}); such attacks are known to overstate forgetting, so a pass here is no proof."
    )


def _power(basis: Basis) -> Iterable[str]:
    if not basis.before:
        yield (
            "What these tests could have seen is not known, so nothing here is evidence of forgetting: give the model "
            "before unlearning."
        )


def _single_examples(references: int) -> str:
    if references >= 2:
        return f"Whether single forgotten examples stand out is measured against {references} reference models."
    if references == 1:
        return "Single examples are compared with 1 reference model (RMIA); LiRA and a steady RMIA need 2 or more."
    return (
        "Whether single forgotten examples stand out cannot be claimed: that needs reference models trained without "
        "the forget set (1 for RMIA, 2 for LiRA)."
    )


def _influence(basis: Basis) -> Iterable[str]:
    if basis.influence is None:
        lacking = "" if basis.before else "the model before unlearning and "
        yield (
            f"How much influence is left cannot be said: that needs {lacking}models that never saw the forgotten "
            "examples, retrained or trained for a short time."
        )


def _as_retrained(retrain: bool) -> str:
    if retrain:
        return "How far the model is from one retrained without the forget set is measured (divergence and gaps)."
    return (
        "'Behaves as if retrained' cannot be claimed: divergence and gaps need a model retrained without the forget "
        "set. An AUC of 50 is not the target by itself; Retrain's own AUC is."
    )


def _within_noise(basis: Basis) -> str:
    if basis.floor and basis.before:
        return (
            "Every gap is shown next to how far retrained models are from each other (the noise floor), and to how far "
            "the model before unlearning was."
        )
    if basis.floor:
        return (
            "Every gap is shown next to how far retrained models are from each other (the noise floor); 'inside' "
            "cannot be claimed without the model before unlearning, which may be inside as well."
        )
    if basis.retrain and basis.references >= 2:
        return "The noise floor was not asked for, so no gap can be called small or large."
    return (
        "'Inside the noise floor' cannot be claimed: the noise floor needs Retrain and at least 2 reference models of "
        "the same recipe with other seeds."
    )


def _holds(number: Number, value: float) -> bool:
    return number.low is None or number.high is None or number.low <= value <= number.high


def _shown(number: Number) -> str:
    ends = "" if number.low is None or number.high is None else f" ({number.low:.1f} to {number.high:.1f})"
    return f"{number.value:.1f}{ends}"


def _names(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
