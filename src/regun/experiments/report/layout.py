"""What a table of a study shows, before any format: heads, lines of short texts, and the notes below."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from regun.auditing import VERDICTS, Metric, Verdict
from regun.errors import RegunError, unknown
from regun.experiments.report import notes
from regun.experiments.study.paper import Mark
from regun.experiments.study.results import COSTS, PAPER_COLUMNS, Block, Cell, Results, Row
from regun.render.numbers import brackets, fixed, names, percent

LAYOUTS = ("requests", "fractions")
"""A table for each forget request, or all requests side by side as in the paper's main table."""
LEFT = "influence_left"
"""The number that says how much influence forgotten examples still have."""
RUNS, VERDICT, SHARE = "runs", "verdict", "time_share"
"""Columns besides metrics and costs: how many runs there are (shown while some are missing), where they stand next to
the noise floor, and their seconds in percent of Retrain's."""

_WIDE_ONLY = ("retain_div", "test_div", "smia_auc")
_SIDE_BY_SIDE = ("test_acc", "rmia_auc", "gap_rftp")


@dataclass(frozen=True)
class Piece:
    """A cell as text: the number, what stands behind it (deviation, interval), its mark; and what pages also need.

    `raw` is the number itself, `where` the place next to the noise floor that all its runs share.
    """

    value: str = "-"
    behind: str = ""
    mark: Mark | None = None
    raw: float | None = None
    where: Verdict | None = None

    @property
    def sorts_as(self) -> float | None:
        """The number by which a page sorts; one that is not finite has no place."""
        return self.raw if self.raw is not None and math.isfinite(self.raw) else None


@dataclass(frozen=True)
class Line:
    """A line of the table; the floor and the paper's numbers are lines too."""

    name: str
    kind: Literal["retrain", "base", "method", "floor", "paper"]
    title: str
    pieces: tuple[Piece, ...]
    diverged: bool = False


@dataclass(frozen=True)
class Sheet:
    """One table: `groups` are heads over equally many columns each, none where the columns are of one request."""

    name: str
    heading: str
    groups: tuple[str, ...]
    columns: tuple[str, ...]
    heads: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    @property
    def marked(self) -> bool:
        return any(piece.mark for line in self.lines for piece in line.pieces)


@dataclass(frozen=True)
class Layout:
    """All tables of a study, and what is to be said of all of them."""

    title: str
    sheets: tuple[Sheet, ...]
    notes: tuple[str, ...]

    @property
    def marked(self) -> bool:
        return any(sheet.marked for sheet in self.sheets)


def lay_out(
    results: Results, *, wide: bool = False, columns: Sequence[str] | None = None, layout: str = "requests"
) -> Layout:
    """The tables of a study; `columns` chooses what they show, `wide` shows all of the paper's columns and costs."""
    if layout not in LAYOUTS:
        raise RegunError(unknown("layout of a table", layout, LAYOUTS))
    chosen = _default(results, wide, layout) if columns is None else _checked(results, columns)
    heads = {name: _head(results, name) for name in chosen}
    parts = [results.blocks] if layout == "fractions" and results.blocks else [(block,) for block in results.blocks]
    sheets = tuple(_sheet(results, part, heads) for part in parts)
    return Layout(results.title or results.name, sheets, tuple(notes.general(results, heads)))


def label(metric: Metric) -> str:
    """A number's head; the loss attack by the paper's name."""
    return "SMIA AUC" if metric.name == "smia_auc" else metric.label[:1].upper() + metric.label[1:]


def behind(cell: Cell, seeds: int) -> str:
    """What stands behind a mean: its deviation over seeds and over repeats or, of one run, the interval over examples.

    `seeds` is how many the study has: where it has several, an interval over examples would say too little.
    """
    over_repeats = "" if cell.repeat_std is None else fixed(cell.repeat_std)
    if seeds > 1:
        over_seeds = "" if cell.std is None else fixed(cell.std)
        both = [over_seeds or "-", over_repeats] if over_repeats else [over_seeds] * bool(over_seeds)
        return f"± {' / '.join(both)}" if both else ""
    if over_repeats:
        return f"± {over_repeats}"
    return brackets(cell.low, cell.high)


def verdict(counts: Mapping[Verdict, int]) -> str:
    """Verdicts over runs in words.

    >>> verdict({"inside": 2, "inconclusive": 1, "outside": 0}), verdict({"inside": 0, "inconclusive": 1, "outside": 0})
    ('2 inside, 1 inconclusive', 'inconclusive')
    """
    given = {name: n for name, n in counts.items() if n}
    return ", ".join(given if sum(given.values()) == 1 else [f"{n} {word}" for word, n in given.items()])


def cost(value: float, what: str) -> str:
    return fixed(value, 1 if what == "seconds" and value < 100 else 0)


def _checked(results: Results, columns: Sequence[str]) -> list[str]:
    """The columns, each once; a study that has judged nothing yet may be asked for any."""
    known = (RUNS, *results.metrics, VERDICT, *COSTS, SHARE)
    wrong = [name for name in columns if name not in known] if results.metrics else []
    if wrong:
        raise RegunError("\n".join(unknown("column", name, known) for name in wrong))
    return list(dict.fromkeys(columns))


