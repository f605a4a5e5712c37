"""`regun study power`."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from regun.cli.study import folder_of, open_context, print_failed, run_study, selected_study
from regun.cli.terminal import emit, print_table
from regun.experiments.study.collect import collect
from regun.experiments.study.power import Power, powers, retrained_only
from regun.experiments.study.results import Results
from regun.render.numbers import fixed


def run(args: argparse.Namespace) -> int:
    """Train base, Retrain and references of a study, and print whether they suffice to compare methods."""
    opened = open_context(args, retrained_only(selected_study(args)))
    summary = run_study(args, opened, folder_of(args, opened))
    results = collect(opened, summary.failed)
    estimates = powers(results)
    if args.json:
        rows = [{**asdict(power), "ratio": power.ratio, "meaning": power.meaning} for power in estimates]
        main = {block.main_gap for block in results.blocks}
        emit(
            {
                "study": results.name,
                "powers": [row for row in rows if row["seed"] is None and row["number"] in main],
                "seeds": [row for row in rows if row["seed"] is not None],
                "parts": [row for row in rows if row["seed"] is None and row["number"] not in main],
                "missing": list(results.missing),
                "failed": summary.failed,
            }
        )
    else:
        _print(results, estimates)
        print_failed(summary.failed)
    return 1 if summary.failed or results.missing else 0


def _print(results: Results, estimates: Sequence[Power]) -> None:
    for block in results.blocks:
        of_block = [power for power in estimates if power.forget == block.forget]
        whole = next((p for p in of_block if p.seed is None and p.number == block.main_gap), None)
        if whole is None:
            continue
        rows = [
            [
                results.metrics[p.number].label,
                "all" if p.seed is None else str(p.seed),
                *(fixed(value) for value in (p.base, p.floor_mean, p.floor_largest)),
                "" if p.ratio is None else fixed(p.ratio, 1),
            ]
            for p in of_block
        ]
        print(f"forget {block.label}")
        print_table(["number", "seed", "base to Retrain", "floor mean", "floor largest", "ratio"], rows)
        if whole.ratio is not None:
            print(f"distance of the untouched base / distance between retrained models: {fixed(whole.ratio, 1)}")
        print(f"{whole.meaning[0].upper()}{whole.meaning[1:]}.\n")
