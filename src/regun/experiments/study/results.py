"""What a study found: THE aggregation over seeds and repeats. Everything that shows a study shows this.

How numbers are averaged: over the repeats of each training seed, then over the seeds. `std` is the sample deviation
over seeds, `repeat_std` the pooled sample deviation over unlearning runs that share a trained model. Gaps are computed
run by run, against the Retrain of the same seed, and then averaged.

How rows are ranked: by |mean - Retrain's mean|; for gaps and divergences, where Retrain has 0, that is the mean. Only
methods that have every seed and repeat of the study, and no diverged run, are ranked, and none of those that stand
`beside` the others; a mark is given only where
the lead over the next row is larger than two retrained models are apart on average. Otherwise the leaders cannot be
told apart, and are named as such.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from regun.auditing import VERDICTS, Evaluation, Gap, Metric, Verdict, describe, spread
from regun.errors import RegunError
from regun.experiments.study.paper import Mark, Paper, Printed

Kind = Literal["retrain", "base", "method"]

PAPER_COLUMNS = (
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
MAIN_GAPS = ("gap_rftp", "gap_rfvp")
"""The gap that ranks rows, or the nearest to it that was measured."""
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Run:
    """One judged model; `evaluation` is None where a diverged model no longer gives finite answers."""

    seed: int
    repeat: int = 0
    key: str
    evaluation: Evaluation | None
    cost: Mapping[str, float]
    """steps, forward, backward (samples through each pass), seconds"""
    epochs: Sequence[Mapping[str, float]] = ()
    """The learning curve: number, epochs, loss, lr, seconds, images_per_second of every epoch."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    diverged: str | None = None
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Seen:
    """A number of one run, with its interval over examples, and Retrain's and the noise floor of that seed."""

    seed: int
    repeat: int
    value: float
    low: float | None
    high: float | None
    retrain: float | None
    gap: Gap | None


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number over the runs that have it; `low` and `high` are the interval over examples, ends averaged."""

    mean: float
    std: float | None
    repeat_std: float | None
    low: float | None
    high: float | None
    retrain: float | None
    """Retrain's mean over the same seeds."""
    seen: tuple[Seen, ...]

    @property
    def distance(self) -> float | None:
        """|mean - Retrain's mean|: what ranks the rows."""
        return None if self.retrain is None else abs(self.mean - self.retrain)

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """How many runs are where, next to the noise floor."""
        return count(s.gap.verdict for s in self.seen if s.gap is not None)


@dataclass(frozen=True, kw_only=True)
class Row:
    """Retrain, Base or a method on one forget request; every number that its evaluations hold."""

    name: str
    """Unique in its block and stable: `retrain`, `base`, or the method as the study names it, `regun@wide_retain`."""
    title: str
    kind: Kind
    runs: tuple[Run, ...]
    planned: int
    """How many runs there will be when the study is finished."""
    beside: bool
    """Whether it stands beside the others and takes no marks from them."""
    cells: Mapping[str, Cell]
    verdicts: Mapping[Verdict, int]
    """Runs by verdict on the main gap; empty without a noise floor."""
    costs: Mapping[str, float]
    """Means over all runs, also those that stopped early."""
    shares: Mapping[str, float]
    """Costs in percent of Retrain's."""

    @property
    def judged(self) -> int:
        return sum(run.evaluation is not None for run in self.runs)

    @property
    def complete(self) -> bool:
        return self.judged == self.planned

    @property
    def diverged(self) -> list[Run]:
        """Runs that diverged, and those whose model gives no finite answers."""
        return [run for run in self.runs if run.diverged is not None or run.evaluation is None]


@dataclass(frozen=True)
class Floor:
    """How far two retrained models are apart: mean over seeds, the largest seen in any, the largest limit of any."""

    mean: float
    largest: float
    limit: float
    seeds: int


@dataclass(frozen=True)
class Ranking:
    """Rows by distance to Retrain in one number; `leaders` cannot be told apart if they are more than one."""

    order: tuple[tuple[str, float], ...] = ()
    marks: Mapping[str, Mark] = field(default_factory=dict[str, Mark])
    leaders: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Block:
    """Everything about one forget request; `rows` start with Retrain and Base."""

    forget: str
    """The request as the study writes it: `0.1`, `class:3`."""
    label: str
    """The request for people: `10 %`, `class 3`."""
    sizes: Mapping[str, int]
    """Examples in retain, forget, heldout, val, test."""
    rows: tuple[Row, ...]
    floors: Mapping[str, Floor]
    rankings: Mapping[str, Ranking]

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    @property
    def methods(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.kind == "method")

    @property
    def rivals(self) -> tuple[Row, ...]:
        """The methods that are ranked against each other: all but those that stand beside them."""
        return tuple(row for row in self.methods if not row.beside)

    @property
    def main_gap(self) -> str | None:
        """The gap that ranks the methods: RFTP, or the nearest to it that was measured."""
        return next((gap for gap in MAIN_GAPS if any(gap in row.cells for row in self.rows)), None)

    @property
    def by_gap(self) -> list[Row]:
        """Methods by the main gap, the closest first; those that diverged or lack it last."""
        known = {name: place for place, (name, _) in enumerate(self._all_by_gap())}
        return sorted(self.methods, key=lambda row: (bool(row.diverged), known.get(row.name, len(known))))

    def _all_by_gap(self) -> list[tuple[str, float]]:
        gap = self.main_gap or ""
        return sorted(((r.name, r.cells[gap].mean) for r in self.methods if gap in r.cells), key=lambda pair: pair[1])


