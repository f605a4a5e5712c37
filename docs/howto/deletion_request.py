"""Two deletion requests with receipts, from start to end, on the patients of tabular.py.

`project()` is all the command line needs:

    regun forget --project docs/howto/deletion_request.py:project --ids ids.csv --out deletions
    regun verify deletions/requests/0001/receipt.json --project docs/howto/deletion_request.py:project

The first request uses the default method, which retrains from scratch here because that is short. The second one
changes the model instead, so the tests decide; if they reject the model or are inconclusive, the fallback retrains it.

Run: python docs/howto/deletion_request.py
"""

import sys
import tempfile
from pathlib import Path

import torch

import regun
from regun.deletion import Options, reaudit_receipt, verify_receipt


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
        request = regun.DeletionRequest.of(
            [f"patient-{n}" for n in patients], reason="erasure", requester=f"ticket {number}"
        )
        result = regun.forget(project(), request, out, options, on_note=print)
        receipt = result.receipt
        print(f"request {number}: {len(result.plan.new)} patients, {result.status} ({receipt['method']['claim']})")
        for finding in receipt["acceptance"]["findings"]:
            print(f"  {finding['condition']}: {finding['result']}. {finding['why']}")
        path = result.folder / "receipt.json"
        checks = [*verify_receipt(path), *reaudit_receipt(path, project())]
        assert all(check.passed is not False for check in checks)
        print(f"  {sum(check.passed is True for check in checks)} checks passed, {result.folder / 'receipt.html'}")
        statuses.append(result.status)
    return statuses


if __name__ == "__main__":
    main()
