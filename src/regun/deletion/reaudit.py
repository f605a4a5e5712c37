"""The audit of a receipt done again, with the data at hand."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors
from torch import nn

from regun.artifacts import state_digest
from regun.auditing import UNSEEN
from regun.auditing.influence import Influence
from regun.deletion.assess import Judge, judge_for
from regun.deletion.attempt import Attempt, judged
from regun.deletion.folder import OUTS, Folder
from regun.deletion.forget import model_after
from regun.deletion.ledger import INCONCLUSIVE, UNTESTABLE, LedgerLine, check_damaged, read_ledger
from regun.deletion.options import Options
from regun.deletion.out_models import NONE, RETRAINED, SHORT, OutModels, unpacked
from regun.deletion.plan import Plan, plan_again
from regun.deletion.project import USERS, Case, Project, no_exit, open_case
from regun.deletion.rule import read_rule
from regun.deletion.signing import Pseudonyms, Receipt, read_receipt
from regun.deletion.verify import Check, number_of
from regun.errors import RegunError
from regun.training.job import Cost
from regun.unlearning import Outcome

TOLERANCE = 0.1
"""How far a number done again may be off (in its own unit): another machine adds in another order."""


@no_exit(USERS)
def verify_audit(path: Path, project: Project, naming: Pseudonyms) -> list[Check]:
    """Data digests, every number and the verdict of the receipt, from the project's data and the folder's models."""
    receipt, _ = read_receipt(path)
    folder = Folder(path.resolve().parents[2])
    ledger = read_ledger(folder.ledger)
    check_damaged(ledger, folder.ledger)
    lines = [line for line in ledger.lines if line.number <= number_of(receipt)]
    if not lines or lines[-1].number != number_of(receipt):
        raise RegunError(f"{folder.ledger} has no line for {path}; the audit cannot be done again.")
    return _checked(receipt, folder, lines, open_case(project), naming)


def _checked(receipt: Receipt, folder: Folder, lines: list[LedgerLine], case: Case, naming: Pseudonyms) -> list[Check]:
    plan = plan_again(case, folder, lines, Options(naming=naming))
    if plan.names and not len(plan.new):
        return [Check("audit", None, "the forgotten records are no longer in the data, so it cannot be done again")]
    try:
        checks = list(_digests(plan, receipt))
        if not all(check.fine for check in checks):
            return [*checks, Check("audit", None, "not done again: the data are not those of the receipt")]
        checks += _copies(plan, receipt)
        if not receipt["audit"]["scopes"]:
            return [*checks, _no_numbers(plan, lines[-1], receipt)]
        return [*checks, *_audit(plan, folder, lines, receipt)]
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as fault:
        return [Check("audit", False, f"the receipt lacks what the audit needs: {type(fault).__name__} {fault}")]


def _digests(plan: Plan, receipt: Receipt) -> Iterator[Check]:
    said: Mapping[str, Any] = receipt["data"]["sets"]
    for name, found in plan.digests().items():
        same = name in said and said[name]["digest"] == found
        yield Check(f"data: {name}", same, "as in the receipt" if same else "other examples than the receipt's")


def _copies(plan: Plan, receipt: Receipt) -> Iterator[Check]:
    """The retained records that equal forgotten ones, counted again where that was done then and is cheap now."""
    said = receipt["data"].get("copies_that_stay")
    if said is None or not plan.searched:
        return
    found = {"all": len(plan.all_copies), "new": len(plan.copies)}
    same = found == {name: said[name] for name in found}
    note = "as many as in the receipt" if same else f"{found['all']:,} now, the receipt says {said['all']:,}"
    yield Check("data: copies of forgotten records that stay", same, note)


def _with_copies_of_then(plan: Plan, receipt: Receipt) -> Plan:
    """The plan with copies only where the receipt has some: they decide how a model that was trained anew is judged."""
    said = receipt["data"].get("copies_that_stay") or {"all": 0, "new": 0}
    found = {"all": plan.all_copies or ("",), "new": plan.copies or ("",)}
    known = {name: some if said[name] else () for name, some in found.items()}
    return replace(plan, copies=known["new"], all_copies=known["all"])


def _no_numbers(plan: Plan, line: LedgerLine, receipt: Receipt) -> Check:
    """A receipt may lack an audit if the run diverged, and was rejected, or if there was nothing to unlearn."""
    if not plan.names and line.before == line.after:
        return Check("audit", None, "the model never trained on these records and was left as it is")
    diverged = receipt["method"]["attempts"][-1]["diverged"]
    if diverged and not line.accepted and plan.names:
        return Check("audit", None, "the run diverged; there are no numbers")
    return Check("audit", False, "the receipt has no numbers, and no reason to lack them")


def _audit(plan: Plan, folder: Folder, lines: list[LedgerLine], receipt: Receipt) -> Iterator[Check]:
    """Every number and the verdict, found again as they were found then: by judging the attempt that counted."""
    said, project = receipt["audit"], plan.case.project
    scopes, how = said["scopes"], said["scopes"]["all"]["after"]["settings"]
    *earlier, line = lines
    last = next((one for one in reversed(earlier) if one.accepted), None)
    before, made = model_after(project, folder, last), model_after(project, folder, line)
    missing = _missing(plan, line, before, said["drops"])
    if missing:
        why = f"cannot be done again: the project's model is not {missing[:12]}, which the audit compared with"
        yield Check("audit", None, why)
        return
    plan = _with_copies_of_then(plan, receipt)
    options = replace(plan.options, bootstrap=int(how["bootstrap"]), seed=int(how["seed"]))
    totals = {name: value for name, value in said["drops"].items() if name.endswith("_total")}
    judge = judge_for(replace(plan, options=options), before, totals)
    try:
        ruled = replace(judge.plan, rule=read_rule(receipt["acceptance"]["rule"]))
        judge = replace(judge, plan=ruled, outs=_outs(judge, folder, line))
        again = judged("", _outcome(receipt, made), _fair(said["judged"], judge.before), before, judge)
    except (RegunError, safetensors.SafetensorError) as fault:
        yield Check("acceptance", False, f"cannot be judged again: {fault}")
        return
    if set(scopes) != set(judge.scopes):
        yield Check("audit", False, f"the receipt has the scopes {', '.join(scopes)}, not {', '.join(judge.scopes)}")
    for which, audit in {"before": judge.audited, "after": again.audit}.items():
        for scope, found in audit.items():
            yield _compared(f"audit {which}, {scope}", _flat(scopes[scope][which]), _flat(found.to_json()))
    yield _compared("audit: accuracy lost", _single(said["drops"]), _single(again.drops))
    yield from _influences(said["influence"], judge.left(again.audit))
    yield _verdict(receipt, again)


def _missing(plan: Plan, line: LedgerLine, before: nn.Module, drops: Mapping[str, Any]) -> str:
    """The digest of a model that the audit compared with and that is not at hand: an owner may have put the accepted
    one in its place. The very first one is missed only if it was at hand then."""
    if state_digest(before.state_dict()) != line.before:
        return line.before
    had_first = any(name.endswith("_total") for name in drops)
    return line.base if had_first and plan.case.weights != line.base else ""


def _outcome(receipt: Receipt, made: nn.Module) -> Outcome:
    """The run that counted; its steps, and that a model was trained anew, are the receipt's word."""
    told = receipt["method"]["attempts"][-1]
    cost, anew = Cost(steps=int(told["cost"]["steps"])), told["from_scratch"] is True
    return Outcome(made, str(told["method"]), {}, cost, [], None, {}, from_scratch=anew)


