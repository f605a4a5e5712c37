"""The audit of a receipt done again, with the data at hand.

Belongs here: rebuilding a finished request from the ledger and comparing digests and numbers. Does not: checks that
need no data (see verify). May import: the other files of this room, errors.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch

from regun.errors import RegunError
from regun.requests.folder import MODEL, REQUEST, Folder
from regun.requests.forget import current_model
from regun.requests.judge import drops, judges_for
from regun.requests.ledger import Entry, Ledger, read_ledger, refuse_damaged
from regun.requests.naming import Naming
from regun.requests.plan import NOTHING, Place, Plan, forgotten_names, plan_of
from regun.requests.project import Case, Project, open_case
from regun.requests.receipt import Receipt, read_receipt
from regun.requests.sections import set_digests
from regun.requests.verify import Check

TOLERANCE = 0.1
"""How far a number done again may be off (in its own unit): another machine adds in another order."""


def verify_audit(path: Path, project: Project, naming: Naming) -> list[Check]:
    """Data digests and every number of the receipt, from the project's data and the models in the folder."""
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
    if plan.empty:
        return [Check("audit", None, "the forgotten records are no longer in the data, so it cannot be done again")]
    checks = list(_digests(plan, case, receipt))
    if not all(check.fine for check in checks):
        return [*checks, Check("audit", None, "not done again: the data are not those of the receipt")]
    return [*checks, *_numbers(plan, case, folder, history, entry, receipt)]


def _plan(case: Case, folder: Folder, history: Ledger, entry: Entry, naming: Naming) -> Plan:
    naming.refuse_other(entry.naming, folder.ledger)
    stored: dict[str, Any] = json.loads(folder.read(entry, REQUEST))
    names = tuple(str(line["id"]) for line in stored["lines"])
    earlier = forgotten_names(folder, history, naming)
    place = Place(entry.number, entry.previous, entry.base)
    return plan_of(case, naming, place, names, stored["unseen"], earlier, NOTHING)


def _digests(plan: Plan, case: Case, receipt: Receipt) -> Iterator[Check]:
    said: Mapping[str, Any] = receipt["data"]["sets"]
    for name, found in set_digests(plan, case).items():
        same = name in said and said[name]["digest"] == found
        yield Check(f"data: {name}", same, "as in the receipt" if same else "other examples than the receipt's")


def _numbers(
    plan: Plan, case: Case, folder: Folder, history: Ledger, entry: Entry, receipt: Receipt
) -> Iterator[Check]:
    scopes: Mapping[str, Any] = receipt["audit"]["scopes"]
    if not scopes:
        yield Check("audit", None, "the run diverged; there are no numbers")
        return
    how = scopes["all"]["after"]["settings"]
    judges = judges_for(plan, case, int(how["bootstrap"]), int(how["seed"]))
    after = copy.deepcopy(case.project.model)
    after.load_state_dict(safetensors.torch.load(folder.read(entry, MODEL)))
    signals = {"before": judges.signals(current_model(case.project, folder, history)), "after": judges.signals(after)}
    for which, sets in signals.items():
        for scope, found in judges.audit(sets).items():
            yield _compared(f"audit {which}, {scope}", scopes[scope][which]["numbers"], found.to_json()["numbers"])
    lost = {name: [value] for name, value in drops(signals["before"], signals["after"], None).items()}
    told = {name: [value] for name, value in receipt["audit"]["drops"].items() if not name.endswith("_total")}
    yield _compared("audit: accuracy lost", told, lost)


def _compared(what: str, told: Mapping[str, Any], found: Mapping[str, Any]) -> Check:
    """Every number of the receipt is found again; the first that is not is named."""
    for name, parts in told.items():
        if name not in found:
            return Check(what, False, f"{name} cannot be had again; are the retrained models those of then?")
        for one, other in zip(parts, found[name], strict=True):
            if (one is None) != (other is None) or (one is not None and abs(one - other) > TOLERANCE):
                return Check(what, False, f"{name} is {other} now, the receipt says {one}")
    return Check(what, True, f"{len(told)} numbers come out again (within {TOLERANCE:g})")
