"""From what was planned, done and found to a request's files: the receipt and what stands beside it."""

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import numpy as np

from regun.artifacts import state_digest, versions, weights_bytes
from regun.auditing import UNSEEN, Evaluation, SplitPredictions
from regun.auditing.influence import Influence
from regun.auditing.risk import percentiles
from regun.deletion.assess import Judge
from regun.deletion.attempt import Attempt
from regun.deletion.folder import MODEL, OUTS, PAGE, RECEIPT, REQUEST, RISKS
from regun.deletion.ledger import LedgerLine, now
from regun.deletion.letter import claim_of, done_to_it, letter, limits, not_tried, tried
from regun.deletion.out_models import SHORT, packed
from regun.deletion.plan import Plan
from regun.deletion.receipt_page import page
from regun.deletion.request import Dates
from regun.deletion.signing import Receipt, seal, written
from regun.render.tables import csv_text

SHOWN = 20
"""Ids, reasons and references that the receipt itself names; request.json has them all."""


def finished(
    judge: Judge, attempts: Sequence[Attempt], before: str, status: str, earlier: Sequence[LedgerLine]
) -> tuple[LedgerLine, dict[str, bytes], Receipt]:
    """The ledger's line, the files and the receipt of a request; the last of the attempts counts."""
    plan, last = judge.plan, attempts[-1]
    state = last.outcome.model.state_dict()
    files = {MODEL: weights_bytes(state), REQUEST: _request_file(plan), RISKS: _risk_file(judge, last)}
    if judge.outs.kind == SHORT:
        files[OUTS] = packed(judge.outs.said)
    line = LedgerLine(
        number=plan.number,
        time=now(),
        status=status,
        naming=plan.options.naming.kind,
        request=plan.request,
        base=plan.base,
        before=before,
        after=state_digest(state),
        data=plan.digests()["train"],
        ids=plan.case.ids_are,
        files=_digests(files),
        previous=plan.tip,
    )
    receipt = seal(_sections(judge, attempts, line, earlier), plan.options.sign)
    files |= {RECEIPT: written(receipt), PAGE: page(receipt).encode()}
    return line._replace(files=_digests(files)), files, receipt


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def _sections(
    judge: Judge, attempts: Sequence[Attempt], line: LedgerLine, earlier: Sequence[LedgerLine]
) -> dict[str, Any]:
    """Every section of the receipt of the request that `line` will record."""
    plan, last = judge.plan, attempts[-1]
    dates = Dates.of(plan.matched.days, datetime.fromisoformat(line.time).date())
    return {
        "request": {
            "number": line.number,
            "created": line.time,
            "dates": dates.to_json(),
            "role": plan.role,
            "digest": line.request,
            "tried_before": _tried_before(plan, earlier),
            "ids_are": line.ids,
            **_asked(plan),
        },
        "model": _model(plan, line, earlier),
        "data": _data(plan),
        "method": {
            "claim": claim_of(last.outcome),
            "seed": plan.options.seed,
            "attempts": [_attempt(attempt) for attempt in attempts],
        },
        "audit": _found(judge, last),
        "acceptance": {
            "rule": plan.rule.text,
            "answer": last.verdict,
            "status": line.status,
            "findings": [asdict(finding) for finding in last.findings],
        },
        "letter": {"text": letter(last, plan, line.status, dates)},
        "limits": limits(last, plan),
        "software": {**versions(), "python": platform.python_version(), "system": platform.system()},
        "ledger": {"number": line.number, "previous": line.previous},
        "files": dict(line.files),
    }


def _found(judge: Judge, last: Attempt) -> dict[str, Any]:
    """What the audit found, and what was tried for it."""
    return {
        "scopes": {n: {"before": _audit(judge.audited[n]), "after": _audit(found)} for n, found in last.audit.items()},
        "drops": dict(last.drops),
        "influence": {n: f.to_json() if isinstance(f, Influence) else f for n, f in judge.left(last.audit).items()},
        "judged": list(last.judged),
        "outs": judge.outs.to_json(),
        "tried": tried(judge, last),
        "not_tried": not_tried(judge),
    }


def _model(plan: Plan, line: LedgerLine, earlier: Sequence[LedgerLine]) -> dict[str, Any]:
    """The model, its digests, and what else was made from it: earlier models of the folder, and those one knows of."""
    model = plan.case.project.model
    return {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "parameters": sum(p.numel() for p in model.parameters()),
        "base": line.base,
        "before": line.before,
        "after": line.after,
        "in_this_folder": [{"request": one.number, "status": one.status, "weights": one.after} for one in earlier],
        "derived": [str(name) for name in plan.case.project.derived],
    }


