"""`regun study list|show|plan|power|run|table|report` and `regun tradeoff`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regun.cli.arguments import Commands, add_data_dir, add_machine, command

if TYPE_CHECKING:
    from regun.study import Results, Study, Workshop
    from regun.study.closeup import Closeup
    from regun.study.engines import Engine
    from regun.study.run import Ran
    from regun.study.tradeoff import TradeOff
    from regun.tune import Tuned

SWEEP = "sweep.json"
"""In a study's folder: which weights `regun tradeoff` has swept."""


def add_study(commands: Commands) -> None:
    parser = commands.add_parser(
        "study",
        help="whole grids: plan, run, tables, report",
        description="Whole grids of models, methods, forget sets and seeds: the paper's, and your own.",
        epilog="Example:\n  regun study run digits",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = command(actions, "list", "list the built-in studies", "study:list_studies", "regun study list")
    listed.add_argument("--json", action="store_true", help="print JSON")
    shown = command(
        actions, "show", "print a study's file, and what it stands for", "study:show", "regun study show digits"
    )
    shown.add_argument("study", help="a built-in study (see `regun study list`) or FILE.toml")
    shown.add_argument("--json", action="store_true", help="print JSON")
    planned = command(
        actions,
        "plan",
        "say what a study takes, before anything runs",
        "plan:run",
        "regun study plan resnet18-cifar10",
    )
    _add_chosen_study(planned)
    planned.add_argument("--probe", action="store_true", help="run a few training steps to estimate the time")
    powered = command(
        actions,
        "power",
        "train base, Retrain and references, and say whether methods can be told apart by them",
        "power:run",
        "regun study power resnet18-cifar10-small --data-dir ~/data --workers 2 --forget 0.1",
    )
    _add_chosen_study(powered)
    _add_engine(powered)
    made = command(
        actions,
        "run",
        "make what a study lacks, then its tables and report; run it again after an interruption",
        "study:run",
        "regun study run resnet18-cifar10-small --data-dir ~/data --workers 2",
    )
    _add_chosen_study(made)
    _add_engine(made)
    made.add_argument("--out", metavar="DIR", help="where tables, report and metrics go (default STORE/studies/NAME)")
    tabled = command(
        actions, "table", "print the table of what has been made", "study:show_table", "regun study table digits --wide"
    )
    _add_chosen_study(tabled)
    tabled.add_argument("--format", default="terminal", help="terminal, markdown, latex, latex-document, csv, json")
    tabled.add_argument("--wide", action="store_true", help="all of the paper's columns")
    tabled.add_argument("--columns", metavar="NAMES", help="these numbers and no others, by name (docs/metrics.md)")
    tabled.add_argument("--layout", default="requests", help="requests (a table each), or fractions (side by side)")
    tabled.add_argument("--paper", action="store_true", help="put the paper's numbers beside ours")
    tabled.add_argument("--as-study", metavar="NAME", help="with --paper: the built-in study to compare with")
    tabled.add_argument("--out", metavar="FILE", help="write to a file")
    reported = command(
        actions, "report", "write the HTML report of what has been made", "study:report", "regun study report digits"
    )
    _add_chosen_study(reported)
    reported.add_argument("--out", metavar="FILE", help="the page (default STORE/studies/NAME/report.html)")


def add_tradeoff(commands: Commands) -> None:
    parser = command(
        commands,
        "tradeoff",
        "sweep the weight w of a study's methods and draw utility against forgetting",
        "study:tradeoff",
        "regun tradeoff digits --w 0.1,0.5,0.9,0.97",
    )
    _add_chosen_study(parser)
    _add_engine(parser)
    parser.add_argument("--w", metavar="NUMBERS", help="weights of the retain loss (default 0.1,0.2,...,0.9)")
    parser.add_argument("--out", metavar="DIR", help="where the figures go (default STORE/studies/NAME)")


def _add_chosen_study(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", help="a built-in study (see `regun study list`) or FILE.toml")
    parser.add_argument("--seeds", metavar="LIST", help="only these seeds, as in 0,1")
    parser.add_argument("--forget", metavar="LIST", help="only these requests, as in 0.01,0.1")
    add_data_dir(parser)
    add_machine(parser)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", default="local", choices=("local", "ray"), help="where tasks run (default local)")
    parser.add_argument("--workers", type=int, metavar="N", help="tasks at a time, each with its share of threads")
    parser.add_argument("--address", metavar="ADDRESS", help="ray: an existing cluster (default: one on this machine)")
    parser.add_argument(
        "--silence-minutes",
        type=float,
        default=60.0,
        metavar="M",
        help="a worker process that says nothing for so long is replaced (default 60)",
    )
    parser.add_argument("--track", metavar="NAMES", help="also log to: tensorboard, mlflow, wandb")


def list_studies(args: argparse.Namespace) -> int:
    """The built-in studies."""
    from regun.cli.terminal import emit
    from regun.show.text import table
    from regun.study import builtin_names, read_study
    from regun.study.asked import request_label

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
    """A study's file as it is, and as comments what it stands for."""
    from regun.cli.terminal import emit
    from regun.study import builtin_names, read_study
    from regun.study.resolved import as_comments, resolved, without_comments

    study = read_study(args.study)
    if args.json:
        emit({**study.to_json(), "resolved": resolved(study)})
        return 0
    own = args.study not in builtin_names()
    path = Path(args.study).expanduser() if own else resources.files("regun.study") / "builtin" / f"{args.study}.toml"
    print(f"{without_comments(path.read_text()).rstrip()}\n\n{as_comments(study)}", end="")
    return 0


def run(args: argparse.Namespace) -> int:
    """Make what is missing, then the tables and the report; the exit code is 1 unless everything is there."""
    study = chosen(args)
    shop, out = open_workshop(args, study), out_of(args, study)
    return finish(shop, carry_out_chosen(args, shop, out), out, as_json=args.json)


def finish(shop: Workshop, ran: Ran, out: Path, *, as_json: bool) -> int:
    """Write everything, show the table, and say whether the study is whole."""
    from regun.show.formats import render
    from regun.study.collect import collect

    results = collect(shop, ran.failed)
    paths = write_all(shop, results, out)
    if as_json:
        print(render(results, "json"), end="")
    else:
        print(render(results))
        for task, reason in ran.failed.items():
            print(f"FAILED {task}: {reason}")
        print(f"report   {paths[0]}\nfigure   {next((p for p in paths if p.suffix == '.svg'), 'none yet')}")
        print(f"tables   {', '.join(p.name for p in paths if p.stem in ('table', 'rows'))} in {out}")
    return 1 if ran.failed or results.missing else 0


def show_table(args: argparse.Namespace) -> int:
    """The table of what has been made so far."""
    from regun.show.files import write_text
    from regun.show.formats import render
    from regun.study.collect import collect
    from regun.study.paper import paper_numbers

    study = chosen(args)
    paper = paper_numbers(args.as_study or study.name) if args.paper else None
    results = collect(open_workshop(args, study), paper=paper)
    columns = args.columns.split(",") if args.columns else None
    text = render(results, "json" if args.json else args.format, wide=args.wide, columns=columns, layout=args.layout)
    if args.out:
        print(write_text(Path(args.out), text), file=sys.stderr)
    else:
        print(text, end="")
    return 0


def report(args: argparse.Namespace) -> int:
    """The report of what has been made so far."""
    from regun.cli.terminal import emit
    from regun.show.files import write_text
    from regun.show.report import build_report
    from regun.study.collect import collect

    study = chosen(args)
    shop = open_workshop(args, study)
    results, out = collect(shop), out_of(args, study)
    path = Path(args.out) if args.out else out / "report.html"
    write_text(path, build_report(results, *shown_with(shop, results, out)))
    emit({"report": str(path)}) if args.json else print(path)
    return 0


def tradeoff(args: argparse.Namespace) -> int:
    """The sweep of w and its figure."""
    from regun.cli.terminal import emit
    from regun.show.files import write_figures, write_text
    from regun.study.collect import collect
    from regun.study.tradeoff import WEIGHTS, sweep, tradeoffs

    study = chosen(args)
    weights = _weights(args.w) if args.w else WEIGHTS
    before = open_workshop(args, study)
    if study.tune:
        study = _frozen(args, before)
    swept, out = before.beside(sweep(study, weights)), out_of(args, study)
    ran = carry_out_chosen(args, swept, out)
    write_text(out / SWEEP, json.dumps({"weights": list(weights)}))
    found = tradeoffs(collect(swept, ran.failed), study, weights)
    paths = write_figures(found, out)
    if args.json:
        emit({"tradeoffs": [_tradeoff_json(t) for t in found], "files": [str(p) for p in paths], "failed": ran.failed})
    else:
        _print_tradeoffs(found)
        print("\n" + "\n".join(str(path) for path in paths))
    return 1 if ran.failed else 0


def chosen(args: argparse.Namespace) -> Study:
    """The study, or the part of it that --seeds and --forget choose."""
    from regun.cli.options import Problems
    from regun.runs.setup import split_requests
    from regun.study.reading import read_study, refuse_bad

    study, problems = read_study(args.study), Problems()
    if args.seeds:
        picked = problems.attempt(lambda: tuple(_whole(text, "--seeds") for text in args.seeds.split(",")))
        study = replace(study, seeds=picked or study.seeds, tune_seed=study.tuned_on if study.tune else None)
    if args.forget:
        texts = split_requests(args.forget)
        study = replace(study, forget=texts, settings={k: v for k, v in study.settings.items() if k in texts})
    problems.attempt(lambda: refuse_bad(study))
    problems.stop_if_any()
    return study


def open_workshop(args: argparse.Namespace, study: Study) -> Workshop:
    """The study's data, store and device, as the arguments name them."""
    from regun.cli.options import read_device
    from regun.study import Workplace, Workshop

    device = read_device(args.device)
    place = Workplace(str(Path(args.store).resolve()), args.data_dir, str(device), args.snapshot_seconds)
    return Workshop(study, place)


def carried_out(shop: Workshop, engine: Engine, out: Path, *, track: Sequence[str] = (), quiet: bool = False) -> Ran:
    """Run the study with progress for people and its numbers streaming to `out`."""
    from regun.cli.progress import StudyProgress
    from regun.study.run import carry_out
    from regun.study.tracking import Tracking, open_trackers

    tracking = Tracking(shop, out, open_trackers(track, shop.study.name, out))
    progress = StudyProgress(shop.plan, quiet=quiet)

    def listen(event: Mapping[str, Any]) -> None:
        tracking(event)
        progress(event)

    try:
        return carry_out(shop, engine, listen)
    finally:
        tracking.close()
        progress.close()


def write_all(shop: Workshop, results: Results, out: Path) -> list[Path]:
    """Report, tables, figures and, if the study tuned, the settings found; the report first."""
    from regun.show.files import write_study, write_text
    from regun.tune.settings_file import format_settings

    paths = write_study(results, *shown_with(shop, results, out), out)
    if shop.study.tune:
        paths.append(write_text(out / "tuned.toml", format_settings(shop.frozen().settings)))
    return paths


def shown_with(
    shop: Workshop, results: Results, out: Path
) -> tuple[list[Closeup], list[TradeOff], list[tuple[str, Mapping[str, Tuned]]]]:
    """What the report shows besides results: close-ups, trade-offs (those of an earlier sweep, if whole), searches."""
    from regun.study.asked import request_label
    from regun.study.collect import closeup, searches
    from regun.study.tradeoff import tradeoffs

    closeups = [found for forget in shop.study.forget if (found := closeup(shop, forget)) is not None]
    found = [(request_label(forget), searches(shop, forget)) for forget in shop.study.forget]
    return closeups, _swept_before(shop, out) or tradeoffs(results), [one for one in found if one[1]]


def _swept_before(shop: Workshop, out: Path) -> list[TradeOff]:
    from regun.study.collect import collect
    from regun.study.tradeoff import sweep, tradeoffs

    if not (out / SWEEP).is_file():
        return []
    weights: list[float] = json.loads((out / SWEEP).read_text())["weights"]
    study = shop.frozen()
    swept = shop.beside(sweep(study, weights))
    done = all(swept.done(task) for task in swept.plan.tasks.values())
    return tradeoffs(collect(swept), study, weights) if done else []


def out_of(args: argparse.Namespace, study: Study) -> Path:
    """The study's folder: that of --out, which is a file for `report` and `table`, or one in the store."""
    own = args.out if args.run in ("study:run", "study:tradeoff") else None
    return Path(own) if own else Path(args.store) / "studies" / study.name


def carry_out_chosen(args: argparse.Namespace, shop: Workshop, out: Path) -> Ran:
    """Run the study as --engine, --workers, --threads and --track say."""
    track = args.track.split(",") if args.track else ()
    return carried_out(shop, _engine(args, shop), out, track=track, quiet=args.quiet)


def _engine(args: argparse.Namespace, shop: Workshop) -> Engine:
    from regun.cli.options import use_threads
    from regun.errors import SettingsError
    from regun.study.engines import InProcess, Processes
    from regun.study.on_ray import OnRay

    threads = args.threads or shop.study.threads
    if args.engine == "ray":
        return OnRay(shop, args.address, args.workers, threads)
    if args.address:
        raise SettingsError([f"--address is {args.address!r}, which is for --engine ray only."])
    workers = 1 if args.workers is None else int(args.workers)
    if workers < 1:
        raise SettingsError([f"--workers is {workers}; give at least 1."])
    if not args.silence_minutes > 0:
        raise SettingsError([f"--silence-minutes is {args.silence_minutes}; give a number above 0."])
    if workers == 1:
        use_threads(threads)
        return InProcess(shop)
    return Processes(shop, workers, threads, 60 * args.silence_minutes)


def _frozen(args: argparse.Namespace, shop: Workshop) -> Study:
    """The study with its tuned settings, which must have been searched."""
    from regun.errors import RegunError

    waiting = [task.label for task in shop.plan.tasks.values() if task.kind == "tune" and not shop.done(task)]
    if waiting:
        raise RegunError(
            f"{len(waiting)} searches of this study are not over (the first is {waiting[0]}); "
            f"run `regun study run {args.study}` first."
        )
    return shop.frozen()


def _weights(text: str) -> tuple[float, ...]:
    from regun.errors import SettingsError

    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SettingsError([f"--w is {text!r}; give numbers from 0 to 1, as in 0.1,0.5,0.9."]) from None


def _whole(text: str, flag: str) -> int:
    from regun.errors import SettingsError

    if not (text.strip().isdecimal() and len(text) < 10):
        raise SettingsError([f"{flag} holds {text[:20]!r}; give whole numbers, as in 0,1,2."])
    return int(text)


def _tradeoff_json(found: TradeOff) -> dict[str, Any]:
    curves = {title: [vars(point) for point in points] for title, points in found.curves.items()}
    fixed = {title: vars(point) for title, point in found.fixed.items()}
    ends = {"retrain": vars(found.retrain), "base": vars(found.base), "noise": found.noise}
    return {"forget": found.forget, **ends, "curves": curves, "fixed": fixed}


def _print_tradeoffs(found: Sequence[TradeOff]) -> None:
    from regun.show.numbers import fixed
    from regun.show.text import table

    for one in found:
        points = [("Retrain", one.retrain), ("Base", one.base)]
        points += [(title, p) for title, curve in one.curves.items() for p in curve]
        points += list(one.fixed.items())
        rows = [[t, "" if p.w is None else f"{p.w:g}", fixed(p.utility), fixed(p.forgetting)] for t, p in points]
        print(f"forget {one.label}")
        print(table(["method", "w", "test acc.", "RMIA AUC"], rows) + "\n")
