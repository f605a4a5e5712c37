"""A study's table for machines: CSV in long form, JSON with everything down to the seeds."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from regun.evaluate import describe
from regun.evaluate.spreadsheet import csv_text
from regun.study.layout import verdict
from regun.study.results import Run
from regun.study.table import COSTS, VERDICTS, Cell, Row, Section, Seen, Table

HEAD = (
    *("study", "forget", "label", "entry", "title", "kind", "metric", "unit"),
    *("mean", "std", "low", "high", "level", "n", "seeds", "mark"),
    *("retrain_mean", "distance", "floor_mean", "floor_largest", "floor_limit"),
    *VERDICTS,
    *COSTS,
    *("diverged_runs", "paper_mean", "paper_std", "paper_mark"),
)
"""The columns of the CSV: `n` of `seeds` have the number; `low` and `high` are the interval over examples, its ends
averaged over seeds; the verdicts are counts of seeds; costs are means over runs."""


def to_csv(table: Table) -> str:
    """One row for every forget request, entry and metric; empty where there is no number."""
    rows = (
        _csv_row(table, section, row, name)
        for section in table.sections
        for row in section.rows
        for name in table.columns
    )
    return csv_text(HEAD, rows)


def to_json(table: Table) -> str:
    """The whole table, every number of every seed included, as JSON."""
    value = {
        "study": table.name,
        "title": table.title,
        "about": dict(table.about),
        "seeds": list(table.seeds),
        "level": table.level,
        "columns": [asdict(describe(name)) for name in table.columns],
        "absent": list(table.absent),
        "sections": [_json_section(table, section) for section in table.sections],
        "missing": list(table.missing),
        "versions": dict(table.versions),
        "paper": {"setup": table.paper.setup, "note": table.paper.note} if table.paper else None,
    }
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _csv_row(table: Table, section: Section, row: Row, name: str) -> list[Any]:
    who = [table.name, section.forget, section.label, row.name, row.title, row.kind, name, describe(name).unit]
    cell, floor, paper = row.cells.get(name), section.floor.get(name), row.paper.get(name)
    value = [cell.mean, cell.std, cell.low, cell.high, table.level] if cell else [None] * 5
    noise = [floor.mean, floor.largest, floor.limit] if floor else [None] * 3
    verdicts = cell.verdicts if cell else {}
    return [
        *who,
        *value,
        len(cell.seen) if cell else 0,
        len(table.seeds),
        cell.mark if cell else None,
        *([cell.retrain, cell.distance] if cell else [None] * 2),
        *noise,
        *(verdicts.get(word) for word in VERDICTS),
        *(row.costs.get(what) for what in COSTS),
        len(row.diverged),
        *([paper.mean, paper.std, paper.mark] if paper else [None] * 3),
    ]


def _json_section(table: Table, section: Section) -> dict[str, Any]:
    return {
        "forget": section.forget,
        "label": section.label,
        "sizes": dict(section.sizes),
        "floor": {name: asdict(floor) for name, floor in section.floor.items()},
        "rows": [_json_row(row, len(table.seeds)) for row in section.rows],
    }


def _json_row(row: Row, seeds: int) -> dict[str, Any]:
    return {
        "name": row.name,
        "title": row.title,
        "kind": row.kind,
        "finished": {"n": len(row.seeds), "of": seeds, "seeds": list(row.seeds)},
        "verdict": verdict(row.verdicts) or None,
        "verdicts": dict(row.verdicts),
        "diverged": [{"seed": seed, "why": why} for seed, why in row.diverged.items()],
        "costs": _plain(row.costs),
        "cells": {name: _json_cell(cell) for name, cell in row.cells.items()},
        "paper": {name: asdict(number) for name, number in row.paper.items()},
        "runs": [_json_run(run) for run in row.runs],
    }


def _json_cell(cell: Cell) -> dict[str, Any]:
    return {
        "mean": cell.mean,
        "std": cell.std,
        "low": cell.low,
        "high": cell.high,
        "n": len(cell.seen),
        "mark": cell.mark,
        "retrain_mean": cell.retrain,
        "distance": cell.distance,
        "verdicts": cell.verdicts,
        "seeds": [_json_seen(seen) for seen in cell.seen],
    }


def _json_seen(seen: Seen) -> dict[str, Any]:
    number = {"seed": seen.seed, "value": seen.value, "low": seen.low, "high": seen.high, "retrain": seen.retrain}
    return number | {"gap": asdict(seen.gap) if seen.gap else None}


def _json_run(run: Run) -> dict[str, Any]:
    return {
        "seed": run.seed,
        "key": run.key,
        "judged": run.evaluation is not None,
        "diverged": run.diverged,
        "cost": _plain(run.cost),
        "settings": _plain(run.settings),
        "notes": _plain(run.notes),
    }


def _plain(value: Any) -> Any:
    """JSON of settings and notes, which others made: what JSON cannot hold becomes text, as infinite numbers do."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(part) for part in cast("Sequence[Any]", value)]
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else str(value)
