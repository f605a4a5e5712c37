"""The audit of a receipt done again, with the data at hand."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn

from regun.errors import RegunError
from regun.evaluate import Evaluation
from regun.requests.attempt import judged
from regun.requests.folder import MODEL, Folder
from regun.requests.forget import current_model
from regun.requests.judge import drops, judges_for
from regun.requests.ledger import Entry, Ledger, read_ledger, refuse_damaged
from regun.requests.naming import Naming
from regun.requests.plan import NOTHING, Place, Plan, forgotten_names, plan_of, refuse_other_ids, request_ids
from regun.requests.project import Case, Project, open_case
from regun.requests.receipt import Receipt, read_receipt
from regun.requests.rule import read_rule
from regun.requests.sections import set_digests
from regun.requests.verify import Check

TOLERANCE = 0.1
"""How far a number done again may be off (in its own unit): another machine adds in another order."""


def verify_audit(path: Path, project: Project, naming: Naming) -> list[Check]:
    """Data digests, every number and the verdict of the receipt, from the project's data and the folder's models."""
    receipt, _ = read_receipt(path)
    folder = Folder(path.resolve().parents[2])
    ledger = read_ledger(folder.ledger)
    refuse_damaged(ledger, folder.ledger)
    entry = next((e for e in ledger.entries if e.number == receipt["ledger"]["number"]), None)
    if entry is None:
        raise RegunError(f"{folder.ledger} has no line for {path}; the audit cannot be done again.")
    case = open_case(project)
    history = Ledger(ledger.entries[: entry.number - 1])
    plan = _plan(case, folder, history, entry, naming)
    if plan.names and not len(plan.new):
        return [Check("audit", None, "the forgotten records are no longer in the data, so it cannot be done again")]
    checks = list(_digests(plan, case, receipt))
    if not all(check.fine for check in checks):
        return [*checks, Check("audit", None, "not done again: the data are not those of the receipt")]
    try:
        return [*checks, *_audit(Again(plan, case, folder, history, entry), receipt)]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as fault:
        return [
            *checks,
            Check("audit", False, f"the receipt lacks what the audit needs: {type(fault).__name__} {fault}"),
        ]


@dataclass(frozen=True)
class Again:
    """A finished request rebuilt: its plan and data, and the ledger up to it."""

    plan: Plan
    case: Case
    folder: Folder
    history: Ledger
    entry: Entry

    def models(self, first: bool) -> dict[str, nn.Module]:
        """The model before and after the request and, where asked for and at hand, the very first one."""
        own = self.case.project.model
        after = copy.deepcopy(own)
        after.load_state_dict(safetensors.torch.load(self.folder.read(self.entry, MODEL)))
        found = {"before": current_model(self.case.project, self.folder, self.history), "after": after}
        return {**found, "first": own} if first and self.case.weights == self.entry.base else found


def _plan(case: Case, folder: Folder, history: Ledger, entry: Entry, naming: Naming) -> Plan:
    refuse_other_ids(folder, entry, naming, case)
    names, unseen = request_ids(folder, entry)
    earlier = forgotten_names(folder, history, naming, case)
    place = Place(entry.number, entry.previous, entry.base)
    return plan_of(case, naming, place, tuple(names), unseen, earlier, NOTHING)


def _digests(plan: Plan, case: Case, receipt: Receipt) -> Iterator[Check]:
    said: Mapping[str, Any] = receipt["data"]["sets"]
    for name, found in set_digests(plan, case).items():
        same = name in said and said[name]["digest"] == found
        yield Check(f"data: {name}", same, "as in the receipt" if same else "other examples than the receipt's")


def _audit(again: Again, receipt: Receipt) -> Iterator[Check]:
    scopes: Mapping[str, Any] = receipt["audit"]["scopes"]
    if not scopes:
        yield _no_numbers(again, receipt)
        return
    how, told = scopes["all"]["after"]["settings"], receipt["audit"]["drops"]
    judges = judges_for(again.plan, again.case, int(how["bootstrap"]), int(how["seed"]))
    totals = any(name.endswith("_total") for name in told)
    signals = {which: judges.signals(model) for which, model in again.models(first=totals).items()}
    audits = {which: judges.audit(signals[which]) for which in ("before", "after")}
    if set(scopes) != set(judges.scopes):
        yield Check("audit", False, f"the receipt has the scopes {', '.join(scopes)}, not {', '.join(judges.scopes)}")
    for which, audit in audits.items():
        for scope, found in audit.items():
            yield _compared(f"audit {which}, {scope}", _flat(scopes[scope][which]), _flat(found.to_json()))
    lost = drops(signals["before"], signals["after"], signals.get("first"))
    known = {name: [value] for name, value in told.items() if "first" in signals or not name.endswith("_total")}
    yield _compared("audit: accuracy lost", known, {name: [value] for name, value in lost.items()})
    yield _verdict(receipt, audits["after"], {**{n: told[n] for n in told if n not in known}, **lost})


def _no_numbers(again: Again, receipt: Receipt) -> Check:
    """A receipt may lack an audit if the run diverged, and was rejected, or if there was nothing to unlearn."""
    last = receipt["method"]["attempts"][-1]
    if not again.plan.names and again.entry.before == again.entry.after:
        return Check("audit", None, "the model never trained on these records and was left as it is")
    fine = bool(last["diverged"]) and not receipt["acceptance"]["accepted"] and bool(again.plan.names)
    said = (
        "the run diverged; there are no numbers" if fine else "the receipt has no numbers, and no reason to lack them"
    )
    return Check("audit", None if fine else False, said)


def _verdict(receipt: Receipt, audit: Mapping[str, Evaluation], lost: Mapping[str, float]) -> Check:
    """The acceptance rule on the numbers found again; that a model was trained anew is the receipt's word."""
    said, method = receipt["acceptance"], receipt["method"]["attempts"][-1]["method"]
    try:
        findings = judged(read_rule(said["rule"]), audit, lost, method)
    except RegunError as fault:
        return Check("acceptance", False, f"cannot be judged again: {fault}")
    told = {(f["condition"], f["scope"]): f["passed"] for f in said["findings"]}
    found = {(f.condition, f.scope): f.passed for f in findings}
    wrong = [
        f"{condition} ({scope})"
        for condition, scope in found
        if told.get((condition, scope)) is not found[condition, scope]
    ]
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
