"""A study's results for machines: CSV in long form, JSON with everything down to single runs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from regun.auditing import VERDICTS
from regun.experiments.report.table import verdict_text
from regun.experiments.study.results import COSTS, Block, Results, Run
from regun.render.tables import csv_text

HEAD = (
    *("study", "forget", "label", "method", "title", "kind", "metric", "unit"),
    *("mean", "std", "repeat_std", "low", "high", "level", "runs", "planned", "mark"),
    *("retrain_mean", "distance", "floor_mean", "floor_largest", "floor_limit"),
    *(word.replace(" ", "_") for word in VERDICTS),
    *COSTS,
    *("diverged_runs", "paper_mean", "paper_std", "paper_mark"),
)
"""The columns of the CSV: `runs` of `planned` have the number; `std` is over seeds, `repeat_std` over unlearning runs
of one trained model; `low` and `high` are the interval over examples, its ends averaged; the verdicts are counts of
runs; costs are means over runs."""


def to_csv(results: Results, metrics: Sequence[str]) -> str:
    """One row for every forget request, method and metric; empty where there is no number."""
    rows: list[list[Any]] = []
    for block, row, name in ((b, r, n) for b in results.blocks for r in b.rows for n in metrics):
        cell, floor = row.cells.get(name), block.floors.get(name)
        paper = results.printed(block.forget, row.name, name)
        value = [cell.mean, cell.std, cell.repeat_std, cell.low, cell.high, results.level] if cell else [None] * 6
        verdicts = cell.verdicts if cell else {}
        rows.append(
            [
                *(results.name, block.forget, block.label, row.name, row.title, row.kind),
                *(name, results.metrics[name].unit),
                *value,
                *(len(cell.by_run) if cell else 0, row.planned, block.rankings[name].marks.get(row.name)),
                *([cell.retrain, cell.distance] if cell else [None] * 2),
                *([floor.mean, floor.largest, floor.limit] if floor else [None] * 3),
                *(verdicts.get(word) for word in VERDICTS),
                *(row.costs.get(what) for what in COSTS),
                len(row.diverged),
                *([paper.mean, paper.std, paper.mark] if paper else [None] * 3),
            ]
        )
    return csv_text(HEAD, rows)


def to_json(results: Results, metrics: Sequence[str]) -> str:
    """Everything: means with what stands behind them, floors, rankings, and every run."""
    value = {
        "study": results.name,
        "title": results.title,
        "about": dict(results.about),
        "seeds": list(results.seeds),
        "repeats": results.repeats,
        "level": results.level,
        "columns": list(results.columns),
        "metrics": [results.metrics[name].to_json() for name in metrics],
        "requests": [_request_json(results, block, metrics) for block in results.blocks],
        "missing": list(results.missing),
        "versions": dict(results.versions),
        "machine": dict(results.machine),
        "paper": {"setup": results.paper.setup, "note": results.paper.note} if results.paper else None,
    }
    return json.dumps(_plain(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _request_json(results: Results, block: Block, metrics: Sequence[str]) -> dict[str, Any]:
    """Return one request: its rows with their cells, whose numbers by run carry their gap and floor, and their runs."""
    rows: list[dict[str, Any]] = []
    for row in block.rows:
        printed = {name: results.printed(block.forget, row.name, name) for name in metrics}
        cells = {name: row.cells[name] for name in metrics if name in row.cells}
        marks = {name: block.rankings[name].marks.get(row.name) for name in cells}
        rows.append(
            asdict(replace(row, runs=(), cells={}))
            | {
                "judged": row.judged,
                "verdict": verdict_text(row.verdicts) or None,
                "cells": {
                    name: asdict(cell) | {"distance": cell.distance, "verdicts": cell.verdicts, "mark": marks[name]}
                    for name, cell in cells.items()
                },
                "paper": {name: asdict(number) for name, number in printed.items() if number},
                "runs": [_run_json(run) for run in row.runs],
            }
        )
    return {
        "forget": block.forget,
        "label": block.label,
        "sizes": block.sizes,
        "floors": {name: asdict(block.floors[name]) for name in metrics if name in block.floors},
        "rankings": {name: asdict(block.rankings[name]) for name in metrics if name in block.rankings},
        "rows": rows,
    }


def _run_json(run: Run) -> dict[str, Any]:
    """Return the run without its evaluation, whose numbers are in the cells."""
    evaluation, values = run.evaluation, asdict(replace(run, evaluation=None))
    del values["evaluation"]
    return values | {
        "verdict": evaluation.verdict if evaluation else None,
        "reason": evaluation.summary if evaluation else None,
        "warnings": evaluation.warnings if evaluation else (),
        "judged": evaluation is not None,
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
