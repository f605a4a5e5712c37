"""Deletion requests: the records to forget with reasons and dates, from memory or from a CSV, JSON or text file."""

import calendar
import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from regun.errors import DataError
from regun.settings import read_json

COLUMNS = ("id", "reason", "requester", "received", "due")
LONGEST = 1000
"""Characters an id, a reason or a requester may have."""


class RequestedRecord(NamedTuple):
    """One record to forget. `requester` is a reference such as a ticket; `received` and `due` are days (YYYY-MM-DD)."""

    id: str
    reason: str = ""
    requester: str = ""
    received: str = ""
    due: str = ""


@dataclass(frozen=True)
class DeletionRequest:
    """A deletion request: its records in order, and the columns of its file that regun does not read."""

    records: tuple[RequestedRecord, ...]
    ignored_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.records:
            raise DataError("the request names no id; give at least one record to forget.")

    @classmethod
    def of(
        cls, ids: Sequence[str | int], *, reason: str = "", requester: str = "", received: str = "", due: str = ""
    ) -> "DeletionRequest":
        """Make a request from ids in memory; the other arguments hold for all of them.

        >>> DeletionRequest.of([7, "b-12"], requester="ticket 4711", received="2024-11-04").records[0]
        RequestedRecord(id='7', reason='', requester='ticket 4711', received='2024-11-04', due='')
        """
        if isinstance(ids, str | bytes):
            raise DataError(f"ids is the single text {ids!r:.60}; give a list of ids.")
        shared = (reason, requester, received, due)
        return cls(tuple(_record(f"id {n}", id, *shared) for n, id in enumerate(ids, 1)))

    def with_defaults(
        self, reason: str = "", requester: str = "", received: str = "", due: str = ""
    ) -> "DeletionRequest":
        """Return the request with these texts wherever a record has none."""
        shared = (reason, requester, received, due)
        if not any(shared):
            return self
        _record("the request", "id", *shared)
        records = tuple(
            _record(f"record {n}", *(text or default for text, default in zip(record, ("", *shared), strict=True)))
            for n, record in enumerate(self.records, 1)
        )
        return DeletionRequest(records, self.ignored_columns)


