"""From what was planned, done and found to the sections of a receipt and the files beside it."""

import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regun.evaluate import Evaluation
from regun.evaluate.influence import Influence
from regun.requests.attempt import Attempt
from regun.requests.dates import Dates
from regun.requests.judge import Judge, places
from regun.requests.ledger import LedgerLine
from regun.requests.naming import Naming
from regun.requests.plan import RequestPlan
from regun.requests.words import claim_of, done_to_it, letter, limits, not_tried, tried
from regun.show.spreadsheet import csv_text
from regun.store import versions

SHOWN = 20
"""Ids, reasons and references that the receipt itself names; request.json has them all."""


@dataclass(frozen=True)
class Circumstances:
    """What a receipt says besides what was planned and found: when, what became of it, who is responsible, earlier
    lines of the ledger, digests of the models (base, before, after) and files, and how overlap was searched for."""

    created: str
    dates: Dates
    status: str
    role: str
    earlier: Sequence[LedgerLine]
    weights: Mapping[str, str]
    checked: Sequence[str]
    signed: bool
    files: Mapping[str, str]


def sections(judge: Judge, attempts: Sequence[Attempt], naming: Naming, around: Circumstances) -> dict[str, Any]:
    """Every section of the receipt; the last of the attempts counts."""
    plan, case, last = judge.plan, judge.case, attempts[-1]
    return {
        "request": {
            "number": plan.number,
            "created": around.created,
            "dates": around.dates.to_json(),
            "role": around.role,
            "digest": plan.request,
            "tried_before": _tried_before(plan, around.earlier),
            "ids_are": case.ids_are,
            **_asked(plan, naming),
        },
        "model": _model(judge, around),
        "data": {
            "sets": _sets(judge, naming),
            "newly_forgotten_examples": len(plan.new),
            "earlier_ids_no_longer_at_hand": plan.gone,
            "overlap_searched_by": list(around.checked),
        },
        "method": {
            "claim": claim_of(last.outcome),
            "seed": judge.seed,
            "attempts": [_attempt(attempt) for attempt in attempts],
        },
        "audit": {
            "scopes": {
                n: {"before": _audit(judge.audited[n]), "after": _audit(found)} for n, found in last.audit.items()
            },
            "drops": dict(last.drops),
            "influence": {n: f.to_json() if isinstance(f, Influence) else f for n, f in last.left.items()},
            "judged": list(last.judged),
            "outs": judge.outs.to_json(),
            "tried": tried(judge, last.audit, last.left),
            "not_tried": not_tried(judge),
        },
        "acceptance": {
            "rule": judge.rule.text,
            "answer": last.verdict,
            "status": around.status,
            "findings": [asdict(finding) for finding in last.findings],
        },
        "letter": {"text": letter(last, plan, around.status, around.dates, around.role)},
        "limits": limits(last, plan, naming, around.signed),
        "software": {**versions(), "python": platform.python_version(), "system": platform.system()},
        "ledger": {"number": plan.number, "previous": plan.tip},
        "files": dict(around.files),
    }


def _model(judge: Judge, around: Circumstances) -> dict[str, Any]:
    """The model, its digests, and what else was made from it: earlier models of the folder, and those one knows of."""
    model = judge.case.project.model
    others = [{"request": line.number, "status": line.status, "weights": line.after} for line in around.earlier]
    return {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "parameters": sum(p.numel() for p in model.parameters()),
        **around.weights,
        "in_this_folder": others,
        "derived": [str(name) for name in judge.case.project.derived],
    }


def _sets(judge: Judge, naming: Naming) -> dict[str, Any]:
    plan, case = judge.plan, judge.case
    sizes = {"train": len(case.sets["train"].labels), "retain": len(plan.retain), "forget": len(plan.forget)}
    sizes |= {name: len(rows) for name, rows in plan.kept.items()}
    digests = plan.digests(case, naming)
    return {name: {"examples": size, "digest": digests[name]} for name, size in sizes.items()}


def _tried_before(plan: RequestPlan, earlier: Sequence[LedgerLine]) -> dict[str, int]:
    """Requests for the same ids that did not end in a new model, by what became of them."""
    return dict(Counter(line.status for line in earlier if line.request == plan.request and not line.accepted))


def in_the_clear(plan: RequestPlan, naming: Naming) -> list[str]:
    """What of a request is written as it was given although its ids are not."""
    lines = plan.matched.lines
    kinds = {"reasons": (line.reason for line in lines), "dates": (line.received or line.due for line in lines)}
    return [name for name, texts in kinds.items() if naming.salt is not None and any(texts)]


def request_file(plan: RequestPlan, naming: Naming, ids_are: str) -> bytes:
    """request.json: every record with its reason, reference and days; ids and references as the naming writes them."""
    different = {line.requester for line in plan.matched.lines} - {""}
    requesters = {"": "", **dict(zip(different, naming.of(different, "requester"), strict=True))}
    lines = [
        {**line._asdict(), "id": name, "requester": requesters[line.requester]}
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
        "done": done_to_it(outcome, attempt.change),
        "change": attempt.change.to_json() if attempt.change is not None else None,
        "trained_anew": outcome.trained_anew,
        "diverged": outcome.diverged,
        "warnings": [str(text) for text in outcome.warnings],
        "notes": {str(name): _plain(value) for name, value in outcome.notes.items()},
        "answer": attempt.verdict,
        "findings": [asdict(finding) for finding in attempt.findings],
    }


def _plain(value: Any) -> Any:
    """What a method has noted, or its beginning as text where it is no JSON: no note may cost the work its receipt."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:200]


def _audit(found: Evaluation) -> dict[str, Any]:
    """An evaluation without its curves, and without what the receipt says elsewhere."""
    return {name: part for name, part in found.to_json().items() if name not in ("attacks", "before", "influence")}


def _counted(texts: Iterable[str]) -> dict[str, Any]:
    counts = Counter(texts)
    return {"different": len(counts), "most_common": [list(pair) for pair in counts.most_common(SHOWN)]}
