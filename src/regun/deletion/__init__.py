"""Deletion requests: from a list of ids to an unlearned model, a ledger line and a receipt; and verifying receipts.

Start reading in `forget.py`: plan -> run the method -> assess -> receipt -> commit. `serving.py` finds and loads the
current model. `verify.py` checks files, chain and signature; `reaudit.py` repeats the audit of a receipt.
docs/receipts.md documents the files.
"""

from regun.deletion.forecast import Forecast, make_forecast
from regun.deletion.forget import DeletionResult, check_unknown, forget, history, plan_request
from regun.deletion.options import Options
from regun.deletion.plan import Plan
from regun.deletion.preparing import prepare_table
from regun.deletion.project import Project, load_project, stored_project
from regun.deletion.pseudonyms import Pseudonyms, read_pseudonyms
from regun.deletion.reaudit import reaudit_receipt
from regun.deletion.request import DeletionRequest, RequestedRecord, read_request_file
from regun.deletion.serving import CurrentModel, current, find_current
from regun.deletion.verify import Check, verify_folder, verify_receipt

__all__ = [
    "Check",
    "CurrentModel",
    "DeletionRequest",
    "DeletionResult",
    "Forecast",
    "Options",
    "Plan",
    "Project",
    "Pseudonyms",
    "RequestedRecord",
    "check_unknown",
    "current",
    "find_current",
    "forget",
    "history",
    "load_project",
    "make_forecast",
    "plan_request",
    "prepare_table",
    "read_pseudonyms",
    "read_request_file",
    "reaudit_receipt",
    "stored_project",
    "verify_folder",
    "verify_receipt",
]
