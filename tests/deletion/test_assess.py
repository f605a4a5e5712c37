"""What is measured of a model and of its files is really compared: each number has its sign, each digest its check."""

import hashlib
import json
from pathlib import Path

from small_project import ERASE, Memory, erase, ids, project

import regun
from regun.deletion import Options, verify_folder
from regun.deletion.ledger import read_ledger
from regun.deletion.receipt_page import page
from regun.deletion.signing import seal, written

MEMORY = {"model": Memory(), "rebuild": lambda seed: Memory(0.0, seed)}


def ruin(job: regun.Job) -> None:
    """Forgets exactly, and with it all else: the model gives every unseen record the opposite of its answer."""
    erase(job)
    job.model.opinion.neg_()


def test_a_ruined_model_is_rejected_by_the_default_rule(tmp_path: Path) -> None:
    request = regun.DeletionRequest.of(ids()[:20])
    done = regun.forget(
        project(method=f"{__file__}:ruin", **MEMORY), request, tmp_path / "ruined", Options(bootstrap=20)
    )
    findings = {finding["condition"]: finding["answer"] for finding in done.receipt["acceptance"]["findings"]}
    assert done.status == "rejected"
    assert findings[next(name for name in findings if name.startswith("val_drop"))] == "failed"
    drops, scope = done.receipt["audit"]["drops"], done.receipt["audit"]["scopes"]["all"]
    for split in ("retain", "val", "test", "heldout"):
        lost = scope["before"]["numbers"][f"{split}_acc"][0] - scope["after"]["numbers"][f"{split}_acc"][0]
        assert drops[f"{split}_drop"] == drops[f"{split}_drop_total"] == lost
    assert drops["val_drop"] > 30
    kept = regun.forget(project(method=ERASE, **MEMORY), request, tmp_path / "kept", Options(bootstrap=20))
    assert kept.receipt["audit"]["drops"]["val_drop"] == 0


def test_the_digest_of_the_weights_is_compared_with_the_file(tmp_path: Path) -> None:
    """A receipt and a ledger line that agree on a digest of other weights than the file holds."""
    regun.forget(project(method=ERASE, **MEMORY), regun.DeletionRequest.of(ids()[:20]), tmp_path, Options(bootstrap=20))
    (line,) = read_ledger(tmp_path / "ledger.jsonl").lines
    folder = tmp_path / "requests/0001"
    content = json.loads((folder / "receipt.json").read_text())
    content["model"]["after"] = "0" * 64
    forged = seal(content, None)
    files = dict(line.files)
    for name, text in (("receipt.json", written(forged)), ("receipt.html", page(forged).encode())):
        (folder / name).write_bytes(text)
        files[name] = hashlib.sha256(text).hexdigest()
    (tmp_path / "ledger.jsonl").write_text(line._replace(after="0" * 64, files=files).text() + "\n")
    failed = [check.name for _, checks in verify_folder(tmp_path) for check in checks if check.passed is False]
    assert failed == ["model.safetensors"]
