"""The tables of a study before any format: columns, and rows of cells as short texts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from regun.auditing import VERDICTS, Metric, Verdict
from regun.errors import RegunError, unknown
from regun.experiments.study.paper import Mark
from regun.experiments.study.results import COSTS, PAPER_COLUMNS, Block, Cell, Results, Row
from regun.experiments.study.summary import unanimous
from regun.render.numbers import brackets, fixed, percent

LAYOUTS = ("requests", "fractions")
"""One table per forget request, or all requests side by side as in the paper's main table."""
LEFT = "influence_left"
RUNS, VERDICT, SHARE = "runs", "verdict", "time_share"
"""Columns besides metrics and costs: how many runs there are (shown while some are missing), their verdicts by the
noise floor, and their seconds in percent of Retrain's."""
REQUEST, ONCE = "request_share", "once_share"
"""Columns of cost in percent of Retrain's samples: of one request, and of the prepared table, which is paid once."""

_WIDE_ONLY = ("retain_div", "test_div", "smia_auc")
_SIDE_BY_SIDE = ("test_acc", "rmia_auc", "gap_rftp")


@dataclass(frozen=True)
class TableCell:
    """A number as text, its deviation or interval, its mark, and the verdict that all of its runs share."""

    value: str = "-"
    spread: str = ""
    mark: Mark | None = None
    number: float | None = None
    verdict: Verdict | None = None

    @property
    def sort_key(self) -> float | None:
        """The number by which a page sorts; None where it is not finite."""
        return self.number if self.number is not None and math.isfinite(self.number) else None


@dataclass(frozen=True)
class TableRow:
    """A row of a table; the noise floor and the paper's numbers are rows too."""

    name: str
    kind: Literal["retrain", "base", "method", "floor", "paper"]
    title: str
    cells: tuple[TableCell, ...]
    diverged: bool = False


@dataclass(frozen=True)
class Table:
    """One table; with several forget requests, `columns` and `heads` repeat for each of them."""

    blocks: tuple[Block, ...]
    columns: tuple[str, ...]
    heads: tuple[str, ...]
    rows: tuple[TableRow, ...]

    @property
    def marked(self) -> bool:
        return any(cell.mark for row in self.rows for cell in row.cells)


def tables_of(
    results: Results, *, wide: bool = False, columns: Sequence[str] | None = None, layout: str = "requests"
) -> list[Table]:
    """Return the tables of a study; `columns` chooses what they show, `wide` shows all paper columns and costs."""
    if layout not in LAYOUTS:
        raise RegunError(unknown("layout of a table", layout, LAYOUTS))
    allowed = (RUNS, *results.metrics, VERDICT, *COSTS, SHARE, REQUEST, ONCE)
    wrong = [name for name in columns or () if name not in allowed] if results.metrics else []
    if wrong:
        raise RegunError("\n".join(unknown("column", name, allowed) for name in wrong))
    chosen = default_columns(results, wide, layout) if columns is None else list(dict.fromkeys(columns))
    heads = column_heads(results, chosen)
    parts = [results.blocks] if layout == "fractions" and results.blocks else [(block,) for block in results.blocks]
    return [
        Table(part, tuple(chosen) * len(part), tuple(heads) * len(part), tuple(_rows(results, part, chosen)))
        for part in parts
    ]


def default_columns(results: Results, wide: bool = False, layout: str = "requests") -> list[str]:
    """Return the columns of a table where none are chosen."""
    shown = [name for name in results.columns if name in results.metrics and (wide or name not in _WIDE_ONLY)]
    if layout == "fractions" and not wide:
        return [name for name in shown if name in _SIDE_BY_SIDE or name not in PAPER_COLUMNS]
    left = [LEFT] if LEFT in results.metrics and LEFT not in shown else []
    noise = [VERDICT] if any(block.floors for block in results.blocks) else []
    shares = cost_columns(results.blocks)
    costs = [*COSTS, *shares] if wide else ["steps", "seconds", *(shares if ONCE in shares else ())]
    return [*unfinished(results.blocks), *shown, *left, *noise, *costs]


def cost_columns(blocks: Sequence[Block]) -> list[str]:
    """Return the columns of cost per request and, where a method used a prepared table, of cost once."""
    rows = [row for block in blocks for row in block.rows]
    measured = [REQUEST] if any(row.request_share is not None for row in rows) else []
    return measured + ([ONCE] if any(row.once_share is not None for row in rows) else [])


def unfinished(blocks: Sequence[Block]) -> list[str]:
    """Return the column of runs where some are missing."""
    return [RUNS] if any(not row.complete for block in blocks for row in block.rows) else []


