"""Two deletion requests with receipts, from start to end, on the patients of tabular.py.

`project()` is all the command line needs:

    regun forget --project docs/howto/deletion_request.py:project --ids ids.csv --out deletions
    regun verify deletions/requests/0001/receipt.json --project docs/howto/deletion_request.py:project

The first request is done as regun does it by itself: retraining is short here. The second one changes the model
instead, so that the tests have to tell whether it has forgotten; if they do not, or cannot, it is retrained.

Run: python docs/howto/deletion_request.py
"""

import sys
import tempfile
from pathlib import Path

import torch

import regun
from regun.deletion import Options, Pseudonyms, verify_audit, verify_receipt


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
        role="data protection office of the clinic",
    )


def main() -> list[str]:
    out, statuses = Path(tempfile.mkdtemp()) / "deletions", []
    for number, (patients, options) in enumerate(
        ((range(30), Options()), (range(25, 60), Options(method="auto,from_scratch=never", fallback="auto"))), 1
    ):
        asked = regun.deletion_request(
            [f"patient-{n}" for n in patients], reason="erasure", requester=f"ticket {number}"
        )
        done = regun.forget(project(), asked, out, options, on_note=print)
        print(f"request {number}: {len(done.plan.new)} patients, {done.status} ({done.receipt['method']['claim']})")
        for finding in done.receipt["acceptance"]["findings"]:
            print(f"  {finding['condition']}: {finding['answer']}. {finding['why']}")
        receipt = done.folder / "receipt.json"
        checks = [*verify_receipt(receipt), *verify_audit(receipt, project(), Pseudonyms())]
        assert all(check.fine is not False for check in checks)
        print(f"  {sum(check.fine is True for check in checks)} checks fine, {done.folder / 'receipt.html'}")
        statuses.append(done.status)
    return statuses


if __name__ == "__main__":
    main()
