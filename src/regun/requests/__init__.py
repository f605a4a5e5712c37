"""Deletion requests: from a list of ids to an unlearned model, a ledger line and a receipt; and checking receipts."""

from regun.requests.again import verify_audit
from regun.requests.forget import Done, forget, history
from regun.requests.ids import Asked, AskedLine, asked_of, read_asked
from regun.requests.naming import Naming, read_naming
from regun.requests.plan import RequestPlan
from regun.requests.prepare import Options, Prepared, prepare, refuse_unknown
from regun.requests.project import Project, load_project, stored_project
from regun.requests.receipt import in_the_clear
from regun.requests.verify import Check, verify_folder, verify_receipt

__all__ = [
    "Asked",
    "AskedLine",
    "Check",
    "Done",
    "Naming",
    "Options",
    "Prepared",
    "Project",
    "RequestPlan",
    "asked_of",
    "forget",
    "history",
    "in_the_clear",
    "load_project",
    "prepare",
    "read_asked",
    "read_naming",
    "refuse_unknown",
    "stored_project",
    "verify_audit",
    "verify_folder",
    "verify_receipt",
]
