"""The ledger: one line of JSON a request, each holding the hash of the line before it.

A line counts once its newline is on disk: that is the moment in which a request takes effect. What follows the last
newline was being written when a run was killed, and does not count; if it is a whole line, only the newline was lost.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from regun.errors import RegunError
from regun.hashing import canonical_json, digest

LEDGER = "ledger.jsonl"
BEGINNING = "0" * 64
"""What the first line names as the one before it."""
ACCEPTED, UNTESTABLE, REJECTED, INCONCLUSIVE = "accepted", "accepted untestable", "rejected", "inconclusive"
TAKEN = (ACCEPTED, UNTESTABLE)
"""Of a request whose model took the place of the one before."""
STATUSES = {
    ACCEPTED: "the rule is met; the model is the current one",
    UNTESTABLE: "nobody can tell, and the operator has accepted that; the model is the current one",
    REJECTED: "the rule is not met; the model before stays current",
    INCONCLUSIVE: "nobody can tell whether the rule is met; the model before stays current",
}
"""What becomes of a request."""
LONGEST_LINE = 1_000_000
"""Bytes of a line that are read; a real one has some thousand."""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def now() -> str:
    """The moment it is, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class LedgerLine(NamedTuple):
    """One request: its number, when, what became of it, which models it started from and led to (the very first one,
    the one before, the one after), the training data as they were (a digest), and its files."""

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
        """Whether its model took the place of the one before."""
        return self.status in TAKEN

    def text(self) -> str:
        """The line as it stands in the ledger: canonical JSON, with the digest of it all as its last field."""
        content = canonical_json(self._asdict())
        return f'{content[:-1]},"~digest":"{digest(content.encode())}"}}'

    def hash(self) -> str:
        """What the next line names as the one before it."""
        return hashlib.sha256(self.text().encode()).hexdigest()


_TEXT = r'"([^"\\\x00-\x1f]*)"'
_FORM = {"number": "([1-9][0-9]{0,17})", "files": "{([^{}]*)}"}
_ORDER = sorted(LedgerLine._fields)
_LINE = re.compile("{" + ",".join(f'"{n}":{_FORM.get(n, _TEXT)}' for n in _ORDER) + ',"~digest":"([0-9a-f]{64})"}')
"""The one form a line can have: nothing is read that would be written otherwise."""
_FILE = re.compile(f"{_TEXT}:{_TEXT}")
_START = f'{{"{_ORDER[0]}":"'.encode()
_END = len(',"~digest":""}') + 64
_IN_ORDER = itemgetter(*map(_ORDER.index, LedgerLine._fields), len(_ORDER))


@dataclass
class Ledger:
    """The lines read so far, the hash of the last one, what is wrong (by line), the bytes behind the last newline, and
    the line in them if they lack nothing but the newline."""

    lines: list[LedgerLine] = field(default_factory=list[LedgerLine])
    tip: str = BEGINNING
    count: int = 0
    problems: list[str] = field(default_factory=list[str])
    torn: bytes = b""
    unended: LedgerLine | None = None

    @property
    def accepted(self) -> list[LedgerLine]:
        return [line for line in self.lines if line.accepted]


def read_ledger(path: Path) -> Ledger:
    """The whole ledger in a file, every line checked; a file that is not there is an empty one."""
    ledger = Ledger()
    ledger.lines += (line for _, line in walk(path, ledger) if line is not None)
    return ledger


def walk(path: Path, ledger: Ledger) -> Iterator[tuple[int, LedgerLine | None]]:
    """The lines with their numbers, one after the other, None for one that cannot be read.

    `ledger` learns hash, count, problems and torn end as they come; the lines themselves are for the caller to keep.
    """
    try:
        if path.exists() and not path.is_file():
            raise RegunError(f"{path} is no regular file, so it is no ledger of regun's. Name another folder.")
        with path.open("rb") as file:
            while raw := file.readline(LONGEST_LINE):
                if not raw.endswith(b"\n"):
                    _take_end(raw, ledger)
                    return
                yield ledger.count + 1, _take(raw[:-1], ledger)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as fault:
        raise RegunError(f"cannot read the ledger {path}: {fault.strerror or fault}.") from None


def _take(raw: bytes, ledger: Ledger) -> LedgerLine | None:
    number, line = ledger.count + 1, _read(raw)
    faults = [line] if isinstance(line, str) else _misfits(line, number, ledger.tip)
    ledger.problems += [f"{LEDGER} line {number} {fault}" for fault in faults]
    ledger.count, ledger.tip = number, hashlib.sha256(raw).hexdigest()
    return None if isinstance(line, str) else line


