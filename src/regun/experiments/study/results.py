"""The results of a study: the only aggregation over seeds and repeats. Tables, reports and files show these numbers.

    Evaluation -> Run (one audited model) -> Cell (one number over the runs) -> Row -> Block (one request) -> Results

Averages: first over the repeats of each training seed, then over the seeds. `std` is the sample deviation over seeds,
`repeat_std` the pooled sample deviation over unlearning runs that share a trained model. Gaps are computed run by run,
against the Retrain of the same seed, and then averaged.

Ranks: by |mean - Retrain's mean|; for gaps and divergences, where Retrain has 0, that is the mean. Only methods with
every seed and repeat of the study and no diverged run are ranked, and no `unranked` ones. The best row is marked only
if its lead over the next row exceeds the mean distance of two retrained models. Otherwise the leaders are not
significantly different, and all of them are named.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Literal

from regun.auditing import VERDICTS, Estimate, Evaluation, Gap, Metric, Verdict, describe, spread
from regun.errors import RegunError, not_installed
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
    """One audited model; `evaluation` is None where the predictions of a diverged model are not finite."""

    seed: int
    repeat: int = 0
    key: str
    evaluation: Evaluation | None
    cost: Mapping[str, float]
    """steps, forward, backward (samples through each pass), seconds"""
    once: Mapping[str, float] = field(default_factory=dict[str, float])
    """The same of the prepared table that the run used; empty without one."""
    epochs: Sequence[Mapping[str, float]] = ()
    """The learning curve: number, epochs, loss, lr, seconds, images_per_second of every epoch."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    diverged: str | None = None
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])


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
    seeds: tuple[int, ...]
    """The training seed of each of these runs."""
    by_run: tuple[Estimate, ...]
    """The number of each run, with its interval over examples."""
    gaps: tuple[Gap | None, ...]
    """Its distance to Retrain, with the noise floor of that seed."""

    @property
    def distance(self) -> float | None:
        """|mean - Retrain's mean|, which ranks the rows."""
        return None if self.retrain is None else abs(self.mean - self.retrain)

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """The number of runs per verdict on the noise floor."""
        return count(gap.verdict for gap in self.gaps if gap is not None)


@dataclass(frozen=True, kw_only=True)
class Row:
    """Retrain, Base or a method on one forget request; every number that its evaluations hold."""

    name: str
    """Unique in its block and stable: `retrain`, `base`, or the method as the study names it, `regun@wide_retain`."""
    title: str
    kind: Kind
    runs: tuple[Run, ...]
    planned: int
    """The number of runs of the finished study."""
    unranked: bool
    """Whether it is shown but not ranked with the other methods."""
    cells: Mapping[str, Cell]
    verdicts: Mapping[Verdict, int]
    """Runs by verdict on the main gap; empty without a noise floor."""
    costs: Mapping[str, float]
    """The cost of one request: means over all runs, also those that stopped early."""
    shares: Mapping[str, float] = field(default_factory=dict[str, float])
    """Costs in percent of Retrain's."""
    once_share: float | None = None
    """The cost of the prepared table, paid once for all requests, in percent of Retrain's samples."""

    @property
    def request_share(self) -> float | None:
        """The cost of one request in percent of Retrain's: samples through backward passes."""
        return None if self.kind == "base" else self.shares.get("backward")

    @property
    def judged(self) -> int:
        return sum(run.evaluation is not None for run in self.runs)

    @property
    def complete(self) -> bool:
        return self.judged == self.planned

    @property
    def diverged(self) -> list[Run]:
        """Runs that diverged, or whose model gives predictions that are not finite."""
        return [run for run in self.runs if run.diverged is not None or run.evaluation is None]

    @property
    def rankable(self) -> bool:
        """Whether it is a method that the study ranks, with every run evaluated and none diverged."""
        return self.kind == "method" and not self.unranked and self.complete and not self.diverged


@dataclass(frozen=True)
class Floor:
    """The distance of two retrained models: its mean over seeds, the largest of any seed, the largest limit."""

    mean: float
    largest: float
    limit: float
    seeds: int


@dataclass(frozen=True)
class Ranking:
    """Rows by distance to Retrain in one number; several `leaders` are not significantly different."""

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
    def ranked_methods(self) -> tuple[Row, ...]:
        """The methods that are compared with each other: all but the unranked ones."""
        return tuple(row for row in self.methods if not row.unranked)

    @property
    def main_gap(self) -> str | None:
        """The gap that ranks the methods: RFTP, or the nearest to it that was measured."""
        return next((gap for gap in MAIN_GAPS if any(gap in row.cells for row in self.rows)), None)

    @property
    def by_gap(self) -> list[Row]:
        """Methods by the main gap, the closest first; those that diverged or lack it last."""
        gap = self.main_gap or ""
        means = {row.name: row.cells[gap].mean for row in self.methods if gap in row.cells}
        return sorted(self.methods, key=lambda row: (bool(row.diverged), means.get(row.name, math.inf)))


