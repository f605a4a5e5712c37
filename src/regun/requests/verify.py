"""Is a receipt what it was when it was issued, and does what it says still come out?"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regun.errors import RegunError, StoreError
from regun.requests.folder import MODEL, PAGE, RECEIPT, Folder, without_line
from regun.requests.ledger import Entry, Ledger, read_ledger
from regun.requests.page import page
from regun.requests.receipt import Receipt, changes, read_receipt, signed_part
from regun.requests.signing import read_public_key, signed_by
from regun.store import read_weights, state_digest, versions

LEDGER = "ledger.jsonl"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: fine, not fine, or (None) not looked at; `note` says why."""

    what: str
    fine: bool | None
    note: str = ""


def verify_receipt(path: Path, *, public_key: Path | None = None, alone: bool = False) -> list[Check]:
    """Every check of one receipt; `alone` leaves out the files and the ledger beside it.

    A receipt that names a file outside its own folder is refused before anything else is read.
    """
    receipt, content = read_receipt(path)
    _refuse_escapes(path, receipt)
    checks = [Check(path.name, False, fault) for fault in changes(receipt, content)]
    checks = checks or [Check(path.name, True, "every section has the digest it was sealed with")]
    checks += _signature(receipt, public_key)
    if alone:
        return [*checks, Check("files and ledger", None, "left out, as asked")]
    checks += _files(path.parent, receipt)
    checks.append(_page(path.parent, receipt))
    return checks + list(_ledger(path, receipt, content))


def verify_folder(root: Path, *, public_key: Path | None = None) -> dict[str, list[Check]]:
    """Every check of every receipt that a ledger names, by receipt; the ledger itself under its own name."""
    folder = Folder(root.resolve())
    if not folder.ledger.is_file():
        raise RegunError(f"{root} has no {LEDGER}; name a receipt.json, or the folder that regun forget wrote to.")
    ledger = read_ledger(folder.ledger)
    found = {LEDGER: [*_chain(ledger), *_without_line(folder, ledger)]}
    for entry in ledger.entries:
        path = folder.request(entry.number) / RECEIPT
        name = f"{path.parent.name}/{RECEIPT}"
        try:
            found[name] = verify_receipt(path, public_key=public_key)
        except RegunError as fault:
            found[name] = [Check(RECEIPT, False, str(fault))]
    return found


def _without_line(folder: Folder, ledger: Ledger) -> Iterator[Check]:
    for path in without_line(folder, ledger):
        yield Check(
            f"requests/{path.name}",
            False,
            "has no intact line in the ledger: a run was stopped just before its end (then the next regun forget "
            "puts the folder aside), or the line was changed or taken out",
        )
    for path in sorted((folder.root / "leftover").glob(f"*/{RECEIPT}")):
        yield Check(
            f"leftover/{path.parent.name}",
            False,
            "is a finished request put aside, since it has no intact line in the ledger: a run was stopped just before "
            "its end (then remove this folder), or the line was taken out",
        )


def _refuse_escapes(path: Path, receipt: Receipt) -> None:
    folder = path.parent.resolve()
    for name in receipt["files"]:
        plain = name not in ("", ".", "..") and not set(str(name)) & set("/\\:\0")
        if not plain or (folder / name).resolve().parent != folder:
            raise RegunError(
                f"{path} names the file {str(name)[:80]!r}, which is not in its own folder; it is refused, and nothing "
                f"it names was read."
            )


def _files(folder: Path, receipt: Receipt) -> Iterator[Check]:
    for name, expected in receipt["files"].items():
        try:
            got = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        except OSError as fault:
            yield Check(name, False, f"cannot be read: {fault.strerror or fault}")
            continue
        if got != expected:
            yield Check(name, False, "its bytes are not those the receipt speaks of")
        elif name == MODEL:
            yield _weights(folder / name, receipt)
        else:
            yield Check(name, True, "SHA-256 as in the receipt")


def _weights(path: Path, receipt: Receipt) -> Check:
    try:
        same = state_digest(read_weights(path)) == _field(receipt, "model", "after")
    except StoreError as fault:
        return Check(MODEL, False, str(fault))
    said = "file and weights have the digests in the receipt"
    return Check(MODEL, same, said if same else "its weights are not those of the receipt's section 'model'")


