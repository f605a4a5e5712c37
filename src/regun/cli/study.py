"""`regun demo` and `regun study list|show|run|report|table`: run a study with progress, and write its files."""

import argparse
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path

from regun.artifacts import Store
from regun.cli.options import use_threads
from regun.cli.progress import StudyProgress
from regun.cli.terminal import emit, print_table, write
from regun.devices import as_device
from regun.errors import Problems, SettingsError
from regun.experiments.report.formats import render
from regun.experiments.search.settings_file import format_settings
from regun.experiments.study import Location, OpenStudy, Results, Study, builtin_names
from regun.experiments.study.collect import collect, request_details, searches
from regun.experiments.study.events import Event
from regun.experiments.study.executors import Executor, InProcess, Processes
from regun.experiments.study.paper import paper_numbers
from regun.experiments.study.parse import check_study, read_study
from regun.experiments.study.ray_executor import RayExecutor
from regun.experiments.study.resolved import as_comments, resolved, without_comments
from regun.experiments.study.scheduler import RunSummary, execute
from regun.experiments.study.tasks import Unlearn
from regun.experiments.study.tracking import Tracking, open_trackers
from regun.experiments.study.tradeoff import TradeOff, sweep, tradeoffs
from regun.forget_spec import split_forget_list
from regun.settings import read_json

SWEEP = "sweep.json"
"""File in a study's folder with the weights that `regun tradeoff` has swept."""


def list_all(args: argparse.Namespace) -> int:
    """Print the built-in studies."""
    studies = {name: read_study(name) for name in builtin_names()}
    if args.json:
        emit({name: study.to_json() for name, study in studies.items()})
        return 0
    rows = [
        [
            name,
            study.title,
            ", ".join(spec.label for spec in study.requests.values()),
            str(len(study.seeds)),
            str(len(study.methods)),
        ]
        for name, study in studies.items()
    ]
    print_table(["study", "title", "forget", "seeds", "methods"], rows)
    print("\nTo make your own: regun study show NAME > mine.toml, then regun study run mine.toml")
    return 0


def show(args: argparse.Namespace) -> int:
    """Print a study's file, followed by its resolved settings as comments."""
    study = read_study(args.study)
    if args.json:
        emit({**study.to_json(), "resolved": resolved(study)})
        return 0
    is_file = args.study not in builtin_names()
    path = (
        Path(args.study).expanduser()
        if is_file
        else resources.files("regun.experiments.study") / "builtin" / f"{args.study}.toml"
    )
    print(f"{without_comments(path.read_text()).rstrip()}\n\n{as_comments(study)}", end="")
    return 0


def demo(args: argparse.Namespace) -> int:
    """Say what will happen, run the study `digits`, and print where to look and what to do next."""
    opened = open_context(args)
    out = folder_of(args, opened)
    use_threads(args.threads)
    sizes = opened.plan.sizes[opened.study.forget[0]]
    if not args.json:
        print(
            f"A small CNN learns {sizes['forget'] + sizes['retain']:,} noisy digits; then it must forget "
            f"{sizes['forget']} of them.\n"
            "The demo unlearns with several methods, compares each with models that never saw the digits,\n"
            f"and writes a report to {out}. It takes about two minutes and resumes if you stop it.\n",
            flush=True,
        )
    summary = run_study(args, opened, out)
    if args.json:
        return finish(opened, summary, out, as_json=True)
    print("\nHow far is each method from a model that never saw the forgotten digits (Retrain)?\n")
    code = finish(opened, summary, out, as_json=False)
    model = opened.plan.of_type(Unlearn)[0].result(opened)
    key = model.key[:12] if model else "KEY"
    lines = {
        f"regun audit {key} --store {args.store}": "every number of one model, with intervals",
        "regun new project app.py": "a file to start from, for deletion requests on your own model",
        "regun new study study.toml": "a study to start from, for regun study run study.toml",
    }
    width = max(map(len, lines))
    print(f"\nOpen {out / 'report.html'} in a browser. Next:")
    print("\n".join(f"  {command.ljust(width)}  {what}" for command, what in lines.items()))
    print("For your own model, see docs/start.md or the README.")
    return code


def run(args: argparse.Namespace) -> int:
    """Run the missing tasks, then write tables and report; return exit code 1 if the study is incomplete."""
    opened = open_context(args)
    out = folder_of(args, opened)
    return finish(opened, run_study(args, opened, out), out, as_json=args.json)


def show_table(args: argparse.Namespace) -> int:
    """Print the table of the finished tasks."""
    study = selected_study(args)
    Store.existing(args.store)
    paper = paper_numbers(args.paper or study.name) if args.paper is not None else None
    results = collect(open_context(args, study), paper=paper)
    wide = args.columns == "paper"
    columns = args.columns.split(",") if args.columns and not wide else None
    text = render(results, "json" if args.json else args.format, wide=wide, columns=columns, layout=args.layout)
    if args.out:
        print(write(Path(args.out), text), file=sys.stderr)
    else:
        print(text, end="")
    return 0


