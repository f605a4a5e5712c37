"""A study as the arguments choose it: its workshop, carrying it out with progress, and the files it leaves."""

import argparse
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from regun.cli.options import Problems, read_device, use_threads
from regun.cli.progress import StudyProgress
from regun.cli.terminal import write
from regun.errors import SettingsError
from regun.experiments.report.formats import render
from regun.experiments.search import SearchResult
from regun.experiments.search.settings_file import format_settings
from regun.experiments.study import Location, OpenStudy, Results, Study
from regun.experiments.study.collect import closeup, collect, searches
from regun.experiments.study.details import RowDetails
from regun.experiments.study.events import Event
from regun.experiments.study.executors import Executor, InProcess, Processes
from regun.experiments.study.parse import check_study, read_study
from regun.experiments.study.ray_executor import RayExecutor
from regun.experiments.study.scheduler import RunSummary, execute
from regun.experiments.study.tracking import Tracking, open_trackers
from regun.experiments.study.tradeoff import TradeOff, sweep, tradeoffs
from regun.forget_spec import split_forget_list
from regun.settings import read_json

SWEEP = "sweep.json"
"""In a study's folder: which weights `regun tradeoff` has swept."""


def chosen(args: argparse.Namespace) -> Study:
    """The study, or the part of it that --seeds and --forget choose."""
    study, problems = read_study(args.study), Problems()
    if args.seeds:
        picked = problems.attempt(lambda: tuple(_seed(text) for text in args.seeds.split(",")))
        study = replace(study, seeds=picked or study.seeds, tune_seed=study.tuned_on if study.tune else None)
    if args.forget:
        texts = split_forget_list(args.forget)
        study = replace(study, forget=texts, settings={k: v for k, v in study.settings.items() if k in texts})
    problems.attempt(lambda: check_study(study))
    problems.stop_if_any()
    return study


def open_context(args: argparse.Namespace, study: Study | None = None) -> OpenStudy:
    """The study (default: the chosen one) with data, store and device as the arguments name them."""
    wanted, device = study or chosen(args), read_device(args.device)
    place = Location(str(Path(args.store).resolve()), args.data_dir, str(device), args.snapshot_seconds)
    return OpenStudy.at(wanted, place)


def folder_of(args: argparse.Namespace, opened: OpenStudy) -> Path:
    """Where the study's files go; those of a part, as --seeds and --forget choose it, do not replace the whole's."""
    if args.folder:
        return Path(args.folder)
    part = "".join(f"-{name}-{text}" for name in ("seeds", "forget") if (text := getattr(args, name)))
    return Path(args.store) / "studies" / (opened.study.name + re.sub(r"[^\w.-]+", "_", part))


def carried_out(args: argparse.Namespace, opened: OpenStudy, out: Path) -> RunSummary:
    """Run the study on the engine of the arguments, with progress for people and its numbers streaming to `out`."""
    engine = _engine(args, opened)
    names = args.track.split(",") if args.track else ()
    tracking = Tracking(opened, out, open_trackers(names, opened.study.name, out))
    progress = StudyProgress(opened.plan, quiet=args.quiet)

    def on_event(event: Event) -> None:
        tracking(event)
        progress(event)

    try:
        return execute(opened, engine, on_event)
    finally:
        tracking.close()
        progress.close()


def finish(opened: OpenStudy, summary: RunSummary, out: Path, *, as_json: bool) -> int:
    """Write everything, show the table, and say whether the study is whole."""
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
    """Report, tables, figures and, if the study tuned, the settings found; the report first."""
    from regun.experiments.report.files import study_files  # brings matplotlib, which plans and tables do not need

    files = study_files(results, *shown_with(opened, results, out))
    if opened.study.tune:
        files["tuned.toml"] = format_settings(opened.with_found_settings().settings).encode()
    return [write(out / name, content) for name, content in files.items()]


def shown_with(
    opened: OpenStudy, results: Results, out: Path
) -> tuple[list[RowDetails], list[TradeOff], list[tuple[str, Mapping[str, SearchResult]]]]:
    """What the report shows besides results: close-ups, trade-offs (those of an earlier sweep, if whole), searches."""
    closeups = [found for forget in opened.study.forget if (found := closeup(opened, forget)) is not None]
    found = [(spec.label, searches(opened, forget)) for forget, spec in opened.study.requests.items()]
    return closeups, _swept_before(opened, out) or tradeoffs(results), [one for one in found if one[1]]


def _swept_before(opened: OpenStudy, out: Path) -> list[TradeOff]:
    if not (out / SWEEP).is_file():
        return []
    weights: list[float] = read_json((out / SWEEP).read_text(), str(out / SWEEP))["weights"]
    study = opened.with_found_settings()
    swept = opened.variant(sweep(study, weights))
    done = all(swept.done(task) for task in swept.plan.tasks.values())
    return tradeoffs(collect(swept), study, weights) if done else []


def _engine(args: argparse.Namespace, opened: OpenStudy) -> Executor:
    threads = args.threads or opened.study.threads
    if args.engine == "ray":
        return RayExecutor(opened, args.address, args.workers, threads)
    if args.address:
        raise SettingsError([f"--address is {args.address!r}, which is for --engine ray only."])
    workers = 1 if args.workers is None else int(args.workers)
    if workers < 1:
        raise SettingsError([f"--workers is {workers}; give at least 1."])
    if not args.silence_minutes > 0:
        raise SettingsError([f"--silence-minutes is {args.silence_minutes}; give a number above 0."])
    if workers == 1:
        use_threads(threads)
        return InProcess(opened)
    return Processes(opened, workers, threads, 60 * args.silence_minutes)


def _seed(text: str) -> int:
    if not (text.strip().isdecimal() and len(text) < 10):
        raise SettingsError([f"--seeds holds {text[:20]!r}; give whole numbers, as in 0,1,2."])
    return int(text)
