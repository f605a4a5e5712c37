"""Two deletion requests with receipts, from start to end, on the patients of tabular.py.

`project()` is all the command line needs:

    regun forget --project docs/howto/deletion_request.py:project --ids ids.csv --out deletions
    regun verify deletions/requests/0001/receipt.json --project docs/howto/deletion_request.py:project

Run: python docs/howto/deletion_request.py
"""

import sys
import tempfile
from pathlib import Path

import torch

import regun
from regun.requests import Naming, verify_audit, verify_receipt


def project() -> regun.Project:
    """The model, its training data with an id for each record, and data it never saw."""
    sys.path.insert(0, str(Path(__file__).parent))
    from tabular import records, trained

    data = records()
    x, y = (torch.cat(parts) for parts in zip(data["forget"], data["retain"], strict=True))
    return regun.Project(
        model=trained(x, y, seed=0),
        train=(x, y),
        ids=[f"patient-{n}" for n in range(len(y))],
        heldout=data["heldout"],
        test=data["test"],
        method="regun,epochs=30,lr=0.05,schedule=cosine,w=0.8,batch_size=8,retain_batch=64,granularity=class",
        accept="smia_auc~50, test_drop<5",
    )


def main() -> list[bool]:
    out, accepted = Path(tempfile.mkdtemp()) / "deletions", []
    for number, patients in enumerate((range(30), range(25, 40)), 1):
        asked = regun.asked_of([f"patient-{n}" for n in patients], reason="erasure", requester=f"ticket {number}")
        done = regun.forget(project(), asked, out)
        audit = done.receipt["audit"]["scopes"]["all"]
        before, after = (audit[which]["numbers"]["smia_auc"][0] for which in ("before", "after"))
        verdict = "accepted" if done.accepted else "rejected"
        print(f"request {number}: {len(done.plan.new)} patients, attack AUC {before:.1f} -> {after:.1f}, {verdict}")
        receipt = done.folder / "receipt.json"
        checks = [*verify_receipt(receipt), *verify_audit(receipt, project(), Naming())]
        print(f"  {sum(check.fine is True for check in checks)} checks fine, {done.folder / 'receipt.html'}")
        accepted.append(done.accepted and all(check.fine is not False for check in checks))
    return accepted


if __name__ == "__main__":
    main()
