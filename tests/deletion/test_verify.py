"""Verification: whatever is changed after a request is caught, and what was changed is named."""

import hashlib
import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from small_project import EASY, QUICK, data, ids, project

import regun
import regun.deletion.verify
from regun.deletion import Check, Options, Pseudonyms, verify_audit, verify_folder, verify_receipt
from regun.deletion.ledger import BEGINNING, STATUSES, read_ledger
from regun.deletion.receipt_page import page
from regun.deletion.signing import SECTIONS, seal, written
from regun.errors import RegunError

FIRST, SECOND = ids()[:20], ids()[15:40]


def options(key: Path | None) -> Options:
    return Options(sign=key, accept_untestable=True)


NAMES = ("model.safetensors", "receipt.html", "receipt.json", "request.json", "risks.csv")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs"):
        key = folder / f"{name}.pem"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
        subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", folder / f"{name}.pub"], check=True)
    subprocess.run(["openssl", "genpkey", "-algorithm", "x25519", "-out", folder / "other.pem"], check=True)
    return folder


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Path:
    """Two requests, the second one signed."""
    out = tmp_path_factory.mktemp("out")
    for wanted, key in ((FIRST, None), (SECOND, keys / "ours.pem")):
        regun.forget(
            project(method=QUICK, accept=EASY), regun.deletion_request(wanted, reason="why"), out, options(key)
        )
    return out


@pytest.fixture
def out(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "out"))


def wrong(found: Iterator[tuple[str, list[Check]]] | list[Check]) -> list[str]:
    checks = found if isinstance(found, list) else [c for _, some in found for c in some]
    return [f"{check.what}: {check.note}" for check in checks if check.fine is False]


def receipt(out: Path, number: int = 2) -> Path:
    return out / f"requests/{number:04d}/receipt.json"


def change(path: Path, edit: Callable[[dict], None]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_bytes(written(content))


def test_what_was_not_touched_is_fine(original: Path, keys: Path) -> None:
    assert wrong(verify_folder(original)) == []
    assert wrong(verify_receipt(receipt(original), public_key=keys / "ours.pub")) == []
    assert wrong(verify_receipt(receipt(original), alone=True)) == []


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_any_changed_byte_of_any_file_is_caught_and_its_file_named(out: Path, name: str, number: int) -> None:
    path = receipt(out, number).parent / name
    content, draw = path.read_bytes(), random.Random(number)
    for _ in range(25):
        at = draw.randrange(len(content))
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :])
        found = wrong(verify_folder(out))
        assert any(name in fault for fault in found), (at, found)
    path.write_bytes(content)
    assert wrong(verify_folder(out)) == []
    path.unlink()
    assert any(name in fault for fault in wrong(verify_folder(out)))


@pytest.mark.parametrize("number", [1, 2])
def test_any_changed_byte_of_the_ledger_is_caught_and_its_line_named(out: Path, number: int) -> None:
    path = out / "ledger.jsonl"
    lines, draw = path.read_bytes().splitlines(), random.Random(number)
    for _ in range(40):
        line, at = bytearray(lines[number - 1]), draw.randrange(len(lines[number - 1]))
        line[at] ^= 1 << draw.randrange(5)
        path.write_bytes(b"".join(one + b"\n" for one in [*lines[: number - 1], bytes(line), *lines[number:]]))
        assert any(f"ledger.jsonl line {number} " in fault for fault in wrong(verify_folder(out))), bytes(line)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_changed_section_is_named(out: Path, section: str) -> None:
    def edit(content: dict) -> None:
        part = content[section]
        part["~added"] = 1 if isinstance(part, dict) else part.append("more")

    change(receipt(out), lambda c: c[section].append("x") if isinstance(c[section], list) else edit(c))
    found = wrong(verify_receipt(receipt(out)))
    assert f"receipt.json: the section {section!r} was changed" in found
    assert any("signature: it does not fit" in fault for fault in found)
    assert any("ledger.jsonl line 2: does not name this receipt.json" in fault for fault in found)
    assert len([fault for fault in found if "the section" in fault]) == 1