def _fair(told: Sequence[str], sets: Mapping[str, Any]) -> list[str]:
    """The unseen sets that a model was judged by; but for the held-out one, which a method may train towards, all."""
    unseen = [name for name in UNSEEN if name in sets]
    if not told or not {*unseen} >= {*told} >= {*unseen} - {"heldout"}:
        raise RegunError(f"the receipt judges by {', '.join(told) or 'no unseen set'}; there are {', '.join(unseen)}.")
    return [name for name in unseen if name in told]


def _outs(judge: Judge, folder: Folder, line: LedgerLine) -> OutModels:
    """The out models of then: the project's retrained ones, or what the short ones said, which the ledger seals."""
    if judge.retrained:
        return OutModels(RETRAINED, tuple(judge.retrained))
    if OUTS not in line.files:
        return OutModels(NONE, why="there were none")
    said, _ = unpacked(folder.read(line, OUTS), judge.plan)
    return OutModels(SHORT, tuple(said))


def _influences(told: Mapping[str, Any], found: Mapping[str, Influence | str]) -> Iterator[Check]:
    """The influence left, number by number; what the models said that it was measured with is the receipt's word."""
    for scope, left in found.items():
        if isinstance(left, Influence):
            said = Influence.from_json(told[scope])
            parts = {f"{scope} against {part.against}": part.share.to_json() for part in said.parts}
            again = {f"{scope} against {part.against}": part.share.to_json() for part in left.parts}
            yield _compared(f"influence left, {scope}", parts, again)


def _verdict(receipt: Receipt, again: Attempt) -> Check:
    """The acceptance rule on the numbers found again; that a model was trained anew is the receipt's word."""
    said, answer = receipt["acceptance"], again.verdict
    told = {(f["condition"], f["scope"]): f["answer"] for f in said["findings"]}
    found = {(f.condition, f.scope): f.answer for f in again.findings}
    wrong = [f"{one[0]} ({one[1]})" for one, answer in found.items() if told.get(one) != answer]
    if wrong or told.keys() != found.keys():
        return Check("acceptance", False, f"the rule comes out otherwise: {', '.join(wrong) or 'other conditions'}")
    if said["answer"] != answer or said["status"] not in (answer, UNTESTABLE if answer == INCONCLUSIVE else answer):
        return Check("acceptance", False, f"the verdict comes out otherwise: {answer}, not {said['status']}")
    note = "; that the model was trained anew is the receipt's word" if again.outcome.from_scratch else ""
    return Check("acceptance", True, f"{len(found)} findings and the verdict come out again{note}")


def _single(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: [value] for name, value in values.items()}


def _flat(audit: Mapping[str, Any]) -> dict[str, list[Any]]:
    """All numbers of an audit: its own, the retrained model's, and the gaps with their floors."""
    retrained = _single({f"{name} of the retrained model": value for name, value in audit["retrain"].items()})
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
