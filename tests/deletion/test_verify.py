"""Verification: whatever is changed after a request is found, and what was changed is named."""

import json
import random
import shutil
from pathlib import Path

import pytest
from small_project import LENIENT, failed, forge, forget, ids, receipt_of, receipt_path

from expect import error
from regun.deletion import Options, verify_folder, verify_receipt
from regun.deletion.folder import CURRENT
from regun.deletion.ledger import BEGINNING, LedgerLine, read_ledger
from regun.errors import RegunError

FILES = ("model.safetensors", "receipt.html", "receipt.json", "request.json", "risks.csv")
LEDGER = "ledger.jsonl"


def flipped(content: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :]


def test_what_was_not_changed_passes(original: Path, keys: Path) -> None:
    assert failed(verify_folder(original)) == []
    assert failed(verify_receipt(receipt_path(original, 1))) == []
    assert failed(verify_receipt(receipt_path(original, 2), public_key=keys / "ours.pub")) == []
    assert failed(verify_receipt(receipt_path(original, 2), alone=True)) == []


@pytest.mark.parametrize(("name", "number"), [*((n, k) for n in FILES for k in (1, 2)), ("signature.json", 2)])
def test_every_flipped_bit_of_every_file_is_found_and_its_file_named(out: Path, name: str, number: int) -> None:
    path, draw = receipt_path(out, number).parent / name, random.Random(number)
    content = path.read_bytes()
    for _ in range(25):
        path.write_bytes(flipped(content, draw))
        assert failed(verify_folder(out)) == [name]
    path.write_bytes(content)
    assert failed(verify_folder(out)) == []
    path.unlink()
    assert failed(verify_folder(out)) == [name]


@pytest.mark.parametrize("number", [1, 2])
def test_every_flipped_bit_of_the_ledger_is_found_and_its_line_named(out: Path, number: int) -> None:
    path, draw = out / LEDGER, random.Random(number)
    lines = path.read_bytes().splitlines()
    for _ in range(40):
        line = flipped(lines[number - 1], draw)
        path.write_bytes(b"".join(one + b"\n" for one in [*lines[: number - 1], line, *lines[number:]]))
        *_, (name, checks) = verify_folder(out)
        assert name == LEDGER
        assert any(f"line {number} " in check.note for check in checks if check.passed is False), line


