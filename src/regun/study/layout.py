"""What a printed table shows, before any format: heads, lines of short texts, and the notes below."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from regun.evaluate import describe
from regun.study.rank import Mark
from regun.study.table import Cell, Row, Section, Table

DIVERGED = "†"
_WIDE_ONLY = ("retain_div", "test_div", "smia_auc")
_COSTS = {"steps": "Steps", "seconds": "Seconds"}
_WIDE_COSTS = {"steps": "Steps", "forward": "Forward", "backward": "Backward", "seconds": "Seconds"}
_SAYS = {"indistinguishable": "yes", "borderline": "nearly", "distinguishable": "no"}
_NAMED = 8  # missing parts named before "and so many more"


@dataclass(frozen=True)
class Piece:
    """A cell as text: the number, what stands behind it (deviation, interval), its mark."""

    value: str = "-"
    behind: str = ""
    mark: Mark | None = None


@dataclass(frozen=True)
class Line:
    """A line of the table; the floor and the paper's numbers are lines too."""

    kind: Literal["retrain", "base", "method", "floor", "paper"]
    title: str
    pieces: tuple[Piece, ...]
    diverged: bool = False


def fixed(value: float, digits: int = 2) -> str:
    """Rounded, and never a negative zero.

    >>> fixed(-0.001), fixed(99.996)
    ('0.00', '100.00')
    """
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def label(name: str) -> str:
    """A metric's head; the loss attack by the paper's name."""
    text = "SMIA AUC" if name == "smia_auc" else describe(name).label
    return text[:1].upper() + text[1:]


def columns(table: Table, wide: bool) -> list[str]:
    """The metrics to show; divergences and SMIA only if wide."""
    return [name for name in table.columns if wide or name not in _WIDE_ONLY]


def heads(table: Table, wide: bool) -> list[str]:
    """The head of every column behind the first."""
    labels = [label(name) for name in columns(table, wide)]
    seeds = ["Seeds"] if unfinished(table) else []
    noise = ["In noise"] if has_floor(table) else []
    return [*seeds, *labels, *noise, *_costs(wide).values()]


def lines(table: Table, section: Section, wide: bool) -> list[Line]:
    """Rows in order; the noise floor behind Retrain, the paper's numbers each behind ours."""
    shown: list[Line] = []
    floor = _floor_line(table, section, wide)
    for row in section.rows:
        shown.append(_row_line(table, row, wide))
        if row.paper:
            shown.append(_paper_line(table, row, wide))
        if floor and row.kind == "retrain":
            shown.append(floor)
    return shown if not floor or floor in shown else [floor, *shown]


def heading(section: Section) -> str:
    """The forget request and its sizes in words."""
    words = {"forget": "forgotten", "retain": "retained", "test": "test"}
    sizes = [f"{section.sizes[name]:,} {word}" for name, word in words.items() if name in section.sizes]
    return f"Forget {section.label}" + (f": {', '.join(sizes)}" if sizes else "")


def mark_note(best: str, second: str) -> str:
    """What the marks say; `best` and `second` are how the format shows them."""
    return f"{best}: closest to Retrain; {second}: second closest, among methods without diverged run or missing seed."


def notes(table: Table, wide: bool, section: Section | None = None) -> list[str]:
    """What else a reader must be told; of diverged runs only those of the `section`, if it stands alone."""
    several = len(table.seeds) > 1
    level = f"{100 * table.level:g} %"
    spread = f"Mean ± sample standard deviation over {len(table.seeds)} seeds"
    said = [
        (spread if several else f"One seed; in brackets the {level} interval over examples")
        + ". Accuracies and AUCs in %, gaps in points, computed per seed"
        + (" and then averaged" if several else "")
        + (", divergences in nats x 100." if any(name.endswith("_div") for name in columns(table, wide)) else "."),
    ]
    if has_floor(table):
        said.append(
            "Noise floor: mean (largest) distance between two retrained models. In noise: "
            + ("seeds in which" if several else "whether")
            + " the Gap RFTP is no larger than the largest, so that the model cannot be told from a retrained one."
        )
    said += _diverged([section] if section else table.sections) + _lacks(table)
    return said + ([table.paper.note, *_unprinted(table)] if table.paper else [])