def column_heads(results: Results, names: Sequence[str]) -> list[str]:
    """Return the heads of columns."""
    metrics = results.metrics
    return [label(metrics[name]) if name in metrics else name.replace("_", " ").capitalize() for name in names]


def label(metric: Metric) -> str:
    """Return the head of a metric; the loss attack has the paper's name."""
    return "SMIA AUC" if metric.name == "smia_auc" else metric.label[:1].upper() + metric.label[1:]


def spread_text(cell: Cell, seeds: int) -> str:
    """Return the deviation over seeds and over repeats or, of a single run, the interval over examples.

    `seeds` is how many the study has: where it has several, an interval over examples would say too little.
    """
    over_repeats = "" if cell.repeat_std is None else fixed(cell.repeat_std)
    if seeds > 1:
        over_seeds = "" if cell.std is None else fixed(cell.std)
        both = [over_seeds or "-", over_repeats] if over_repeats else [over_seeds] * bool(over_seeds)
        return f"± {' / '.join(both)}" if both else ""
    return f"± {over_repeats}" if over_repeats else brackets(cell.low, cell.high)


def verdict_text(counts: Mapping[Verdict, int]) -> str:
    """Return the verdicts over runs in words.

    >>> verdict_text({"passed": 2, "failed": 1}), verdict_text({"passed": 0, "failed": 1})
    ('2 passed, 1 failed', 'failed')
    """
    positive = {name: n for name, n in counts.items() if n}
    return ", ".join(positive if sum(positive.values()) == 1 else [f"{n} {name}" for name, n in positive.items()])


def cost_text(value: float, what: str) -> str:
    """Return a cost with the digits that matter."""
    return fixed(value, 1 if what == "seconds" and value < 100 else 0)


def _rows(results: Results, blocks: Sequence[Block], columns: Sequence[str]) -> Iterator[TableRow]:
    """Rows in order; the noise floor after Retrain, the paper's numbers after ours."""
    titles = {row.name: row for block in reversed(blocks) for row in block.rows}
    names = dict.fromkeys(row.name for block in blocks for row in block.rows)
    floors = [block.floors.get(name) for block in blocks for name in columns]
    cells = [TableCell(fixed(f.mean), f"({fixed(f.largest)})", number=f.mean) if f else TableCell("") for f in floors]
    noise_floor = TableRow("floor", "floor", "noise floor", tuple(cells))
    floor_rows = [noise_floor] if any(block.floors for block in blocks) else []
    if not any(titles[name].kind == "retrain" for name in names):
        yield from floor_rows
    for name in names:
        rows = [(block, next((row for row in block.rows if row.name == name), None)) for block in blocks]
        cells = tuple(_cell(results, block, row, column) for block, row in rows for column in columns)
        diverged = any(row.diverged for _, row in rows if row)
        yield TableRow(name, titles[name].kind, titles[name].title, cells, diverged)
        printed = [results.printed(block.forget, name, column) for block in blocks for column in columns]
        if any(printed):
            paper = [
                TableCell(fixed(n.mean), f"± {fixed(n.std)}", n.mark, n.mean) if n else TableCell("") for n in printed
            ]
            yield TableRow(name, "paper", "paper", tuple(paper))
        if titles[name].kind == "retrain":
            yield from floor_rows


def _cell(results: Results, block: Block, row: Row | None, column: str) -> TableCell:
    if row is None:
        return TableCell()
    if column == RUNS:
        return TableCell(f"{row.judged}/{row.planned}", number=row.judged)
    if column == VERDICT and row.verdicts:
        order = list(VERDICTS)  # sorted from all inside to all outside
        outward = sum(order.index(name) * n for name, n in row.verdicts.items()) / sum(row.verdicts.values())
        return TableCell(verdict_text(row.verdicts), number=outward, verdict=unanimous(row.verdicts))
    if column == SHARE and "seconds" in row.shares:
        return TableCell(percent(row.shares["seconds"]), number=row.shares["seconds"])
    share = {REQUEST: row.request_share, ONCE: row.once_share}.get(column)
    if share is not None:
        return TableCell(percent(share), number=share)
    if column in COSTS and column in row.costs:
        return TableCell(cost_text(row.costs[column], column), number=row.costs[column])
    cell = row.cells.get(column)
    if cell is None:
        return TableCell()
    mark = block.rankings[column].marks.get(row.name)
    spread = spread_text(cell, len(results.seeds))
    return TableCell(fixed(cell.mean), spread, mark, cell.mean, unanimous(cell.verdicts))
