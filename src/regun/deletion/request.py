"""What somebody wants gone: lines of a CSV, JSON or text file; when that was received, and until when it is due."""

import calendar
import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

from regun.errors import DataError, RegunError
from regun.settings import read_json

COLUMNS = ("id", "reason", "requester", "received", "due")
LONGEST = 1000
"""Characters an id, a reason or a reference may have."""
LARGEST = 2**30
"""Bytes of a file of ids that are read: some ten million ids."""


class RequestedRecord(NamedTuple):
    """One record to forget: its id, why, for whom (a reference, not a name), and the days (YYYY-MM-DD) on which that
    was received and is due."""

    id: str
    reason: str = ""
    requester: str = ""
    received: str = ""
    due: str = ""


@dataclass(frozen=True)
class DeletionRequest:
    """All lines of a request in their order, and the columns of the file that were not read."""

    lines: tuple[RequestedRecord, ...]
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.lines:
            raise DataError("the request names no id; give at least one record to forget.")

    def filled(self, reason: str = "", requester: str = "", received: str = "", due: str = "") -> "DeletionRequest":
        """The same with these texts where a line has none."""
        if not (reason or requester or received or due):
            return self
        received, due = _checked(reason, requester, received, due)
        lines = tuple(
            RequestedRecord(one, r or reason, q or requester, g or received, u or due) for one, r, q, g, u in self.lines
        )
        for got, until in {(line.received, line.due) for line in lines}:
            check_impossible(got, until, "the request")
        return replace(self, lines=lines)


def deletion_request(
    ids: Sequence[str | int], *, reason: str = "", requester: str = "", received: str = "", due: str = ""
) -> DeletionRequest:
    """A request from ids in memory.

    >>> deletion_request([7, "b-12"], requester="ticket 4711", received="2024-11-04").lines[0]
    AskedLine(id='7', reason='', requester='ticket 4711', received='2024-11-04', due='')
    """
    if isinstance(ids, str | bytes):
        raise DataError(f"ids is the single text {ids!r:.60}; give a list of ids.")
    return DeletionRequest(tuple(RequestedRecord(_id_text(one, f"id {n}")) for n, one in enumerate(ids, 1))).filled(
        reason, requester, received, due
    )


def read_request_file(path: Path) -> DeletionRequest:
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
        return _read_json(text) if kind == ".json" else DeletionRequest(tuple(_read_text(text)))
    except RegunError as fault:
        raise DataError(f"{path}: {fault}") from None


def _read_text(text: str) -> Iterator[RequestedRecord]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield RequestedRecord(_short(line.strip(), f"line {number}"))


def _read_csv(text: str) -> DeletionRequest:
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
    return DeletionRequest(lines, tuple(name for name in head if name not in COLUMNS))


def _csv_lines(rows: Any, head: Sequence[str]) -> Iterator[RequestedRecord]:
    """A column that the file lacks, or a row that ends early, reads as empty; written for a million rows."""
    pick = itemgetter(*(head.index(name) if name in head else -1 for name in COLUMNS))
    width, make, known = len(head), RequestedRecord._make, dict[tuple[str, str], tuple[str, str]]()
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
        if len(line[0]) + len(line[1]) + len(line[2]) > LONGEST:
            _short(max(line[:3], key=len), f"line {rows.line_num}")
        yield _dated(line, f"line {rows.line_num}", known) if line[3] or line[4] else line


def _read_json(text: str) -> DeletionRequest:
    value = read_json(text, "the content")
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
    return DeletionRequest(lines, tuple(sorted(keys)))


def _json_line(item: Any, shared: Mapping[str, Any], where: str) -> RequestedRecord:
    own = cast("dict[str, Any]", item) if isinstance(item, dict) else {"id": item}
    if "id" not in own:
        raise DataError(f"{where} has no id; give one, or take it out.")
    rest: list[str] = []
    for name in COLUMNS[1:]:
        text = own.get(name, shared.get(name, ""))
        if not isinstance(text, str):
            raise DataError(f"the {name} of {where} is a {type(text).__name__}; give text.")
        rest.append(_short(text.strip(), f"the {name} of {where}"))
    return _dated(RequestedRecord(_id_text(own["id"], where), *rest), where, {})


def _dated(line: RequestedRecord, where: str, known: dict[tuple[str, str], tuple[str, str]]) -> RequestedRecord:
    """The line with its days read; those that were read before are `known`."""
    both = line[3:5]
    if both not in known:
        received, due = (read_date(text, f"{name} in {where}") for name, text in zip(COLUMNS[3:], both, strict=True))
        check_impossible(received, due, where)
        known[both] = received, due
    return RequestedRecord(*line[:3], *known[both])


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


def _checked(*texts: str) -> tuple[str, str]:
    """Texts for all lines, in the order of the columns; the two days are read and given back."""
    for name, text in zip(COLUMNS[1:], texts, strict=True):
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DataError(f"the {name} is a {type(text).__name__}; give text.")
        _short(text, f"the {name}")
    received, due = (
        read_date(day.strip(), f"the day {name}") for name, day in zip(COLUMNS[3:], texts[2:], strict=True)
    )
    return received, due


def _short(text: str, where: str) -> str:
    if len(text) > LONGEST:
        raise DataError(f"{where} has {len(text):,} characters; at most {LONGEST:,} are read.")
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise DataError(f"{where} holds half of a character (a lone surrogate); give whole text.")
    return text


# ----------------------------------------------------------------------------------------------------------------- days


@dataclass(frozen=True)
class Dates:
    """The day the first of a request's lines was received, the day the first of them is due, and the day it was
    done."""

    received: date
    due: date
    done: date

    @classmethod
    def of(cls, lines: Iterable[tuple[str, str]], done: date) -> "Dates":
        """From (received, due) of every line, as `read_date` has them.

        A line without the first was received on the day it is done, one without the second is due a month after that:
        the time that Article 12(3) of the GDPR gives.
        """
        both = {(date.fromisoformat(got) if got else done, due) for got, due in set(lines)}
        dues = (date.fromisoformat(due) if due else month_after(got) for got, due in both)
        return cls(min(got for got, _ in both), min(dues), done)

    @property
    def days_late(self) -> int:
        return max(0, (self.done - self.due).days)

    def to_json(self) -> dict[str, str | int]:
        names = {name: getattr(self, name).isoformat() for name in ("received", "due", "done")}
        return {**names, "days_late": self.days_late}


def month_after(day: date) -> date:
    """The same day of the next month, or that month's last.

    >>> month_after(date(2026, 1, 31)).isoformat(), month_after(date(2026, 12, 15)).isoformat()
    ('2026-02-28', '2027-01-15')
    """
    year, month = (day.year, day.month + 1) if day.month < 12 else (day.year + 1, 1)
    return date(year, month, min(day.day, calendar.monthrange(year, month)[1]))


def read_date(text: str, where: str) -> str:
    """A day as YYYY-MM-DD, from text that begins with one (a time may follow); empty if it is."""
    if not text:
        return ""
    try:
        day = date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text).date()
        if not 1970 <= day.year < 9999:
            raise ValueError
    except ValueError:
        raise DataError(f"{where} is {text[:40]!r}; give a day as 2026-11-30.") from None
    return day.isoformat()


def check_impossible(received: str, due: str, where: str) -> None:
    """Raise where a request was received in the future, or is due before it was received."""
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)  # where the clock is ahead of UTC's
    if received and date.fromisoformat(received) > tomorrow:
        raise DataError(f"{where} was received on {received}, which is in the future; correct the date.")
    if received and due and due < received:
        raise DataError(f"{where} is due on {due}, before it was received ({received}); correct one of the two.")
