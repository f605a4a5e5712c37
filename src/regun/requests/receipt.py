"""From what was planned, done and found to the sections of a receipt and the files beside it."""

import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from regun.evaluate import Evaluation
from regun.requests.ids import Naming
from regun.requests.judge import NOTHING_TO_UNLEARN, Attempt, Judge, places
from regun.requests.plan import RequestPlan
from regun.runs.unlearning import Outcome
from regun.show.numbers import many
from regun.show.spreadsheet import csv_text
from regun.store import versions

SHOWN = 20
"""Ids, reasons and references that the receipt itself names; request.json has them all."""
ENOUGH = 30
"""Forgotten examples below which the attacks' intervals are too wide to show a weak memory."""


def sections(
    judge: Judge,
    attempts: Sequence[Attempt],
    naming: Naming,
    *,
    created: str,
    rejected: int,
    weights: Mapping[str, str],
    checked: Sequence[str],
    signed: bool,
    files: Mapping[str, str],
) -> dict[str, Any]:
    """Every section of the receipt; the last of the attempts counts.

    `rejected` counts earlier rejections of the same ids, `weights` are digests (base, before, after), `checked` says
    how overlap was searched for, `files` are the digests of the files the receipt speaks for.
    """
    plan, case, last, model = judge.plan, judge.case, attempts[-1], judge.case.project.model
    sizes = {"train": len(case.sets["train"].labels), "retain": len(plan.retain), "forget": len(plan.forget)}
    sizes |= {name: len(rows) for name, rows in plan.kept.items()}
    digests = plan.digests(case, naming)
    audits = {n: {"before": _audit(judge.audited[n]), "after": _audit(found)} for n, found in last.audit.items()}
    return {
        "request": {
            "number": plan.number,
            "created": created,
            "digest": plan.request,
            "rejected_before": rejected,
            "ids_are": case.ids_are,
            **_asked(plan, naming),
        },
        "model": {
            "class": f"{type(model).__module__}.{type(model).__qualname__}",
            "parameters": sum(p.numel() for p in model.parameters()),
            **weights,
        },
        "data": {
            "sets": {name: {"examples": size, "digest": digests[name]} for name, size in sizes.items()},
            "newly_forgotten_examples": len(plan.new),
            "earlier_ids_no_longer_at_hand": plan.gone,
            "overlap_searched_by": list(checked),
        },
        "method": {
            "claim": claim_of(last.outcome),
            "seed": judge.seed,
            "attempts": [_attempt(attempt) for attempt in attempts],
        },
        "audit": {"scopes": audits, "drops": dict(last.drops)},
        "acceptance": {
            "rule": judge.rule.text,
            "accepted": last.accepted,
            "findings": [asdict(finding) for finding in last.findings],
        },
        "limits": limits(last, plan, naming, signed),
        "software": {**versions(), "python": platform.python_version(), "system": platform.system()},
        "ledger": {"number": plan.number, "previous": plan.tip},
        "files": dict(files),
    }


def in_the_clear(plan: RequestPlan, naming: Naming) -> list[str]:
    """What of a request is written as it was given although its ids are not."""
    kinds = {"reasons": (line.reason for line in plan.matched.lines), "dates": (li.date for li in plan.matched.lines)}
    return [name for name, texts in kinds.items() if naming.salt is not None and any(texts)]


def request_file(plan: RequestPlan, naming: Naming, ids_are: str) -> bytes:
    """request.json: every record with its reason, reference and date; ids and references as the naming writes them."""
    different = {line.requester for line in plan.matched.lines} - {""}
    requesters = {"": "", **dict(zip(different, naming.of(different, "requester"), strict=True))}
    lines = [
        {"id": name, "reason": line.reason, "requester": requesters[line.requester], "date": line.date}
        for name, line in zip(plan.names, plan.matched.lines, strict=True)
    ]
    content = {"naming": naming.kind, "ids_are": ids_are, "lines": lines, "unseen": plan.unseen}
    return (json.dumps(content, separators=(",", ":")) + "\n").encode()


def risk_file(judge: Judge, attempt: Attempt, naming: Naming) -> bytes:
    """risks.csv: for each forgotten example, how much it looks like a member before and after; the worst first."""
    if not attempt.signals:
        return b""
    plan, ids = judge.plan, judge.case.ids["train"]
    against, before = places(judge.before)
    after = places(attempt.signals)[1]
    names = naming.of([ids[int(row)] for row in plan.forget])
    this = np.isin(plan.forget, plan.new)
    rows = sorted(zip(names, this.tolist(), before, after, strict=True), key=lambda row: (-row[3], row[0]))
    head = ["id", "request", f"{against}_percentile_before", f"{against}_percentile_after"]
    shown = ([n, "this" if new else "earlier", round(b, 3), round(a, 3)] for n, new, b, a in rows)
    return csv_text(head, shown).encode()


