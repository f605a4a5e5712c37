"""Facts about one forget request that reports state: who leads, where a test has no power, what differs most.

Rows, names and numbers only; the templates of the report turn them into sentences.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from regun.auditing import ATTACKS, UNSEEN, Verdict
from regun.experiments.study.results import Block, Results, Row

Columns = dict[tuple[str, ...], list[str]]
"""Numbers, grouped by the titles of the rows they concern."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What stands out on one forget request."""

    gap: str | None
    """The number that ranks the methods; None where nothing was retrained."""
    ranked: int
    """Methods that can be compared: they have every run and none diverged."""
    leaders: tuple[Row, ...]
    """The methods closest to Retrain, the closest first; several are not distinguishable."""
    base_gap: float | None
    inside: tuple[Row, ...]
    """Other methods that are inside the noise floor in every run."""
    no_closer_than_base: tuple[Row, ...]
    outside_by_part: bool
    """A leader is outside the noise floor by one part of its gap, though not by its mean."""
    no_power: tuple[Row, ...]
    """Base, where the test does not flag it in some runs."""
    most_visible: Mapping[str, tuple[str, ...]]
    """The part that differs most from retrained models, to the titles of the rows that it puts outside."""
    unranked: tuple[str, ...]
    """Titles of the methods that the study does not rank."""
    closer: tuple[Row, ...]
    """Those of them that are closer to Retrain than every ranked method, the closest first."""
    over_forgetting: Mapping[str, Mapping[str, int]]
    """Title to attacks to the number of runs in which forgotten examples look less like members than Retrain's."""


def summarize(block: Block) -> Summary:
    """Return what stands out among the rows of one forget request."""
    gap = block.main_gap
    measured = [row for row in block.by_gap if gap in row.cells] if gap else []
    base = next((row.cells[gap].mean for row in block.rows if gap and row.kind == "base" and gap in row.cells), None)
    order = block.rankings[gap].order if gap else ()
    leading = (block.rankings[gap].leaders or [name for name, _ in order[:1]]) if gap else []
    leaders = tuple(block.row(name) for name in leading)
    noise = block.floors.get(gap) if gap else None
    beyond = [row.cells[gap] for row in leaders if gap and row.cells[gap].verdicts.get("failed")]
    return Summary(
        gap=gap if measured else None,
        ranked=len(order),
        leaders=leaders,
        base_gap=base,
        inside=tuple(
            row
            for row in measured
            if row.name not in leading and gap and unanimous(row.cells[gap].verdicts) == "passed"
        ),
        no_closer_than_base=tuple(row for row in measured if gap and base is not None and row.cells[gap].mean >= base),
        outside_by_part=noise is not None and any(cell.mean <= noise.limit for cell in beyond),
        no_power=tuple(row for row in block.rows if row.kind == "base" and row.verdicts.get("inconclusive")),
        most_visible=_most_visible(block),
        unranked=tuple(row.title for row in block.methods if row.unranked),
        closer=tuple(row for row in measured if row.unranked and order and gap and row.cells[gap].mean < order[0][1]),
        over_forgetting={row.title: counts for row in block.methods if (counts := _over_forgetting(row))},
    )


def unanimous(counts: Mapping[Verdict, int]) -> Verdict | None:
    """Return the verdict that all runs share, if they do."""
    verdicts: list[Verdict] = [name for name, runs in counts.items() if runs]
    return verdicts[0] if len(verdicts) == 1 else None


def not_distinguishable(block: Block, columns: Iterable[str]) -> Columns:
    """Return the columns in which several methods lead together, by their titles."""
    columns_by_titles: Columns = {}
    for name in _compared(block, columns):
        leaders = block.rankings[name].leaders
        if len(leaders) > 1:
            columns_by_titles.setdefault(tuple(block.row(row).title for row in leaders), []).append(name)
    return columns_by_titles


def unmarked(block: Block, columns: Iterable[str]) -> Columns:
    """Return the columns in which no method leads, by the titles of those that can be compared.

    Several titles: there is no noise floor. One or none: the others lack runs or diverged.
    """
    columns_by_titles: Columns = {}
    for name in _compared(block, columns):
        ranking = block.rankings[name]
        if len(ranking.leaders) < 2 and not ranking.marks:
            columns_by_titles.setdefault(tuple(block.row(row).title for row, _ in ranking.order), []).append(name)
    return columns_by_titles


def limits(results: Results) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return every limit of the audits with the titles of the rows it holds for, and of the others."""
    rows = [row for block in results.blocks for row in block.rows if row.kind != "retrain" and row.judged]
    titles = dict.fromkeys(row.title for row in rows)
    titles_by_limit: dict[str, set[str]] = {}
    for row in rows:
        for run in row.runs:
            for limit in run.evaluation.limits if run.evaluation else ():
                titles_by_limit.setdefault(limit, set()).add(row.title)
    return {
        limit: (tuple(t for t in titles if t in concerned), tuple(t for t in titles if t not in concerned))
        for limit, concerned in titles_by_limit.items()
    }


def in_paper(results: Results, block: Block) -> bool:
    """Return whether the paper has any number of this request."""
    return any(results.printed(block.forget, row.name, name) for row in block.rows for name in block.rankings)


def attack_label(name: str) -> str:
    """Return the label of an attack under the name that results have it: `RMIA` for `rmia` and `rmia_val`."""
    plain = next((name.removesuffix(f"_{split}") for split in UNSEEN if name.endswith(f"_{split}")), name)
    return ATTACKS[plain].label if plain in ATTACKS else plain.replace("_", " ")


def _compared(block: Block, columns: Iterable[str]) -> list[str]:
    """The columns with a distance to Retrain, where there are methods to compare."""
    rows = block.ranked_methods
    compared = {name for row in rows for name, cell in row.cells.items() if cell.distance is not None}
    return [name for name in dict.fromkeys(columns) if name in compared] if len(rows) > 1 else []


def _most_visible(block: Block) -> dict[str, tuple[str, ...]]:
    titles_by_part: dict[str, tuple[str, ...]] = {}
    for row in (row for row in block.rows if row.kind != "retrain"):
        evaluations = [run.evaluation for run in row.runs if run.evaluation is not None]
        parts = Counter(e.worst for e in evaluations if e.verdict == "failed" and e.worst is not None)
        if parts:
            part = parts.most_common(1)[0][0]
            titles_by_part[part] = (*titles_by_part.get(part, ()), row.title)
    return titles_by_part


def _over_forgetting(row: Row) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for run in row.runs:
        attacks = run.evaluation.attacks.items() if run.evaluation else ()
        counts.update({attack_label(name) for name, result in attacks if result.over_forgetting})
    return dict(sorted(counts.items()))
