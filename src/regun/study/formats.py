"""A study's table as text: for the terminal, as Markdown, and `render` for every format."""

import re
import textwrap
import unicodedata
from collections.abc import Callable, Sequence

from regun.errors import RegunError, unknown
from regun.study.export import to_csv, to_json
from regun.study.latex import latex, latex_document
from regun.study.layout import Line, Piece, heading, heads, lines, mark_note, notes
from regun.study.table import Section, Table

_STARS = {"best": "**", "second": "*", None: ""}
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")
_WIDTH = 120  # of the notes
_TITLE = 28  # longest title in a terminal


def render(table: Table, format: str = "terminal", wide: bool = False) -> str:
    """The table as text of a format; CSV and JSON hold everything, wide or not."""
    if format not in FORMATS:
        raise RegunError(unknown("table format", format, FORMATS))
    return FORMATS[format](table, wide)


def terminal(table: Table, wide: bool = False) -> str:
    """Lined-up columns for a terminal, about 150 characters wide at most unless `wide`."""
    parts = [plain(table.title or table.name)]
    parts += [_aligned(table, section, wide) for section in table.sections]
    if not any(section.rows for section in table.sections):
        return "\n\n".join([*parts, "Nothing has been judged yet."]) + "\n"
    said = [
        textwrap.fill(plain(note), _WIDTH, subsequent_indent="  ")
        for note in [mark_note("**", "*"), *notes(table, wide)]
    ]
    return "\n\n".join([*parts, "\n".join(said)]) + "\n"


def markdown(table: Table, wide: bool = False) -> str:
    """Pipe tables: best in bold, second best in italics."""
    parts = [f"## {markdown_text(table.title or table.name)}"]
    for section in table.sections:
        parts += [f"### {markdown_text(heading(section))}", _piped(table, section, wide)]
    said = [mark_note("**bold**", "*italic*"), *map(markdown_text, notes(table, wide))]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in said)]) + "\n"


def plain(text: str) -> str:
    """Text of others on one line, without the control characters a terminal would obey."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def markdown_text(text: str) -> str:
    """Text of others as itself in Markdown: no markup, no HTML, no end of a cell."""
    return _MARKDOWN.sub(r"\\\1", plain(text))


def _aligned(table: Table, section: Section, wide: bool) -> str:
    found = lines(table, section, wide)
    columns = [_column(head, [line.pieces[k] for line in found]) for k, head in enumerate(heads(table, wide))]
    rows = ["  ".join(cells).rstrip() for cells in zip(_titles(found), *columns, strict=True)]
    rule = "-" * max(map(_width, rows))
    return "\n".join([plain(heading(section)), rule, rows[0], rule, *rows[1:]])


def _titles(found: Sequence[Line]) -> list[str]:
    """The first column; what stands below a row of ours is indented, a title too long for a terminal cut."""
    shown = [plain(line.title) for line in found]
    short = [title if len(title) <= _TITLE else title[: _TITLE - 1] + "…" for title in shown]
    texts = ["", *("  " * (line.kind == "paper") + title for line, title in zip(found, short, strict=True))]
    return [text + " " * (max(map(_width, texts)) - _width(text)) for text in texts]


def _column(head: str, pieces: Sequence[Piece]) -> list[str]:
    """A column with its head: points below points, deviations below deviations."""
    room = max((len(piece.value) for piece in pieces), default=0)
    texts = [f"{piece.value:>{room}} {piece.behind}".rstrip() + _STARS[piece.mark] for piece in pieces]
    full = max(map(len, [head, *texts]))
    if not any(piece.behind for piece in pieces):
        return [head.rjust(full), *(text.rjust(full) for text in texts)]
    return [head.ljust(full), *(text.ljust(full) for text in texts)]


def _piped(table: Table, section: Section, wide: bool) -> str:
    found, names = lines(table, section, wide), heads(table, wide)
    cells = [["", *names], *([_markdown_title(line), *map(_markdown_piece, line.pieces)] for line in found)]
    first = max(3, *(_width(row[0]) for row in cells))
    rule = ["-" * first, *["---:"] * len(names)]
    padded = [[row[0] + " " * (first - _width(row[0])), *row[1:]] for row in cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in [padded[0], rule, *padded[1:]])


def _markdown_title(line: Line) -> str:
    text = markdown_text(line.title)
    return f"*{text}*" if line.kind in ("floor", "paper") else text


def _markdown_piece(piece: Piece) -> str:
    sign = {"best": "**", "second": "*", None: ""}[piece.mark]
    return f"{sign}{piece.value}{sign} {piece.behind}".strip()


def _width(text: str) -> int:
    """Columns of a terminal that the text takes: wide letters take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


FORMATS: dict[str, Callable[[Table, bool], str]] = {
    "terminal": terminal,
    "markdown": markdown,
    "latex": latex,
    "latex-document": latex_document,
    "csv": lambda table, wide: to_csv(table),
    "json": lambda table, wide: to_json(table),
}
"""Every format by name; `wide` adds divergences, SMIA and samples where a page has its limits."""