def _default(results: Results, wide: bool, layout: str) -> list[str]:
    shown = [name for name in results.columns if name in results.metrics and (wide or name not in _WIDE_ONLY)]
    if layout == "fractions" and not wide:
        return [name for name in shown if name in _SIDE_BY_SIDE or name not in PAPER_COLUMNS]
    left = [LEFT] if LEFT in results.metrics and LEFT not in shown else []
    noise = [VERDICT] if any(block.floors for block in results.blocks) else []
    return [*unfinished(results.blocks), *shown, *left, *noise, *(COSTS if wide else ("steps", "seconds"))]


def unfinished(blocks: Sequence[Block]) -> list[str]:
    """The column of runs, where some are missing."""
    return [RUNS] if any(not row.complete for block in blocks for row in block.rows) else []


def _head(results: Results, name: str) -> str:
    return label(results.metrics[name]) if name in results.metrics else name.replace("_", " ").capitalize()


def _sheet(results: Results, blocks: Sequence[Block], heads: Mapping[str, str]) -> Sheet:
    several = len(blocks) > 1
    return Sheet(
        name=f"{results.name}-{'fractions' if several else blocks[0].forget}",
        heading=f"Forget {names(block.label for block in blocks)}" if several else _heading(blocks[0]),
        groups=tuple(f"Forget {block.label}" for block in blocks) if several else (),
        columns=tuple(heads) * len(blocks),
        heads=tuple(heads.values()) * len(blocks),
        lines=tuple(_lines(results, blocks, list(heads))),
        notes=tuple(note for block in blocks for note in notes.of_block(results, block, heads)),
    )


def _heading(block: Block) -> str:
    """The forget request and its sizes in words."""
    words = {"forget": "forgotten", "retain": "retained", "test": "test"}
    sizes = [f"{block.sizes[name]:,} {word}" for name, word in words.items() if name in block.sizes]
    return f"Forget {block.label}" + (f": {', '.join(sizes)}" if sizes else "")


def _lines(results: Results, blocks: Sequence[Block], shown: Sequence[str]) -> Iterator[Line]:
    """Rows in order; the noise floor behind Retrain, the paper's numbers each behind ours."""
    rows = {row.name: row for block in reversed(blocks) for row in block.rows}
    ordered = [rows[name] for name in dict.fromkeys(row.name for block in blocks for row in block.rows)]
    floor = [_floor_line(blocks, shown)] if any(block.floors for block in blocks) else []
    if not any(row.kind == "retrain" for row in ordered):
        yield from floor
    for row in ordered:
        own = [(block, next((r for r in block.rows if r.name == row.name), None)) for block in blocks]
        pieces = tuple(_piece(results, block, found, name) for block, found in own for name in shown)
        yield Line(row.name, row.kind, row.title, pieces, any(found.diverged for _, found in own if found))
        yield from _paper_line(results, blocks, row.name, shown)
        if row.kind == "retrain":
            yield from floor


def _piece(results: Results, block: Block, row: Row | None, name: str) -> Piece:
    if row is None:
        return Piece()
    if name == RUNS:
        return Piece(f"{row.judged}/{row.planned}", raw=row.judged)
    if name == VERDICT:
        return _verdict_piece(row.verdicts)
    if name == SHARE:
        return Piece(percent(row.shares["seconds"]), raw=row.shares["seconds"]) if "seconds" in row.shares else Piece()
    if name in COSTS:
        return Piece(cost(row.costs[name], name), raw=row.costs[name]) if name in row.costs else Piece()
    cell = row.cells.get(name)
    if cell is None:
        return Piece()
    mark = block.rankings[name].marks.get(row.name)
    return Piece(fixed(cell.mean), behind(cell, len(results.seeds)), mark, cell.mean, _unanimous(cell.verdicts))


def _verdict_piece(counts: Mapping[Verdict, int]) -> Piece:
    """The verdicts in words; sorted from all inside to all outside."""
    if not counts:
        return Piece()
    outward = sum(place * counts.get(name, 0) for place, name in enumerate(VERDICTS)) / sum(counts.values())
    return Piece(verdict(counts), raw=outward, where=_unanimous(counts))


def _unanimous(counts: Mapping[Verdict, int]) -> Verdict | None:
    """The verdict that all runs share, if they do."""
    given: list[Verdict] = [name for name, n in counts.items() if n]
    return given[0] if len(given) == 1 else None


def _floor_line(blocks: Sequence[Block], shown: Sequence[str]) -> Line:
    found = [block.floors.get(name) for block in blocks for name in shown]
    pieces = [Piece(fixed(f.mean), f"({fixed(f.largest)})", raw=f.mean) if f else Piece("") for f in found]
    return Line("floor", "floor", "noise floor", tuple(pieces))


def _paper_line(results: Results, blocks: Sequence[Block], row: str, shown: Sequence[str]) -> Iterator[Line]:
    found = [results.printed(block.forget, row, name) for block in blocks for name in shown]
    if any(found):
        pieces = [Piece(fixed(n.mean), f"± {fixed(n.std)}", n.mark, n.mean) if n else Piece("") for n in found]
        yield Line(row, "paper", "paper", tuple(pieces))
