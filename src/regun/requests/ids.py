"""What somebody wants gone: lines of a CSV, JSON or text file, and how their ids are written down."""

import csv
import hmac
import io
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

from regun.errors import DataError, RegunError

COLUMNS = ("id", "reason", "requester", "date")
LONGEST = 1000
"""Characters an id, a reason, a reference or a date may have."""
LARGEST = 2**30
"""Bytes of a file of ids that are read: some ten million ids."""
SHORTEST_SALT, LARGEST_SECRET = 16, 1_000_000
"""Bytes a salt must have (ids are few, so it alone keeps them from being found by trying), and a salt or key may."""


class AskedLine(NamedTuple):
    """One record to forget: its id, and why, for whom (a reference, not a name) and when it was asked."""

    id: str
    reason: str = ""
    requester: str = ""
    date: str = ""


@dataclass(frozen=True)
class Asked:
    """All lines of a request in their order, and the columns of the file that were not read."""

    lines: tuple[AskedLine, ...]
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.lines:
            raise DataError("the request names no id; give at least one record to forget.")

    def filled(self, reason: str = "", requester: str = "", date: str = "") -> "Asked":
        """The same with these texts where a line has none."""
        if not (reason or requester or date):
            return self
        _refuse_long(reason, requester, date)
        lines = (AskedLine(one, r or reason, q or requester, d or date) for one, r, q, d in self.lines)
        return replace(self, lines=tuple(lines))


def asked_of(ids: Sequence[str | int], *, reason: str = "", requester: str = "", date: str = "") -> Asked:
    """A request from ids in memory.

    >>> asked_of([7, "b-12"], requester="ticket 4711").lines[0]
    AskedLine(id='7', reason='', requester='ticket 4711', date='')
    """
    if isinstance(ids, str | bytes):
        raise DataError(f"ids is the single text {ids!r:.60}; give a list of ids.")
    _refuse_long(reason, requester, date)
    lines = (AskedLine(_id_text(one, f"id {n}"), reason, requester, date) for n, one in enumerate(ids, 1))
    return Asked(tuple(lines))