def _asked(plan: RequestPlan, naming: Naming) -> dict[str, Any]:
    matched = plan.matched
    requesters = [line.requester for line in matched.lines if line.requester]
    return {
        "naming": naming.kind,
        "in_the_clear": in_the_clear(plan, naming),
        "records": len(plan.names),
        "first_ids": list(plan.names[:SHOWN]),
        "reasons": _counted(line.reason for line in matched.lines if line.reason),
        "requesters": _counted(naming.of(requesters, "requester")),
        "dates": _counted(line.date for line in matched.lines if line.date),
        "left_out": {
            "named_twice": len(matched.duplicate),
            "already_forgotten": len(matched.already),
            "unknown": len(matched.unknown),
        },
        "never_trained_on": {name: len(some) for name, some in plan.unseen.items()},
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    outcome = attempt.outcome
    return {
        "spec": attempt.spec,
        "method": outcome.method,
        "settings": outcome.config,
        "cost": vars(outcome.cost),
        "diverged": outcome.diverged,
        "notes": {str(name): _plain(value) for name, value in outcome.notes.items()},
        "accepted": attempt.accepted,
        "findings": [asdict(finding) for finding in attempt.findings],
    }


def _plain(value: Any) -> Any:
    """What a method has noted, or its beginning as text where it is no JSON: no note may cost the work its receipt."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:200]


def _audit(found: Evaluation) -> dict[str, Any]:
    """An evaluation without its curves."""
    return {name: part for name, part in found.to_json().items() if name != "attacks"}


def _counted(texts: Iterable[str]) -> dict[str, Any]:
    counts = Counter(texts)
    return {"different": len(counts), "most_common": [list(pair) for pair in counts.most_common(SHOWN)]}


# ------------------------------------------------------------------------------------- what a receipt does not show


def limits(last: Attempt, plan: RequestPlan, naming: Naming, signed: bool) -> list[str]:
    """The limits of the claim in plain words, most important first."""
    found = [_kind(last.outcome), *([_attacks(last.audit)] if last.audit else [])]
    if last.audit and len(plan.forget) < ENOUGH:
        found.append(
            f"Only {many(len(plan.forget), 'forgotten example')} could be tested. With so few the intervals are wide: "
            "a clear memory would show, a weak one would not."
        )
    if plan.gone:
        found.append(
            f"{many(plan.gone, 'id')} forgotten by earlier requests can no longer be tested: the records are not in "
            "the data any more. Their own receipts speak of them."
        )
    if naming.salt is not None:
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
        _trust(signed),
    ]


def claim_of(outcome: Outcome) -> str:
    """What kind of claim a run supports: `retrained`, `certified` (only where a bound holds), `empirical` or `none`."""
    if outcome.method == "retrain":
        return "retrained"
    if outcome.method == NOTHING_TO_UNLEARN:
        return "none"
    bound = outcome.notes.get("certificate")
    return "certified" if isinstance(bound, dict) and bound.get("holds") is True else "empirical"


def _kind(outcome: Outcome) -> str:
    claim = claim_of(outcome)
    if claim == "certified":
        bound = outcome.notes["certificate"]
        return (
            f"The method comes with a bound: epsilon {bound['epsilon']:.4g} at delta {bound['delta']:.4g}, under the "
            "assumptions that the receipt's notes list. It speaks of the weights; whether the assumptions hold is the "
            "operator's word."
        )
    if claim == "retrained":
        return (
            "The model was trained anew on the retained records only, so it cannot know the forgotten ones, unless the "
            "weights it started from or the retained records carry something of them."
        )
    if claim == "none":
        return (
            "The model was never trained on these records and was left as it is; from now on they are left out of the "
            "unseen sets. Nothing was unlearned and nothing tested."
        )
    return (
        f"This is approximate unlearning: {outcome.method} ran {outcome.cost.steps:,} steps; that it reached what it "
        "aims at is not proven. The audit is evidence, not proof, that the records' influence is gone; only training "
        "anew without them is exact."
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
        "It is not signed: changes are noticed unless the whole folder is rewritten consistently. Keep the hash of the "
        "ledger's last line elsewhere, or sign."
    )
