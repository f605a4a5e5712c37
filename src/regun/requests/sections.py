"""From what was planned, done and found to the sections of a receipt and the files beside it."""

import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regun.data.selected import Selected
from regun.evaluate import Evaluation
from regun.evaluate.spreadsheet import csv_text
from regun.requests.attempt import Attempt, Bench
from regun.requests.judge import places
from regun.requests.limits import limits
from regun.requests.naming import Naming
from regun.requests.plan import Plan
from regun.requests.project import Case
from regun.store import versions

SHOWN = 20
"""Ids, reasons and references that the receipt itself names; request.json has them all."""


@dataclass(frozen=True)
class Work:
    """All of one request's work: the plan, the attempts (the last one counts), and how ids are written."""

    bench: Bench
    attempts: Sequence[Attempt]
    before: Mapping[str, Evaluation]
    naming: Naming
    created: str
    digests: Mapping[str, str]
    """Of the weights: base, before, after."""
    signed: bool
    checked: Sequence[str]
    """How overlap was searched for."""
    rejected: int
    """Earlier requests for the same ids that were rejected."""

    @property
    def plan(self) -> Plan:
        return self.bench.judges.plan

    @property
    def case(self) -> Case:
        return self.bench.judges.case

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]


def sections(work: Work, files: Mapping[str, str]) -> dict[str, Any]:
    """Every section of the receipt; `files` are the digests of the files it speaks for."""
    plan, last = work.plan, work.last
    return {
        "request": _request(work),
        "model": _model(work),
        "data": _data(work),
        "method": {"seed": work.bench.seed, "attempts": [_attempt(a) for a in work.attempts]},
        "audit": _audit(work),
        "acceptance": {
            "rule": work.bench.rule.text,
            "accepted": last.accepted,
            "findings": [asdict(finding) for finding in last.findings],
        },
        "limits": limits(last.outcome.method, last.audit, len(plan.forget), plan.gone, work.signed),
        "software": {**versions(), "python": platform.python_version(), "system": platform.system()},
        "ledger": {"number": plan.number, "previous": plan.tip},
        "files": dict(files),
    }


def request_file(plan: Plan, naming: Naming, ids_are: str) -> bytes:
    """request.json: every record with its reason, reference and date; ids and references as the naming writes them."""
    different = {line.requester for line in plan.matched.lines} - {""}
    requesters = {"": "", **dict(zip(different, naming.of(different), strict=True))}
    lines = [
        {"id": name, "reason": line.reason, "requester": requesters[line.requester], "date": line.date}
        for name, line in zip(plan.names, plan.matched.lines, strict=True)
    ]
    content = {"naming": naming.kind, "ids_are": ids_are, "lines": lines, "unseen": plan.unseen}
    return (json.dumps(content, separators=(",", ":")) + "\n").encode()


def risk_file(work: Work) -> bytes:
    """risks.csv: for each forgotten example, how much it looks like a member before and after; the worst first."""
    if not work.last.signals:
        return b""
    plan = work.plan
    against, before = places(work.bench.before)
    after = places(work.last.signals)[1]
    ids = work.case.ids["train"]
    names = work.naming.of([ids[int(row)] for row in plan.forget])
    this = np.isin(plan.forget, plan.new)
    rows = sorted(zip(names, this.tolist(), before, after, strict=True), key=lambda row: (-row[3], row[0]))
    head = ["id", "request", f"{against}_percentile_before", f"{against}_percentile_after"]
    shown = ([n, "this" if new else "earlier", round(b, 3), round(a, 3)] for n, new, b, a in rows)
    return csv_text(head, shown).encode()


def _request(work: Work) -> dict[str, Any]:
    plan, matched = work.plan, work.plan.matched
    requesters = [line.requester for line in matched.lines if line.requester]
    return {
        "number": plan.number,
        "created": work.created,
        "digest": plan.request,
        "rejected_before": work.rejected,
        "naming": work.naming.kind,
        "ids_are": work.case.ids_are,
        "records": len(plan.names),
        "first_ids": list(plan.names[:SHOWN]),
        "reasons": _counted(line.reason for line in matched.lines if line.reason),
        "requesters": _counted(work.naming.of(requesters)),
        "dates": _counted(line.date for line in matched.lines if line.date),
        "left_out": {
            "named_twice": len(matched.duplicate),
            "already_forgotten": len(matched.already),
            "unknown": len(matched.unknown),
        },
        "never_trained_on": {name: len(some) for name, some in plan.unseen.items()},
    }


def _model(work: Work) -> dict[str, Any]:
    model = work.bench.current
    return {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "parameters": sum(p.numel() for p in model.parameters()),
        **work.digests,
    }


def _data(work: Work) -> dict[str, Any]:
    plan, case = work.plan, work.case
    sizes = {"train": len(case.sets["train"].labels), "retain": len(plan.retain), "forget": len(plan.forget)}
    sizes |= {name: len(rows) for name, rows in plan.kept.items()}
    digests = set_digests(plan, case)
    return {
        "sets": {name: {"examples": size, "digest": digests[name]} for name, size in sizes.items()},
        "newly_forgotten_examples": len(plan.new),
        "earlier_ids_no_longer_at_hand": plan.gone,
        "overlap_searched_by": list(work.checked),
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    outcome = attempt.outcome
    return {
        "spec": attempt.spec,
        "method": outcome.method,
        "settings": outcome.config,
        "cost": vars(outcome.cost),
        "diverged": outcome.diverged,
        "notes": outcome.notes,
        "accepted": attempt.accepted,
        "findings": [asdict(finding) for finding in attempt.findings],
    }


def _audit(work: Work) -> dict[str, Any]:
    scopes = {
        scope: {"before": audit_json(work.before[scope]), "after": audit_json(found)}
        for scope, found in work.last.audit.items()
    }
    return {"scopes": scopes, "drops": dict(work.last.drops)}


def audit_json(found: Evaluation) -> dict[str, Any]:
    """An evaluation without its curves."""
    return {k: v for k, v in found.to_json().items() if k != "attacks"}


def set_digests(plan: Plan, case: Case) -> dict[str, str]:
    """The digest of every set of a request, as the receipt's data section has them."""
    rows = {"retain": ("train", plan.retain), "forget": ("train", plan.forget)}
    rows |= {name: (name, kept) for name, kept in plan.kept.items()}
    own = {name: Selected(case.sets[of], some).digest for name, (of, some) in rows.items()}
    return {"train": case.sets["train"].digest, **own}


def _counted(texts: Iterable[str]) -> dict[str, Any]:
    counts = Counter(texts)
    return {"different": len(counts), "most_common": [list(pair) for pair in counts.most_common(SHOWN)]}
