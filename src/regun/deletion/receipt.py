"""The files of a finished request: the receipt as JSON and as a page, the request, the risks, the model."""

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from regun.artifacts import state_digest, versions, weights_bytes
from regun.auditing import ATTACKS, UNSEEN, Evaluation, SplitPredictions
from regun.auditing.influence import Influence
from regun.auditing.risk import percentiles
from regun.deletion.assess import Assessor, Attempt
from regun.deletion.attempt import NO_METHOD
from regun.deletion.folder import MODEL, OUT_MODELS, PAGE, PREPARED, RECEIPT, REQUEST, RISKS, SIGNATURE
from regun.deletion.ledger import LedgerLine, now
from regun.deletion.out_models import RETRAINED, SHORT, TABLE, to_bytes
from regun.deletion.plan import Plan
from regun.deletion.receipt_text import description, letter, limits, page
from regun.deletion.request import deadline
from regun.deletion.rule import ALL
from regun.deletion.signing import public_key_of, sign
from regun.deletion.table import REFRESH_AFTER
from regun.errors import RegunError
from regun.prepared import Prepared
from regun.render.numbers import many, names
from regun.render.tables import csv_text
from regun.settings import read_json
from regun.unlearning import Outcome

KIND, FORMAT = "regun deletion receipt", 3
SHOWN = 20
"""Ids, reasons and requesters that the receipt itself lists; request.json has them all."""
OUTPUTS, REFERENCES = "outputs only", "outputs and out-of-sample models"
NOT_RUN = (
    "attacks on the weights themselves",
    "comparing the models before and after, by somebody who has both",
    "training the model further, to see whether the records come back",
    "shadow models that repeat the whole unlearning many times",
)

Receipt = dict[str, Any]


