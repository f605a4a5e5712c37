"""Verify receipts: every file against its ledger line, the chain of lines, and the signature."""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regun.artifacts import read_weights, state_digest
from regun.deletion.folder import CURRENT, FILES, MODEL, PREPARED, RECEIPT, SIGNATURE, Folder, old_tables
from regun.deletion.ledger import BEGINNING, LEDGER, Ledger, LedgerLine
from regun.deletion.receipt import Receipt, line_facts, read_receipt
from regun.deletion.signing import read_public_key, read_signature
from regun.errors import RegunError, StoreError
from regun.prepared import Prepared
from regun.render.numbers import many


@dataclass(frozen=True)
class Check:
    """One check: passed, failed, or (None) not possible; `note` says why."""

    name: str
    passed: bool | None
    note: str = ""


def verify_receipt(path: Path, *, public_key: Path | None = None, alone: bool = False) -> list[Check]:
    """Check one receipt with its files and its ledger; `alone` checks it by the signature next to it only."""
    signer = read_public_key(public_key) if public_key is not None else None
    if alone:
        return _alone(path, signer)
    folder, number = locate(path)
    ledger, current = folder.read_ledger(), ""
    checks = _chain(ledger)
    for line in ledger.lines:
        if line.number == number:
            return [*checks, *_line(path.resolve().parent, line, current, signer, old_table=line in old_tables(ledger))]
        current = line.after if line.accepted else current
    return [*checks, Check(LEDGER, False, f"has no intact line {number}")]


def locate(path: Path) -> tuple[Folder, int]:
    """Return the folder of a receipt and the number of its request."""
    if not path.is_file():
        raise RegunError(f"cannot read {path}: no such file. Name a receipt.json, or a folder with a ledger.")
    place = path.resolve().parent
    folder = Folder(place.parent.parent)
    if path.name != RECEIPT or not place.name.isdigit() or not folder.ledger.is_file():
        raise RegunError(f"{path} is not DIR/requests/NUMBER/{RECEIPT} of a folder with a {LEDGER}; try alone=.")
    return folder, int(place.name)


def verify_folder(
    root: Path, *, public_key: Path | None = None, expect: str | None = None
) -> Iterator[tuple[str, list[Check]]]:
    """Check every receipt that a ledger names, one after the other; the ledger itself last.

    One of the lines must have the hash `expect`: a hash that was stored elsewhere shows that the ledger was not cut.
    """
    folder = Folder(root)
    if not folder.ledger.is_file():
        raise RegunError(f"{root} has no {LEDGER}; name a receipt.json, or the folder of a ledger.")
    signer = read_public_key(public_key) if public_key is not None else None
    expected = expect.strip().lower() if expect is not None else BEGINNING
    if len(expected) != 64 or not set(expected) <= set("0123456789abcdef"):
        raise RegunError(f"expect= is {expect!r:.80}; give the hash of a ledger line: 64 digits 0-9 and a-f.")
    ledger, current = folder.read_ledger(), ""
    old = {line.number for line in old_tables(ledger)}
    for line in ledger.lines:
        checks = _line(folder.place(line.number), line, current, signer, old_table=line.number in old)
        yield f"{line.number:04d}/{RECEIPT}", checks
        current = line.after if line.accepted else current
    checks = _chain(ledger)
    if expect is not None:
        exists = expected in (BEGINNING, *(line.hash for line in ledger.lines))
        note = (
            "is the hash of a line" if exists else "is not the hash of any line: the ledger was cut, or is another one"
        )
        checks.append(Check(LEDGER, exists, f"{expected} {note}"))
    if ledger.current is not None:
        checks.append(_current(folder, ledger, ledger.current))
    for path in folder.unlisted(ledger):
        checks.append(Check(f"requests/{path.name}", False, "has no intact line in the ledger: it was changed or cut"))
    yield LEDGER, checks


def _current(folder: Folder, ledger: Ledger, line: LedgerLine) -> Check:
    """Check that current.safetensors is the model of the last accepted request."""
    try:
        served = folder.served(ledger)
    except RegunError as fault:
        return Check(CURRENT, False, str(fault))
    if served == line:
        return Check(CURRENT, True, f"the model of request {line.number}")
    what = "is missing" if served is None else f"is still the model of request {served.number}"
    return Check(CURRENT, None, f"{what}: a run was killed right after its commit; regun current completes it")


def _chain(ledger: Ledger) -> list[Check]:
    """Check that each line follows from the one before."""
    checks = [Check(LEDGER, False, problem) for problem in ledger.problems]
    if not ledger.problems:
        lines = many(len(ledger.lines), "line")
        checks.append(Check(LEDGER, True, f"{lines}, each with the hash of the one before; the last is {ledger.tip}"))
    if ledger.torn:
        checks.append(Check(LEDGER, None, "a run was killed while it added a line; that line does not count"))
    return checks