@dataclass(frozen=True, kw_only=True)
class Results:
    """A study's results so far; `missing` says what has not been made yet or has failed."""

    name: str
    title: str
    about: Mapping[str, str]
    """What was run, for people, in reading order: data, model, recipe, seeds, budget, references, ..."""
    seeds: tuple[int, ...]
    repeats: int
    blocks: tuple[Block, ...]
    metrics: Mapping[str, Metric]
    """What every number that occurs is called and means."""
    columns: tuple[str, ...]
    """The numbers a table shows unless told otherwise: the paper's, then those the study itself asks for."""
    level: float
    missing: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    machine: Mapping[str, Any] = field(default_factory=dict[str, Any])
    paper: Paper | None = None

    def printed(self, forget: str, row: str, metric: str) -> Printed | None:
        """What the paper prints there, if it is to be shown and has it."""
        return self.paper.number(forget, row, metric) if self.paper else None

    def rows(self) -> list[dict[str, Any]]:
        """One plain row for every method, request, seed and repeat, with all of its numbers."""
        return [
            {
                "study": self.name,
                "forget": block.forget,
                "method": row.name,
                "title": row.title,
                "kind": row.kind,
                "seed": run.seed,
                "repeat": run.repeat,
                "key": run.key,
                "verdict": run.evaluation.verdict if run.evaluation else None,
                "worst": run.evaluation.worst if run.evaluation else None,
                "diverged": run.diverged,
                **run.cost,
                **(run.evaluation.values() if run.evaluation else {}),
            }
            for block in self.blocks
            for row in block.rows
            for run in row.runs
        ]

    def frame(self) -> Any:
        """The rows as a pandas data frame."""
        try:
            return import_module("pandas").DataFrame(self.rows())
        except ImportError:
            raise RegunError("a data frame needs pandas, which is not installed: pip install pandas.") from None


@dataclass(frozen=True, kw_only=True)
class Found:
    """The judged runs of one row, before anything is averaged."""

    name: str
    title: str
    kind: Kind
    runs: tuple[Run, ...]
    planned: int
    beside: bool = False


def block_of(forget: str, label: str, sizes: Mapping[str, int], found: Sequence[Found]) -> Block:
    """The rows of one request, averaged, next to their noise floors, and ranked."""
    costs = {one.name: _costs(one.runs) for one in found}
    retrained = next((costs[one.name] for one in found if one.kind == "retrain"), dict[str, float]())
    rows = tuple(_row(one, costs[one.name], retrained) for one in found)
    floors = _floors(rows)
    rankings = {name: _ranking(rows, name, floors.get(name)) for name in _numbers(rows)}
    return Block(forget=forget, label=label, sizes=sizes, rows=rows, floors=floors, rankings=rankings)


def metrics_of(blocks: Sequence[Block]) -> dict[str, Metric]:
    """The description of every number that occurs in a study."""
    runs = [run for block in blocks for row in block.rows for run in row.runs]
    found: dict[str, Metric] = {}
    for evaluation in (run.evaluation for run in runs if run.evaluation is not None):
        for name in evaluation.numbers:
            if name not in found:
                found[name] = describe(name, evaluation)
    return found


def count(verdicts: Iterable[Verdict | None]) -> dict[Verdict, int]:
    """How many of each verdict, the good one first; empty if there is none at all."""
    given = list(verdicts)
    return {name: given.count(name) for name in VERDICTS} if any(given) else {}


def averaged(by_seed: Mapping[int, Sequence[float]]) -> tuple[float, float | None, float | None]:
    """Mean over seeds of the means over repeats, its deviation over seeds, and the pooled one over repeats.

    >>> averaged({0: [1.0, 3.0], 1: [6.0]})
    (4.0, 2.8284271247461903, 1.4142135623730951)
    """
    means = {seed: spread(values)[0] for seed, values in by_seed.items()}
    squares = math.fsum((v - means[seed]) ** 2 for seed, values in by_seed.items() for v in values)
    freedom = sum(len(values) - 1 for values in by_seed.values())
    mean, deviation = spread(list(means.values()))
    return mean, deviation, math.sqrt(squares / freedom) if freedom else None