def make_files(
    assessor: Assessor, attempts: Sequence[Attempt], before: str, status: str, earlier: Sequence[LedgerLine]
) -> tuple[LedgerLine, dict[str, bytes], Receipt]:
    """Return the ledger line, the files and the receipt of a request; the last of the attempts counts."""
    plan, last = assessor.plan, attempts[-1]
    state = last.outcome.model.state_dict()
    line = LedgerLine(
        number=plan.number,
        time=now(),
        status=status,
        pseudonyms=plan.options.pseudonyms.kind,
        request=plan.request,
        base=plan.base,
        before=before,
        after=state_digest(state),
        data=plan.digests()["train"],
        ids=plan.opened.ids_are,
        signer=public_key_of(plan.options.sign),
        files={},
        previous=plan.tip,
    )
    erased = plan.table.without(plan.forgotten()) if plan.table is not None and line.accepted else None
    receipt = _receipt(assessor, attempts, line, earlier, erased)
    files = {
        MODEL: weights_bytes(state),
        REQUEST: _request_file(plan),
        RISKS: _risk_file(assessor, last),
        RECEIPT: (json.dumps(receipt, indent=1, allow_nan=False) + "\n").encode(),
        PAGE: page(receipt).encode(),
    }
    if last.out_models.kind == SHORT:
        files[OUT_MODELS] = to_bytes(last.out_models.predictions)
    if last.out_models.kind == TABLE and plan.table is not None:
        keys = plan.table.written_keys("train", plan.forget)
        files[OUT_MODELS] = to_bytes(last.out_models.predictions, keys)
    if erased is not None:
        files[PREPARED] = erased.to_bytes()
    line = line._replace(files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    if plan.options.sign is not None:
        files[SIGNATURE] = sign(line, plan.options.sign)
    return line, files, receipt


def read_receipt(path: Path) -> Receipt:
    """Read a receipt of this format; whether it is intact is for `regun verify` to say."""
    try:
        content = path.read_bytes()
    except OSError as fault:
        raise RegunError(
            f"cannot read {path}: {fault.strerror or fault}. Name a receipt.json, or a folder with a ledger."
        ) from None
    receipt = read_json(content, str(path))
    if not isinstance(receipt, dict) or receipt.get("kind") != KIND or receipt.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
        raise RegunError(f"{path} is not a {KIND} of format {FORMAT}.")
    return receipt  # pyright: ignore[reportUnknownVariableType]


def _receipt(
    assessor: Assessor,
    attempts: Sequence[Attempt],
    line: LedgerLine,
    earlier: Sequence[LedgerLine],
    erased: Prepared | None,
) -> Receipt:
    """Return the receipt of the request that `line` will record; all its sentences follow from its facts."""
    plan, last, model = assessor.plan, attempts[-1], assessor.plan.opened.project.model
    facts: Receipt = {
        "kind": KIND,
        "format": FORMAT,
        "ledger": line_facts(line),
        "request": _request(plan, line, earlier),
        "model": {
            "class": f"{type(model).__module__}.{type(model).__qualname__}",
            "parameters": sum(p.numel() for p in model.parameters()),
            "in_this_folder": [{"request": e.number, "status": e.status, "weights": e.after} for e in earlier],
            "derived": [str(name) for name in plan.opened.project.derived],
        },
        "data": _data(plan),
        "method": {
            "claim": claim_of(last.outcome),
            "seed": plan.options.seed,
            "attempts": [_attempt(attempt, plan) for attempt in attempts],
        },
        "audit": _audit(assessor, last),
        "prepared": _prepared(plan.table.prepared, erased) if plan.table is not None else None,
        "acceptance": {
            "rule": plan.rule.text,
            "verdict": last.verdict,
            "findings": [asdict(finding) for finding in last.findings],
        },
        "software": {**versions(), "python": platform.python_version(), "system": platform.system()},
    }
    return {**facts, "letter": letter(facts), "limits": limits(facts)}


def line_facts(line: LedgerLine) -> dict[str, Any]:
    """Return what a receipt and its ledger line have in common: all fields of the line but the digests of files."""
    return {name: value for name, value in line._asdict().items() if name != "files"}


def claim_of(outcome: Outcome) -> str:
    """Return the claim that a run supports: `retrained`, `certified` (where a bound holds), `empirical` or `none`."""
    if outcome.from_scratch:
        return "retrained"
    if outcome.method == NO_METHOD:
        return "none"
    bound = outcome.notes.get("certificate")
    return "certified" if isinstance(bound, dict) and bound.get("holds") is True else "empirical"


def _request(plan: Plan, line: LedgerLine, earlier: Sequence[LedgerLine]) -> dict[str, Any]:
    matched, pseudonyms = plan.matched, plan.options.pseudonyms
    requesters = [record.requester for record in matched.records if record.requester]
    not_accepted = [e.status for e in earlier if e.request == plan.request and not e.accepted]
    return {
        "dates": deadline(matched.days, datetime.fromisoformat(line.time).date()),
        "role": plan.role,
        "tried_before": dict(Counter(not_accepted)),
        "in_the_clear": plan.in_the_clear,
        "records": len(plan.names),
        "first_ids": list(plan.names[:SHOWN]),
        "reasons": _counted(record.reason for record in matched.records if record.reason),
        "requesters": _counted(pseudonyms.of(requesters, "requester")),
        "left_out": {
            "named_twice": len(matched.duplicate),
            "already_forgotten": len(matched.already),
            "unknown": len(matched.unknown),
        },
        "never_trained_on": {name: len(ids) for name, ids in plan.unseen.items()},
    }


def _counted(texts: Iterable[str]) -> dict[str, Any]:
    counts = Counter(texts)
    return {"different": len(counts), "most_common": [list(pair) for pair in counts.most_common(SHOWN)]}


def _data(plan: Plan) -> dict[str, Any]:
    sizes = {"train": len(plan.opened.sets["train"].labels)}
    sizes |= {name: len(rows) for name, (_, rows) in plan.parts.items()}
    digests = plan.digests()
    searched = {"ids": plan.opened.project.ids is not None, "content": plan.options.check_content}
    copies = None  # not searched
    if plan.searches_copies and len(plan.new):
        first = plan.options.pseudonyms.of(dict.fromkeys(plan.copies[ALL]))[:SHOWN]
        copies = {**{scope: len(ids) for scope, ids in plan.copies.items()}, "first_ids": first}
    return {
        "sets": {name: {"examples": size, "digest": digests[name]} for name, size in sizes.items()},
        "newly_forgotten_examples": len(plan.new),
        "earlier_ids_no_longer_in_data": plan.gone,
        "copies_retained": copies,
        "train_inputs": "train" if plan.opened.project.train_eval is None else "train_eval",
        "overlap_searched_by": [name for name, done in searched.items() if done],
    }


def _attempt(attempt: Attempt, plan: Plan) -> dict[str, Any]:
    outcome = attempt.outcome
    uses_heldout = any(method.spec.text == attempt.spec and method.needs.uses_heldout for method in plan.methods)
    facts = {
        "spec": attempt.spec,
        "method": outcome.method,
        "settings": (outcome.method == "auto" and outcome.notes.get("trained_by")) or outcome.config,
        "cost": vars(outcome.cost),
        "change": attempt.change.to_json() if attempt.change is not None else None,
        "from_scratch": outcome.from_scratch,
        "uses_heldout": uses_heldout,
        "diverged": outcome.diverged,
        "warnings": list(outcome.warnings),
        "notes": {name: value for name, value in outcome.notes.items() if name != "trained_by"},
        "verdict": attempt.verdict,
        "findings": [asdict(finding) for finding in attempt.findings],
    }
    return {**facts, "description": description(facts)}


def _prepared(table: Prepared, erased: Prepared | None) -> dict[str, Any]:
    """Return what the prepared table is: how it was made, and its digest before and after the request."""
    about, newest = table.about, erased or table
    return {
        **{name: about.get(name) for name in ("folds", "repeats", "created", "trained_by", "recipe")},
        "digest": table.digest,
        "digest_after": erased.digest if erased is not None else None,
        "records_erased": int(newest.about["erased"]) - int(about["erased"]),
        "erased_share": newest.erased_share,
        "refresh_after": REFRESH_AFTER,
    }


def _audit(assessor: Assessor, last: Attempt) -> dict[str, Any]:
    def numbers(evaluation: Evaluation) -> dict[str, Any]:
        """Return an evaluation without its curves, and without what the receipt has elsewhere."""
        elsewhere = ("attacks", "before", "influence")
        return {name: part for name, part in evaluation.to_json().items() if name not in elsewhere}

    retrained = () if assessor.retrained else ("attacks with fully retrained models (RMIA, LiRA)",)
    out_models = () if last.out_models.predictions else ("comparison with out-of-sample models",)
    return {
        "scopes": {
            scope: {"before": numbers(assessor.audit_before[scope]), "after": numbers(evaluation)}
            for scope, evaluation in last.audit.items()
        },
        "drops": dict(last.drops),
        "influence": {s: i.to_json() if isinstance(i, Influence) else i for s, i in last.influences.items()},
        "unseen_sets": list(last.unseen),
        "out_models": last.out_models.to_json(),
        "attacks": _attacks(assessor, last),
        "attacks_not_run": [*out_models, *retrained, *NOT_RUN],
    }


def _attacks(assessor: Assessor, last: Attempt) -> list[dict[str, str]]:
    """Return the attacks that were run: what each tests, with which access, against which unseen sets."""

    def row(attack: str, access: str, against: Iterable[str]) -> dict[str, str]:
        return {"attack": attack, "access": access, "against": names(dict.fromkeys(against))}

    rows: list[dict[str, str]] = []
    influence = next((e.influence for e in last.audit.values() if e.influence is not None), None)
    if influence is not None and influence.parts:  # none where there are too few unseen records
        who = {
            RETRAINED: many(influence.out_models, "retrained model"),
            TABLE: f"the prepared table, {many(influence.out_models, 'repeat')}",
        }.get(last.out_models.kind, f"{many(influence.out_models, 'short training')} without the records")
        what = f"influence left: each record next to unseen ones that are as hard (by {who})"
        rows.append(row(what, REFERENCES, [part.against for part in influence.parts if part.against in UNSEEN]))
    runs = last.audit[ALL].attacks.values() if last.audit else ()
    for access, uses in ((OUTPUTS, False), (REFERENCES, True)):
        chosen = [run for run in runs if ATTACKS[run.attack].uses_references is uses]
        if chosen:
            labels = names(dict.fromkeys(ATTACKS[run.attack].label for run in chosen))
            rows.append(row(f"group attacks: {labels}", access, [run.against for run in chosen]))
    if last.audit and not runs:
        rows.append(row("the rank of the record's loss among unseen ones", OUTPUTS, assessor.plan.remaining))
    return rows


def _request_file(plan: Plan) -> bytes:
    """request.json: every record with its reason, requester and days; ids and requesters under the salt, if any."""
    pseudonyms = plan.options.pseudonyms
    different = {record.requester for record in plan.matched.records} - {""}
    requesters = {"": "", **dict(zip(different, pseudonyms.of(different, "requester"), strict=True))}
    records = [
        {**record._asdict(), "id": name, "requester": requesters[record.requester]}
        for name, record in zip(plan.names, plan.matched.records, strict=True)
    ]
    about = {"pseudonyms": pseudonyms.kind, "ids_are": plan.opened.ids_are}
    return (json.dumps({**about, "records": records, "unseen": plan.unseen}, separators=(",", ":")) + "\n").encode()


def _risk_file(assessor: Assessor, attempt: Attempt) -> bytes:
    """risks.csv: for each forgotten example, its rank among unseen ones before and after; the riskiest first."""
    if not attempt.predictions:
        return b""
    plan, ids = assessor.plan, assessor.plan.opened.ids["train"]
    against = next(name for name in UNSEEN if name in attempt.predictions)

    def ranks(predictions: SplitPredictions) -> list[float]:
        return percentiles(predictions["forget"].true_log_prob, predictions[against].true_log_prob).tolist()

    written = plan.options.pseudonyms.of([ids[int(row)] for row in plan.forget])
    new = np.isin(plan.forget, plan.new).tolist()
    rows = zip(written, new, ranks(assessor.before), ranks(attempt.predictions), strict=True)
    head = ["id", "request", f"{against}_percentile_before", f"{against}_percentile_after"]
    shown = (
        [name, "this" if this else "earlier", round(before, 3), round(after, 3)]
        for name, this, before, after in sorted(rows, key=lambda row: (-row[3], row[0]))
    )
    return csv_text(head, shown).encode()