def report(args: argparse.Namespace) -> int:
    """Write tables, figures and report of the finished tasks."""
    Store.existing(args.store)
    opened = open_context(args)
    paths = write_all(opened, collect(opened), folder_of(args, opened))
    emit({"files": [str(path) for path in paths]}) if args.json else print("\n".join(map(str, paths)))
    return 0


def selected_study(args: argparse.Namespace) -> Study:
    """Return the study, or the part of it that --seeds and --forget select."""
    study, problems = read_study(args.study), Problems()
    if args.seeds:
        texts = args.seeds.split(",")
        if not all(text.strip().isdecimal() and len(text) < 10 for text in texts):
            problems.add(f"--seeds is {args.seeds[:50]!r}; give whole numbers, as in 0,1,2.")
        else:
            seeds = tuple(map(int, texts))
            study = replace(study, seeds=seeds, tune_seed=study.tuned_on if study.tune else None)
    if args.forget:
        texts = split_forget_list(args.forget)
        study = replace(study, forget=texts, settings={k: v for k, v in study.settings.items() if k in texts})
    problems.attempt(lambda: check_study(study))
    problems.stop_if_any()
    return study


def open_context(args: argparse.Namespace, study: Study | None = None) -> OpenStudy:
    """Return the study (default: the selected one) with the data, store and device of the arguments."""
    device = as_device(args.device)
    place = Location(str(Path(args.store).resolve()), args.data_dir, str(device), args.snapshot_seconds)
    return OpenStudy(study or selected_study(args), place)


def folder_of(args: argparse.Namespace, opened: OpenStudy) -> Path:
    """Return the folder of the study's files; a part (--seeds, --forget) has a folder of its own."""
    if args.out:
        return Path(args.out)
    part = "".join(f"-{name}-{text}" for name in ("seeds", "forget") if (text := getattr(args, name)))
    return Path(args.store) / "studies" / (opened.study.name + re.sub(r"[^\w.-]+", "_", part))


def run_study(args: argparse.Namespace, opened: OpenStudy, out: Path) -> RunSummary:
    """Run the study on the engine of the arguments, with progress; metrics are logged to `out`."""
    threads = args.threads or opened.study.threads
    engine, _, address = args.engine.partition(":")
    if engine not in ("local", "ray") or (address and engine == "local"):
        raise SettingsError([f"--engine is {args.engine!r}; give local, ray or ray:ADDRESS."])
    if engine == "local" and args.workers is not None and args.workers < 1:
        raise SettingsError([f"--workers is {args.workers}; give at least 1."])
    executor: Executor
    if engine == "ray":
        executor = RayExecutor(opened, address or None, args.workers, threads)
    elif args.workers in (None, 1):
        use_threads(threads)
        executor = InProcess(opened)
    else:
        executor = Processes(opened, args.workers, threads)
    names = args.track.split(",") if args.track else ()
    tracking = Tracking(opened, out, open_trackers(names, opened.study.name, out))
    progress = StudyProgress(opened.plan, quiet=args.quiet)

    def on_event(event: Event) -> None:
        tracking(event)
        progress(event)

    try:
        return execute(opened, executor, on_event)
    finally:
        tracking.close()
        progress.close()


def finish(opened: OpenStudy, summary: RunSummary, out: Path, *, as_json: bool) -> int:
    """Write all files and print the table; return exit code 1 if the study is incomplete."""
    results = collect(opened, summary.failed)
    paths = write_all(opened, results, out)
    if as_json:
        print(render(results, "json"), end="")
    else:
        print(render(results))
        print_failed(summary.failed)
        print(f"report   {paths[0]}\nfigure   {next((p for p in paths if p.suffix == '.svg'), 'none yet')}")
        print(f"tables   {', '.join(p.name for p in paths if p.stem in ('table', 'rows'))} in {out}")
    return 1 if summary.failed or results.missing else 0


def print_failed(failed: Mapping[str, str]) -> None:
    for task, reason in failed.items():
        print(f"FAILED {task}: {reason}")


def write_all(opened: OpenStudy, results: Results, out: Path) -> list[Path]:
    """Write report, tables, figures and, if the study tuned, the best settings; return the paths, the report first."""
    from regun.experiments.report.files import study_files  # brings matplotlib, which plans and tables do not need

    details = [rows for forget in opened.study.forget if (rows := request_details(opened, forget)) is not None]
    tuned = [(spec.label, searches(opened, forget)) for forget, spec in opened.study.requests.items()]
    curves: list[TradeOff] = []
    if (out / SWEEP).is_file():  # of an earlier sweep, if it is complete
        weights: list[float] = read_json((out / SWEEP).read_text(), str(out / SWEEP))["weights"]
        study = opened.with_searched_settings()
        swept = opened.variant(sweep(study, weights))
        if all(task.done(swept) for task in swept.plan.tasks.values()):
            curves = tradeoffs(collect(swept), study, weights)
    files = study_files(
        results, details, curves or tradeoffs(results), [(label, by_method) for label, by_method in tuned if by_method]
    )
    if opened.study.tune:
        files["tuned.toml"] = format_settings(opened.with_searched_settings().settings).encode()
    return [write(out / name, content) for name, content in files.items()]
