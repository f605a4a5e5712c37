"""What a receipt says in sentences: the class of its claim, what was tried, what it does not show, a letter.

All of it is made from what happened, never from what a method means to do.
"""

from collections.abc import Sequence

from regun.auditing import ATTACKS, UNSEEN
from regun.deletion.assess import NEW, Judge
from regun.deletion.attempt import NOTHING_TO_UNLEARN, Attempt, Change
from regun.deletion.ledger import REJECTED, TAKEN, UNTESTABLE
from regun.deletion.out_models import RETRAINED
from regun.deletion.plan import Plan
from regun.deletion.request import Dates
from regun.deletion.rule import ALL
from regun.render.numbers import fixed, many, names, percent
from regun.unlearning import Outcome

ENOUGH = 30
"""Forgotten examples below which group attacks' intervals are too wide to show a weak memory."""
OUTPUTS, REFERENCES = "outputs only", "outputs and models that never saw the records"
NOT_TRIED = (
    "attacks on the weights themselves",
    "comparing the models before and after, by somebody who has both",
    "training the model further, to see whether the records come back",
    "shadow models that repeat the whole unlearning many times",
)


def claim_of(outcome: Outcome) -> str:
    """What kind of claim a run supports: `retrained`, `certified` (only where a bound holds), `empirical` or `none`."""
    if outcome.from_scratch:
        return "retrained"
    if outcome.method == NOTHING_TO_UNLEARN:
        return "none"
    bound = outcome.notes.get("certificate")
    return "certified" if isinstance(bound, dict) and bound.get("holds") is True else "empirical"


def done_to_it(outcome: Outcome, change: Change | None) -> str:
    """What a run did to the model, in words."""
    if outcome.method == NOTHING_TO_UNLEARN:
        return "nothing: the model was never trained on these records"
    if change is None:
        return f"the run broke off: {outcome.diverged}"
    if change.nothing:
        return change.nothing
    if outcome.from_scratch:
        kept = frozen(outcome)
        but = f"; {many(kept, 'frozen weight')} of {change.weights:,} kept as they were" if kept else ""
        return f"trained from fresh weights on the retained records, {many(change.steps, 'step')}{but}"
    share, far = percent(100 * change.moved / change.weights), 100 * change.relative
    size = f"{far:,.0f}" if far >= 10 else f"{far:.2g}"
    return f"{many(change.steps, 'step')}; {share} of the weights moved, by {size} % of their size"


def frozen(outcome: Outcome) -> int:
    """Weights that no training may change, and that training anew has therefore kept."""
    return sum(p.numel() for p in outcome.model.parameters() if not p.requires_grad)


# ------------------------------------------------------------------------------------------------------- what was tried


def tried(judge: Judge, last: Attempt) -> list[dict[str, str]]:
    """The attacks that were run: what each asks, with which access, against which unseen sets."""
    found: list[dict[str, str]] = []
    influence = next((one.influence for one in last.audit.values() if one.influence is not None), None)
    if influence is not None and influence.parts:  # none where there are too few unseen records
        who = "retrained models" if judge.outs.kind == RETRAINED else "short trainings without the records"
        what = f"each record's answer next to those of unseen ones that are as hard (by {influence.out_models} {who})"
        found.append(_attack(what, REFERENCES, [part.against for part in influence.parts if part.against in UNSEEN]))
    if last.audit:
        runs = last.audit[ALL].attacks.values()
        for access, uses in ((OUTPUTS, False), (REFERENCES, True)):
            chosen = [run for run in runs if ATTACKS[run.attack].uses_references is uses]
            if chosen:
                labels = dict.fromkeys(ATTACKS[run.attack].label for run in chosen)
                found.append(
                    _attack(f"group attacks: {names(labels)}", access, list(dict.fromkeys(r.against for r in chosen)))
                )
        if not runs:
            found.append(_attack("the record's place among unseen ones, by its loss", OUTPUTS, list(judge.plan.kept)))
    return found


