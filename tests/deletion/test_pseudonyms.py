"""Under a salt, nothing that is written tells which records were forgotten, however one tries."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from small_project import EASY, QUICK, SIZES, data, forget, ids, project

import regun
from expect import assert_names, error
from regun.data.tensors import TensorExamples
from regun.deletion import Options, Pseudonyms, read_pseudonyms
from regun.deletion.signing import public_key_of
from regun.errors import RegunError
from regun.hashing import digest

SALT = Pseudonyms(b"sixteen bytes and more")
ROW, LATER, UNSEEN_ROW = 7, 100, 3


def forgotten(out: Path, pseudonyms: Pseudonyms, **asked: str) -> Path:
    """One training record and one of the validation set are asked for; then the training record leaves the data too."""
    options = Options(accept=EASY, accept_inconclusive=True, bootstrap=20, pseudonyms=pseudonyms)
    given = {"method": QUICK, "accept": EASY}
    regun.forget(
        project(**given), regun.DeletionRequest.of([ids()[ROW], ids("val")[UNSEEN_ROW]], **asked), out, options
    )
    x, y = data()["train"]
    kept = np.delete(np.arange(SIZES["train"]), ROW)
    fewer = {"train": (x[kept], y[kept]), "ids": [ids()[n] for n in kept]}
    regun.forget(project(**given, **fewer), regun.DeletionRequest.of([ids()[LATER]]), out, options)
    return out


def guesses(row: int, name: str = "train") -> Iterator[str]:
    """Digests that an attacker who has the data, but not the salt, can make of a guess that `row` was forgotten."""
    x, y = data()[name]
    whole = TensorExamples(x, y.numpy(), 3)
    out, rest = np.array([row]), np.delete(np.arange(len(y)), row)
    for rows in (out, rest):
        yield digest(rows)
        yield digest([whole.digest, digest(rows)])
        yield TensorExamples(x[rows], y[rows].numpy(), 3).digest
    one = ids(name)[row]
    for text in (one, json.dumps([one]), json.dumps([one, ids("val")[UNSEEN_ROW]]), str(row), f"id\0{one}"):
        yield hashlib.sha256(text.encode()).hexdigest()
    yield digest([one])
    yield digest(sorted([one, ids("val")[UNSEEN_ROW]]))


def written(out: Path) -> set[str]:
    """Every run of hex digits, 16 or longer, in everything but the models, by its first 16."""
    files = [path for path in out.rglob("*") if path.is_file() and path.suffix != ".safetensors"]
    return {found[:16] for path in files for found in re.findall("[0-9a-f]{16,}", path.read_text())}


def found_by_trying(out: Path, name: str) -> list[int]:
    known = written(out)
    return [row for row in range(SIZES[name]) if any(guess[:16] in known for guess in guesses(row, name))]


def test_a_salted_request_is_not_found_by_trying(tmp_path: Path) -> None:
    out = forgotten(tmp_path, SALT)
    assert found_by_trying(out, "train") == []
    assert found_by_trying(out, "val") == []


def test_the_attack_itself_works(tmp_path: Path) -> None:
    """In the clear, where nothing is hidden, the same attack finds the rows: it would see a leak."""
    out = forgotten(tmp_path, Pseudonyms())
    assert found_by_trying(out, "train") == [ROW, LATER]
    assert found_by_trying(out, "val") == [UNSEEN_ROW]


def test_a_salted_request_can_still_be_verified_with_the_salt(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = Options(accept=EASY, accept_inconclusive=True, bootstrap=20, pseudonyms=SALT)
    regun.forget(project(method=QUICK), regun.DeletionRequest.of([ids()[ROW]]), out, options)
    path = out / "requests/0001/receipt.json"
    assert all(check.passed for check in regun.deletion.reaudit_receipt(path, project(), SALT))
    changed = data()["train"][0].clone()
    changed[0] += 1
    other = project(train=(changed, data()["train"][1]))
    assert any(check.passed is False for check in regun.deletion.reaudit_receipt(path, other, SALT))


def test_who_asks_is_hidden_apart_from_what_is_asked(tmp_path: Path) -> None:
    """A requester who is also an id does not link the two."""
    out = forgotten(tmp_path, SALT, requester=ids()[ROW])
    (line,) = json.loads((out / "requests/0001/request.json").read_text())["records"]
    assert line["id"] != line["requester"]
    assert SALT.of([ids()[ROW]], "requester") == [line["requester"]]


def test_reasons_in_the_clear_are_said_to_be(tmp_path: Path) -> None:
    notes: list[str] = []
    asked = regun.DeletionRequest.of(ids()[:3], reason="Ann moved away", requester="T-1", received="2024-11-04")
    options = Options(accept=EASY, accept_inconclusive=True, bootstrap=20, pseudonyms=SALT)
    done = regun.forget(project(method=QUICK), asked, tmp_path, options, on_note=notes.append)
    (note,) = notes
    assert_names(note, "reasons", "dates")
    assert done.receipt["request"]["in_the_clear"] == ["reasons", "dates"]
    assert done.receipt["ledger"]["pseudonyms"] == SALT.kind
    asked = regun.DeletionRequest.of(ids()[3:6])
    done = regun.forget(project(method=QUICK), asked, tmp_path, options, on_note=notes.append)
    assert (len(notes), done.receipt["request"]["in_the_clear"]) == (1, [])


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666])
def test_secrets_that_everybody_can_read_are_refused(tmp_path: Path, mode: int) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    salt, key = tmp_path / "salt", tmp_path / "key.pem"
    salt.write_bytes(bytes(32))
    made = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    key.write_bytes(made)
    for path, read in ((salt, read_pseudonyms), (key, public_key_of)):
        path.chmod(mode)
        with error(RegunError, path, f"{mode:o}"):
            read(path)
        path.chmod(0o640)
        read(path)


def test_pseudonyms_need_the_salt(tmp_path: Path) -> None:
    (tmp_path / "salt").write_bytes(bytes(range(32)))
    (tmp_path / "salt").chmod(0o600)
    pseudonyms = read_pseudonyms(tmp_path / "salt")
    first = pseudonyms.of(["7", "8"])
    assert first == read_pseudonyms(tmp_path / "salt").of(["7", "8"])
    assert len(set(first)) == 2
    assert Pseudonyms(bytes(32)).of(["7"]) != first[:1]
    assert pseudonyms.kind != Pseudonyms(bytes(32)).kind != Pseudonyms().kind == "plain"
    assert bytes(range(32)).hex() not in repr(pseudonyms) + pseudonyms.kind
    (tmp_path / "short").write_bytes(b"pepper")
    with error(RegunError, tmp_path / "short", 6, 16):
        read_pseudonyms(tmp_path / "short")
    with error(RegunError, tmp_path / "no"):
        read_pseudonyms(tmp_path / "no")


def test_salted_ids_appear_nowhere_and_the_salt_is_needed(tmp_path: Path) -> None:
    options = Options(accept=EASY, accept_inconclusive=True, bootstrap=20, pseudonyms=SALT)
    x, y = data()["train"]
    secret = [*(f"patient-{n}-of-ward-9" for n in range(SIZES["train"])), "copy-of-ann"]
    twice = {"train": (torch.cat([x, x[:1]]), torch.cat([y, y[:1]])), "ids": secret, "unseen_ids": {}, "method": QUICK}
    request = regun.DeletionRequest.of(secret[:20], requester="Ticket-of-Ann")
    done = regun.forget(project(**twice), request, tmp_path, options)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for text in (b"ward-9", b"Ticket-of-Ann", b"copy-of-ann"):
        assert text not in written
    assert SALT.of(secret[:1])[0].encode() in written
    assert SALT.of(["copy-of-ann"])[0] in " ".join(done.receipt["method"]["attempts"][0]["warnings"])
    assert regun.forget(project(**twice), request, tmp_path, options).plan.empty
    for other in (Pseudonyms(), Pseudonyms(b"another salt altogether")):
        with error(RegunError, "pseudonyms"):
            regun.forget(project(**twice), regun.DeletionRequest.of(secret[30:40]), tmp_path, Options(pseudonyms=other))


def test_the_salt_of_a_rejected_request_counts_too(tmp_path: Path) -> None:
    salted = Options(accept="smia_auc<0", bootstrap=20, pseudonyms=SALT)
    assert not forget(tmp_path, ids()[:3], salted).accepted
    with error(RegunError, "pseudonyms"):
        forget(tmp_path, ids()[:3])


def test_ids_in_the_clear_cannot_get_a_salt_later(original: Path) -> None:
    with error(RegunError, "pseudonyms"):
        forget(original, ids()[60:65], Options(pseudonyms=SALT))