def test_a_digit_of_a_number_is_named_by_its_section(out: Path) -> None:
    text = receipt(out).read_text()
    place = text.index('"smia_auc"')
    digit = next(n for n in range(place + 10, len(text)) if text[n].isdigit())
    receipt(out).write_text(text[:digit] + str((int(text[digit]) + 1) % 10) + text[digit + 1 :])
    assert "receipt.json: the section 'audit' was changed" in wrong(verify_receipt(receipt(out)))


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda c: c.update(seal="0" * 64), "the digests or the seal were changed"),
        (lambda c: c.update(extra=1), "the section 'extra' was put in"),
        (lambda c: c["digests"].update(audit="0" * 64), "the section 'audit' was changed"),
        (lambda c: c.update(signature=None), "does not name this receipt.json"),
        (lambda c: c.update(signature="00"), "signature: it does not fit the receipt"),
        (lambda c: c.update(signature=3), "signature: it does not fit the receipt"),
        (lambda c: c.update(model=3), "the section 'model' was changed"),
        (lambda c: c.update(request=[]), "the section 'request' was changed"),
        (lambda c: c.update(audit=None), "the section 'audit' was changed"),
    ],
)
def test_other_changes_of_a_receipt(out: Path, edit: Callable[[dict], None], fault: str) -> None:
    change(receipt(out), edit)
    assert any(fault in one for one in wrong(verify_receipt(receipt(out))))


def test_the_same_content_in_other_bytes_is_noticed(out: Path) -> None:
    receipt(out, 1).write_text(json.dumps(json.loads(receipt(out, 1).read_text())))
    assert "receipt.json: it was written anew: same content, other bytes" in wrong(verify_receipt(receipt(out, 1)))


def test_a_forger_who_seals_anew_fails_at_the_ledger_and_the_signature(out: Path, keys: Path) -> None:
    content = json.loads(receipt(out).read_text())
    content["acceptance"]["status"] = "rejected"
    forged = seal(content, keys / "theirs.pem")
    receipt(out).write_bytes(written(forged))
    found = wrong(verify_receipt(receipt(out), public_key=keys / "ours.pub"))
    assert any(fault.startswith("signature: by another key than the expected one") for fault in found)
    assert "ledger.jsonl line 2: does not name this receipt.json: other bytes" in found
    assert "ledger.jsonl line 2: and the receipt's 'acceptance' differ in status" in found
    receipt(out).write_bytes(written(seal(content, None)))
    found = wrong(verify_receipt(receipt(out), public_key=keys / "ours.pub", alone=True))
    assert found == ["signature: the receipt is not signed"]


def test_a_forger_who_also_rewrites_the_ledger_fails_at_the_signature(out: Path, keys: Path) -> None:
    content = json.loads(receipt(out).read_text())
    content["request"]["records"] = 7
    forged = written(seal(content, keys / "theirs.pem"))
    receipt(out).write_bytes(forged)
    ledger = out / "ledger.jsonl"
    first, second = read_ledger(ledger).lines
    sha = hashlib.sha256(forged).hexdigest()
    second = second._replace(files={**second.files, "receipt.json": sha})
    ledger.write_text(f"{first.text()}\n{second.text()}\n")
    found = wrong(verify_receipt(receipt(out), public_key=keys / "ours.pub"))
    assert any(fault.startswith("signature: by another key") for fault in found)


def test_receipts_that_swap_places_are_noticed(out: Path) -> None:
    one, two = receipt(out, 1).parent, receipt(out, 2).parent
    shutil.move(one, out / "x")
    shutil.move(two, one)
    shutil.move(out / "x", two)
    assert any("the receipt stands in 0001" in fault for fault in wrong(verify_receipt(receipt(out, 1))))


def test_a_ledger_cut_short_is_noticed(out: Path) -> None:
    path = out / "ledger.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    (fault,) = wrong(verify_receipt(receipt(out)))
    assert fault == "ledger.jsonl: it has no intact line 2, which this receipt says it is"
    (fault,) = wrong(verify_folder(out))
    assert fault.startswith("requests/0002: has no intact line in the ledger")
    path.unlink()
    assert any("there is none two folders up" in fault for fault in wrong(verify_receipt(receipt(out))))
    with pytest.raises(RegunError, match=r"has no ledger.jsonl; name a receipt.json"):
        list(verify_folder(out))


