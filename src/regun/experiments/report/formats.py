"""A study's results as text: terminal, Markdown, LaTeX, CSV and JSON."""

import textwrap
from collections.abc import Sequence
from typing import Any

from regun.auditing import VERDICTS
from regun.errors import RegunError, unknown
from regun.experiments.report.export import to_csv, to_json
from regun.experiments.report.latex import latex
from regun.experiments.report.table import VERDICT, Table, column_heads, default_columns, tables_of
from regun.experiments.study import summary
from regun.experiments.study.results import Results
from regun.render.numbers import shortened
from regun.render.tables import markdown_table, markdown_text, one_line, padded, table, width
from regun.render.template import environment
from regun.render.template import render as fill_in

TEMPLATES = {"terminal": "table.txt", "markdown": "table.md"}
FORMATS = (*TEMPLATES, "latex", "latex-document", "csv", "json")
PACKAGE = "regun.experiments.report"
FACTS: dict[str, Any] = {
    "VERDICTS": VERDICTS,
    "summarize": summary.summarize,
    "not_distinguishable": summary.not_distinguishable,
    "unmarked": summary.unmarked,
    "unanimous": summary.unanimous,
    "in_paper": summary.in_paper,
    "column_heads": column_heads,
}
"""What the notes of tables and pages are made from."""
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
    """Return the results as text; CSV and JSON hold every number, down to single runs, unless `columns` chooses.

    `columns` are names of numbers and costs, or `verdict`; `layout` is `requests` (one table each) or `fractions`
    (the requests side by side, as in the paper's main table).
    """
    if format not in FORMATS:
        raise RegunError(unknown("table format", format, FORMATS))
    tables = tables_of(results, wide=wide, columns=columns, layout=layout)
    if format in TEMPLATES:
        shown = tables[0].columns if tables else default_columns(results)
        tools = {"aligned": aligned, "piped": piped, "wrapped": wrapped, "notes": notes}
        return fill_in(TEMPLATES[format], PACKAGE, results=results, tables=tables, columns=shown, **tools)
    if format.startswith("latex"):
        return latex(results, tables, document=format == "latex-document")
    metrics = [name for name in (results.metrics if columns is None else columns) if name in results.metrics]
    return to_csv(results, metrics) if format == "csv" else to_json(results, metrics)


def notes(name: str, *about: Any) -> list[str]:
    """Return the lines of a macro of `notes.txt` as plain text, which pages escape and tables mark up."""
    module = environment(PACKAGE).get_template("notes.txt", globals=FACTS).module
    return [line.strip() for line in str(getattr(module, name)(*about)).splitlines() if line.strip()]


def wrapped(note: str) -> str:
    """Return a note for a terminal, at most so wide."""
    return textwrap.fill(note, _WIDTH, subsequent_indent="  ")


def aligned(shown: Table) -> str:
    """Return a table with columns that line up, below the requests they belong to where there are several.

    In a column, decimal points and deviations line up, and words stand to the left.
    """
    columns: list[list[str]] = []
    for place, (name, head) in enumerate(zip(shown.columns, shown.heads, strict=True)):
        cells = [row.cells[place] for row in shown.rows]
        digits = 0 if name == VERDICT else max((len(cell.value) for cell in cells), default=0)
        texts = [f"{cell.value:>{digits}} {cell.spread}".rstrip() + _MARKS[cell.mark] for cell in cells]
        full = max(map(width, [head, *texts]))
        right = name != VERDICT and not any(cell.spread for cell in cells)
        columns.append([padded(text, full, right=right) for text in [head, *texts]])
    titles = [
        "  " * (row.kind == "paper") + shortened(one_line(row.title), _TITLE) + " †" * row.diverged
        for row in shown.rows
    ]
    room = max(map(width, ["", *titles]))
    first = [padded(text, room) for text in ["", *titles]]
    top, *rows = zip(first, *columns, strict=True)
    body = table(top, rows)
    if len(shown.blocks) == 1:
        return body
    each = len(columns) // len(shown.blocks)
    rooms = [sum(len(column[0]) + 2 for column in columns[k : k + each]) for k in range(0, len(columns), each)]
    groups = [
        padded(f"Forget {one_line(block.label)}", space) for block, space in zip(shown.blocks, rooms, strict=True)
    ]
    return f"{' ' * (room + 2)}{''.join(groups)}".rstrip() + f"\n{body}"


def piped(shown: Table) -> str:
    """Return a Markdown table: best in bold, second best in italics."""
    each = len(shown.heads) // len(shown.blocks)
    heads = list(shown.heads)
    if len(shown.blocks) > 1:
        heads = [f"Forget {shown.blocks[k // each].label}: {head}" for k, head in enumerate(heads)]
    rows: list[list[str]] = []
    for row in shown.rows:
        title = markdown_text(row.title) + " †" * row.diverged
        marks = [(_MARKS[cell.mark], cell) for cell in row.cells]
        cells = [f"{mark}{cell.value}{mark} {cell.spread}".strip() for mark, cell in marks]
        rows.append([f"*{title}*" if row.kind in ("floor", "paper") else title, *cells])
    return markdown_table(["", *map(markdown_text, heads)], rows)