def read_asked(path: Path) -> Asked:
    """The request in a file: `.csv` with a column id, `.json` with a list, anything else one id a line."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise DataError(f"{path} has more than {LARGEST:,} bytes; split the request into smaller files.")
        text = content.decode("utf-8-sig")
    except OSError as fault:
        raise DataError(f"cannot read the ids of {path}: {fault.strerror or fault}. Name a file of ids.") from None
    except UnicodeDecodeError as fault:
        raise DataError(f"{path} is not UTF-8 text (byte {fault.start} is not); save it as UTF-8.") from None
    kind = path.suffix.lower()
    try:
        if kind == ".csv":
            return _read_csv(text)
        return _read_json(text) if kind == ".json" else Asked(tuple(_read_text(text)))
    except DataError as fault:
        raise DataError(f"{path}: {fault}") from None


def _read_text(text: str) -> Iterator[AskedLine]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield AskedLine(_short(line.strip(), f"line {number}"))


def _read_csv(text: str) -> Asked:
    first = text.split("\n", 1)[0]
    mark = ";" if ";" in first and "," not in first else ","
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)
    try:
        head = [name.strip().lower() for name in next(rows, list[str]())]
        if head.count("id") != 1:
            raise DataError(
                f"the first line of a CSV file names its columns, one of them id (others: {', '.join(COLUMNS[1:])}); "
                f"got {', '.join(head)[:80] or 'nothing'}."
            )
        lines = tuple(_csv_lines(rows, head))
    except csv.Error as fault:
        raise DataError(f"line {rows.line_num} is not CSV: {fault}. Is a quotation mark not closed?") from None
    return Asked(lines, tuple(name for name in head if name not in COLUMNS))


def _csv_lines(rows: Any, head: Sequence[str]) -> Iterator[AskedLine]:
    """A column that the file lacks, or a row that ends early, reads as empty; written for a million rows."""
    pick = itemgetter(*(head.index(name) if name in head else -1 for name in COLUMNS))
    width, make = len(head), AskedLine._make
    for row in rows:
        if not any(row):
            continue
        if len(row) > width:
            if any(map(str.strip, row[width:])):
                raise DataError(f"line {rows.line_num} has more cells than the header; quote texts that hold commas.")
            del row[width:]
        row += [""] * (width + 1 - len(row))
        line = make(map(str.strip, pick(row)))
        if not line[0]:
            raise DataError(f"line {rows.line_num} has no id; give one, or take the line out.")
        if len(line[0]) + len(line[1]) + len(line[2]) + len(line[3]) > LONGEST:
            _short(max(line, key=len), f"line {rows.line_num}")
        yield line


def _read_json(text: str) -> Asked:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise DataError(f"this is not JSON: {fault}.") from None
    shared: Mapping[str, Any] = {}
    if isinstance(value, dict) and "ids" in value:
        shared = cast("dict[str, Any]", value)
        value = shared["ids"]
    if not isinstance(value, list):
        raise DataError('give a JSON list of ids or of objects with an id, or an object {"ids": [...], "reason": ...}.')
    items = cast("list[Any]", value)
    lines = tuple(_json_line(item, shared, f"entry {n}") for n, item in enumerate(items, 1))
    objects = [cast("dict[str, Any]", item) for item in [shared, *items] if isinstance(item, dict)]
    keys = {str(key) for item in objects for key in item if key not in (*COLUMNS, "ids")}
    return Asked(lines, tuple(sorted(keys)))


def _json_line(item: Any, shared: Mapping[str, Any], where: str) -> AskedLine:
    own = cast("dict[str, Any]", item) if isinstance(item, dict) else {"id": item}
    if "id" not in own:
        raise DataError(f"{where} has no id; give one, or take it out.")
    rest: list[str] = []
    for name in COLUMNS[1:]:
        text = own.get(name, shared.get(name, ""))
        if not isinstance(text, str):
            raise DataError(f"the {name} of {where} is a {type(text).__name__}; give text.")
        rest.append(_short(text.strip(), f"the {name} of {where}"))
    return AskedLine(_id_text(own["id"], where), *rest)


def _id_text(value: object, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"{where} is a {type(value).__name__}; an id is text or a whole number.")
    if isinstance(value, int):
        if abs(value) >= 10**LONGEST:
            raise DataError(f"{where} has more than {LONGEST:,} digits; that is no id.")
        return str(value)
    if not value:
        raise DataError(f"{where} is empty; give an id, or take it out.")
    return _short(value, where)


def _refuse_long(*texts: str) -> None:
    for name, text in zip(COLUMNS[1:], texts, strict=True):
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DataError(f"the {name} is a {type(text).__name__}; give text.")
        _short(text, f"the {name}")


def _short(text: str, where: str) -> str:
    if len(text) > LONGEST:
        raise DataError(f"{where} has {len(text):,} characters; at most {LONGEST:,} are read.")
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise DataError(f"{where} holds half of a character (a lone surrogate); give whole text.")
    return text


# ------------------------------------------------------------------------------------------------ how ids are written


@dataclass(frozen=True)
class Naming:
    """Ids, references and digests in the clear or, under a `salt`, as HMAC-SHA256: only who has it can tell whose."""

    salt: bytes | None = field(default=None, repr=False)

    def of(self, texts: Iterable[str], what: str = "id") -> list[str]:
        """The written form of each text (32 hex digits under a salt).

        >>> Naming().of(["7"]), [len(name) for name in Naming(b"0123456789abcdef").of(["7"])]
        (['7'], [32])
        """
        if self.salt is None:
            return list(texts)
        salt, start = self.salt, f"{what}\0".encode()
        coded = (start + text.encode("utf-8", "surrogatepass") for text in texts)
        return [hmac.digest(salt, one, "sha256").hex()[:32] for one in coded]

    def digest(self, plain: str) -> str:
        """A digest of few rows as it may be shown: rows are few, so a plain one can be found by trying them."""
        return plain if self.salt is None else hmac.digest(self.salt, f"digest\0{plain}".encode(), "sha256").hex()

    @property
    def kind(self) -> str:
        """`plain`, or the salted hash with what tells one salt from another."""
        if self.salt is None:
            return "plain"
        return f"hmac-sha256 under salt {hmac.digest(self.salt, b'which salt', 'sha256').hex()[:12]}"

    def refuse_other(self, kind: str, where: Path) -> None:
        """Raise unless ids written as `kind` can be compared with this naming's."""
        if kind == self.kind:
            return
        if kind == "plain":
            raise RegunError(f"the ledger {where} holds its ids in the clear; leave --salt out, or start a new --out.")
        raise RegunError(
            f"the ledger {where} holds its ids as {kind}, and {'no salt' if self.salt is None else 'another salt'} was "
            f"given; give --salt with the file it was begun with."
        )


def read_naming(path: Path | None) -> Naming:
    """The naming that a salt file asks for; plain without one."""
    if path is None:
        return Naming()
    salt = read_secret(path, "salt")
    if len(salt) < SHORTEST_SALT:
        raise RegunError(
            f"the salt {path} has {len(salt)} bytes; at least {SHORTEST_SALT} random ones are needed: "
            f"(umask 077; head -c 32 /dev/urandom > {path.name})"
        )
    refuse_open(path, "salt")
    return Naming(salt)


def read_secret(path: Path, what: str) -> bytes:
    """The bytes of a salt or a key."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_SECRET + 1)
    except OSError as fault:
        raise RegunError(f"cannot read the {what} {path}: {fault.strerror or fault}.") from None
    if len(content) > LARGEST_SECRET:
        raise RegunError(f"the {what} {path} has more than {LARGEST_SECRET:,} bytes; name the right file.")
    return content


def refuse_open(path: Path, what: str) -> None:
    """Raise if every user of the machine may read or change a secret."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise RegunError(
            f"the {what} {path} is open to every user of this machine (mode {mode:o}), so it is no secret; make a new "
            f"one, or chmod 600 {path.name} if nobody has read it."
        )
