"""CSV that a spreadsheet shows and does not run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """CSV text; a text cell that a spreadsheet would run as a formula gets a leading apostrophe.

    >>> csv_text(["name"], [["=1+1"]])
    "name\\r\\n'=1+1\\r\\n"
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out)  # with CRLF line ends it also quotes lone carriage returns
    writer.writerow(head)
    for row in rows:
        writer.writerow([_safe(value) for value in row])
    return out.getvalue()


def _safe(value: Any) -> Any:
    """Numbers stay numbers; text that starts like a formula, also behind spaces, is marked as text."""
    if isinstance(value, str) and (value.startswith(_FORMULA_STARTS) or value.lstrip().startswith(_FORMULA_STARTS)):
        return "'" + value
    return value
