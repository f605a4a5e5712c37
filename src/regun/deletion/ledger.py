"""The ledger: one line of JSON per request, each with the hash of the line before it.

A request takes effect when its line is whole on disk. What follows the last whole line was being written when a run was
killed, and does not count.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from regun.errors import RegunError

LEDGER = "ledger.jsonl"
BEGINNING = "0" * 64
"""What the first line names as the hash of the line before it."""
ACCEPTED, REJECTED, INCONCLUSIVE = "accepted", "rejected", "inconclusive"
ACCEPTED_INCONCLUSIVE = "accepted inconclusive"
STATUSES = {
    ACCEPTED: "The new model meets the acceptance rule and is the current model.",
    ACCEPTED_INCONCLUSIVE: "The tests are inconclusive. The operator accepted that: the new model is in use.",
    REJECTED: "The new model does not meet the acceptance rule. The model before it stays the current model.",
    INCONCLUSIVE: "The tests are inconclusive. The model before the request stays the current model.",
}
"""What becomes of a request."""
_FIRST_BYTES = b'{"after":"'
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class LedgerLine(NamedTuple):
    """One request: when, its status, digests of the models (the very first, the one before, the one after), of the
    request and of the training data, who signed, and the SHA-256 of every file."""

    number: int
    time: str
    status: str
    pseudonyms: str
    request: str
    base: str
    before: str
    after: str
    data: str
    ids: str
    """`given`, or `positions` in the training data."""
    signer: str
    """The public key (hex) whose signature lies next to the receipt; empty if there is none."""
    files: Mapping[str, str]
    previous: str = BEGINNING

    @property
    def accepted(self) -> bool:
        """True if the model of this request became the current one."""
        return self.status in (ACCEPTED, ACCEPTED_INCONCLUSIVE)

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON of all fields; the next line names it as `previous`."""
        return hashlib.sha256(_canonical(self._asdict())).hexdigest()

    def text(self) -> str:
        """Return the line as the ledger holds it: canonical JSON of all fields and their hash."""
        return _canonical({**self._asdict(), "hash": self.hash}).decode()


@dataclass(frozen=True)
class Ledger:
    """The lines of a ledger, what is wrong with them, and the bytes that a killed run left behind the last one."""

    lines: tuple[LedgerLine, ...] = ()
    problems: tuple[str, ...] = ()
    torn: bytes = b""
    ended: bool = True
    """False if the last line lacks its newline."""

    @property
    def tip(self) -> str:
        """The hash of the last line."""
        return self.lines[-1].hash if self.lines else BEGINNING

    @property
    def current(self) -> LedgerLine | None:
        """The last accepted line: its model is the current one."""
        return next((line for line in reversed(self.lines) if line.accepted), None)


def read_ledger(path: Path) -> Ledger:
    """Read and check a whole ledger; a file that does not exist is an empty ledger."""
    try:
        *raw, rest = path.read_bytes().split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return Ledger()
    except OSError as fault:
        raise RegunError(f"cannot read the ledger {path}: {fault.strerror or fault}.") from None
    ended = parse_line(rest) is None
    torn = rest if ended else b""
    lines, problems, tip = list[LedgerLine](), list[str](), BEGINNING
    for number, content in enumerate(raw if ended else [*raw, rest], 1):
        line = parse_line(content)
        if line is None:
            problems.append(f"{LEDGER} line {number} was changed: it is not a line that regun wrote.")
            tip = ""
            continue
        if line.number != number or line.previous != tip:
            problems.append(f"{LEDGER} line {number} does not follow from line {number - 1}: one was changed or moved.")
        lines.append(line)
        tip = line.hash
    if torn and torn[: len(_FIRST_BYTES)] != _FIRST_BYTES[: len(torn)]:
        problems.append(f"{LEDGER} line {len(raw) + 1} is not the beginning of a line that regun wrote.")
    return Ledger(tuple(lines), tuple(problems), torn, ended)


def parse_line(content: bytes) -> LedgerLine | None:
    """Return the line of these bytes; None unless they are exactly what regun writes, hash included."""
    try:
        fields: dict[str, Any] = dict(json.loads(content))
        same = _canonical(fields) == content
        stated = fields.pop("hash")
        line = LedgerLine(**fields)
        files: dict[str, Any] = dict(line.files)
        texts = [*(fields[name] for name in fields if name not in ("number", "files")), *files.values()]
        typed = type(line.number) is int and all(isinstance(text, str) for text in texts)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return line if same and typed and stated == line.hash and line.status in STATUSES else None


def _canonical(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def append(path: Path, line: LedgerLine) -> None:
    """Add the line and wait until it is on disk."""
    write_end(path, line.text().encode() + b"\n")


def write_end(path: Path, content: bytes, at: int | None = None) -> None:
    """Write at the end of a file, or from the byte `at` on, never through a link, and wait until it is on disk."""
    flags = os.O_RDWR | os.O_CREAT | _NO_LINK
    with open(os.open(path, flags, 0o666), "r+b") as file:
        if at is not None:
            file.truncate(at)
        file.seek(0, os.SEEK_END)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def check_intact(ledger: Ledger, path: Path) -> None:
    """Raise where a ledger was tampered with, or is not regun's: nothing is added to it."""
    if ledger.problems:
        raise RegunError(
            f"the ledger {path} is damaged: {' '.join(ledger.problems[:3])} Nothing was done; restore it from a copy."
        )


def now() -> str:
    """Return the current time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