@pytest.mark.parametrize("name", ["../../../secret", "/etc/passwd", "a/b", "..", "", "c:\\x", "a\0b", "link"])
def test_a_receipt_that_points_outside_its_folder_is_refused(out: Path, name: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (receipt(out).parent / "link").symlink_to(tmp_path / "secret")
    content = json.loads(receipt(out).read_text())
    content["files"][name] = hashlib.sha256(b"s").hexdigest()
    receipt(out).write_bytes(written(seal(content, None)))
    with pytest.raises(RegunError, match="which is not in its own folder; it is refused"):
        verify_receipt(receipt(out))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"kind": NaN}', "NaN"),
        (b"", "not valid JSON"),
        (b"[1]", "no JSON object"),
        (b"{}", "is not a regun receipt of format 1"),
        (b'{"kind": "regun deletion receipt", "format": 1}', "lacks request, model"),
        (b"[" * 100_000, "not valid JSON"),
        (b" " * 64_000_001, "has more than 64,000,000 bytes"),
    ],
)
def test_what_is_no_receipt_is_said(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "receipt.json").write_bytes(content)
    with pytest.raises(RegunError, match=message):
        verify_receipt(tmp_path / "receipt.json")


def test_keys_that_cannot_be_used_are_said(out: Path, keys: Path) -> None:
    for name, message in (
        ("none.pem", "cannot read the public key"),
        ("ours.pem", "holds no public key in PEM form"),
        ("other.pem", "holds no public key"),
    ):
        with pytest.raises(RegunError, match=message):
            verify_receipt(receipt(out), public_key=keys / name)
    for name, message in (("ours.pub", "holds no private key"), ("other.pem", "holds a key of another kind")):
        with pytest.raises(RegunError, match=message):
            regun.forget(project(), regun.deletion_request(ids()[60:70]), out, Options(sign=keys / name))
    assert len(read_ledger(out / "ledger.jsonl").lines) == 2


# -------------------------------------------------------------------------------------------------- signed or not signed


def test_whether_and_by_whom_a_receipt_is_signed_is_sealed(out: Path) -> None:
    content = json.loads(receipt(out).read_text())
    assert set(content["signer"]) == {"algorithm", "public_key"}
    assert "The signature shows" in content["limits"][-1]
    assert json.loads(receipt(out, 1).read_text())["signer"] is None


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda c: c.update(signature=None), "signature: it was taken out: the receipt says that it is signed"),
        (lambda c: c.update(signature=c["signature"].upper()), "signature: it does not fit the receipt"),
        (lambda c: c.update(signature=c["signature"] + " "), "signature: it does not fit the receipt"),
        (lambda c: c.update(signature={"value": c["signature"], "extra": 1}), "signature: it does not fit the receipt"),
        (lambda c: c.update(signature=[c["signature"]]), "signature: it does not fit the receipt"),
        (lambda c: c.update(signer=None), "the section 'signer' was changed"),
        (lambda c: c["signer"].update(extra=1), "the section 'signer' was changed"),
        (
            lambda c: c["signer"].update(public_key=c["signer"]["public_key"].upper()),
            "the section 'signer' was changed",
        ),
        (lambda c: c.update(signer=None, signature=None), "the section 'signer' was changed"),
    ],
)
def test_a_signature_that_was_touched_shows_in_the_receipt_alone(out: Path, edit, fault: str) -> None:
    change(receipt(out), edit)
    assert any(fault in one for one in wrong(verify_receipt(receipt(out), alone=True)))


def test_a_signature_that_was_put_in_shows_in_the_receipt_alone(out: Path) -> None:
    value = json.loads(receipt(out).read_text())["signature"]
    change(receipt(out, 1), lambda c: c.update(signature=value))
    found = wrong(verify_receipt(receipt(out, 1), alone=True))
    assert found == ["signature: one was put in: the receipt says that it is not signed"]


# ------------------------------------------------------------------------------------------------ hashes kept elsewhere


