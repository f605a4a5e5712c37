"""Rows as text: lined up for a terminal, as Markdown, as CSV that a spreadsheet shows and does not run."""

import csv
import io
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns that line up: text to the left, numbers to the right.

    >>> print(table(["name", "n"], [["a", "1"], ["b", "12"], ["c", ""]]))
    name   n
    --------
    a      1
    b     12
    c
    """
    cells = [[plain(cell) for cell in row] for row in (head, *rows)]
    columns: list[list[str]] = []
    for column in zip(*cells, strict=True):
        room, below = max(map(width, column)), [cell for cell in column[1:] if cell]
        numeric = bool(below) and all(map(is_number, below))
        columns.append([padded(cell, room, right=numeric) for cell in column])
    lines = ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
    return "\n".join([lines[0], "-" * min(120, max(map(width, lines))), *lines[1:]])


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A pipe table of cells that are Markdown already: the first column to the left, numbers to the right.

    >>> print(markdown_table(["", "n"], [["one", "1"]]))
    |     | n |
    | --- | ---: |
    | one | 1 |
    """
    first = max(3, *(width(row[0]) for row in (head, *rows)))
    rule = ["-" * first, *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join([padded(row[0], first), *row[1:]])} |" for row in (head, rule, *rows))


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


def csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """CSV text of plain rows: a column for every key, in order of appearance, empty where a row has none."""
    head = list(dict.fromkeys(key for row in rows for key in row))
    return csv_text(head, [[row.get(key) for key in head] for row in rows])


def plain(text: str) -> str:
    """Text of others without the control characters a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text)


def folded(text: str, first: str = "", rest: str = "") -> str:
    """Text in lines of at most 110 columns; the first starts with `first`, the others with `rest`."""
    return textwrap.fill(text, 110, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def one_line(text: str) -> str:
    """Text of others on one line, whatever line breaks and control characters it holds."""
    return " ".join(plain(text).split())


def markdown_text(text: str) -> str:
    """Text of others as itself in Markdown: no markup, no HTML, no end of a cell."""
    return _MARKDOWN.sub(r"\\\1", one_line(text))


def width(text: str) -> int:
    """Columns of a terminal that the text takes: wide letters take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def padded(text: str, room: int, *, right: bool = False) -> str:
    """The text in that many columns of a terminal, at their left or right end."""
    gap = " " * (room - width(text))
    return gap + text if right else text + gap


def is_number(text: str) -> bool:
    return text.strip("-+±%., ").replace(",", "").replace(".", "", 1).split(" ")[0].isdigit()


def _safe(value: Any) -> Any:
    """Numbers stay numbers; text that starts like a formula, also behind spaces, is marked as text."""
    if isinstance(value, str) and (value.startswith(_FORMULA_STARTS) or value.lstrip().startswith(_FORMULA_STARTS)):
        return "'" + value
    return value