@dataclass(frozen=True, kw_only=True)
class Results:
    """The results of a study so far; `missing` names what has not been made yet or has failed."""

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
    """The numbers that a table shows by default: the paper's, then those of the study's own metrics and attacks."""
    level: float
    missing: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    machine: Mapping[str, Any] = field(default_factory=dict[str, Any])
    paper: Paper | None = None

    def printed(self, forget: str, row: str, metric: str) -> Printed | None:
        """Return the paper's number for this cell, if it is shown and there is one."""
        return self.paper.number(forget, row, metric) if self.paper else None

    def rows(self) -> list[dict[str, Any]]:
        """Return one plain row for every method, request, seed and repeat, with all of its numbers; costs last."""
        rows, shares = list[dict[str, Any]](), list[dict[str, Any]]()
        for block, row, run in ((b, r, run) for b in self.blocks for r in b.rows for run in r.runs):
            evaluation = run.evaluation
            rows.append(
                {
                    "study": self.name,
                    "forget": block.forget,
                    "method": row.name,
                    "title": row.title,
                    "kind": row.kind,
                    "seed": run.seed,
                    "repeat": run.repeat,
                    "key": run.key,
                    "verdict": evaluation.verdict if evaluation else None,
                    "worst": evaluation.worst if evaluation else None,
                    "diverged": run.diverged,
                    **run.cost,
                    **(evaluation.values() if evaluation else {}),
                }
            )
            request = None if row.kind == "base" else _share(run.cost, block, run.seed)
            shares.append({"request_share": request, "once_share": _share(run.once, block, run.seed)})
        columns = dict.fromkeys(name for row in rows for name in row)
        return [{**columns, **row, **share} for row, share in zip(rows, shares, strict=True)]

    def frame(self) -> Any:
        """Return the rows as a pandas data frame."""
        try:
            return import_module("pandas").DataFrame(self.rows())
        except ImportError:
            raise RegunError(not_installed("a data frame", "pandas", "frames")) from None


def block_of(forget: str, label: str, sizes: Mapping[str, int], rows: Sequence[Row]) -> Block:
    """Return the rows of one request with their shares of Retrain's cost, noise floors and rankings."""
    retrain = next((row.costs for row in rows if row.kind == "retrain"), dict[str, float]())
    whole, compared = retrain.get("backward"), list[Row]()
    for row in rows:
        shares = {what: 100.0 * v / retrain[what] for what, v in row.costs.items() if retrain.get(what)}
        once = [float(run.once["backward"]) for run in row.runs if "backward" in run.once]
        once_share = 100.0 * spread(once)[0] / whole if once and whole else None
        compared.append(replace(row, shares=shares, once_share=once_share))
    floors, rankings = dict[str, Floor](), dict[str, Ranking]()
    for name in dict.fromkeys(name for row in compared for name in row.cells):
        floor = _floor([row.cells[name] for row in compared if name in row.cells])
        if floor is not None:
            floors[name] = floor
        measured = [(row, row.cells[name]) for row in compared if row.rankable and name in row.cells]
        complete = {row.name: cell.distance for row, cell in measured if len(cell.by_run) == row.planned}
        distances = {method: distance for method, distance in complete.items() if distance is not None}
        rankings[name] = rank(distances, floor.mean if floor else None)
    return Block(forget=forget, label=label, sizes=sizes, rows=tuple(compared), floors=floors, rankings=rankings)


def row_of(name: str, title: str, kind: Kind, runs: Sequence[Run], planned: int, *, unranked: bool = False) -> Row:
    """Return the row of a model or method: every number averaged over its runs."""
    evaluated = [(run, run.evaluation) for run in runs if run.evaluation is not None]
    numbers = dict.fromkeys(name for _, evaluation in evaluated for name in evaluation.numbers)
    costs = {what: [float(run.cost[what]) for run in runs if what in run.cost] for what in COSTS}
    return Row(
        name=name,
        title=title,
        kind=kind,
        runs=tuple(runs),
        planned=planned,
        unranked=unranked,
        cells={number: _cell(number, kind, evaluated) for number in numbers},
        verdicts=count(evaluation.verdict for _, evaluation in evaluated) if kind != "retrain" else {},
        costs={what: spread(values)[0] for what, values in costs.items() if values},
    )


