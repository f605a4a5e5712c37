"""`regun study power`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from regun.cli.terminal import emit, print_table
from regun.render.numbers import fixed

if TYPE_CHECKING:
    from regun.experiments.study.power import Power
    from regun.experiments.study.results import Results


def run(args: argparse.Namespace) -> int:
    """Base, Retrain and references of a study, and whether methods can be told apart by them."""

    from regun.cli.study_runs import folder_of, open_context, run_study, selected_study
    from regun.experiments.study.collect import collect
    from regun.experiments.study.power import powers, retrained_only

    opened = open_context(args, retrained_only(selected_study(args)))
    summary = run_study(args, opened, folder_of(args, opened))
    results = collect(opened, summary.failed)
    found = powers(results)
    emit(_json(results, found, summary.failed)) if args.json else _print(results, found, summary.failed)
    return 1 if summary.failed or results.missing else 0


def _json(results: Results, found: Sequence[Power], failed: dict[str, str]) -> dict[str, Any]:
    rows = [{**asdict(power), "ratio": power.ratio, "meaning": power.meaning} for power in found]
    main = {block.main_gap for block in results.blocks}
    return {
        "study": results.name,
        "powers": [row for row in rows if row["seed"] is None and row["number"] in main],
        "seeds": [row for row in rows if row["seed"] is not None],
        "parts": [row for row in rows if row["seed"] is None and row["number"] not in main],
        "missing": list(results.missing),
        "failed": failed,
    }


def _print(results: Results, found: Sequence[Power], failed: dict[str, str]) -> None:
    from regun.cli.study_runs import print_failed

    head = ["number", "seed", "base to Retrain", "floor mean", "floor largest", "ratio"]
    for block in results.blocks:
        mine = [power for power in found if power.forget == block.forget]
        whole = next((p for p in mine if p.seed is None and p.number == block.main_gap), None)
        if whole is None:
            continue
        rows = [
            [
                results.metrics[p.number].label,
                "all" if p.seed is None else str(p.seed),
                *(fixed(value) for value in (p.base, p.floor_mean, p.floor_largest)),
                "" if p.ratio is None else fixed(p.ratio, 1),
            ]
            for p in mine
        ]
        print(f"forget {block.label}")
        print_table(head, rows)
        print(f"{_sentence(whole)}.\n")
    print_failed(failed)


def _sentence(whole: Power) -> str:
    if whole.ratio is None:
        return whole.meaning[0].upper() + whole.meaning[1:]
    far = f"The untouched base is {fixed(whole.ratio, 1)} times as far from Retrain as two retrained models are apart"
    return f"{far}; {whole.meaning}"
