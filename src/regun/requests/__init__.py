"""Deletion requests: from a list of ids to an unlearned model, a ledger line and a receipt; and checking receipts."""

from regun.requests.again import verify_audit
from regun.requests.asked import Asked, AskedLine, asked_of, read_asked
from regun.requests.forget import Done, forget, history, prepare, refuse_unknown
from regun.requests.options import Options
from regun.requests.plan import Plan
from regun.requests.project import Project, load_project, stored_project
from regun.requests.seal import Naming, read_naming
from regun.requests.verify import Check, verify_folder, verify_receipt

__all__ = [
    "Asked",
    "AskedLine",
    "Check",
    "Done",
    "Naming",
    "Options",
    "Plan",
    "Project",
    "asked_of",
    "forget",
    "history",
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