def _line(place: Path, line: LedgerLine, current: str, signer: str | None, *, old_table: bool) -> list[Check]:
    """Check a request against its line: files, weights, receipt and signature; `current` is the model before it.

    A prepared table that a later request has replaced (`old_table`) may be missing.
    """
    removed = [PREPARED] if old_table and not (place / PREPARED).exists() else []
    checks = [_file(place / name, line.files[name]) for name in line.files if name in FILES and name not in removed]
    checks += [Check(name, None, "was removed: a later request has a newer table") for name in removed]
    intact, faults, weights = {check.name for check in checks if check.passed}, list[str](), ""
    if MODEL in intact:
        with suppress(StoreError):  # then it is no file of weights
            weights = state_digest(read_weights(place / MODEL))
        note = "the digest of the ledger line" if weights == line.after else "another digest"
        checks.append(Check(f"weights of {MODEL}", weights == line.after, note))
    if RECEIPT in intact:
        try:
            receipt = read_receipt(place / RECEIPT)
            faults += _misfits(receipt, line)
            if PREPARED in intact:
                same = Prepared.load(place / PREPARED).digest == _field(receipt, "prepared", "digest_after")
                note = "the digest of the receipt" if same else "another digest than the receipt's"
                checks.append(Check(f"table in {PREPARED}", same, note))
        except RegunError as fault:
            faults.append(f"names a receipt that is none: {fault}")
    if not {MODEL, RECEIPT} <= line.files.keys() <= set(FILES):
        faults.append("names other files than those of a request")
    if place.name not in (f"{line.number:04d}", ".regun-new"):
        faults.append(f"is not that of the folder {place.name}")
    if line.before != (current or line.base):
        faults.append("does not start from the model that was current then")
    name = f"{LEDGER} line {line.number}"
    checks += [Check(name, False, fault) for fault in faults] or [Check(name, True, "agrees with the receipt")]
    return [*checks, *_signature(place, line, signer)]


def _file(path: Path, sha256: str) -> Check:
    if path.is_symlink() or not path.is_file():
        return Check(path.name, False, "is missing, or is no regular file")
    try:
        with path.open("rb") as file:
            same = hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError as fault:
        return Check(path.name, False, f"cannot be read: {fault.strerror or fault}")
    return Check(path.name, same, "SHA-256 of the ledger line" if same else "its bytes were changed")


def _misfits(receipt: Receipt, line: LedgerLine) -> Iterator[str]:
    """Yield what a receipt and its line say differently."""
    if receipt.get("ledger") != line_facts(line):
        yield "and the receipt's 'ledger' differ"
    if line.accepted and line.before == line.after and _field(receipt, "request", "records"):
        yield "accepts a model that equals the one before it: nothing was unlearned"


def _signature(place: Path, line: LedgerLine, signer: str | None) -> list[Check]:
    """Check the signature of a line against its own signer and, if one is expected, against that key."""
    path = place / SIGNATURE
    if not line.signer:
        if path.exists():
            return [Check(SIGNATURE, False, "was added: the ledger line says that the request is not signed")]
        return [Check(SIGNATURE, None if signer is None else False, "the request is not signed")]
    content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    if read_signature(content) != line:
        return [Check(SIGNATURE, False, "is missing or invalid: the ledger line says that the request is signed")]
    if signer is None:
        return [Check(SIGNATURE, True, f"by the key {line.signer}; public_key= checks whose it is")]
    same = line.signer == signer
    return [Check(SIGNATURE, same, "by the expected key" if same else f"by another key: {line.signer}")]


def _alone(path: Path, signer: str | None) -> list[Check]:
    """Check a receipt that was sent without its folder, by the signed ledger line next to it."""
    signature = path.parent / SIGNATURE
    if not signature.is_file():
        raise RegunError(f"{path.parent} has no {SIGNATURE}; a receipt that is not signed is checked in its folder.")
    line = read_signature(signature.read_bytes())
    if line is None:
        return [Check(SIGNATURE, False, "is invalid: it was changed, or it is none")]
    checks = [_file(path, line.files.get(RECEIPT, ""))]
    if checks[0].passed:
        checks += [Check(RECEIPT, False, fault) for fault in _misfits(read_receipt(path), line)]
    return [*checks, *_signature(path.parent, line, signer), Check("files and ledger", None, "not checked (alone=)")]


def _field(receipt: Receipt, section: str, name: str) -> Any:
    """Return a field of a receipt that may have been tampered with; None where there is none."""
    part = receipt.get(section)
    return part.get(name) if isinstance(part, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
