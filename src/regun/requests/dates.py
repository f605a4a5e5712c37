"""When a request was received, until when it is due, and how that is written."""

import calendar
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from regun.errors import DataError


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


def now() -> str:
    """The moment it is, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def today() -> date:
    """The day it is, in UTC."""
    return datetime.now(UTC).date()


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


def refuse_impossible(received: str, due: str, where: str) -> None:
    """Raise where a request was received in the future, or is due before it was received."""
    if received and date.fromisoformat(received) > today() + timedelta(days=1):  # where the clock is ahead of UTC's
        raise DataError(f"{where} was received on {received}, which is in the future; correct the date.")
    if received and due and due < received:
        raise DataError(f"{where} is due on {due}, before it was received ({received}); correct one of the two.")
