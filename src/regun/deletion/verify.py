"""Is a receipt what it was when it was issued, and are its files and the ledger?"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regun.artifacts import read_weights, state_digest, versions
from regun.deletion.folder import MODEL, PAGE, RECEIPT, Folder
from regun.deletion.ledger import (
    BEGINNING,
    LEDGER,
    Ledger,
    LedgerLine,
    add_witness,
    read_hash,
    read_witness,
    walk,
)
from regun.deletion.receipt_page import page
from regun.deletion.signing import Receipt, changes, read_public_key, read_receipt, signature_fault
from regun.errors import RegunError, StoreError
from regun.render.numbers import many


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
    signer = read_public_key(public_key) if public_key is not None else None
    receipt, content = read_receipt(path)
    if alone:
        return [*_document(path, receipt, content, signer), Check("files and ledger", None, "left out, as asked")]
    checks = [*_document(path, receipt, content, signer), *_files(path.parent, receipt)]
    place = path.resolve().parents[2] / LEDGER if len(path.resolve().parents) > 2 else None
    if place is None or not place.is_file():
        return [*checks, Check(LEDGER, False, "there is none two folders up; --alone checks a receipt without it")]
    ledger, number, current = Ledger(), number_of(receipt), ""
    own: LedgerLine | None = None
    for _, line in walk(place, ledger):
        if line is not None and line.number == number and own is None:
            own = line
        elif line is not None and line.accepted and own is None:
            current = line.after
    checks += _chain(ledger)
    if own is None:
        return [*checks, Check(LEDGER, False, f"it has no intact line {number}, which this receipt says it is")]
    return [*checks, *_line(path, receipt, content, own, current)]


def verify_folder(
    root: Path, *, public_key: Path | None = None, expect: str | None = None, witness: Path | None = None
) -> Iterator[tuple[str, list[Check]]]:
    """Every check of every receipt that a ledger names, one after the other; the ledger itself last.

    The ledger must hold the line whose hash is `expect`, and all those noted in the file `witness`, which gets the hash
    of the last line if everything is fine.
    """
    folder = Folder(root.resolve())
    if not folder.ledger.is_file():
        raise RegunError(f"{root} has no {LEDGER}; name a receipt.json, or the folder that regun forget wrote to.")
    signer = read_public_key(public_key) if public_key is not None else None
    expected = {**read_witness(witness), **({read_hash(expect): "expected"} if expect is not None else {})}
    ledger, current, fine = Ledger(), "", True
    intact, places = set[str](), {BEGINNING: 0}
    for number, line in walk(folder.ledger, ledger):
        if ledger.tip in expected:
            places[ledger.tip] = number
        if line is not None:
            path = folder.request(line.number) / RECEIPT
            intact.add(path.parent.name)
            checks = _of_line(path, line, current, signer)
            fine = fine and all(check.fine is not False for check in checks)
            current = line.after if line.accepted else current
            yield f"{path.parent.name}/{RECEIPT}", checks
    last = [*_chain(ledger), *_anchors(expected, places, ledger.count), *_without_line(folder, intact)]
    if witness is not None and ledger.count and fine and all(check.fine is not False for check in last):
        if ledger.tip not in expected:
            add_witness(witness, ledger.count, ledger.tip)
        last.append(Check("witness", True, f"{witness} holds the hash of line {ledger.count}"))
    yield LEDGER, last


def _of_line(path: Path, line: LedgerLine, current: str, signer: str | None) -> list[Check]:
    try:
        receipt, content = read_receipt(path)
        checks = [*_document(path, receipt, content, signer), *_files(path.parent, receipt)]
        if number_of(receipt) != line.number:
            return [*checks, Check(LEDGER, False, f"line {line.number} names this receipt, which says it is another")]
        return [*checks, *_line(path, receipt, content, line, current)]
    except RegunError as fault:
        return [Check(RECEIPT, False, str(fault))]


def _anchors(expected: Mapping[str, str], places: Mapping[str, int], count: int) -> Iterator[Check]:
    """Hashes that were kept elsewhere: each must be some line's, the last one's or that of one with lines after it."""
    lost = {tip: when for tip, when in expected.items() if tip not in places}
    for tip, when in lost.items():
        yield Check("anchor", False, f"no line has the hash {tip} ({when}): the ledger was cut, or is another one")
    if expected and not lost:
        said = (
            f"{many(len(expected), 'hash', 'hashes')} kept elsewhere found, the latest in line {max(places.values())}"
        )
        yield Check("anchor", True, f"{said} of {count}")


def _without_line(folder: Folder, intact: set[str]) -> Iterator[Check]:
    for path in folder.numbered():
        if path.name not in intact:
            yield Check(
                f"requests/{path.name}",
                False,
                "has no intact line in the ledger: a run was stopped just before its end (then the next regun forget "
                "puts the folder aside), or the line was changed or taken out",
            )
    for path in folder.aside():
        yield Check(
            path.name,
            False,
            "is a finished request put aside, since it has no intact line in the ledger: a run was stopped just before "
            "its end (then remove this folder), or the line was taken out",
        )


def _document(path: Path, receipt: Receipt, content: bytes, signer: str | None) -> Iterator[Check]:
    """The receipt by itself: sections, seal and signature."""
    _check_escapes(path, receipt)
    faults = changes(receipt, content)
    yield from (Check(path.name, False, fault) for fault in faults)
    if not faults:
        yield Check(path.name, True, "every section has the digest it was sealed with")
    fault, by = signature_fault(receipt), _field(receipt, "signer", "public_key")
    if fault is not None:
        yield Check("signature", False, fault)
    elif by is None:
        yield Check("signature", None if signer is None else False, "the receipt is not signed")
    elif signer is None:
        yield Check("signature", True, f"by the key {by}; whose it is, --public-key would tell")
    else:
        said = "by the expected key" if by == signer else f"by another key than the expected one: {by}"
        yield Check("signature", by == signer, said)


def _check_escapes(path: Path, receipt: Receipt) -> None:
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
        got = _sha256(folder / name)
        if len(got) != 64:
            yield Check(name, False, f"cannot be read: {got}")
        elif got != expected:
            yield Check(name, False, "its bytes are not those the receipt speaks of")
        elif name == MODEL:
            yield _weights(folder / name, receipt)
        else:
            yield Check(name, True, "SHA-256 as in the receipt")
    yield _page(folder, receipt)


def _sha256(path: Path) -> str:
    """The hash of a file, or why there is none."""
    if path.exists() and not path.is_file():
        return "no regular file"
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as fault:
        return fault.strerror or str(fault)


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
        shown = (folder / PAGE).read_bytes() if (folder / PAGE).is_file() else b""
        same = bool(shown) and shown == page(receipt).encode()
    except OSError as fault:
        return Check(PAGE, False, f"cannot be read: {fault.strerror or fault}")
    except Exception:  # sections that were changed may break a page in any way
        same = False
    if not same and _field(receipt, "software", "regun") != versions()["regun"]:
        return Check(PAGE, None, "made by another version of regun; the ledger has its digest")
    return Check(PAGE, same, "shows what the receipt says" if same else "does not show what the receipt says")


def _chain(ledger: Ledger) -> Iterator[Check]:
    yield from (Check(LEDGER, False, problem) for problem in ledger.problems)
    if not ledger.problems:
        lines = many(ledger.count, "line")
        yield Check(LEDGER, True, f"{lines}, each with the hash of the one before; that of the last is {ledger.tip}")
    if ledger.torn:
        yield Check(LEDGER, None, "a run was stopped while adding a line; it does not count yet")


def _line(path: Path, receipt: Receipt, content: bytes, line: LedgerLine, current: str) -> Iterator[Check]:
    """The receipt and its line in the ledger; `current` is the model that the last accepted line before led to."""
    what, folder = f"{LEDGER} line {line.number}", path.resolve().parent
    faults = list(_misfits(receipt, content, line))
    if folder.name != f"{line.number:04d}":
        faults.append(f"is of folder {line.number:04d}, but the receipt stands in {folder.name}")
    if line.before != (current or line.base):
        faults.append("does not start from the model that was current then")
    if line.accepted and line.before == line.after and _field(receipt, "request", "records"):
        faults.append("accepts a model that is the one before it: nothing was unlearned")
    if (folder / PAGE).is_file() and _sha256(folder / PAGE) != line.files.get(PAGE):
        faults.append(f"does not name this {PAGE}: other bytes")
    yield from (Check(what, False, fault) for fault in faults)
    if not faults:
        yield Check(what, True, "names this receipt, its files and its models")


def _misfits(receipt: Receipt, content: bytes, line: LedgerLine) -> Iterator[str]:
    if line.files.get(RECEIPT) != hashlib.sha256(content).hexdigest():
        yield f"does not name this {RECEIPT}: other bytes"
    for section, name, value in (
        ("model", "base", line.base),
        ("model", "before", line.before),
        ("model", "after", line.after),
        ("request", "digest", line.request),
        ("request", "created", line.time),
        ("request", "naming", line.naming),
        ("request", "ids_are", line.ids),
        ("ledger", "previous", line.previous),
        ("acceptance", "status", line.status),
    ):
        if _field(receipt, section, name) != value:
            yield f"and the receipt's {section!r} differ in {name}"
    files: dict[str, Any] = receipt["files"]
    yield from (f"and the receipt differ in {name}" for name in files if line.files.get(name) != files[name])


def number_of(receipt: Receipt) -> int:
    """The line that a receipt says it is; 0 if it says no such thing."""
    number = _field(receipt, "ledger", "number")
    return number if type(number) is int else 0


def _field(receipt: Receipt, section: str, name: str) -> Any:
    """A field of a receipt that may have been tampered with; None where there is none."""
    part = receipt.get(section)
    return part.get(name) if isinstance(part, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