def rank(distances: Mapping[str, float], noise: float | None) -> Ranking:
    """Marks where a lead is larger than `noise`; without a noise floor nothing can be marked.

    >>> rank({"a": 2.0, "b": 1.0, "c": 5.0}, noise=0.5).marks
    {'b': 'best', 'a': 'second'}
    >>> rank({"a": 2.0, "b": 1.0, "c": 5.0}, noise=1.5).leaders
    ('b', 'a')
    """
    order = sorted(distances.items(), key=lambda pair: pair[1])
    if not order or noise is None:
        return Ranking(tuple(order))
    first = order[0][1]
    leaders = tuple(name for name, distance in order if distance - first <= noise + _ROUNDING)
    marks: dict[str, Mark] = {}
    if len(order) > 1 and len(leaders) == 1:
        marks[leaders[0]] = "best"
        followers = [name for name, distance in order[1:] if distance - order[1][1] <= noise + _ROUNDING]
        if len(followers) == 1:
            marks[followers[0]] = "second"
    return Ranking(tuple(order), marks, leaders)


def _numbers(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.cells))


def _row(found: Found, costs: Mapping[str, float], retrained: Mapping[str, float]) -> Row:
    judged = [(run, run.evaluation) for run in found.runs if run.evaluation is not None]
    seen: dict[str, list[Seen]] = {}
    for run, evaluation in judged:
        for name, one in _seen(run, evaluation, found.kind):
            seen.setdefault(name, []).append(one)
    verdicts = count(evaluation.verdict for _, evaluation in judged) if found.kind != "retrain" else {}
    shares = {what: 100.0 * value / retrained[what] for what, value in costs.items() if retrained.get(what)}
    cells = {name: _cell(values) for name, values in seen.items()}
    return Row(
        **{name: getattr(found, name) for name in ("name", "title", "kind", "runs", "planned", "beside")},
        cells=cells,
        verdicts=verdicts,
        costs=costs,
        shares=shares,
    )


def _seen(run: Run, evaluation: Evaluation, kind: Kind) -> Iterable[tuple[str, Seen]]:
    """Every number of a run; Retrain is at distance 0 from itself, whether audited so or not."""
    for name, number in evaluation.numbers.items():
        own = describe(name, evaluation).distance  # says by itself how far the model is from Retrain
        gap = evaluation.gaps.get(name)
        if kind != "retrain":
            truth = 0.0 if own else evaluation.retrain.get(name)
            yield name, Seen(run.seed, run.repeat, number.value, number.low, number.high, truth, gap)
        elif own:
            yield name, Seen(run.seed, run.repeat, 0.0, None, None, 0.0, None)
        else:
            yield name, Seen(run.seed, run.repeat, number.value, number.low, number.high, number.value, None)


def _cell(seen: Sequence[Seen]) -> Cell:
    mean, std, repeat_std = averaged(_by_seed(seen, [s.value for s in seen]))
    return Cell(
        mean=mean,
        std=std,
        repeat_std=repeat_std,
        low=_mean(seen, [s.low for s in seen]),
        high=_mean(seen, [s.high for s in seen]),
        retrain=_mean(seen, [s.retrain for s in seen]),
        seen=tuple(seen),
    )


def _by_seed(seen: Sequence[Seen], values: Sequence[float]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for one, value in zip(seen, values, strict=True):
        found.setdefault(one.seed, []).append(value)
    return found


def _mean(seen: Sequence[Seen], values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return averaged(_by_seed(seen, there))[0] if len(there) == len(values) else None


def _costs(runs: Sequence[Run]) -> dict[str, float]:
    found = {what: [float(run.cost[what]) for run in runs if what in run.cost] for what in COSTS}
    return {what: spread(values)[0] for what, values in found.items() if values}


def _floors(rows: Sequence[Row]) -> dict[str, Floor]:
    """The noise floor of every number: one for each seed, the same for all rows, so any row that has it tells."""
    floors: dict[str, Floor] = {}
    for name in _numbers(rows):
        seen = [one for row in rows if name in row.cells for one in row.cells[name].seen]
        gaps = {one.seed: one.gap for one in seen if one.gap is not None and one.gap.floor_mean is not None}
        if gaps:
            parts = [(g.floor_mean or 0.0, g.floor_largest or 0.0, g.floor_limit or 0.0) for g in gaps.values()]
            means, largest, limits = zip(*parts, strict=True)
            floors[name] = Floor(spread(means)[0], max(largest), max(limits), len(gaps))
    return floors


def _ranking(rows: Sequence[Row], name: str, floor: Floor | None) -> Ranking:
    rivals = [row for row in rows if row.kind == "method" and not row.beside]
    fair = [row for row in rivals if row.complete and not row.diverged and name in row.cells]
    whole = {row.name: row.cells[name] for row in fair if len(row.cells[name].seen) == row.planned}
    distances = {row: cell.distance for row, cell in whole.items()}
    known = {row: distance for row, distance in distances.items() if distance is not None}
    return rank(known, floor.mean if floor else None)