def _page(folder: Path, receipt: Receipt) -> Check:
    """Whether the page is what this version makes of the receipt; one by another version is left to the ledger."""
    try:
        same = (folder / PAGE).read_bytes() == page(receipt).encode()
    except OSError as fault:
        return Check(PAGE, False, f"cannot be read: {fault.strerror or fault}")
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        RecursionError,
        RegunError,
    ):  # a receipt with sections changed
        same = False
    if not same and _field(receipt, "software", "regun") != versions()["regun"]:
        return Check(PAGE, None, "made by another version of regun; the ledger has its digest")
    return Check(PAGE, same, "shows what the receipt says" if same else "does not show what the receipt says")


def _signature(receipt: Receipt, public_key: Path | None) -> Iterator[Check]:
    expected = read_public_key(public_key) if public_key is not None else None
    if receipt["signature"] is None:
        yield Check("signature", None if expected is None else False, "the receipt is not signed")
        return
    try:
        signer = signed_by(receipt["signature"], signed_part(receipt))
    except (ValueError, RecursionError):  # what no receipt holds, NaN say, was put in
        signer = None
    if signer is None:
        yield Check("signature", False, "it does not fit the receipt: one of the two was changed")
    elif expected is None:
        yield Check("signature", True, f"by the key {signer}; whose it is, --public-key would tell")
    else:
        said = "by the expected key" if signer == expected else f"by another key than the expected one: {signer}"
        yield Check("signature", signer == expected, said)


def _chain(ledger: Ledger) -> list[Check]:
    checks = [Check(LEDGER, False, problem) for problem in ledger.problems]
    checks = checks or [Check(LEDGER, True, f"{len(ledger.entries)} lines, each with the hash of the one before")]
    if ledger.torn:
        checks.append(Check(LEDGER, None, "a run was stopped while adding a line; it does not count yet"))
    return checks


def _ledger(path: Path, receipt: Receipt, content: bytes) -> Iterator[Check]:
    place = path.resolve().parents[2] / LEDGER if len(path.resolve().parents) > 2 else None
    if place is None or not place.is_file():
        yield Check(LEDGER, False, "there is none two folders up; --alone checks a receipt without it")
        return
    ledger = read_ledger(place)
    yield from _chain(ledger)
    number = _field(receipt, "ledger", "number")
    entry = next((entry for entry in ledger.entries if entry.number == number), None)
    if entry is None:
        yield Check(LEDGER, False, f"it has no intact line {number}, which this receipt says it is")
        return
    faults = [*_misfits(receipt, content, entry), *_misplaced(path, entry, ledger), *_other_page(path, entry)]
    yield from (Check(f"{LEDGER} line {number}", False, fault) for fault in faults)
    if not faults:
        yield Check(f"{LEDGER} line {number}", True, "names this receipt, its files and its models")


def _misfits(receipt: Receipt, content: bytes, entry: Entry) -> list[str]:
    found: list[str] = []
    if entry.files.get(RECEIPT) != hashlib.sha256(content).hexdigest():
        found.append(f"does not name this {RECEIPT}: other bytes")
    found += [
        f"and the receipt's {section!r} differ in {name}"
        for section, name, value in (
            ("model", "base", entry.base),
            ("model", "before", entry.before),
            ("model", "after", entry.after),
            ("request", "digest", entry.request),
            ("request", "created", entry.time),
            ("request", "naming", entry.naming),
            ("request", "ids_are", entry.ids),
            ("ledger", "previous", entry.previous),
            ("acceptance", "accepted", entry.accepted),
        )
        if _field(receipt, section, name) != value
    ]
    files: dict[str, Any] = receipt["files"]
    found += [f"and the receipt differ in {name}" for name in files if entry.files.get(name) != files[name]]
    return found


def _other_page(path: Path, entry: Entry) -> Iterator[str]:
    shown = path.parent / PAGE
    if shown.is_file() and hashlib.sha256(shown.read_bytes()).hexdigest() != entry.files.get(PAGE):
        yield f"does not name this {PAGE}: other bytes"


def _misplaced(path: Path, entry: Entry, ledger: Ledger) -> Iterator[str]:
    if path.resolve().parent.name != f"{entry.number:04d}":
        yield f"is of folder {entry.number:04d}, but the receipt stands in {path.resolve().parent.name}"
    earlier: Sequence[Entry] = [e for e in ledger.accepted if e.number < entry.number]
    if entry.before != (earlier[-1].after if earlier else entry.base):
        yield "does not start from the model that was current then"


def _field(receipt: Receipt, section: str, name: str) -> Any:
    """A field of a receipt that may have been tampered with; None where there is none."""
    part = receipt.get(section)
    return part.get(name) if isinstance(part, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
