"""`regun tradeoff`."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from regun.cli.study import SWEEP, folder_of, open_context, run_study, selected_study
from regun.cli.terminal import emit, print_table, write
from regun.errors import RegunError, SettingsError
from regun.experiments.study.collect import collect
from regun.experiments.study.tradeoff import WEIGHTS, TradeOff, sweep, tradeoffs
from regun.render.numbers import fixed
from regun.render.tables import csv_of


def run(args: argparse.Namespace) -> int:
    """Sweep w and draw the figure."""
    from regun.experiments.report.files import (
        tradeoff_files,
    )  # brings matplotlib, which bad arguments need not wait for

    study = selected_study(args)
    try:
        weights = tuple(float(part) for part in args.w.split(",")) if args.w else WEIGHTS
    except ValueError:
        raise SettingsError([f"--w is {args.w!r}; give numbers from 0 to 1, as in 0.1,0.5,0.9."]) from None
    before = open_context(args, study)
    if study.tune:
        waiting = [task.id for task in before.plan.tasks.values() if task.kind == "tune" and not task.done(before)]
        if waiting:
            raise RegunError(
                f"{len(waiting)} searches of this study are not done (the first is {waiting[0]}); "
                f"run `regun study run {args.study}` first."
            )
        study = before.with_searched_settings()
    swept, out = before.variant(sweep(study, weights)), folder_of(args, before)
    summary = run_study(args, swept, out)
    write(out / SWEEP, json.dumps({"weights": list(weights)}))
    results = collect(swept, summary.failed)
    curves = tradeoffs(results, study, weights)
    files = tradeoff_files(curves) | {"sweep.csv": csv_of(results.rows()).encode()}
    paths = [write(out / name, content) for name, content in files.items()]
    if args.json:
        emit({"tradeoffs": [asdict(t) for t in curves], "files": [str(p) for p in paths], "failed": summary.failed})
    else:
        _print(curves)
        print("\n" + "\n".join(str(path) for path in paths))
    return 1 if summary.failed else 0


def _print(curves: Sequence[TradeOff]) -> None:
    for one in curves:
        points = [("Retrain", one.retrain), ("Base", one.base)]
        points += [(title, p) for title, curve in one.curves.items() for p in curve]
        points += list(one.fixed.items())
        rows = [[t, "" if p.w is None else f"{p.w:g}", fixed(p.utility), fixed(p.forgetting)] for t, p in points]
        print(f"forget {one.label}")
        print_table(["method", "w", "test acc.", "RMIA AUC"], rows)
        print()