def test_a_file_that_cannot_be_read_is_not_verified(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def unreadable(path: Path, *args, **more):
        if path.name == "request.json":
            raise OSError(5, "input/output error")
        return real(path, *args, **more)

    monkeypatch.setattr(Path, "open", unreadable)
    assert failed(verify_receipt(receipt_path(out))) == ["request.json"]


def test_the_same_content_in_other_bytes_is_found(out: Path) -> None:
    receipt_path(out).write_text(json.dumps(receipt_of(out)))
    assert failed(verify_receipt(receipt_path(out))) == ["receipt.json"]


@pytest.mark.parametrize("name", [name for name in LedgerLine._fields if name != "files"])
def test_a_receipt_that_contradicts_its_line_is_found(out: Path, name: str) -> None:
    forge(out, 1, lambda receipt: receipt["ledger"].update({name: "other"}))
    assert failed(verify_receipt(receipt_path(out))) == [f"{LEDGER} line 1"]


def test_receipts_that_swap_places_are_found(out: Path) -> None:
    one, two = receipt_path(out, 1).parent, receipt_path(out, 2).parent
    one.rename(out / "x")
    two.rename(one)
    (out / "x").rename(two)
    assert set(FILES) <= set(failed(verify_receipt(receipt_path(out, 1))))


def test_a_ledger_that_was_cut_is_found(out: Path) -> None:
    path = out / LEDGER
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assert failed(verify_receipt(receipt_path(out, 2))) == [LEDGER]
    assert failed(verify_folder(out)) == [CURRENT, "requests/0002"]
    path.unlink()
    with error(RegunError, LEDGER, "alone="):
        verify_receipt(receipt_path(out, 2))
    with error(RegunError, LEDGER):
        list(verify_folder(out))


def test_a_hash_stored_elsewhere_reveals_a_cut_that_the_chain_cannot(out: Path) -> None:
    first, second = (line.hash for line in read_ledger(out / LEDGER).lines)
    *_, (_, checks) = verify_folder(out)
    assert any(second in check.note for check in checks)
    for one in (first, second.upper(), BEGINNING):
        assert failed(verify_folder(out, expect=one)) == []
    assert failed(verify_folder(out, expect="f" * 64)) == [LEDGER]
    (out / LEDGER).write_bytes((out / LEDGER).read_bytes().splitlines(keepends=True)[0])
    shutil.rmtree(receipt_path(out, 2).parent)
    assert failed(verify_folder(out)) == [CURRENT]
    (out / CURRENT).unlink()
    assert failed(verify_folder(out)) == [], "what is left is a consistent ledger"
    assert failed(verify_folder(out, expect=first)) == []
    assert failed(verify_folder(out, expect=second)) == [LEDGER]


@pytest.mark.parametrize("text", ["", "abc", "g" * 64, "f" * 65])
def test_what_is_no_hash_is_refused(out: Path, text: str) -> None:
    with error(RegunError, "expect", "64"):
        list(verify_folder(out, expect=text))


@pytest.mark.parametrize("name", ["../../../secret", "/etc/passwd", "a/b", "..", "", "link"])
def test_a_line_that_names_other_files_fails_and_they_are_not_read(out: Path, name: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (receipt_path(out).parent / "link").symlink_to(tmp_path / "secret")
    (line, *_) = read_ledger(out / LEDGER).lines
    (out / LEDGER).write_text(line._replace(files={**line.files, name: "0" * 64}).text() + "\n")
    checks = verify_receipt(receipt_path(out))
    assert failed(checks) == [f"{LEDGER} line 1"]
    assert not any(check.name in (name, "secret", "passwd") for check in checks)


def test_a_link_in_place_of_a_file_is_not_followed(out: Path, tmp_path: Path) -> None:
    path = receipt_path(out).parent / "risks.csv"
    shutil.copy(path, tmp_path / "copy")
    path.unlink()
    path.symlink_to(tmp_path / "copy")
    assert failed(verify_receipt(receipt_path(out))) == ["risks.csv"]


@pytest.mark.parametrize("content", [b"", b"[1]", b"{}", b'{"kind": "regun deletion receipt", "format": 1}', b"\xff"])
def test_a_receipt_that_is_none_is_found_under_a_fitting_line(out: Path, content: bytes) -> None:
    receipt_path(out).write_bytes(content)
    assert failed(verify_receipt(receipt_path(out))) == ["receipt.json"]
    line = read_ledger(out / LEDGER).lines[0]
    import hashlib

    files = {**line.files, "receipt.json": hashlib.sha256(content).hexdigest()}
    (out / LEDGER).write_text(line._replace(files=files).text() + "\n")
    assert failed(verify_receipt(receipt_path(out))) == [f"{LEDGER} line 1"]


# ----------------------------------------------------------------------------------------------------------- signatures


def test_a_removed_and_an_added_signature_are_found(out: Path, keys: Path) -> None:
    one, two = (receipt_path(out, number).parent / "signature.json" for number in (1, 2))
    assert failed(verify_receipt(receipt_path(out, 1), public_key=keys / "ours.pub")) == ["signature.json"]
    shutil.copy(two, one)
    assert failed(verify_receipt(receipt_path(out, 1))) == ["signature.json"]
    two.unlink()
    assert failed(verify_receipt(receipt_path(out, 2))) == ["signature.json"]
    with error(RegunError, "signature.json"):
        verify_receipt(receipt_path(out, 2), alone=True)


def test_a_consistent_forgery_fails_at_the_signature(out: Path, keys: Path) -> None:
    path = forge(out, 2, lambda receipt: receipt["request"].update(records=7))
    assert failed(verify_receipt(path)) == ["signature.json"]
    assert failed(verify_receipt(path, alone=True)) == ["receipt.json"]
    path = forge(out, 2, lambda receipt: receipt["ledger"].update(signer=""), signer="")
    (path.parent / "signature.json").unlink()
    assert failed(verify_receipt(path)) == [], "without a signature, a rebuilt ledger is consistent"
    assert failed(verify_receipt(path, public_key=keys / "ours.pub")) == ["signature.json"]


def test_another_key_is_named(original: Path, keys: Path) -> None:
    checks = verify_receipt(receipt_path(original, 2), public_key=keys / "theirs.pub")
    assert failed(checks) == ["signature.json"]
    assert receipt_of(original, 2)["ledger"]["signer"] in next(
        check.note for check in checks if check.name == "signature.json"
    )


def test_a_signed_receipt_can_be_verified_alone(original: Path, keys: Path, tmp_path: Path) -> None:
    for name in ("receipt.json", "signature.json"):
        shutil.copy(receipt_path(original, 2).parent / name, tmp_path / name)
    path, draw = tmp_path / "receipt.json", random.Random(0)
    assert failed(verify_receipt(path, alone=True, public_key=keys / "ours.pub")) == []
    assert failed(verify_receipt(path, alone=True, public_key=keys / "theirs.pub")) == ["signature.json"]
    for name in ("receipt.json", "signature.json"):
        content = (tmp_path / name).read_bytes()
        for _ in range(25):
            (tmp_path / name).write_bytes(flipped(content, draw))
            assert failed(verify_receipt(path, alone=True)) == [name]
        (tmp_path / name).write_bytes(content)


def test_keys_that_cannot_be_used_are_named(out: Path, keys: Path) -> None:
    for name in ("none.pem", "ours.pem", "other.pem"):
        with error(RegunError, keys / name):
            verify_receipt(receipt_path(out), public_key=keys / name)
    for name in ("none.pem", "ours.pub", "other.pem"):
        with error(RegunError, keys / name):
            forget(out, ids()[60:70], Options(sign=keys / name))
    assert len(read_ledger(out / LEDGER).lines) == 2


# ------------------------------------------------------------------------------------------------------------- statuses


@pytest.mark.parametrize("status", ["rejected", "inconclusive"])
def test_a_request_cannot_start_from_a_model_that_was_not_accepted(out: Path, status: str) -> None:
    forge(out, 1, lambda receipt: receipt["ledger"].update(status=status), status=status)
    assert f"{LEDGER} line 2" in failed(verify_folder(out))


def test_an_accepted_model_that_was_not_changed_is_found(tmp_path: Path) -> None:
    assert forget(tmp_path, ids()[:5], LENIENT, method="finetune,lr=0,epochs=1").status == "rejected"
    status = "accepted inconclusive"
    path = forge(tmp_path, 1, lambda receipt: receipt["ledger"].update(status=status), status=status)
    assert failed(verify_receipt(path)) == [f"{LEDGER} line 1"]


def test_a_missing_receipt_is_found(out: Path) -> None:
    shutil.rmtree(out / "requests")
    assert {"receipt.json", "model.safetensors"} <= set(failed(verify_folder(out)))