def _attack(what: str, access: str, against: Sequence[str]) -> dict[str, str]:
    return {"attack": what, "access": access, "against": names(against)}


def not_tried(judge: Judge) -> list[str]:
    """Attacks that were not run."""
    missing = () if judge.retrained else ("attacks with fully retrained models (RMIA, LiRA)",)
    own = () if judge.outs.said else ("comparison with models that never saw the records",)
    return [*own, *missing, *NOT_TRIED]


# ------------------------------------------------------------------------------------- what a receipt does not show


def limits(last: Attempt, plan: Plan) -> list[str]:
    """The limits of the claim in plain words, most important first."""
    found = [_kind(last.outcome, last.change, len(plan.all_copies))]
    if last.audit:
        found.append("That attacks fail shows that these attacks fail, not that all do.")
    if last.audit and len(plan.forget) < ENOUGH:
        found.append(
            f"Only {many(len(plan.forget), 'forgotten example')} could be tested. With so few a group attack shows a "
            "clear memory and misses a weak one."
        )
    if plan.all_copies:
        found.append(
            f"Equal to forgotten records in content: {many(len(plan.all_copies), 'retained record')}, from which the "
            "model goes on learning."
        )
    looked = any(how.spec.text == last.spec and how.needs.uses_heldout for how in plan.methods)
    if looked and list(last.judged) == ["heldout"] and not last.outcome.from_scratch:
        found.append(
            "It was judged by the held-out records only, at which the method itself has looked; records that nobody "
            "has used yet, a test set, would be the better judge."
        )
    if plan.gone:
        found.append(
            f"{many(plan.gone, 'id')} forgotten by earlier requests can no longer be tested: the records are not in "
            "the data any more. Their own receipts speak of them."
        )
    if plan.options.naming.salt is not None:
        found.append(
            "The salt hides ids. Who has the data and the models can still try which records fit the numbers shown "
            "here; the fewer they are, the better that works."
        )
    return [
        *found,
        "It speaks of one file of weights, the one with the digest shown. Other models, backups, logs, caches and "
        "copies of the records are not touched and not tested.",
        "Which records the model was trained on, and that it never saw the held-out, validation and test records, is "
        "the operator's word; overlap is searched for by id, and by content where asked.",
        _trust(plan.options.sign is not None),
    ]


def _kind(outcome: Outcome, change: Change | None, copies: int = 0) -> str:
    claim = claim_of(outcome)
    if claim == "none":
        return (
            "The model was never trained on these records and was left as it is; from now on they are left out of the "
            "unseen sets. Nothing was unlearned and nothing tested."
        )
    if change is None or change.nothing:
        return f"Nothing was unlearned: {done_to_it(outcome, change)}."
    if claim == "certified":
        bound = outcome.notes["certificate"]
        return (
            f"The method comes with a bound: epsilon {bound['epsilon']:.4g} at delta {bound['delta']:.4g}, under the "
            "assumptions that the receipt's notes list. It speaks of the weights; whether the assumptions hold is the "
            "operator's word."
        )
    if claim == "retrained":
        kept = frozen(outcome)
        return (
            (
                "The model was trained anew on the retained records only. Of these, "
                f"{copies:,} {'is' if copies == 1 else 'are'} identical to forgotten ones, so what those hold was "
                "learned again."
            )
            if copies
            else (
                "The model was trained anew on the retained records only, so it cannot know the forgotten ones, unless "
                "the weights it started from or the retained records carry something of them."
            )
        ) + (
            f" It started from {many(kept, 'frozen weight')} of the model before, which were kept: that these were not "
            "learned from the forgotten records is the operator's word."
            if kept
            else ""
        )
    return (
        f"This is approximate unlearning by {outcome.method} ({done_to_it(outcome, change)}). Tests are evidence of "
        "how much of the forgotten is left, never proof; only training anew without it is exact."
    )


