"""A study's results as text: for the terminal, as Markdown, and `render` for every format."""

import textwrap
from collections.abc import Callable, Iterable, Sequence

from regun.errors import RegunError, unknown
from regun.experiments.report import notes
from regun.experiments.report.export import to_csv, to_json
from regun.experiments.report.latex import latex, latex_document
from regun.experiments.report.layout import VERDICT, Layout, Line, Piece, Sheet, lay_out
from regun.experiments.study.results import Results
from regun.render.numbers import shortened
from regun.render.tables import markdown_table, markdown_text, one_line, padded, table, width

_MARKS = {"best": "**", "second": "*", None: ""}
_WIDTH = 120  # of the notes
_TITLE = 28  # longest title in a terminal


def render(
    results: Results,
    format: str = "terminal",
    *,
    wide: bool = False,
    columns: Sequence[str] | None = None,
    layout: str = "requests",
) -> str:
    """The results as text of a format; CSV and JSON hold every number, down to single runs, unless `columns` chooses.

    `columns` are names of numbers and costs, or `verdict`; `layout` is `requests` (a table for each) or `fractions`
    (the requests side by side, as in the paper's main table).
    """
    if format not in FORMATS:
        raise RegunError(unknown("table format", format, FORMATS))
    laid = lay_out(results, wide=wide, columns=columns, layout=layout)
    if format in _FOR_PEOPLE:
        return _FOR_PEOPLE[format](laid)
    metrics = [name for name in (results.metrics if columns is None else columns) if name in results.metrics]
    return to_csv(results, metrics) if format == "csv" else to_json(results, metrics)


def terminal(laid: Layout) -> str:
    """Lined-up columns for a terminal."""
    parts = [one_line(laid.title)]
    for sheet in laid.sheets:
        parts += [f"{one_line(sheet.heading)}\n{_aligned(sheet)}", *_wrapped(sheet.notes)]
    if not any(sheet.lines for sheet in laid.sheets):
        return "\n\n".join([*parts, "Nothing has been judged yet."]) + "\n"
    marks = [notes.marks("**", "*")] * laid.marked
    return "\n\n".join([*parts, *_wrapped([*marks, *laid.notes])]) + "\n"


def markdown(laid: Layout) -> str:
    """Pipe tables: best in bold, second best in italics."""
    parts = [f"## {markdown_text(laid.title)}"]
    for sheet in laid.sheets:
        parts += [f"### {markdown_text(sheet.heading)}", _piped(sheet), *_listed(map(markdown_text, sheet.notes))]
    marks = [notes.marks("**bold**", "*italic*")] * laid.marked
    return "\n\n".join([*parts, *_listed([*marks, *map(markdown_text, laid.notes)])]) + "\n"


def _wrapped(texts: Iterable[str]) -> list[str]:
    """The notes as one part, wrapped; none where there is none."""
    lines = [textwrap.fill(one_line(note), _WIDTH, subsequent_indent="  ") for note in texts]
    return ["\n".join(lines)] if lines else []


def _aligned(sheet: Sheet) -> str:
    columns = [_column(sheet, k) for k in range(len(sheet.heads))]
    titles = _titles(sheet.lines)
    head, *rows = zip(titles, *columns, strict=True)
    body = table(head, rows)
    if not sheet.groups:
        return body
    each = len(columns) // len(sheet.groups)
    room = [sum(len(column[0]) + 2 for column in columns[k : k + each]) for k in range(0, len(columns), each)]
    over = "".join(padded(one_line(group), space) for group, space in zip(sheet.groups, room, strict=True))
    return f"{' ' * (width(titles[0]) + 2)}{over}".rstrip() + f"\n{body}"


def _titles(lines: Sequence[Line]) -> list[str]:
    """The first column; what stands below a row of ours is indented, a title too long for a terminal cut."""
    marks = [("  " * (line.kind == "paper"), f" {notes.DIVERGED}" * line.diverged) for line in lines]
    cut = [shortened(one_line(line.title), _TITLE) for line in lines]
    shown = [before + text + behind for text, (before, behind) in zip(cut, marks, strict=True)]
    room = max(map(width, ["", *shown]))
    return [padded(text, room) for text in ["", *shown]]


def _column(sheet: Sheet, place: int) -> list[str]:
    """A column with its head: points below points, deviations below deviations, words to the left."""
    pieces = [line.pieces[place] for line in sheet.lines]
    words = sheet.columns[place] == VERDICT
    room = 0 if words else max((len(piece.value) for piece in pieces), default=0)
    texts = [f"{piece.value:>{room}} {piece.behind}".rstrip() + _MARKS[piece.mark] for piece in pieces]
    full = max(map(width, [sheet.heads[place], *texts]))
    right = not words and not any(piece.behind for piece in pieces)
    return [padded(text, full, right=right) for text in [sheet.heads[place], *texts]]


def _piped(sheet: Sheet) -> str:
    each = len(sheet.heads) // max(1, len(sheet.groups))
    heads = [f"{sheet.groups[k // each]}: {head}" if sheet.groups else head for k, head in enumerate(sheet.heads)]
    rows = [[_markdown_title(line), *map(_markdown_piece, line.pieces)] for line in sheet.lines]
    return markdown_table(["", *map(markdown_text, heads)], rows)


def _markdown_title(line: Line) -> str:
    text = markdown_text(line.title) + f" {notes.DIVERGED}" * line.diverged
    return f"*{text}*" if line.kind in ("floor", "paper") else text


def _markdown_piece(piece: Piece) -> str:
    return f"{_MARKS[piece.mark]}{piece.value}{_MARKS[piece.mark]} {piece.behind}".strip()


def _listed(texts: Iterable[str]) -> list[str]:
    lines = [f"- {note}" for note in texts]
    return ["\n".join(lines)] if lines else []


_FOR_PEOPLE: dict[str, Callable[[Layout], str]] = {
    "terminal": terminal,
    "markdown": markdown,
    "latex": latex,
    "latex-document": latex_document,
}
FORMATS = (*_FOR_PEOPLE, "csv", "json")
