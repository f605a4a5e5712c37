"""The table of a study as plain data: what the paper prints, and what it leaves out.

How rows are ranked (see rank): by |mean - Retrain's mean| over the same seeds, which for gaps and divergences, where
Retrain has 0, is the value itself. Retrain and Base are not ranked, nor is a method with a diverged run or without a
seed that other rows of its forget request have: a mean over fewer or luckier seeds is no match for the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from regun.evaluate import Evaluation, Gap, describe, spread
from regun.evaluate.intervals import LEVEL
from regun.study.paper import Paper, Printed
from regun.study.rank import Mark, marks
from regun.study.results import Block, Entry, Kind, Results, Run

COLUMNS = (
    "retain_acc",
    "forget_acc",
    "test_acc",
    "retain_div",
    "test_div",
    "smia_auc",
    "rmia_auc",
    "gap_rftp",
    "gap_tp",
)
"""The columns of the paper's tables."""
COSTS = ("steps", "forward", "backward", "seconds")
VERDICTS = ("indistinguishable", "borderline", "distinguishable")


@dataclass(frozen=True)
class Seen:
    """A number of one seed, with its interval over examples, Retrain's and the noise floor of that seed."""

    seed: int
    value: float
    low: float | None
    high: float | None
    retrain: float | None
    gap: Gap | None


@dataclass(frozen=True)
class Cell:
    """A number over the seeds that have it; `low` and `high` are the interval over examples, ends averaged."""

    mean: float
    std: float | None
    low: float | None
    high: float | None
    retrain: float | None
    """Retrain's mean over the same seeds."""
    seen: tuple[Seen, ...]
    mark: Mark | None = None

    @property
    def distance(self) -> float | None:
        """|mean - Retrain's mean|: what ranks the rows."""
        return None if self.retrain is None else abs(self.mean - self.retrain)

    @property
    def verdicts(self) -> dict[str, int]:
        """In how many seeds the number is how far from Retrain's, next to the noise floor."""
        return count(s.gap.verdict for s in self.seen if s.gap is not None)


@dataclass(frozen=True)
class Floor:
    """How far two retrained models are apart: mean over seeds, the largest seen in any, mean limit (see evaluate)."""

    mean: float
    largest: float
    limit: float
    n: int


@dataclass(frozen=True)
class Row:
    """Retrain, Base or a method over the seeds; `seeds` are those with an evaluation."""

    name: str
    title: str
    kind: Kind
    seeds: tuple[int, ...]
    cells: Mapping[str, Cell]
    verdicts: Mapping[str, int]
    """Seeds by verdict on Gap RFTP; empty without a noise floor."""
    costs: Mapping[str, float]
    """Means over all runs, also those that stopped early."""
    runs: tuple[Run, ...]
    paper: Mapping[str, Printed] = field(default_factory=dict[str, Printed])

    @property
    def diverged(self) -> dict[int, str]:
        """Why, by seed: runs that diverged, and runs whose model gives no finite answers."""
        why = {run.seed: run.diverged or "no reason recorded" for run in self.runs if _is_diverged(run)}
        lost = {run.seed for run in self.runs if run.evaluation is None}
        return {seed: text + (" (not in the means)" if seed in lost else "") for seed, text in why.items()}


@dataclass(frozen=True)
class Section:
    """The rows of one forget request."""

    forget: str
    label: str
    sizes: Mapping[str, int]
    rows: tuple[Row, ...]
    floor: Mapping[str, Floor]


@dataclass(frozen=True)
class Table:
    """A study's table; `absent` are columns that no evaluation holds."""

    name: str
    title: str
    about: Mapping[str, str]
    seeds: tuple[int, ...]
    columns: tuple[str, ...]
    absent: tuple[str, ...]
    sections: tuple[Section, ...]
    level: float
    missing: tuple[str, ...]
    versions: Mapping[str, str]
    paper: Paper | None


def make_table(results: Results, *, extra: Sequence[str] = (), paper: Paper | None = None) -> Table:
    """The table of a study's results so far: the paper's columns, then `extra` ones by metric name.

    `paper` (see `paper_numbers`) adds the paper's numbers to rows and forget requests that it has.
    """
    wanted = [describe(name).name for name in dict.fromkeys((*COLUMNS, *extra))]
    entries = [entry for block in results.blocks for entry in block.entries]
    judged = [run.evaluation for entry in entries for run in entry.runs if run.evaluation is not None]
    columns = tuple(name for name in wanted if any(name in found.numbers for found in judged))
    return Table(
        name=results.name,
        title=results.title,
        about=dict(results.about),
        seeds=results.seeds,
        columns=columns,
        absent=tuple(name for name in wanted if judged and name not in columns),
        sections=tuple(_section(block, columns, paper) for block in results.blocks),
        level=next((float(found.settings["level"]) for found in judged if "level" in found.settings), LEVEL),
        missing=results.missing,
        versions=dict(results.versions),
        paper=paper,
    )


