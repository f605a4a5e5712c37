"""`regun study list|show|run|table|report` and `regun tradeoff`."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from regun.cli.options import Problems, read_device, use_threads
from regun.cli.progress import StudyProgress
from regun.cli.terminal import emit, table
from regun.errors import RegunError, SettingsError
from regun.study.collect import collect
from regun.study.engines import Engine, InProcess, Processes
from regun.study.formats import render
from regun.study.on_ray import OnRay
from regun.study.outputs import write_figures, write_report, write_tables, write_text
from regun.study.paper import paper_numbers
from regun.study.plan import request_label
from regun.study.reading import builtin_names, read_study, refuse_bad
from regun.study.results import Results, TradeOff
from regun.study.run import Ran, run_study
from regun.study.spec import Study
from regun.study.table import make_table
from regun.study.tracking import Tracking, open_trackers
from regun.study.tradeoff import WEIGHTS, points_only, sweep, tradeoffs
from regun.study.workshop import Place, Workshop
from regun.tune.settings_file import format_settings

SWEEP = "sweep.json"
"""In a study's folder: which weights `regun tradeoff` has swept."""


def list_studies(args: argparse.Namespace) -> int:
    """The built-in studies."""
    found = {name: read_study(name) for name in builtin_names()}
    if args.json:
        emit({name: study.to_json() for name, study in found.items()})
        return 0
    rows = [
        [name, study.title, ", ".join(map(request_label, study.forget)), str(len(study.seeds)), str(len(study.methods))]
        for name, study in found.items()
    ]
    print(table(["study", "what", "forget", "seeds", "methods"], rows))
    print("\nregun study show NAME > mine.toml gives you one to change; regun study run mine.toml runs it.")
    return 0


def show(args: argparse.Namespace) -> int:
    """A study's file, as it is."""
    study = read_study(args.study)
    if args.json:
        emit(study.to_json())
    elif args.study in builtin_names():
        print((resources.files("regun.study") / "builtin" / f"{args.study}.toml").read_text(), end="")
    else:
        print(Path(args.study).expanduser().read_text(), end="")
    return 0


def run(args: argparse.Namespace) -> int:
    """Make what is missing, then the tables and the report; the exit code is 1 if something failed."""
    study = chosen(args)
    workshop = open_workshop(args, study)
    out = _out(args, study)
    ran = _carry_out(args, workshop, out)
    results = collect(workshop, ran.failed)
    found = _swept_before(workshop, out) or points_only(results)
    paths = write_all(workshop, results, found, out)
    _show_results(args, results, found, paths, ran)
    return 1 if ran.failed else 0


def show_table(args: argparse.Namespace) -> int:
    """The table of what has been made so far."""
    study = chosen(args)
    results = collect(open_workshop(args, study))
    paper = paper_numbers(args.as_study or study.name) if args.paper else None
    made = make_table(results, extra=args.columns.split(",") if args.columns else (), paper=paper)
    text = render(made, "json" if args.json else args.format, args.wide)
    if args.out:
        print(write_text(Path(args.out), text), file=sys.stderr)
    else:
        print(text, end="")
    return 0


def report(args: argparse.Namespace) -> int:
    """The report of what has been made so far."""
    study = chosen(args)
    workshop = open_workshop(args, study)
    results = collect(workshop)
    found = _swept_before(workshop, _out(args, study)) or points_only(results)
    path = Path(args.out) if args.out else _out(args, study) / "report.html"
    write_report(workshop, results, found, path)
    emit({"report": str(path)}) if args.json else print(path)
    return 0


def tradeoff(args: argparse.Namespace) -> int:
    """The sweep of w and its figure."""
    study = chosen(args)
    weights = _weights(args.w) if args.w else WEIGHTS
    before = open_workshop(args, study)
    if study.tune:
        study = _frozen(args, before)
    swept = before.beside(sweep(study, weights))
    out = _out(args, study)
    ran = _carry_out(args, swept, out)
    write_text(out / SWEEP, json.dumps({"weights": list(weights)}))
    found = tradeoffs(study, collect(swept, ran.failed), weights)
    paths = write_figures(found, out)
    if args.json:
        emit({"tradeoffs": [_tradeoff_json(t) for t in found], "files": [str(p) for p in paths], "failed": ran.failed})
    else:
        _print_tradeoffs(found)
        print("\n" + "\n".join(str(path) for path in paths))
    return 1 if ran.failed else 0


def chosen(args: argparse.Namespace) -> Study:
    """The study, or the part of it that --seeds and --forget choose."""
    study, problems = read_study(args.study), Problems()
    if args.seeds:
        picked = problems.attempt(lambda: tuple(_whole(text, "--seeds") for text in args.seeds.split(",")))
        study = replace(study, seeds=picked or study.seeds, tune_seed=study.tuned_on if study.tune else None)
    if args.forget:
        texts = tuple(args.forget.split(","))
        study = replace(study, forget=texts, settings={k: v for k, v in study.settings.items() if k in texts})
    problems.attempt(lambda: refuse_bad(study))
    problems.stop_if_any()
    return study


def open_workshop(args: argparse.Namespace, study: Study) -> Workshop:
    """The study's data, store and device, as the arguments name them."""
    device = read_device(args.device)
    place = Place(str(Path(args.store).resolve()), args.data_dir, str(device), args.snapshot_seconds)
    return Workshop(study, place)