def read_request_file(path: Path) -> DeletionRequest:
    """Read a request: `.csv` with a column id, `.json` with a list of ids or objects, other files one id per line."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as fault:
        raise DataError(f"cannot read the ids of {path}: {fault.strerror or fault}. Name a file of ids.") from None
    except UnicodeDecodeError as fault:
        raise DataError(f"{path} is not UTF-8 text (byte {fault.start}); save it as UTF-8.") from None
    kind = path.suffix.lower()
    if kind == ".json":
        return _read_json(read_json(text, str(path)), str(path))
    try:
        if kind == ".csv":
            return _read_csv(text)
        lines = enumerate(text.split("\n"), 1)
        return DeletionRequest(tuple(_record(f"line {n}", line.strip()) for n, line in lines if line.strip()))
    except DataError as fault:
        raise DataError(f"{path}: {fault}") from None


def _read_csv(text: str) -> DeletionRequest:
    """Read one record per row; a column that the file lacks, or a row that ends early, reads as empty."""
    first = text.split("\n", 1)[0]
    delimiter = ";" if ";" in first and "," not in first else ","
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    records: list[RequestedRecord] = []
    try:
        head = [name.strip().lower() for name in next(rows, list[str]())]
        if head.count("id") != 1 or len({*head}) < len(head):
            raise DataError(
                f"the first line of a CSV file names its columns, each once, one of them id (others: "
                f"{', '.join(COLUMNS[1:])}); got {', '.join(head)[:80] or 'nothing'}."
            )
        for row in rows:
            where = f"line {rows.line_num}"
            if any(cell.strip() for cell in row[len(head) :]):
                raise DataError(f"{where} has more cells than the header; quote texts that hold commas.")
            cells = {name: cell.strip() for name, cell in zip(head, row, strict=False)}
            if any(row):
                records.append(_record(where, *(cells.get(name, "") for name in COLUMNS)))
    except csv.Error as fault:
        raise DataError(f"line {rows.line_num} is not CSV: {fault}. Is a quotation mark not closed?") from None
    return DeletionRequest(tuple(records), tuple(name for name in head if name not in COLUMNS))


def _read_json(value: Any, path: str) -> DeletionRequest:
    shared: Mapping[str, Any] = {}
    if isinstance(value, dict) and "ids" in value:
        shared = cast("dict[str, Any]", value)
        value = shared["ids"]
    if not isinstance(value, list):
        raise DataError(
            f'{path}: give a JSON list of ids or of objects with an id, or {{"ids": [...], "reason": ...}}.'
        )
    items = cast("list[Any]", value)
    objects = [cast("dict[str, Any]", item) if isinstance(item, dict) else {"id": item} for item in items]
    records = tuple(
        _record(f"{path}: entry {n}", *(entry.get(name, shared.get(name, "")) for name in COLUMNS))
        for n, entry in enumerate(objects, 1)
    )
    keys = {key for entry in [shared, *objects] for key in entry if key not in (*COLUMNS, "ids")}
    return DeletionRequest(records, tuple(sorted(keys)))


def _record(
    where: str, id: object, reason: object = "", requester: object = "", received: object = "", due: object = ""
) -> RequestedRecord:
    """Return a checked record: the id is text or a whole number, the rest text, days are days."""
    if isinstance(id, bool) or not isinstance(id, str | int):
        raise DataError(f"the id of {where} is a {type(id).__name__}; an id is text or a whole number.")
    texts = {"id": str(id), "reason": reason, "requester": requester, "received": received, "due": due}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise DataError(f"the {name} of {where} is a {type(text).__name__}; give text.")
        if len(text) > LONGEST:
            raise DataError(f"the {name} of {where} has {len(text):,} characters; give at most {LONGEST:,}.")
    if not texts["id"]:
        raise DataError(f"{where} has no id; give one, or remove it.")
    record = RequestedRecord(**cast("dict[str, str]", texts))
    if not (record.received or record.due):
        return record
    try:
        days = _days(record.received.strip(), record.due.strip())
    except DataError as fault:
        raise DataError(f"{where}: {fault}") from None
    return RequestedRecord(*record[:3], *days)


# ----------------------------------------------------------------------------------------------------------------- days


@cache
def _days(received: str, due: str) -> tuple[str, str]:
    """Return both days as YYYY-MM-DD; raise where one is no day, is in the future, or is due before it was received."""
    received, due = read_day(received, "received"), read_day(due, "due")
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)  # where the clock is ahead of UTC
    if received and date.fromisoformat(received) > tomorrow:
        raise DataError(f"received is {received}, which is in the future; correct the date.")
    if received and due and due < received:
        raise DataError(f"due is {due}, before the request was received ({received}); correct one of the two.")
    return received, due


def read_day(text: str, name: str) -> str:
    """Return a day as YYYY-MM-DD from text that begins with one (a time may follow); empty text stays empty."""
    if not text:
        return ""
    try:
        day = date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text).date()
        if not 1970 <= day.year < 9999:
            raise ValueError
    except ValueError:
        raise DataError(f"{name} is {text[:40]!r}; give a day as 2026-11-30.") from None
    return day.isoformat()


def month_after(day: date) -> date:
    """Return the same day of the next month, or that month's last day.

    >>> month_after(date(2026, 1, 31)).isoformat(), month_after(date(2026, 12, 15)).isoformat()
    ('2026-02-28', '2027-01-15')
    """
    year, month = (day.year, day.month + 1) if day.month < 12 else (day.year + 1, 1)
    return date(year, month, min(day.day, calendar.monthrange(year, month)[1]))


def deadline(days: Iterable[tuple[str, str]], done: date) -> dict[str, str | int]:
    """Return when a request was received, is due and was done, from (received, due) of its records.

    A record without the first was received on the day it is done; one without the second is due a month after it was
    received, the time that Article 12(3) of the GDPR gives. The oldest record and the first due date count.
    """
    pairs = {(date.fromisoformat(received) if received else done, due) for received, due in set(days)}
    first_due = min(date.fromisoformat(due) if due else month_after(received) for received, due in pairs)
    return {
        "received": min(received for received, _ in pairs).isoformat(),
        "due": first_due.isoformat(),
        "done": done.isoformat(),
        "days_late": max(0, (done - first_due).days),
    }