def _data(plan: Plan) -> dict[str, Any]:
    """The sets, and how overlap between them was searched for."""
    project = plan.case.project
    sizes = {"train": len(plan.case.sets["train"].labels), "retain": len(plan.retain), "forget": len(plan.forget)}
    sizes |= {name: len(rows) for name, rows in plan.kept.items()}
    digests = plan.digests()
    searched = {"ids": project.ids is not None, "content": plan.options.check_content}
    return {
        "sets": {name: {"examples": size, "digest": digests[name]} for name, size in sizes.items()},
        "newly_forgotten_examples": len(plan.new),
        "earlier_ids_no_longer_at_hand": plan.gone,
        "copies_that_stay": _copies(plan),
        "overlap_searched_by": [name for name, done in searched.items() if done],
    }


def _copies(plan: Plan) -> dict[str, Any] | None:
    """Retained records that equal forgotten ones: in all and of this request, and the first ids; None if nobody has
    looked."""
    if not plan.searched or not len(plan.new):
        return None
    first = plan.options.naming.of(dict.fromkeys(plan.all_copies))[:SHOWN]
    return {"all": len(plan.all_copies), "new": len(plan.copies), "first_ids": first}


def _tried_before(plan: Plan, earlier: Sequence[LedgerLine]) -> dict[str, int]:
    """Requests for the same ids that did not end in a new model, by what became of them."""
    return dict(Counter(line.status for line in earlier if line.request == plan.request and not line.accepted))


def _request_file(plan: Plan) -> bytes:
    """request.json: every record with its reason, reference and days; ids and references as the naming writes them."""
    naming = plan.options.naming
    different = {line.requester for line in plan.matched.lines} - {""}
    requesters = {"": "", **dict(zip(different, naming.of(different, "requester"), strict=True))}
    lines = [
        {**line._asdict(), "id": name, "requester": requesters[line.requester]}
        for name, line in zip(plan.names, plan.matched.lines, strict=True)
    ]
    content = {"naming": naming.kind, "ids_are": plan.case.ids_are, "lines": lines, "unseen": plan.unseen}
    return (json.dumps(content, separators=(",", ":")) + "\n").encode()


def _risk_file(judge: Judge, attempt: Attempt) -> bytes:
    """risks.csv: for each forgotten example, how much it looks like a member before and after; the worst first."""
    if not attempt.signals:
        return b""
    plan, ids = judge.plan, judge.plan.case.ids["train"]
    against = next(name for name in UNSEEN if name in attempt.signals)
    before, after = (_places(said, against) for said in (judge.before, attempt.signals))
    names = plan.options.naming.of([ids[int(row)] for row in plan.forget])
    this = np.isin(plan.forget, plan.new)
    rows = sorted(zip(names, this.tolist(), before, after, strict=True), key=lambda row: (-row[3], row[0]))
    head = ["id", "request", f"{against}_percentile_before", f"{against}_percentile_after"]
    shown = ([n, "this" if new else "earlier", round(b, 3), round(a, 3)] for n, new, b, a in rows)
    return csv_text(head, shown).encode()


def _places(signals: SplitPredictions, against: str) -> list[float]:
    """For each forgotten record, the share of records of an unseen set that look less like members, in percent."""
    return percentiles(signals["forget"].true_log_prob, signals[against].true_log_prob).tolist()


def _asked(plan: Plan) -> dict[str, Any]:
    matched, naming = plan.matched, plan.options.naming
    requesters = [line.requester for line in matched.lines if line.requester]
    return {
        "naming": naming.kind,
        "in_the_clear": plan.in_the_clear,
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
        "settings": (outcome.method == "auto" and outcome.notes.get("trained_by")) or outcome.config,
        "cost": vars(outcome.cost),
        "done": done_to_it(outcome, attempt.change),
        "change": attempt.change.to_json() if attempt.change is not None else None,
        "from_scratch": outcome.from_scratch,
        "diverged": outcome.diverged,
        "warnings": [str(text) for text in outcome.warnings],
        "notes": {str(name): _plain(value) for name, value in outcome.notes.items() if name != "trained_by"},
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