def metrics_of(blocks: Sequence[Block]) -> dict[str, Metric]:
    """Return the description of every number that occurs in a study."""
    runs = [run for block in blocks for row in block.rows for run in row.runs]
    metrics: dict[str, Metric] = {}
    for evaluation in (run.evaluation for run in runs if run.evaluation is not None):
        for name in evaluation.numbers:
            if name not in metrics:
                metrics[name] = describe(name, evaluation)
    return metrics


def count(verdicts: Iterable[Verdict | None]) -> dict[Verdict, int]:
    """Return how often each verdict occurs, the good one first; empty if none does."""
    listed = list(verdicts)
    return {name: listed.count(name) for name in VERDICTS} if any(listed) else {}


def averaged(by_seed: Mapping[int, Sequence[float]]) -> tuple[float, float | None, float | None]:
    """Return the mean over seeds of the means over repeats, its deviation over seeds, the pooled one over repeats.

    >>> averaged({0: [1.0, 3.0], 1: [6.0]})
    (4.0, 2.8284271247461903, 1.4142135623730951)
    """
    means = {seed: spread(values)[0] for seed, values in by_seed.items()}
    squares = math.fsum((v - means[seed]) ** 2 for seed, values in by_seed.items() for v in values)
    freedom = sum(len(values) - 1 for values in by_seed.values())
    mean, deviation = spread(list(means.values()))
    return mean, deviation, math.sqrt(squares / freedom) if freedom else None


def rank(distances: Mapping[str, float], noise: float | None) -> Ranking:
    """Return the order, and marks where a lead is larger than `noise`; without a noise floor nothing is marked.

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


def _cell(number: str, kind: Kind, evaluated: Sequence[tuple[Run, Evaluation]]) -> Cell:
    """Average a number over the runs that have it; Retrain is at distance 0 from itself, whether audited so or not."""
    having = [(run, evaluation) for run, evaluation in evaluated if number in evaluation.numbers]
    is_distance = describe(number, having[0][1]).distance  # the number is itself a distance to Retrain
    seeds = tuple(run.seed for run, _ in having)
    by_run = tuple(evaluation.numbers[number] for _, evaluation in having)
    gaps = tuple(evaluation.gaps.get(number) for _, evaluation in having)
    retrain = [0.0 if is_distance else evaluation.retrain.get(number) for _, evaluation in having]
    if kind == "retrain":
        by_run = (Estimate(0.0),) * len(by_run) if is_distance else by_run
        gaps, retrain = (None,) * len(gaps), [one.value for one in by_run]

    def average(values: Sequence[float]) -> tuple[float, float | None, float | None]:
        by_seed: dict[int, list[float]] = {}
        for seed, value in zip(seeds, values, strict=True):
            by_seed.setdefault(seed, []).append(value)
        return averaged(by_seed)

    def mean_of(values: Sequence[float | None]) -> float | None:
        measured = [value for value in values if value is not None]
        return average(measured)[0] if len(measured) == len(values) else None

    mean, std, repeat_std = average([one.value for one in by_run])
    return Cell(
        mean=mean,
        std=std,
        repeat_std=repeat_std,
        low=mean_of([one.low for one in by_run]),
        high=mean_of([one.high for one in by_run]),
        retrain=mean_of(retrain),
        seeds=seeds,
        by_run=by_run,
        gaps=gaps,
    )


def _share(cost: Mapping[str, float], block: Block, seed: int) -> float | None:
    """Return a cost in percent of the samples of the same seed's Retrain."""
    retrained = [run for row in block.rows if row.kind == "retrain" for run in row.runs if run.seed == seed]
    whole = retrained[0].cost.get("backward") if retrained else None
    return 100.0 * cost["backward"] / whole if whole and "backward" in cost else None


def _floor(cells: Sequence[Cell]) -> Floor | None:
    """Return the noise floor of a number: one per seed, the same for all rows, so any cell that has it will do."""
    pairs = [pair for cell in cells for pair in zip(cell.seeds, cell.gaps, strict=True)]
    gaps = {seed: gap for seed, gap in pairs if gap is not None and gap.floor_mean is not None}
    if not gaps:
        return None
    parts = [(g.floor_mean or 0.0, g.floor_largest or 0.0, g.floor_limit or 0.0) for g in gaps.values()]
    means, largest, limits = zip(*parts, strict=True)
    return Floor(spread(means)[0], max(largest), max(limits), len(gaps))
