"""Numbers, durations and lists as people read them: the one way in which all output writes them."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

LONGEST_SETTING = 240
"""Characters of a setting's value that are shown."""


def fixed(value: float, digits: int = 2) -> str:
    """The value with so many digits, thousands apart, never a minus zero; what it is if it is not finite.

    >>> fixed(-0.001), fixed(99.996), fixed(1234.5, 1), fixed(float("nan"))
    ('0.00', '100.00', '1,234.5', 'not finite')
    """
    if not math.isfinite(value):
        return "not finite"
    text = f"{value:,.{digits}f}"
    return text if any(c in "123456789" for c in text) else text.removeprefix("-")


def interval(low: float | None, high: float | None, digits: int = 1) -> str:
    """The two ends; empty where there is no interval.

    >>> interval(57.71, 82.0), interval(None, None)
    ('57.7 to 82.0', '')
    """
    return "" if low is None or high is None else f"{fixed(low, digits)} to {fixed(high, digits)}"


def with_interval(value: float, low: float | None, high: float | None, digits: int = 1) -> str:
    """A value with its interval, where it has one.

    >>> with_interval(53.21, 45.0, 61.34), with_interval(53.21, None, None)
    ('53.2 (45.0 to 61.3)', '53.2')
    """
    ends = interval(low, high, digits)
    return f"{fixed(value, digits)} ({ends})" if ends else fixed(value, digits)


def brackets(low: float | None, high: float | None) -> str:
    """The two ends in a cell, where room is short; empty where there is no interval.

    >>> brackets(57.71, 100.0)
    '[57.7–100]'
    """
    return "" if low is None or high is None else f"[{fixed(low, 1)}–{fixed(high, 1)}]".replace("100.0", "100")


def duration(seconds: float) -> str:
    """A duration for people.

    >>> duration(0.04), duration(7.62), duration(75), duration(8000)
    ('under 0.1 s', '7.6 s', '1 min 15 s', '2 h 13 min')
    """
    if seconds < 0.1:
        return "under 0.1 s"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 3570:
        whole = round(seconds)
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 and whole < 600 else "")
    minutes = round(seconds / 60)
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def percent(value: float) -> str:
    """A share for people.

    >>> percent(0.2), percent(7.6), percent(38.4), percent(250)
    ('under 1 %', '8 %', '38 %', '250 %')
    """
    return "under 1 %" if 0 < value < 0.95 else f"{value:,.0f} %"


def names(titles: Iterable[str], last: str = "and") -> str:
    """Join titles in a sentence: `A`, `A and B`, `A, B and C`; one that holds a comma itself is put in quotes.

    >>> names(["A, large", "B"])
    '“A, large” and B'
    """
    quoted = [f"“{title}”" if ", " in title else title for title in (" ".join(text.split()) for text in titles)]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {last} {quoted[-1]}" if quoted else ""


def many(count: int, one: str, several: str | None = None) -> str:
    """`1 method`, `2 methods`."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def shortened(value: object, longest: int, *, tail: int = 0) -> str:
    """Any value as text of bounded length; `tail` characters of its end stay, where they tell values apart.

    >>> shortened("Cross-fitted references, 8 %", 18, tail=3)
    'Cross-fitted r…8 %'
    """
    text = str(value)
    return text if len(text) <= longest else text[: longest - 1 - tail] + "…" + text[len(text) - tail :]


def pairs(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Names and values of settings as texts of bounded length.

    >>> pairs({"lr": 0.1, "layers": ["a", "b"]})
    (('lr', '0.1'), ('layers', '["a", "b"]'))
    """
    texts: list[tuple[str, str]] = []
    for key, value in values.items():
        if value is None or isinstance(value, str | int | float):
            text = str(value)
        else:
            text = json.dumps(value, default=str, ensure_ascii=False)
        texts.append((str(key), shortened(text, LONGEST_SETTING)))
    return tuple(texts)


def settings_text(values: Mapping[str, Any]) -> str:
    """Settings in a row.

    >>> settings_text({"lr": 0.1, "w": 0.5})
    'lr=0.1 w=0.5'
    """
    return " ".join(f"{name}={text}" for name, text in pairs(values))
