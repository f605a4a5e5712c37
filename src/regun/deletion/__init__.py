"""Deletion requests: from a list of ids to an unlearned model, a ledger line and a receipt; and checking receipts."""

from regun.deletion.forget import Done, check_unknown, forget, history, prepare
from regun.deletion.options import Options
from regun.deletion.plan import Plan
from regun.deletion.project import Project, load_project, stored_project
from regun.deletion.reaudit import verify_audit
from regun.deletion.request import DeletionRequest, RequestedRecord, deletion_request, read_request_file
from regun.deletion.signing import Pseudonyms, read_pseudonyms
from regun.deletion.verify import Check, verify_folder, verify_receipt

__all__ = [
    "Check",
    "DeletionRequest",
    "Done",
    "Options",
    "Plan",
    "Project",
    "Pseudonyms",
    "RequestedRecord",
    "check_unknown",
    "deletion_request",
    "forget",
    "history",
    "load_project",
    "prepare",
    "read_pseudonyms",
    "read_request_file",
    "stored_project",
    "verify_audit",
    "verify_folder",
    "verify_receipt",
]