def count(verdicts: Iterable[str | None]) -> dict[str, int]:
    """How many of each verdict, the good one first; empty if there is none at all."""
    given = list(verdicts)
    return {name: given.count(name) for name in VERDICTS} if any(given) else {}


def _section(block: Block, columns: Sequence[str], paper: Paper | None) -> Section:
    rows = [_row(entry, columns) for entry in block.entries]
    found = {name: marks(_distances(rows, name)) for name in columns}
    marked = [
        replace(
            row,
            cells={c: replace(cell, mark=found[c].get(row.name)) for c, cell in row.cells.items()},
            paper=_printed(block.forget, row.name, columns, paper),
        )
        for row in rows
    ]
    return Section(block.forget, block.label, dict(block.sizes), tuple(marked), _floors(rows, columns))


def _row(entry: Entry, columns: Sequence[str]) -> Row:
    judged = [(run.seed, run.evaluation) for run in entry.runs if run.evaluation is not None]
    seen = {name: [s for seed, e in judged for s in _seen(seed, e, name, entry.kind)] for name in columns}
    costs = {what: [run.cost[what] for run in entry.runs if what in run.cost] for what in COSTS}
    return Row(
        name=entry.name,
        title=entry.title,
        kind=entry.kind,
        seeds=tuple(seed for seed, _ in judged),
        cells={name: _cell(values) for name, values in seen.items() if values},
        verdicts=count(e.verdict for _, e in judged) if entry.kind != "retrain" else {},
        costs={what: spread(values)[0] for what, values in costs.items() if values},
        runs=entry.runs,
    )


def _seen(seed: int, evaluation: Evaluation, name: str, kind: Kind) -> list[Seen]:
    """The number of one seed, if there is one; Retrain is at distance 0 from itself, whether audited so or not."""
    number = evaluation.numbers.get(name)
    if kind == "retrain":
        if _is_distance(name):
            return [Seen(seed, 0.0, None, None, 0.0, None)]
        return [Seen(seed, number.value, number.low, number.high, number.value, None)] if number else []
    retrain = 0.0 if _is_distance(name) else evaluation.retrain.get(name)
    return [Seen(seed, number.value, number.low, number.high, retrain, evaluation.gaps.get(name))] if number else []


def _cell(seen: Sequence[Seen]) -> Cell:
    mean, std = spread([s.value for s in seen])
    return Cell(
        mean, std, _mean(s.low for s in seen), _mean(s.high for s in seen), _mean(s.retrain for s in seen), tuple(seen)
    )


def _mean(values: Iterable[float | None]) -> float | None:
    given = list(values)
    there = [value for value in given if value is not None]
    return spread(there)[0] if len(there) == len(given) else None


def _is_distance(name: str) -> bool:
    """Whether the number says by itself how far a model is from Retrain."""
    return name.startswith("gap_") or name.endswith(("_div", "_diff"))


def _distances(rows: Sequence[Row], name: str) -> dict[str, float]:
    """The distance to Retrain of every row that may be ranked in a column."""
    needed = {seed for row in rows for seed in row.seeds}
    fair = {
        row.name: row.cells[name] for row in rows if row.kind == "method" and not row.diverged and name in row.cells
    }
    found = {row: cell.distance for row, cell in fair.items() if needed <= {s.seed for s in cell.seen}}
    return {row: distance for row, distance in found.items() if distance is not None}


def _floors(rows: Sequence[Row], columns: Sequence[str]) -> dict[str, Floor]:
    """The noise floor of every column: one for each seed, the same for all rows, so any row that has it tells."""
    floors: dict[str, Floor] = {}
    for name in columns:
        seen = [s for row in rows if name in row.cells for s in row.cells[name].seen]
        gaps = {s.seed: s.gap for s in seen if s.gap is not None and s.gap.floor_mean is not None}
        each = [(g.floor_mean or 0.0, g.floor_largest or 0.0, g.floor_limit or 0.0) for g in gaps.values()]
        if each:
            means, largest, limits = zip(*each, strict=True)
            floors[name] = Floor(spread(means)[0], max(largest), spread(limits)[0], len(each))
    return floors


def _printed(forget: str, name: str, columns: Sequence[str], paper: Paper | None) -> dict[str, Printed]:
    found = {column: paper.number(forget, name, column) for column in columns} if paper else {}
    return {column: number for column, number in found.items() if number is not None}


def _is_diverged(run: Run) -> bool:
    return run.diverged is not None or run.evaluation is None
