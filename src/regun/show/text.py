"""Tables for a terminal: columns that line up."""

import unicodedata
from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns that line up: text to the left, numbers to the right.

    >>> print(table(["name", "n"], [["a", "1"], ["b", "12"]]))
    name   n
    --------
    a      1
    b     12
    """
    cells = [[plain(cell) for cell in row] for row in (head, *rows)]
    columns = [aligned(column) for column in zip(*cells, strict=True)]
    lines = ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
    return "\n".join([lines[0], "-" * min(120, max(map(width, lines))), *lines[1:]])


def aligned(column: Sequence[str]) -> list[str]:
    """A column's cells, the head first, at equal width: to the right if all below the head are numbers."""
    full = max(map(width, column))
    right = len(column) > 1 and all(map(_is_number, column[1:]))
    room = [" " * (full - width(cell)) for cell in column]
    return [gap + cell if right else cell + gap for cell, gap in zip(column, room, strict=True)]


def plain(text: str) -> str:
    """Text of others without the control characters a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text)


def one_line(text: str) -> str:
    """Text of others on one line, whatever line breaks and control characters it holds."""
    return " ".join(plain(text).split())


def width(text: str) -> int:
    """Columns of a terminal that the text takes: wide letters take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def _is_number(text: str) -> bool:
    return bool(text) and text.strip("-+±%., ").replace(",", "").replace(".", "", 1).split(" ")[0].isdigit()
