"""The ledger: one line of JSON a request, each holding the hash of the line before it.

A line counts once its newline is on disk: that is the moment in which a request takes effect. What follows the last
newline was being written when a run was killed, and does not count; if it is a whole entry, only the newline was lost.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regun.errors import RegunError
from regun.seeds import canonical_json, digest

BEGINNING = "0" * 64
"""What the first line names as the one before it."""


@dataclass(frozen=True)
class Entry:
    """One request: its number, when, what became of it, which model it started from and led to, the
    training data as they were (a digest), and its files."""

    number: int
    time: str
    status: str
    naming: str
    request: str
    base: str
    before: str
    after: str
    data: str
    ids: str
    """`given`, or `positions` in the training data."""
    files: Mapping[str, str]
    previous: str = BEGINNING

    @property
    def accepted(self) -> bool:
        return self.status == "accepted"

    def line(self) -> str:
        """The entry as it stands in the ledger; its last field is the digest of the others."""
        content = asdict(self)
        return canonical_json({**content, "~digest": digest(content)})


@dataclass(frozen=True)
class Ledger:
    """All entries in order, the hash of the last line, what is wrong (by line), the bytes of a torn last line, and the
    entry in them if they lack nothing but the newline."""

    entries: tuple[Entry, ...] = ()
    tip: str = BEGINNING
    problems: tuple[str, ...] = ()
    torn: int = 0
    unended: Entry | None = None

    @property
    def accepted(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.accepted]


def read_ledger(path: Path) -> Ledger:
    """The ledger in a file, every line checked; a file that is not there is an empty one."""
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as fault:
        raise RegunError(f"cannot read the ledger {path}: {fault.strerror or fault}.") from None
    *lines, rest = content.split(b"\n")
    entries: list[Entry] = []
    problems: list[str] = []
    tip = BEGINNING
    for number, line in enumerate(lines, 1):
        entry = _read(line)
        if isinstance(entry, str):
            problems.append(f"{path.name} line {number} {entry}")
        else:
            entries.append(entry)
            problems += [f"{path.name} line {number} {fault}" for fault in _misfits(entry, number, tip)]
        tip = hashlib.sha256(line).hexdigest()
    last = _read(rest)
    unended = last if isinstance(last, Entry) and not _misfits(last, len(lines) + 1, tip) else None
    return Ledger(tuple(entries), tip, tuple(problems), len(rest), unended)


def refuse_damaged(ledger: Ledger, path: Path) -> None:
    """Nothing is added to a ledger that was tampered with."""
    if ledger.problems:
        raise RegunError(
            f"the ledger {path} is not as it was written: {'; '.join(ledger.problems[:3])}. Nothing was done; restore "
            f"it from a copy."
        )


def append(path: Path, entry: Entry) -> None:
    """Add the line and wait until it is on disk."""
    with path.open("ab") as file:
        file.write(entry.line().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def end_line(path: Path) -> None:
    """Add the newline that a whole last line lacks."""
    with path.open("ab") as file:
        file.write(b"\n")
        file.flush()
        os.fsync(file.fileno())


def drop_torn_line(path: Path, torn: int) -> None:
    """Cut off what a killed run left behind the last newline."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - torn)
        file.flush()
        os.fsync(file.fileno())


def _read(line: bytes) -> Entry | str:
    """The entry of a line, or what is wrong with the line by itself."""
    try:
        value: dict[str, Any] = dict(json.loads(line))
        value.pop("~digest")
        value["files"] = {str(name): str(sha) for name, sha in value["files"].items()}
        entry = Entry(**value)
        if not all(type(v) is (int if k == "number" else str) for k, v in value.items() if k != "files"):
            raise TypeError
        intact = entry.line().encode() == line
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "was changed: it cannot be read as an entry."
    return entry if intact else "was changed: it no longer has the digest it was written with."


def _misfits(entry: Entry, number: int, tip: str) -> list[str]:
    found: list[str] = []
    if entry.number != number:
        found.append(f"is entry {entry.number}: a line was taken out or put in before it.")
    if entry.previous != tip:
        found.append(f"does not follow from the line before it: line {number - 1} was changed, moved or taken out.")
    return found
