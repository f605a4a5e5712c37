"""Under a salt, nothing that is written tells which records were forgotten, however one tries."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from small_project import EASY, QUICK, SIZES, data, ids, project

import regun
from regun.data.tensors import TensorExamples
from regun.deletion import Options, Pseudonyms, read_pseudonyms
from regun.deletion.signing import check_bad_key
from regun.errors import RegunError
from regun.hashing import digest

SALT = Pseudonyms(b"sixteen bytes and more")
ROW, LATER, UNSEEN_ROW = 7, 100, 3


def forgotten(out: Path, naming: Pseudonyms, **asked: str) -> Path:
    """One training record and one of the validation set are asked for; then the training record leaves the data too."""
    options = Options(accept=EASY, accept_untestable=True, bootstrap=20, naming=naming)
    given = {"method": QUICK, "accept": EASY}
    regun.forget(project(**given), regun.deletion_request([ids()[ROW], ids("val")[UNSEEN_ROW]], **asked), out, options)
    x, y = data()["train"]
    kept = np.delete(np.arange(SIZES["train"]), ROW)
    fewer = {"train": (x[kept], y[kept]), "ids": [ids()[n] for n in kept]}
    regun.forget(project(**given, **fewer), regun.deletion_request([ids()[LATER]]), out, options)
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
    options = Options(accept=EASY, accept_untestable=True, bootstrap=20, naming=SALT)
    regun.forget(project(method=QUICK), regun.deletion_request([ids()[ROW]]), out, options)
    path = out / "requests/0001/receipt.json"
    assert all(check.fine for check in regun.deletion.verify_audit(path, project(), SALT))
    changed = data()["train"][0].clone()
    changed[0] += 1
    other = project(train=(changed, data()["train"][1]))
    assert any(check.fine is False for check in regun.deletion.verify_audit(path, other, SALT))


def test_who_asks_is_hidden_apart_from_what_is_asked(tmp_path: Path) -> None:
    """A requester who is also an id does not link the two."""
    out = forgotten(tmp_path, SALT, requester=ids()[ROW])
    (line,) = json.loads((out / "requests/0001/request.json").read_text())["lines"]
    assert line["id"] != line["requester"]
    assert SALT.of([ids()[ROW]], "requester") == [line["requester"]]


def test_reasons_in_the_clear_are_said_to_be(tmp_path: Path) -> None:
    notes: list[str] = []
    asked = regun.deletion_request(ids()[:3], reason="Ann moved away", requester="T-1", received="2024-11-04")
    options = Options(accept=EASY, accept_untestable=True, bootstrap=20, naming=SALT)
    done = regun.forget(project(method=QUICK), asked, tmp_path, options, on_note=notes.append)
    assert notes == ["the salt hides ids and requesters; reasons and dates are written as they were given"]
    assert done.receipt["request"]["in_the_clear"] == ["reasons", "dates"]
    assert "; reasons and dates in the clear" in (tmp_path / "requests/0001/receipt.html").read_text()
    assert any("The salt hides ids. Who has the data" in limit for limit in done.receipt["limits"])


@pytest.mark.parametrize(
    "options",
    [
        Options(accept=EASY, accept_untestable=True, bootstrap=20),
        Options(accept=EASY, accept_untestable=True, bootstrap=20, naming=SALT),
    ],
)
def test_nothing_is_said_where_nothing_is_left_open(tmp_path: Path, options: Options) -> None:
    notes: list[str] = []
    asked = regun.deletion_request(ids()[:3], **({} if options.naming.salt else {"reason": "Ann moved away"}))
    done = regun.forget(project(method=QUICK), asked, tmp_path, options, on_note=notes.append)
    assert (notes, done.receipt["request"]["in_the_clear"]) == ([], [])


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666])
def test_secrets_that_everybody_can_read_are_refused(tmp_path: Path, mode: int) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    salt, key = tmp_path / "salt", tmp_path / "key.pem"
    salt.write_bytes(bytes(32))
    made = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    key.write_bytes(made)
    for path, what, read in ((salt, "salt", read_pseudonyms), (key, "private key", check_bad_key)):
        path.chmod(mode)
        with pytest.raises(RegunError, match=f"the {what} .* is open to every user of this machine .mode {mode:o}."):
            read(path)
        path.chmod(0o640)
        read(path)