def _trust(signed: bool) -> str:
    if signed:
        return "The signature shows that the holder of the key issued this receipt, not that what it says is true."
    return (
        "It is not signed: changes are noticed unless the whole folder is rewritten consistently. Keep the hash of the "
        "ledger's last line elsewhere, or sign."
    )


# ------------------------------------------------------------------------------------------ to the person concerned

CURRENT = "The new model is recorded as the current one, to be used in place of the one before."
ELSEWHERE = (
    "Only this one model was treated: the data themselves, copies of them, backups and other models have to be "
    "deleted separately."
)


def letter(last: Attempt, plan: Plan, status: str, dates: Dates) -> str:
    """One paragraph to the person concerned."""
    day, contact = dates.done.isoformat(), f" Responsible: {plan.role}." if plan.role else ""
    if not len(plan.new):
        return (
            "The model never learned from what your request names: it was kept aside for testing, and is no longer "
            f"used for that since {day}. The model did not have to be changed. {ELSEWHERE}{contact}"
        )
    if status in TAKEN:
        return f"{_removed(last, plan, status, day)}{_copies(plan)} {ELSEWHERE}{contact}"
    if status == REJECTED:
        why = f"the attempt of {day} did not pass the tests, so the current model is still the earlier one"
    else:
        why = f"the tests cannot tell whether the model made on {day} has forgotten, so it is not used"
    records = _records(plan)
    have = "has" if records == "record" else "have"
    return (
        f"The {records} in your request {have} not been removed from the model in use yet: {why}. Your request stays "
        f"open (due on {dates.due.isoformat()}); another attempt, or training the model anew without your {records}, "
        f"has to follow.{_copies(plan)}{contact}"
    )


def _records(plan: Plan) -> str:
    return "record" if len(plan.new) == 1 else "records"


def _copies(plan: Plan) -> str:
    """That what a person wants gone stays, under other ids; empty where nothing is known to."""
    if not plan.copies:
        return ""
    count = len(plan.copies)
    stay, them = ("stays", "it") if count == 1 else ("stay", "them")
    yours = "yours" if _records(plan) == "record" else "some of yours"
    return (
        f" But {many(count, 'record')} with the same content as {yours} {stay} in the training data under "
        f"{'another id' if count == 1 else 'other ids'}, and the model has learned from {them}."
    )


def _removed(last: Attempt, plan: Plan, status: str, day: str) -> str:
    records = _records(plan)
    if claim_of(last.outcome) == "retrained":
        never = f"never seen {'it' if records == 'record' else 'them'}"
        if frozen(last.outcome):
            seen = "" if plan.copies else f", and have {never}"
            return (
                f"On {day} all parts of the model that learn were trained again from the start without the {records} "
                f"in your request{seen}; a part that was learned elsewhere was kept. {CURRENT}"
            )
        seen = "" if plan.copies else f" and has {never}"
        start = f"On {day} the model was trained again from the start without the {records} in your request"
        return f"{start}{seen}. {CURRENT}"
    start = f"On {day} the model was changed in order to remove the influence of the {records} in your request."
    if status == UNTESTABLE:
        return (
            f"{start} Whether that worked could not be established: the tests cannot tell. The operator has decided to "
            f"take the changed model all the same. {CURRENT}"
        )
    left = last.audit[NEW if NEW in last.audit else ALL].influence
    shown = "It passed the tests that this receipt lists."
    if left is not None and left.verdict == "remembered":
        shown += " Another one, which the operator's rule does not ask for, still finds an influence."
    elif left is not None and left.verdict == "forgotten" and left.share.high is not None:
        these = "this record" if records == "record" else "these records"
        shown = (
            f"To check this, what it says about {these} was compared with what it says about equally difficult records "
            "that it never saw. The two can no longer be told apart; at most "
            f"{fixed(max(1.0, left.share.high), 0)} % of the influence can be left."
        )
    return f"{start} {shown} {CURRENT} This is a test, not a proof: a stronger one might find a trace."
