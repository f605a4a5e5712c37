"""Two deletion requests with receipts, from start to end, on the patients of tabular.py.

The model exists: training has saved a checkpoint. `project()` loads it, and is all the command line needs:

    python docs/howto/deletion_request.py train
    regun forget --project docs/howto/deletion_request.py:project --ids ids.csv --out deletions
    regun verify deletions/requests/0001/receipt.json --project docs/howto/deletion_request.py:project
    regun current deletions

The first request uses the default method, which retrains from scratch here because that is short. The second one
changes the model instead, so the tests decide; if they reject the model or are inconclusive, the fallback retrains it.
At the end a server loads the current model.

Run: python docs/howto/deletion_request.py
"""

import os
import sys
import tempfile
from pathlib import Path

import safetensors.torch
import torch

import regun
from regun.deletion import Options, find_current, reaudit_receipt, verify_receipt

sys.path.insert(0, str(Path(__file__).parent))
from tabular import network, records, trained

CHECKPOINT = Path(os.environ.get("CHECKPOINT", Path(tempfile.gettempdir()) / "patients.safetensors"))


def patients() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """The training data and data the model never saw."""
    data = records()
    train = tuple(torch.cat(parts) for parts in zip(data["forget"], data["retain"], strict=True))
    return {"train": train, "heldout": data["heldout"], "test": data["test"]}


def train() -> None:
    """Your training script: it ends in a checkpoint."""
    model = trained(*patients()["train"], seed=0)
    safetensors.torch.save_file(model.state_dict(), CHECKPOINT)


def project() -> regun.Project:
    """The model as the checkpoint has it, its training data with an id for each record, and data it never saw."""
    model, data = network(), patients()
    model.load_state_dict(safetensors.torch.load_file(CHECKPOINT))
    return regun.Project(
        model=model,
        train=data["train"],
        ids=[f"patient-{n}" for n in range(len(data["train"][1]))],
        heldout=data["heldout"],
        test=data["test"],
        role="data protection office of the clinic",
    )


def main() -> list[str]:
    train()
    out, statuses = Path(tempfile.mkdtemp()) / "deletions", []
    for number, (wanted, options) in enumerate(
        ((range(30), Options()), (range(25, 60), Options(method="auto,from_scratch=never", fallback="auto"))), 1
    ):
        request = regun.DeletionRequest.of(
            [f"patient-{n}" for n in wanted], reason="erasure", requester=f"ticket {number}"
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
    serve(out)
    return statuses


def serve(out: Path) -> torch.nn.Module:
    """In the service: the model of the last accepted request, after a check of its file."""
    newest = find_current(out)
    if newest.request is None:  # no request was accepted: the checkpoint is still the current model
        return regun.deletion.current(out, project().model)
    print(f"in service: {newest.link}, the model of request {newest.request} ({newest.digest[:12]})")
    return regun.deletion.current(out, network()).eval()


if __name__ == "__main__":
    train() if sys.argv[1:] == ["train"] else main()
