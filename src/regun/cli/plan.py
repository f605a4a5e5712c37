"""`regun study plan`."""

import argparse
from collections.abc import Mapping
from typing import Any

from regun.cli.options import use_threads
from regun.cli.study import open_context, selected_study
from regun.cli.terminal import emit, print_table
from regun.data.registry import data_set, takes_root
from regun.errors import RegunError
from regun.experiments.study.estimate import Speed, measured_speed, remembered_speed, seconds_left, speed_here
from regun.experiments.study.plan import StudyPlan, labels_of_size, plan_study
from regun.experiments.study.spec import Study
from regun.experiments.study.tasks import Unlearn
from regun.render.numbers import duration
from regun.settings import parse_spec


def run(args: argparse.Namespace) -> int:
    """Print what a study needs; random fractions of a built-in data set are planned without the data."""
    study = selected_study(args)
    needs_folder = takes_root(parse_spec(study.data)[0], study.folder)
    opened = open_context(args, study) if args.data_dir or not needs_folder else None
    if opened is None:
        name, values = parse_spec(study.data)
        by_size = all(spec.needs_early_models or spec.kind == "random" for spec in study.requests.values())
        sizes = data_set(name).sizes
        if sizes is None or not by_size or study.stratified:
            raise RegunError(f"planning this study needs its data; give --data-dir FOLDER (it forgets {study.forget}).")
        train, test = int(values.get("limit", sizes[0])), int(values.get("test_limit", sizes[1]))
        result = _plan_json(plan_study(study, labels_of_size(train), test), set(), None, exact=False)
    else:
        if args.probe:
            use_threads(args.threads or study.threads)
        speed = measured_speed(opened) if args.probe else remembered_speed(study, opened.store)
        done = {task.id for task in opened.plan.tasks.values() if task.done(opened)}
        result = _plan_json(opened.plan, done, speed_here(opened, speed) if speed else None, exact=True)
    emit(result) if args.json else _print_plan(study, result)
    return 0


def _plan_json(plan: StudyPlan, done: set[str], speed: Speed | None, *, exact: bool) -> dict[str, Any]:
    study, counts = plan.study, plan.counts()
    in_store = dict.fromkeys(counts, 0)
    for task_id in done:
        in_store[plan.tasks[task_id].kind] += 1
    first: dict[tuple[str, str], Unlearn] = {}
    for task in plan.of_type(Unlearn):
        first.setdefault((task.row.name, task.forget), task)
    steps = {
        name: {forget: work.steps if (work := first[name, forget].work) else None for forget in study.forget}
        for name in study.rows
    }
    return {
        "study": study.name,
        "sizes": {forget: dict(sizes) for forget, sizes in plan.sizes.items()},
        "tasks": {kind: {"planned": counts[kind], "done": in_store[kind]} for kind in counts},
        "steps": {kind: plan.steps(kind) for kind in ("train", "tune", "unlearn")},
        "steps_of_methods": steps,
        "request_share": {n: {forget: plan.request_share(n, forget) for forget in study.forget} for n in study.rows},
        "once_share": {n: {forget: plan.once_share(n, forget) for forget in study.forget} for n in study.rows},
        "samples": plan.samples(),
        "samples_per_second": speed.samples if speed else None,
        "seconds_left": seconds_left(plan, done, speed) if speed else None,
        "from_data": exact,
    }


def _print_plan(study: Study, result: Mapping[str, Any]) -> None:
    print(f"{study.name}: {study.title}")
    tasks = [[kind, f"{n['planned']:,}", f"{n['done']:,}"] for kind, n in result["tasks"].items()]
    print_table(["task", "planned", "in the store"], tasks)
    print()
    sizes = [[study.requests[key].label, *(f"{n:,}" for n in parts.values())] for key, parts in result["sizes"].items()]
    print_table(["request", "retain", "forget", "heldout", "val"], sizes)
    print()
    steps = [
        [study.title_of(name), *("?" if n is None else f"{n:,}" for n in counts.values())]
        for name, counts in result["steps_of_methods"].items()
    ]
    labels = [spec.label for spec in study.requests.values()]
    print_table(["steps per run", *labels], steps)
    costs: list[list[str]] = []
    for name, shares in result["request_share"].items():
        costs.append([study.title_of(name), *("?" if n is None else f"{n:.3g} %" for n in shares.values())])
        once = result["once_share"][name].values()
        if any(n is not None for n in once):
            costs.append([f"{study.title_of(name)}, once", *("-" if n is None else f"{n:.3g} %" for n in once)])
    print()
    print_table(["cost per request, of a retraining", *labels], costs)
    print("\nsteps: " + ", ".join(f"{kind} {n:,}" for kind, n in result["steps"].items() if n))
    samples = f"samples: {result['samples']:,}"
    if not result["from_data"]:
        print(f"{samples}. Sizes are those of the complete data set; with --data-dir FOLDER they come from your copy.")
    elif result["samples_per_second"] is None:
        print(f"{samples}; --probe runs a few steps to estimate the time.")
    else:
        left = duration(result["seconds_left"])
        print(f"{samples}; time left at {result['samples_per_second']:,.0f} examples/s: about {left}.")