def verdict(counts: Mapping[str, int]) -> str:
    """The verdicts of a row in words.

    >>> verdict({"indistinguishable": 2, "borderline": 1, "distinguishable": 0})
    'indistinguishable in 2 of 3 seeds, borderline in 1'
    """
    total, given = sum(counts.values()), [(name, n) for name, n in counts.items() if n]
    if total <= 1:
        return "".join(name for name, _ in given)
    first = [f"{name} in {n} of {total} seeds" for name, n in given[:1]]
    return ", ".join(first + [f"{name} in {n}" for name, n in given[1:]])


def unfinished(table: Table) -> bool:
    """Whether a row lacks a seed, so that the number of seeds must be shown."""
    return any(len(row.seeds) < len(table.seeds) for section in table.sections for row in section.rows)


def has_floor(table: Table) -> bool:
    return any(section.floor for section in table.sections)


def _costs(wide: bool) -> dict[str, str]:
    return _WIDE_COSTS if wide else _COSTS


def _row_line(table: Table, row: Row, wide: bool) -> Line:
    seeds = [Piece(f"{len(row.seeds)}/{len(table.seeds)}")] if unfinished(table) else []
    cells = [_piece(row.cells.get(name), len(table.seeds)) for name in columns(table, wide)]
    noise = [Piece(_in_noise(row, len(table.seeds)))] if has_floor(table) else []
    costs = [_cost(row.costs.get(what), what) for what in _costs(wide)]
    title = row.title + (f" {DIVERGED}" if row.diverged else "")
    return Line(row.kind, title, (*seeds, *cells, *noise, *costs), bool(row.diverged))


def _piece(cell: Cell | None, seeds: int) -> Piece:
    if cell is None:
        return Piece()
    behind = ""
    if seeds > 1 and cell.std is not None:
        behind = f"± {fixed(cell.std)}"
    elif seeds == 1 and cell.low is not None and cell.high is not None:
        behind = f"[{_end(cell.low)}–{_end(cell.high)}]"
    return Piece(fixed(cell.mean), behind, cell.mark)


def _end(value: float) -> str:
    """An end of an interval; the much seen 100.0 without its last digit, to save room."""
    return fixed(value, 1).replace("100.0", "100")


def _in_noise(row: Row, seeds: int) -> str:
    if not row.verdicts:
        return "-"
    if seeds > 1:
        return f"{row.verdicts['indistinguishable']}/{sum(row.verdicts.values())}"
    return next(_SAYS[name] for name, n in row.verdicts.items() if n)


def _cost(value: float | None, what: str) -> Piece:
    if value is None:
        return Piece()
    return Piece(f"{value:,.1f}" if what == "seconds" and value < 100 else f"{value:,.0f}")


def _floor_line(table: Table, section: Section, wide: bool) -> Line | None:
    if not section.floor:
        return None
    found = [section.floor.get(name) for name in columns(table, wide)]
    pieces = [Piece(fixed(floor.mean), f"({fixed(floor.largest)})") if floor else Piece() for floor in found]
    return Line("floor", "noise floor", _padded(table, pieces, wide))


def _paper_line(table: Table, row: Row, wide: bool) -> Line:
    found = [row.paper.get(name) for name in columns(table, wide)]
    pieces = [Piece(fixed(n.mean), f"± {fixed(n.std)}", n.mark) if n else Piece() for n in found]
    return Line("paper", "paper", _padded(table, pieces, wide))


def _padded(table: Table, pieces: list[Piece], wide: bool) -> tuple[Piece, ...]:
    """Metrics only: nothing in the columns before and behind them."""
    before = [Piece("")] if unfinished(table) else []
    behind = len(heads(table, wide)) - len(before) - len(pieces)
    return (*before, *pieces, *[Piece("")] * behind)


def _diverged(sections: Sequence[Section]) -> list[str]:
    return [
        f"{DIVERGED} {row.title}, forget {section.label}, seed {seed}: diverged: {why}."
        for section in sections
        for row in section.rows
        for seed, why in row.diverged.items()
    ]


def _lacks(table: Table) -> list[str]:
    """What is not there."""
    said: list[str] = []
    if table.absent:
        said.append(f"Not in these evaluations: {', '.join(label(name) for name in table.absent)}.")
    if table.missing:
        rest = len(table.missing) - _NAMED
        named = "; ".join(table.missing[:_NAMED]) + (f"; and {rest} more" if rest > 0 else "")
        said.append(f"Not made yet, or failed ({len(table.missing)}): {named}.")
    return said


def _unprinted(table: Table) -> list[str]:
    """Forget requests for which the paper has no row."""
    without = [section.label for section in table.sections if not any(row.paper for row in section.rows)]
    return [f"The paper has no numbers for forget {', '.join(without)}."] if without else []
