"""Deletion requests: from a list of ids to an unlearned model, a ledger line and a receipt; and checking receipts."""

from regun.requests.folder import Folder
from regun.requests.forget import Done, Options, Prepared, Watch, forget, history, prepare, refuse_unknown
from regun.requests.ids import Asked, Line, asked_of, read_asked
from regun.requests.naming import Naming, read_naming
from regun.requests.plan import Plan
from regun.requests.project import Project, load_project
from regun.requests.recompute import verify_audit
from regun.requests.stored import stored_project
from regun.requests.verify import Check, verify_folder, verify_receipt

__all__ = [
    "Asked",
    "Check",
    "Done",
    "Folder",
    "Line",
    "Naming",
    "Options",
    "Plan",
    "Prepared",
    "Project",
    "Watch",
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
