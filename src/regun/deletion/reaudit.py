"""Re-audit a receipt: with the data at hand, assess its model again by the function that judged it then."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors
from torch import nn

from regun.artifacts import state_digest
from regun.auditing import UNSEEN
from regun.auditing.influence import Influence
from regun.deletion.assess import Assessor, Attempt, make_assessor
from regun.deletion.folder import OUT_MODELS, Folder
from regun.deletion.forget import model_after
from regun.deletion.ledger import ACCEPTED_INCONCLUSIVE, INCONCLUSIVE, LedgerLine, check_intact
from regun.deletion.options import Options
from regun.deletion.out_models import RETRAINED, OutModels, from_bytes
from regun.deletion.plan import Plan, replan
from regun.deletion.project import USER_CODE, Project, no_exit, open_project
from regun.deletion.pseudonyms import Pseudonyms
from regun.deletion.receipt import Receipt, read_receipt
from regun.deletion.rule import ALL, NEW, read_rule
from regun.deletion.verify import Check, locate
from regun.errors import RegunError
from regun.training.job import Cost
from regun.unlearning import Outcome

TOLERANCE = 0.1
"""How far a recomputed number may be off (in its own unit): another machine adds in another order."""


@no_exit(USER_CODE)
def reaudit_receipt(path: Path, project: Project, pseudonyms: Pseudonyms | None = None) -> list[Check]:
    """Check the data's digests, every number and the verdict of a receipt, with the project's data.

    The receipt's word remains: that a model was retrained from scratch, and what short out-of-sample models or the
    prepared table predicted.
    """
    folder, number = locate(path)
    receipt, ledger = read_receipt(path), folder.read_ledger()
    check_intact(ledger, folder.ledger)
    lines = ledger.lines[:number]
    if len(lines) < number:
        raise RegunError(f"{folder.ledger} has no line {number}, so {path} cannot be re-audited.")
    plan = replan(
        open_project(replace(project, prepared=None)), folder, lines, Options(pseudonyms=pseudonyms or Pseudonyms())
    )
    if plan.names and not len(plan.new):
        return [Check("audit", None, "the forgotten records are no longer in the data, so it cannot be repeated")]
    try:
        checks = list(_data(plan, receipt))
        if not all(check.passed for check in checks):
            return [*checks, Check("audit", None, "not repeated: the data are not those of the receipt")]
        if not receipt["audit"]["scopes"]:
            return [*checks, _no_numbers(plan, lines[-1], receipt)]
        return [*checks, *_audit(plan, folder, lines, receipt)]
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as fault:
        return [Check("audit", False, f"the receipt lacks what the audit needs: {type(fault).__name__} {fault}")]


def _data(plan: Plan, receipt: Receipt) -> Iterator[Check]:
    """Compare the digests of the sets, and the number of retained copies where it was counted."""
    sets: Mapping[str, Any] = receipt["data"]["sets"]
    for name, digest in plan.digests().items():
        same = name in sets and sets[name]["digest"] == digest
        yield Check(f"data: {name}", same, "the digest of the receipt" if same else "other examples than the receipt's")
    copies = receipt["data"].get("copies_retained")
    if copies is not None and plan.searches_copies:
        counts = {scope: len(ids) for scope, ids in plan.copies.items()}
        same = counts == {scope: copies[scope] for scope in counts}
        yield Check("data: copies", same, f"{counts['all']:,} retained, the receipt says {copies['all']:,}")


def _no_numbers(plan: Plan, line: LedgerLine, receipt: Receipt) -> Check:
    """A receipt may lack an audit if the run diverged and was rejected, or if there was nothing to unlearn."""
    if not plan.names and line.before == line.after:
        return Check("audit", None, "the model never trained on these records and was not changed")
    if receipt["method"]["attempts"][-1]["diverged"] and not line.accepted and plan.names:
        return Check("audit", None, "the run diverged; there are no numbers")
    return Check("audit", False, "the receipt has no numbers, and no reason to lack them")


def _audit(plan: Plan, folder: Folder, lines: Sequence[LedgerLine], receipt: Receipt) -> Iterator[Check]:
    """Assess the model of the attempt that counted again, and compare every number and the verdict."""
    audit, project = receipt["audit"], plan.opened.project
    *earlier, line = lines
    last = next((line for line in reversed(earlier) if line.accepted), None)
    before, after = model_after(project, folder, last), model_after(project, folder, line)
    totals = {name: value for name, value in audit["drops"].items() if name.endswith("_total")}
    missing = ""  # the digest of a model that the audit compared with and that the project no longer has
    if state_digest(before.state_dict()) != line.before:
        missing = line.before
    elif totals and plan.opened.weights != line.base:
        missing = line.base
    if missing:
        yield Check(
            "audit", None, f"cannot be repeated: it needs the model {missing[:12]}, the project has another one"
        )
        return
    settings = audit["scopes"]["all"]["after"]["settings"]
    options = replace(plan.options, bootstrap=int(settings["bootstrap"]), seed=int(settings["seed"]))
    plan = replace(plan, options=options, rule=read_rule(receipt["acceptance"]["rule"]))
    # copies decide how a model that was retrained from scratch is judged
    counted: Mapping[str, Any] = receipt["data"].get("copies_retained") or {ALL: 0, NEW: 0}
    copies = {scope: int(counted[scope]) for scope in (ALL, NEW)}
    assessor = make_assessor(plan, before, copies, totals)
    try:
        attempt = _repeat_attempt(assessor, folder, line, receipt, before, after)
    except (RegunError, safetensors.SafetensorError) as fault:
        yield Check("acceptance", False, f"cannot be repeated: {fault}")
        return
    yield from _compare_audits(audit, assessor, attempt)
    yield _verdict(receipt, attempt)


def _repeat_attempt(
    assessor: Assessor, folder: Folder, line: LedgerLine, receipt: Receipt, before: nn.Module, after: nn.Module
) -> Attempt:
    """Assess the model `after` by the unseen sets that the receipt names and by the out-of-sample models of then."""
    stated = receipt["method"]["attempts"][-1]
    cost, from_scratch = Cost(steps=int(stated["cost"]["steps"])), stated["from_scratch"] is True
    outcome = Outcome(after, str(stated["method"]), {}, cost, [], None, {}, from_scratch=from_scratch)
    names: Sequence[str] = receipt["audit"]["unseen_sets"]
    unseen = [name for name in UNSEEN if name in assessor.before]
    # all sets must have been used, but for the held-out one, which a method may learn from
    if not names or not {*unseen} >= {*names} >= {*unseen} - {"heldout"}:
        raise RegunError(f"the receipt judges by {', '.join(names) or 'no unseen set'}; there are {', '.join(unseen)}.")
    out_models = OutModels()
    if assessor.retrained:
        out_models = OutModels(RETRAINED, tuple(assessor.retrained), why="")
    elif OUT_MODELS in line.files:
        out_models = from_bytes(folder.read(line, OUT_MODELS), assessor.plan)
    return assessor.assess("", outcome, [name for name in unseen if name in names], out_models, before)


def _compare_audits(audit: Mapping[str, Any], assessor: Assessor, attempt: Attempt) -> Iterator[Check]:
    """Compare the audits of a receipt, before and after, with the repeated ones: numbers, accuracy lost, influence."""
    scopes = audit["scopes"]
    if set(scopes) != set(assessor.scopes):
        yield Check("audit", False, f"the receipt has the scopes {', '.join(scopes)}, not {', '.join(assessor.scopes)}")
    for when, evaluations in {"before": assessor.audit_before, "after": attempt.audit}.items():
        for scope, evaluation in evaluations.items():
            yield _compare(f"audit {when}, {scope}", _flat(scopes[scope][when]), _flat(evaluation.to_json()))
    yield _compare("audit: accuracy lost", _lists(audit["drops"]), _lists(attempt.drops))
    for scope, influence in attempt.influences.items():
        if isinstance(influence, Influence):
            shares = (
                {part.against: part.share.to_json() for part in measured.parts}
                for measured in (Influence.from_json(audit["influence"][scope]), influence)
            )
            yield _compare(f"influence left, {scope}", *shares)


def _verdict(receipt: Receipt, attempt: Attempt) -> Check:
    """Compare findings, verdict and status."""
    acceptance, status, verdict = receipt["acceptance"], receipt["ledger"]["status"], attempt.verdict
    stated = {(finding["condition"], finding["scope"]): finding["result"] for finding in acceptance["findings"]}
    results = {(finding.condition, finding.scope): finding.result for finding in attempt.findings}
    wrong = [f"{key[0]} ({key[1]})" for key, result in results.items() if stated.get(key) != result]
    if wrong or stated.keys() != results.keys():
        return Check("acceptance", False, f"other findings: {', '.join(wrong) or 'other conditions'}")
    statuses = (verdict, ACCEPTED_INCONCLUSIVE if verdict == INCONCLUSIVE else verdict)
    if acceptance["verdict"] != verdict or status not in statuses:
        return Check("acceptance", False, f"the verdict is {verdict}, the receipt says {status}")
    return Check("acceptance", True, f"{len(results)} findings and the verdict are reproduced")


def _lists(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: [value] for name, value in values.items()}


def _flat(audit: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return all numbers of an audit: its own, the retrained model's, and the gaps with their floors."""
    retrained = _lists({f"{name} of the retrained model": value for name, value in audit["retrain"].items()})
    gaps = {f"gap of {name}": list(gap.values()) for name, gap in audit["gaps"].items()}
    return {**audit["numbers"], **retrained, **gaps}


def _compare(name: str, stated: Mapping[str, Any], recomputed: Mapping[str, Any]) -> Check:
    """Compare numbers; the first that is missing or off is named."""
    for metric in sorted(stated.keys() ^ recomputed.keys()):
        where = "cannot be recomputed" if metric in stated else "is not in the receipt"
        return Check(name, False, f"{metric} {where}; are the retrained models those of then?")
    for metric, values in stated.items():
        for then, now in zip(values, recomputed[metric], strict=True):
            both = isinstance(then, int | float) and isinstance(now, int | float)
            if (abs(then - now) > TOLERANCE) if both else (then != now):
                return Check(name, False, f"{metric} is {now} now, the receipt says {then}")
    return Check(name, True, f"{len(stated)} numbers are reproduced (within {TOLERANCE:g})")