def _take_end(raw: bytes, ledger: Ledger) -> None:
    """What follows the last newline: a line, or the beginning of one, that a killed run was writing."""
    line = _read(raw)
    ledger.torn = raw
    if not isinstance(line, str) and not _misfits(line, ledger.count + 1, ledger.tip):
        ledger.unended = line
    elif len(raw) >= LONGEST_LINE or not _START.startswith(raw[: len(_START)]):
        ledger.problems.append(f"{LEDGER} line {ledger.count + 1} is nothing that regun began to write.")


def check_damaged(ledger: Ledger, path: Path) -> None:
    """Nothing is added to a ledger that was tampered with, or that regun did not write."""
    if ledger.problems:
        raise RegunError(
            f"the ledger {path} is not as it was written: {'; '.join(ledger.problems[:3])} Nothing was done; restore "
            f"it from a copy."
        )


def append(path: Path, line: LedgerLine) -> None:
    """Add the line and wait until it is on disk."""
    add_bytes(path, line.text().encode() + b"\n")


def add_bytes(path: Path, content: bytes) -> None:
    """Add to a file, never through a link, and wait until it is on disk."""
    with open(path, "ab", opener=lambda name, flags: os.open(name, flags | _NO_LINK, 0o666)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def drop_torn_line(path: Path, torn: int) -> None:
    """Cut off what a killed run left behind the last newline."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - torn)
        file.flush()
        os.fsync(file.fileno())


def _read(raw: bytes) -> LedgerLine | str:
    """The line of these bytes, or what is wrong with them by themselves."""
    try:
        found = _LINE.fullmatch(raw.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        return "was changed: it cannot be read as an entry."
    number, *texts, listed, previous, told = _IN_ORDER(found.groups())
    files: dict[str, str] = dict(_FILE.findall(listed))
    plain = ",".join([f'"{name}":"{sha}"' for name, sha in sorted(files.items())]) == listed
    if not plain or hashlib.sha256(raw[:-_END] + b"}").hexdigest() != told:
        return "was changed: it no longer has the digest it was written with."
    return LedgerLine._make((int(number), *texts, files, previous))


def _misfits(line: LedgerLine, number: int, tip: str) -> list[str]:
    found: list[str] = []
    if line.number != number:
        found.append(f"is entry {line.number}: a line was taken out or put in before it.")
    if line.status not in STATUSES:
        found.append(f"has the status {line.status[:40]!r}, which regun does not give.")
    if line.previous != tip:
        found.append(f"does not follow from the line before it: line {number - 1} was changed, moved or taken out.")
    return found


# -------------------------------------------------------------------------------------------- hashes kept elsewhere


def read_hash(text: str) -> str:
    """A line's hash as somebody has noted it."""
    if not re.fullmatch("[0-9a-f]{64}", text.strip().lower()):
        raise RegunError(f"{text[:80]!r} is not the hash of a ledger's line: 64 digits 0-9 and a-f, as regun prints.")
    return text.strip().lower()


def read_witness(path: Path | None) -> dict[str, str]:
    """The hashes that a witness file holds, each with the words of when it was noted; none if there is no file."""
    try:
        content = path.read_bytes().decode("ascii") if path is not None and path.exists() else ""
        rows = [row.split() for row in content.splitlines() if row.strip()]
        return {read_hash(tip): f"noted as line {int(number)} on {time}" for number, tip, time in rows}
    except OSError as fault:
        raise RegunError(f"cannot read the witness {path}: {fault.strerror or fault}.") from None
    except (ValueError, RegunError):
        raise RegunError(f"{path} is no witness file of regun's: number, hash and time a line. Name another.") from None


def add_witness(path: Path, number: int, tip: str) -> None:
    """Note the hash of the ledger's last line in a file that can be kept where the ledger's keeper cannot change it.

    Number 0 notes nothing, and finds out whether the file can be written.
    """
    note = f"{number} {tip} {now()}\n" if number else ""
    try:
        add_bytes(path, note.encode())
    except OSError as fault:
        raise RegunError(f"cannot write the witness {path}: {fault.strerror or fault}.") from None


def check_cut(ledger: Ledger, expected: Mapping[str, str], path: Path) -> None:
    """Raise if the ledger has lost a line whose hash was noted."""
    known = {BEGINNING, ledger.tip, *(line.previous for line in ledger.lines)}
    lost = [f"{tip} ({when})" for tip, when in expected.items() if tip not in known]
    if lost:
        raise RegunError(
            f"the ledger {path} has no line with the hash {lost[-1]}: it was cut short, or is another one. Nothing was "
            f"done; restore it from a copy."
        )
