"""`regun study plan`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from regun.cli.terminal import emit, print_table
from regun.errors import RegunError
from regun.render.numbers import duration
from regun.settings import parse_spec

if TYPE_CHECKING:
    from regun.experiments.study.estimate import Speed
    from regun.experiments.study.plan import StudyPlan
    from regun.experiments.study.spec import Study
    from regun.forget_spec import ForgetSpec


def run(args: argparse.Namespace) -> int:
    """What a study takes, before anything runs; without its data as well, if it forgets fractions of a known set."""

    from regun.cli.options import use_threads
    from regun.cli.study_runs import open_context, selected_study
    from regun.experiments.study.estimate import measured_speed, remembered_speed, speed_here

    study = selected_study(args)
    opened = open_context(args, study) if _data_are_here(args, study) else None
    found = opened.plan if opened else _plan_without_data(study)
    done = {task.id for task in found.tasks.values() if opened.done(task)} if opened else set[str]()
    speed = remembered_speed(study, opened.store) if opened else None
    if opened and args.probe:
        use_threads(args.threads or study.threads)
        speed = measured_speed(opened)
    here = speed_here(opened, speed) if opened and speed else None
    result = _plan_json(found, done, here, exact=opened is not None)
    emit(result) if args.json else _print_plan(study, result)
    return 0


def _data_are_here(args: argparse.Namespace, study: Study) -> bool:
    from regun.data.registry import takes_root

    return bool(args.data_dir) or not takes_root(parse_spec(study.data)[0], study.folder)


def _plan_without_data(study: Study) -> StudyPlan:
    """The plan on the complete data set, which is not here: its size is all that random requests depend on."""

    from regun.data.registry import data_set
    from regun.experiments.study.plan import labels_of_size, plan_study

    name, values = parse_spec(study.data)
    others = [text for text, spec in study.requests.items() if not _size_decides(spec)]
    sizes = data_set(name).sizes
    if sizes is None or others or study.stratified:
        raise RegunError(f"planning this study needs its data; give --data-dir FOLDER (it forgets {study.forget}).")
    limits = (int(values.get("limit", sizes[0])), int(values.get("test_limit", sizes[1])))
    return plan_study(study, labels_of_size(limits[0]), limits[1])


def _size_decides(spec: ForgetSpec) -> bool:
    """Whether the number of examples is all that the sizes of its splits depend on."""
    return spec.needs_early_models or spec.kind == "random"


def _plan_json(found: StudyPlan, done: set[str], speed: Speed | None, *, exact: bool) -> dict[str, Any]:
    from regun.experiments.study.estimate import seconds_left

    study = found.study
    counts, made = found.counts(), dict.fromkeys(found.counts(), 0)
    for task_id in done:
        made[found.tasks[task_id].kind] += 1
    steps = {name: {forget: _steps(found, name, forget) for forget in study.forget} for name in study.rows}
    return {
        "study": study.name,
        "sizes": {forget: dict(sizes) for forget, sizes in found.sizes.items()},
        "tasks": {kind: {"planned": counts[kind], "done": made[kind]} for kind in counts},
        "steps": {"train": found.steps("train"), "tune": found.steps("tune"), "unlearn": found.steps("unlearn")},
        "steps_of_methods": steps,
        "request_share": {n: {forget: found.request_share(n, forget) for forget in study.forget} for n in study.rows},
        "once_share": {n: {forget: found.once_share(n, forget) for forget in study.forget} for n in study.rows},
        "samples": found.samples(),
        "samples_per_second": speed.samples if speed else None,
        "seconds_left": seconds_left(found, done, speed) if speed else None,
        "from_data": exact,
    }


def _steps(found: StudyPlan, name: str, forget: str) -> int | None:
    from regun.experiments.study.tasks import Unlearn

    task = next(task for task in found.of_type(Unlearn) if (task.row.name, task.forget) == (name, forget))
    return task.work.steps if task.work else None


def _print_plan(study: Study, result: Mapping[str, Any]) -> None:
    print(f"{study.name}: {study.title}")
    rows = [[kind, f"{n['planned']:,}", f"{n['done']:,}"] for kind, n in result["tasks"].items()]
    print_table(["task", "planned", "in the store"], rows)
    sizes = [
        [study.requests[forget].label, *(f"{n:,}" for n in parts.values())] for forget, parts in result["sizes"].items()
    ]
    print()
    print_table(["request", "retain", "forget", "heldout", "val"], sizes)
    labels = [spec.label for spec in study.requests.values()]
    steps = [
        [study.title_of(name), *("?" if n is None else f"{n:,}" for n in found.values())]
        for name, found in result["steps_of_methods"].items()
    ]
    print()
    print_table(["steps of one run", *labels], steps)
    shares: list[list[str]] = []
    for name, found in result["request_share"].items():
        shares.append([study.title_of(name), *("?" if n is None else f"{n:.3g} %" for n in found.values())])
        once = result["once_share"][name].values()
        if any(n is not None for n in once):
            shares.append([f"{study.title_of(name)}, once", *("-" if n is None else f"{n:.3g} %" for n in once)])
    print()
    print_table(["cost per request, of a retraining", *labels], shares)
    print(f"\n{result['steps']['train']:,} training steps, {result['steps']['unlearn']:,} unlearning steps" + (
        f", {result['steps']['tune']:,} steps of searches" if result["steps"]["tune"] else ""
    ))  # fmt: skip
    print(_cost(result))


def _cost(result: Mapping[str, Any]) -> str:
    if not result["from_data"]:
        where = "Sizes are those of the complete data set; with --data-dir FOLDER they come from your copy."
        return f"{result['samples']:,} samples in all. {where}"
    if result["samples_per_second"] is None:
        return f"{result['samples']:,} samples in all; --probe runs a few steps and says how long that takes here."
    speed, left = result["samples_per_second"], duration(result["seconds_left"])
    return f"{result['samples']:,} samples in all; at {speed:,.0f} a second what is left takes about {left}."
