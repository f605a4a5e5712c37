"""The audit of a receipt done again, with the data at hand."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regun.errors import RegunError
from regun.evaluate import Evaluation
from regun.requests.folder import Folder
from regun.requests.forget import USERS, Options, model_after
from regun.requests.ids import Naming
from regun.requests.judge import Judge, judge_for
from regun.requests.ledger import LedgerLine, read_ledger, refuse_damaged
from regun.requests.plan import RequestPlan, plan_again
from regun.requests.project import Case, Project, no_exit, open_case
from regun.requests.rule import Rule, read_rule
from regun.requests.seal import Receipt, read_receipt
from regun.requests.verify import Check, number_of

TOLERANCE = 0.1
"""How far a number done again may be off (in its own unit): another machine adds in another order."""


@no_exit(USERS)
def verify_audit(path: Path, project: Project, naming: Naming) -> list[Check]:
    """Data digests, every number and the verdict of the receipt, from the project's data and the folder's models."""
    receipt, _ = read_receipt(path)
    folder = Folder(path.resolve().parents[2])
    ledger = read_ledger(folder.ledger)
    refuse_damaged(ledger, folder.ledger)
    lines = [line for line in ledger.lines if line.number <= number_of(receipt)]
    if not lines or lines[-1].number != number_of(receipt):
        raise RegunError(f"{folder.ledger} has no line for {path}; the audit cannot be done again.")
    return _checked(receipt, folder, lines, open_case(project), naming)


def _checked(receipt: Receipt, folder: Folder, lines: list[LedgerLine], case: Case, naming: Naming) -> list[Check]:
    plan = plan_again(case, folder, lines, naming)
    if plan.names and not len(plan.new):
        return [Check("audit", None, "the forgotten records are no longer in the data, so it cannot be done again")]
    try:
        checks = list(_digests(plan, case, naming, receipt))
        if not all(check.fine for check in checks):
            return [*checks, Check("audit", None, "not done again: the data are not those of the receipt")]
        if not receipt["audit"]["scopes"]:
            return [*checks, _no_numbers(plan, lines[-1], receipt)]
        return [*checks, *_audit(plan, case, folder, lines, receipt)]
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as fault:
        return [Check("audit", False, f"the receipt lacks what the audit needs: {type(fault).__name__} {fault}")]


def _digests(plan: RequestPlan, case: Case, naming: Naming, receipt: Receipt) -> Iterator[Check]:
    said: Mapping[str, Any] = receipt["data"]["sets"]
    for name, found in plan.digests(case, naming).items():
        same = name in said and said[name]["digest"] == found
        yield Check(f"data: {name}", same, "as in the receipt" if same else "other examples than the receipt's")


def _no_numbers(plan: RequestPlan, line: LedgerLine, receipt: Receipt) -> Check:
    """A receipt may lack an audit if the run diverged, and was rejected, or if there was nothing to unlearn."""
    if not plan.names and line.before == line.after:
        return Check("audit", None, "the model never trained on these records and was left as it is")
    diverged = receipt["method"]["attempts"][-1]["diverged"]
    if diverged and not receipt["acceptance"]["accepted"] and plan.names:
        return Check("audit", None, "the run diverged; there are no numbers")
    return Check("audit", False, "the receipt has no numbers, and no reason to lack them")


def _audit(plan: RequestPlan, case: Case, folder: Folder, lines: list[LedgerLine], receipt: Receipt) -> Iterator[Check]:
    scopes: Mapping[str, Any] = receipt["audit"]["scopes"]
    told, how = receipt["audit"]["drops"], scopes["all"]["after"]["settings"]
    options = Options(bootstrap=int(how["bootstrap"]), seed=int(how["seed"]))
    *earlier, line = lines
    current = model_after(case.project, folder, next((one for one in reversed(earlier) if one.accepted), None))
    judge = judge_for(case, plan, Rule(()), current, options.bootstrap, options.seed)
    if not any(name.endswith("_total") for name in told):
        judge = replace(judge, first=None)
    after = judge.signals(model_after(case.project, folder, line))
    audits = {"before": judge.audited, "after": judge.audit(after)}
    if set(scopes) != set(judge.scopes):
        yield Check("audit", False, f"the receipt has the scopes {', '.join(scopes)}, not {', '.join(judge.scopes)}")
    for which, audit in audits.items():
        for scope, found in audit.items():
            yield _compared(f"audit {which}, {scope}", _flat(scopes[scope][which]), _flat(found.to_json()))
    lost = judge.drops(after)
    known = {name: [value] for name, value in told.items() if judge.first is not None or not name.endswith("_total")}
    yield _compared("audit: accuracy lost", known, {name: [value] for name, value in lost.items()})
    yield _verdict(judge, receipt, audits["after"], {**{n: told[n] for n in told if n not in known}, **lost})


def _verdict(judge: Judge, receipt: Receipt, audit: Mapping[str, Evaluation], lost: Mapping[str, float]) -> Check:
    """The acceptance rule on the numbers found again; that a model was trained anew is the receipt's word."""
    said, method = receipt["acceptance"], receipt["method"]["attempts"][-1]["method"]
    try:
        findings = replace(judge, rule=read_rule(said["rule"])).findings(audit, lost, method)
    except RegunError as fault:
        return Check("acceptance", False, f"cannot be judged again: {fault}")
    told = {(f["condition"], f["scope"]): f["passed"] for f in said["findings"]}
    found = {(f.condition, f.scope): f.passed for f in findings}
    wrong = [f"{one[0]} ({one[1]})" for one, passed in found.items() if told.get(one) is not passed]
    if wrong or told.keys() != found.keys() or said["accepted"] is not all(found.values()):
        return Check("acceptance", False, f"the rule comes out otherwise: {', '.join(wrong) or 'other conditions'}")
    note = "; that the model was trained anew is the receipt's word" if method == "retrain" else ""
    return Check("acceptance", True, f"{len(found)} findings and the verdict come out again{note}")


def _flat(audit: Mapping[str, Any]) -> dict[str, list[Any]]:
    """All numbers of an audit: its own, the retrained model's, and the gaps with their floors."""
    retrained = {f"{name} of the retrained model": [value] for name, value in audit["retrain"].items()}
    gaps = {f"gap of {name}": list(gap.values()) for name, gap in audit["gaps"].items()}
    return {**audit["numbers"], **retrained, **gaps}


def _compared(what: str, told: Mapping[str, Any], found: Mapping[str, Any]) -> Check:
    """Every number of the receipt is found again and none is missing; the first that is off is named."""
    for name in [*(n for n in told if n not in found), *(n for n in found if n not in told)]:
        where = "cannot be had again" if name in told else "is not in the receipt"
        return Check(what, False, f"{name} {where}; are the retrained models those of then?")
    for name, parts in told.items():
        for one, other in zip(parts, found[name], strict=True):
            if not _same(one, other):
                return Check(what, False, f"{name} is {other} now, the receipt says {one}")
    return Check(what, True, f"{len(told)} numbers come out again (within {TOLERANCE:g})")


def _same(one: Any, other: Any) -> bool:
    both = isinstance(one, int | float) and isinstance(other, int | float)
    return abs(one - other) <= TOLERANCE if both else one == other