def _out(args: argparse.Namespace, study: Study) -> Path:
    """The study's folder: that of --out, which is a file for `report` and `table`, or one in the store."""
    own = args.out if args.run in ("study:run", "study:tradeoff") else None
    return Path(own) if own else Path(args.store) / "studies" / study.name


def carry_out(workshop: Workshop, engine: Engine, out: Path, *, track: Sequence[str] = (), quiet: bool = False) -> Ran:
    """Run the study with progress for people and its numbers streaming to `out`."""
    tracking = Tracking(workshop, out, open_trackers(track, workshop.study.name, out))
    progress = StudyProgress(workshop.plan, quiet=quiet)

    def listen(event: Mapping[str, Any]) -> None:
        tracking(event)
        progress(event)

    try:
        return run_study(workshop, engine, listen)
    finally:
        tracking.close()
        progress.close()


def _carry_out(args: argparse.Namespace, workshop: Workshop, out: Path) -> Ran:
    track = args.track.split(",") if args.track else ()
    return carry_out(workshop, _engine(args, workshop), out, track=track, quiet=args.quiet)


def _engine(args: argparse.Namespace, workshop: Workshop) -> Engine:
    threads = args.threads or workshop.study.threads
    if args.engine == "ray":
        return OnRay(workshop, args.address, args.workers, threads)
    if args.address:
        raise SettingsError([f"--address is {args.address!r}, which is for --engine ray only."])
    workers = 1 if args.workers is None else int(args.workers)
    if workers < 1:
        raise SettingsError([f"--workers is {workers}; give at least 1."])
    if workers == 1:
        use_threads(threads)
        return InProcess(workshop)
    return Processes(workshop, workers, threads)


def write_all(workshop: Workshop, results: Results, found: Sequence[TradeOff], out: Path) -> list[Path]:
    """Report, tables, figures and, if the study tuned, the settings found; the report first."""
    made = make_table(results)
    paths = [write_report(workshop, results, found, out / "report.html"), *write_tables(made, out)]
    paths += write_figures(found, out)
    frozen = workshop.frozen()
    if workshop.study.tune:
        paths.append(write_text(out / "tuned.toml", format_settings(frozen.settings)))
    return paths


def _show_results(
    args: argparse.Namespace, results: Results, found: Sequence[TradeOff], paths: list[Path], ran: Ran
) -> None:
    made = make_table(results)
    if args.json:
        print(render(made, "json"), end="")
        return
    print(render(made))
    for task, reason in ran.failed.items():
        print(f"FAILED {task}: {reason}")
    print(f"report   {paths[0]}\nfigure   {next((p for p in paths if p.suffix == '.svg'), 'none yet')}")
    print(f"tables   {', '.join(p.name for p in paths if p.stem == 'table')} in {paths[0].parent}")


def _swept_before(workshop: Workshop, out: Path) -> list[TradeOff]:
    """The curves of the sweep that `regun tradeoff` has left in this folder, if all of it is there."""
    if not (out / SWEEP).is_file():
        return []
    weights: list[float] = json.loads((out / SWEEP).read_text())["weights"]
    study = workshop.frozen()
    swept = workshop.beside(sweep(study, weights))
    done = all(swept.done(task) for task in swept.plan.tasks.values())
    return tradeoffs(study, collect(swept), weights) if done else []


def _frozen(args: argparse.Namespace, workshop: Workshop) -> Study:
    """The study with its tuned settings, which must have been searched."""
    waiting = [task.label for task in workshop.plan.tasks.values() if task.kind == "tune" and not workshop.done(task)]
    if waiting:
        raise RegunError(
            f"{len(waiting)} searches of this study are not over (the first is {waiting[0]}); "
            f"run `regun study run {args.study}` first."
        )
    return workshop.frozen()


def _weights(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SettingsError([f"--w is {text!r}; give numbers from 0 to 1, as in 0.1,0.5,0.9."]) from None


def _whole(text: str, flag: str) -> int:
    if not text.strip().isdecimal():
        raise SettingsError([f"{flag} holds {text!r}; give whole numbers, as in 0,1,2."])
    return int(text)


def _tradeoff_json(found: TradeOff) -> dict[str, Any]:
    curves = {title: [vars(point) for point in points] for title, points in found.curves.items()}
    fixed = {title: vars(point) for title, point in found.fixed.items()}
    ends = {"retrain": vars(found.retrain), "base": vars(found.base), "noise": found.noise}
    return {"forget": found.forget, **ends, "curves": curves, "fixed": fixed}


def _print_tradeoffs(found: Sequence[TradeOff]) -> None:
    for one in found:
        rows = [["Retrain", "", one.retrain], ["Base", "", one.base]]
        rows += [[title, f"{p.w:g}", p] for title, points in one.curves.items() for p in points]
        rows += [[title, "", point] for title, point in one.fixed.items()]
        cells = [[str(t), str(w), f"{p.utility:.2f}", f"{p.forgetting:.2f}"] for t, w, p in rows]  # type: ignore[union-attr]
        print(f"forget {one.label}")
        print(table(["method", "w", "test acc.", "RMIA AUC"], cells) + "\n")