def cut(out: Path) -> None:
    """The last line and its folder taken away together: by itself, what is left is a good ledger."""
    lines = (out / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (out / "ledger.jsonl").write_bytes(b"".join(lines[:-1]))
    shutil.rmtree(receipt(out, len(lines)).parent)


def test_a_hash_kept_elsewhere_shows_a_ledger_that_was_cut(out: Path) -> None:
    first, second = (hashlib.sha256(line).hexdigest() for line in (out / "ledger.jsonl").read_bytes().splitlines())
    *_, (_, checks) = verify_folder(out)
    assert any(check.note.endswith(f"that of the last is {second}") for check in checks)
    for one in (first, second.upper(), BEGINNING):
        assert wrong(verify_folder(out, expect=one)) == []
    assert wrong(verify_folder(out, expect="f" * 64)) == [
        f"anchor: no line has the hash {'f' * 64} (expected): the ledger was cut, or is another one"
    ]
    cut(out)
    assert wrong(verify_folder(out)) == [], "this is what the chain alone cannot see"
    assert wrong(verify_folder(out, expect=first)) == []
    assert wrong(verify_folder(out, expect=second)) != []


@pytest.mark.parametrize("text", ["", "abc", "g" * 64, "f" * 65])
def test_what_is_no_hash_is_said(out: Path, text: str) -> None:
    with pytest.raises(RegunError, match="is not the hash of a ledger's line: 64 digits"):
        list(verify_folder(out, expect=text))


def test_a_witness_notes_lines_and_misses_those_that_go(out: Path, tmp_path: Path) -> None:
    witness, more = (
        tmp_path / "witness.txt",
        Options(accept=EASY, accept_untestable=True, witness=tmp_path / "witness.txt"),
    )
    assert wrong(verify_folder(out, witness=witness)) == []
    assert wrong(verify_folder(out, witness=witness)) == []
    done = regun.forget(project(method=QUICK), regun.deletion_request(ids()[60:62]), out, more)
    noted = [line.split()[:2] for line in witness.read_text().splitlines()]
    assert noted == [["2", read_ledger(out / "ledger.jsonl").lines[2].previous], ["3", done.tip]]
    cut(out)
    (fault,) = wrong(verify_folder(out, witness=witness))
    assert fault.startswith(f"anchor: no line has the hash {done.tip} (noted as line 3 on 20")
    with pytest.raises(RegunError, match=rf"has no line with the hash {done.tip} \(noted as line 3 .*it was cut short"):
        regun.forget(project(method=QUICK), regun.deletion_request(ids()[70:72]), out, more)
    assert len(witness.read_text().splitlines()) == 2, "what failed is not witnessed"


def test_a_witness_that_cannot_be_used_stops_before_the_work(out: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("once upon a time")
    for name, message in (("thesis.tex", "is no witness file of regun's"), ("no/where", "cannot write the witness")):
        with pytest.raises(RegunError, match=message):
            regun.forget(
                project(method=QUICK),
                regun.deletion_request(ids()[60:62]),
                out,
                Options(accept=EASY, accept_untestable=True, witness=tmp_path / name),
            )
    assert (tmp_path / "thesis.tex").read_text() == "once upon a time"
    assert len(read_ledger(out / "ledger.jsonl").lines) == 2


# -------------------------------------------------------------------------------------------------------- many requests


def test_the_ledger_is_read_once_however_many_receipts_there_are(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    real = regun.deletion.verify.walk

    def counted(path: Path, *more):
        reads.append(path)
        return real(path, *more)

    monkeypatch.setattr(regun.deletion.verify, "walk", counted)
    assert len(list(verify_folder(out))) == 3
    assert len(reads) == 1


def test_receipts_are_checked_as_their_lines_are_read(out: Path) -> None:
    """What was found so far is there before the ledger has been read to its end."""
    found = verify_folder(out)
    name, checks = next(found)
    assert (name, wrong(checks)) == ("0001/receipt.json", [])
    shutil.rmtree(receipt(out).parent)
    assert any("cannot read" in fault for fault in wrong(found))


# ---------------------------------------------------------------------------------------------------- the audit again


def test_the_audit_comes_out_again(out: Path) -> None:
    for number in (1, 2):
        checks = verify_audit(receipt(out, number), project(), Pseudonyms())
        assert wrong(checks) == []
        assert [c.what for c in checks if c.what.startswith("audit")]
        assert all(check.fine for check in checks)


def test_an_audit_with_invented_numbers_does_not(out: Path) -> None:
    change(receipt(out), lambda c: c["audit"]["scopes"]["new"]["after"]["numbers"]["smia_auc"].__setitem__(0, 50.0))
    (fault,) = wrong(verify_audit(receipt(out), project(), Pseudonyms()))
    assert fault.startswith("audit after, new: smia_auc is ")
    assert fault.endswith("now, the receipt says 50.0")


def test_other_data_are_noticed(out: Path) -> None:
    x, y = data()["heldout"]
    checks = verify_audit(receipt(out), project(heldout=(x + 1e-3, y)), Pseudonyms())
    assert wrong(checks) == ["data: heldout: other examples than the receipt's"]
    assert checks[-1].fine is None


def test_records_that_are_gone_cannot_be_audited_again(out: Path) -> None:
    x, y = data()["train"]
    (check,) = verify_audit(receipt(out), project(train=(x[40:], y[40:]), ids=ids()[40:]), Pseudonyms())
    assert check.fine is None
    assert "no longer in the data" in check.note


# ------------------------------------------------------------------------------------------------ what no receipt holds


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("value", ["1e999", '"\\ud800"', "[" * 900 + "]" * 900])
@pytest.mark.parametrize("section", ["request", "model", "audit", "limits"])
def test_values_that_cannot_be_digested_are_named(out: Path, section: str, value: str, number: int) -> None:
    text = receipt(out, number).read_text()
    opening = f'"{section}": ' + ("[" if section == "limits" else "{")
    added = f"{value}," if section == "limits" else f'"~": {value},'
    receipt(out, number).write_text(text.replace(opening, opening + added, 1))
    assert f"receipt.json: the section {section!r} was changed" in wrong(verify_receipt(receipt(out, number)))


def test_a_folder_without_requests_is_checked(out: Path) -> None:
    shutil.rmtree(out / "requests")
    assert any("cannot read" in fault for fault in wrong(verify_folder(out)))


# ------------------------------------------------------------------------------------------------------------ statuses


def forged(out: Path, number: int, status: str, **changes) -> None:
    """The ledger with another status in a line, chained anew, and its receipt saying the same."""
    lines = read_ledger(out / "ledger.jsonl").lines
    content = json.loads(receipt(out, number).read_text())
    content["acceptance"]["status"] = status
    new = seal({**content, **changes}, None)
    receipt(out, number).write_bytes(written(new))
    (receipt(out, number).parent / "receipt.html").write_bytes(page(new).encode() if status in STATUSES else b"")
    tip, texts = BEGINNING, list[str]()
    for line in lines:
        own = {
            name: hashlib.sha256((receipt(out, line.number).parent / name).read_bytes()).hexdigest() for name in NAMES
        }
        line = line._replace(status=status if line.number == number else line.status, files=own, previous=tip)
        texts.append(line.text() + "\n")
        tip = line.hash()
    (out / "ledger.jsonl").write_text("".join(texts))


def test_a_status_that_regun_does_not_give_is_named(out: Path) -> None:
    forged(out, 2, "approved by the board")
    faults = wrong(verify_folder(out))
    assert any("line 2 has the status 'approved by the board', which regun does not give" in one for one in faults)
    with pytest.raises(RegunError, match="is not as it was written"):
        regun.forget(project(method=QUICK), regun.deletion_request(ids()[60:62]), out, options(None))


@pytest.mark.parametrize("status", ["rejected", "inconclusive"])
def test_a_model_that_was_not_accepted_is_not_what_the_next_request_may_start_from(out: Path, status: str) -> None:
    forged(out, 1, status)
    assert any("does not start from the model that was current then" in one for one in wrong(verify_folder(out)))


def test_nobody_can_accept_a_model_that_was_not_changed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = project(method="finetune,lr=0,epochs=1", accept=EASY)
    assert regun.forget(given, regun.deletion_request(FIRST), out, options(None)).status == "rejected"
    forged(out, 1, "accepted untestable")
    found = wrong(verify_receipt(receipt(out, 1)))
    assert found == ["ledger.jsonl line 1: accepts a model that is the one before it: nothing was unlearned"]
    assert any("acceptance: " in fault for fault in wrong(verify_audit(receipt(out, 1), project(), Pseudonyms())))


def test_cannot_tell_is_not_accepted_however_the_receipt_is_sealed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert regun.forget(project(method=QUICK, accept=EASY), regun.deletion_request(FIRST), out).status == "inconclusive"
    assert wrong(verify_audit(receipt(out, 1), project(), Pseudonyms())) == []
    forged(out, 1, "accepted")
    (fault,) = wrong(verify_audit(receipt(out, 1), project(), Pseudonyms()))
    assert fault == "acceptance: the verdict comes out otherwise: inconclusive, not accepted"


def test_a_receipt_that_leaves_out_an_unseen_set_is_found(out: Path) -> None:
    change(receipt(out, 1), lambda c: c["audit"].update(judged=["val"]))
    (fault,) = wrong(verify_audit(receipt(out, 1), project(), Pseudonyms()))
    assert "the receipt judges by val; there are test, heldout, val" in fault


def test_code_that_a_receipt_names_is_not_run(out: Path, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef method(job):\n    pass\n")
    change(receipt(out, 1), lambda c: c["method"]["attempts"][-1].update(spec=f"{tmp_path}/evil.py:method"))
    verify_audit(receipt(out, 1), project(), Pseudonyms())
    assert not (tmp_path / "ran").exists()
