"""What a receipt does not show, in plain words."""

from collections.abc import Mapping

from regun.evaluate import Evaluation
from regun.requests.attempt import NOTHING_TO_UNLEARN

FEW = 30
"""Forgotten examples below which the attacks' intervals are too wide to show a weak memory."""


def limits(method: str, audit: Mapping[str, Evaluation], forgotten: int, gone: int, signed: bool) -> list[str]:
    """The limits of the claim, most important first."""
    found = [_kind(method), *([_attacks(audit)] if audit else [])]
    if audit and forgotten < FEW:
        found.append(
            f"Only {forgotten} forgotten examples could be tested. With so few the intervals are wide: a clear memory "
            "of them would show, a weak one would not."
        )
    if gone:
        found.append(
            f"{gone} ids forgotten by earlier requests are no longer in the data, so this audit could not test them "
            "again; their own receipts did."
        )
    return [
        *found,
        "It speaks of one file of weights, the one with the digest shown. Other models, backups, logs, caches and "
        "copies of the records are not touched and not tested.",
        "Which records the model was trained on, and that it never saw the held-out, validation and test records, is "
        "the operator's word; overlap is searched for by id, and by content where asked.",
        _trust(signed),
    ]


def _kind(method: str) -> str:
    if method == "retrain":
        return (
            "The model was trained anew on the retained records only, so it cannot know the forgotten ones, unless the "
            "weights it started from or the retained records carry something of them."
        )
    if method == NOTHING_TO_UNLEARN:
        return (
            "The model was never trained on these records and was left as it is; from now on they are left out of the "
            "unseen sets. Nothing was unlearned and nothing tested."
        )
    return (
        "This is approximate unlearning: the weights were changed until the model treats the forgotten records like "
        "records it never saw. It is evidence, not proof, that their influence is gone; only training anew without "
        "them is exact."
    )


def _attacks(audit: Mapping[str, Evaluation]) -> str:
    references = max((int(e.settings.get("references", 0)) for e in audit.values()), default=0)
    if references:
        return (
            f"The attacks ask whether the model's answers give the forgotten records away, as a group and (with "
            f"{references} reference models) one by one. That they fail shows that these attacks fail, not that all do."
        )
    return (
        "The attacks ask whether the model's answers tell the forgotten records, as a group, from unseen ones. That "
        "they fail shows that these attacks fail, not that all do: attacks that train models of their own are "
        "stronger, and single records that stand out may be missed."
    )


def _trust(signed: bool) -> str:
    if signed:
        return "The signature shows that the holder of the key issued this receipt, not that what it says is true."
    return (
        "It is not signed: changes are noticed unless the whole folder is rewritten consistently. Keep a copy of the "
        "ledger's last line elsewhere, or sign."
    )
