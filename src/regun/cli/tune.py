"""`regun tune`: the searches of several methods' settings, one after the other."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regun.cli.arguments import (
    BAD_INPUT,
    BUDGET,
    FORGET,
    Commands,
    add_machine,
    add_number,
    add_options,
    add_setup,
    command,
    location_options,
    whole,
)
from regun.cli.terminal import emit, print_table, write
from regun.errors import SettingsError
from regun.render.numbers import fixed

if TYPE_CHECKING:
    from regun.cli.options import Start
    from regun.experiments.search import Search, SearchResult, Space
    from regun.methods import Method


def add_tune(commands: Commands) -> None:
    parser = command(
        commands,
        "tune",
        "search the settings of unlearning methods, with a retrained model or without; test data are never used",
        "tune:run",
        "regun tune --base 3f2a --forget 0.1 --methods regun,finetune --trials 20 --objective reference --out tuned",
    )
    add_options(
        parser,
        {
            "--base KEY|FILE": "the trained model, as in `regun unlearn`",
            "--forget FORGET": f"what to forget: {FORGET}",
        },
        required=True,
    )
    methods = "methods separated by commas, each NAME[@PRESET][,KEY=VALUE...]; a setting given stays as it is"
    add_options(parser, {"--methods NAMES": f"{methods}; default: all but retrain"})
    add_number(parser, "--trials N", whole(high=100_000), 20, "settings to try for each (default 20)")
    parser.add_argument(
        "--objective",
        default="gap",
        metavar="NAME",
        help="gap: distance to Retrain on validation, needs retrained models in the store (default); "
        "reference: forgotten examples look unseen at the least loss of accuracy, needs none",
    )
    add_options(
        parser,
        {
            "--pareto": "search the front of forgetting against utility, not one score",
            "--retrained KEYS": "objective gap: retrained models, separated by commas: first Retrain, then references; "
            "default: those in the store that were trained like the base, on the retain set",
            BUDGET: "the same budget for every iterative method",
        },
    )
    add_number(parser, "--seed N", whole(), 0, "seed of the search and of its runs (default 0)")
    add_options(parser, {"--out DIR": "write tuned.toml, all trials, figures and a report to this folder"})
    parser.set_defaults(teacher=None)  # of `regun unlearn`, which starts from the same
    add_setup(parser)
    add_machine(parser)


@dataclass(frozen=True)
class Candidate:
    """A method to tune: its text, the settings it starts from, those that were given and stay, where to look."""

    text: str
    method: Method
    start: Any
    fixed: tuple[str, ...]
    space: Space


def run(args: argparse.Namespace) -> int:
    from regun.artifacts.setup import family_of
    from regun.cli.options import Problems, read_start
    from regun.experiments.report.search_page import tuning_files

    problems = Problems()
    problems.attempt(lambda: _check(args))
    start = read_start(args, "tune", problems)
    family = family_of(start.setup.model.name if start else "")
    recipe = start.base.inputs.get("recipe") if start and start.base else None
    candidates = problems.attempt(lambda: read_candidates(args.methods, family, recipe))
    problems.stop_if_any()
    if start is None or candidates is None:
        return BAD_INPUT
    searches = _searches(args, start, candidates)
    any_search = next(iter(searches.values()))
    about = _about(args, any_search)
    start.context.display.note(about)
    found = {name: _search(args, name, each, start) for name, each in searches.items()}
    contents = tuning_files(found, args.forget, about) if args.out else {}
    files = [write(Path(args.out) / name, content) for name, content in contents.items()]
    emit(_json(args, any_search, about, found, files)) if args.json else _print(found, about, args, files)
    return 0


def _check(args: argparse.Namespace) -> None:
    """What can be said without the store: the objective, the number of trials, Optuna."""

    from regun.cli.options import Problems
    from regun.experiments.search import check_objective, need_optuna

    problems = Problems()
    problems.attempt(lambda: check_objective(args.objective))
    if args.trials < 1:
        problems.found.append(f"--trials is {args.trials}; give at least 1.")
    if args.objective != "gap" and args.retrained:
        problems.found.append(f"--retrained is for the objective gap, not {args.objective}.")
    if args.out and Path(args.out).exists() and not Path(args.out).is_dir():
        problems.found.append(f"--out is {args.out}, a file; name a folder, new or there already.")
    problems.attempt(need_optuna)
    problems.stop_if_any()


def read_candidates(text: str | None, family: str, recipe: Mapping[str, Any] | None) -> list[Candidate]:
    """The methods to tune; in `regun,lr=0.1,finetune` a part with `=` belongs to the method before it."""

    from regun.cli.options import Problems
    from regun.methods import method_names

    texts: list[str] = []
    for part in text.split(",") if text else [name for name in method_names() if name != "retrain"]:
        if "=" in part and texts:
            texts[-1] += f",{part}"
        else:
            texts.append(part)
    problems = Problems()
    read = [problems.attempt(lambda t=t: _candidate(t, family, recipe)) for t in texts]
    found = [candidate for candidate in read if candidate is not None]
    names = [candidate.text for candidate in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems.found += [f"--methods names {name} more than once; name each once." for name in twice]
    problems.stop_if_any()
    if all(candidate.space.size == 1 for candidate in found):
        raise SettingsError(
            [
                f"{', '.join(names)}: nothing to search for this family of models ({family}), or all of it was given; "
                f"`regun methods NAME` shows what can be searched."
            ]
        )
    return found


def _candidate(text: str, family: str, recipe: Mapping[str, Any] | None) -> Candidate:
    from regun.experiments.search import Space
    from regun.methods import MethodSpec

    spec = MethodSpec.parse(text)
    start, fixed = spec.configure(family, recipe), tuple(spec.settings)
    return Candidate(spec.label, spec.method, start, fixed, Space.of(spec.method, start, family, fixed))


def _searches(args: argparse.Namespace, start: Start, candidates: Sequence[Candidate]) -> dict[str, Search]:
    """The search of every method, by its text; nothing has run yet."""

    from regun.artifacts.unlearnings import Unlearning
    from regun.cli.options import retrained_models
    from regun.experiments.search import Search

    base, data, splits = start.load(args.base)
    gap, store = args.objective == "gap", start.context.store
    retrain, references = retrained_models(args.retrained, base, splits, store) if gap else (None, ())

    def search_of(candidate: Candidate) -> Search:
        run = Unlearning(
            base=base,
            data=start.setup.data_for(candidate.method, data),
            splits=splits,
            method=candidate.method,
            config=candidate.start,
            seed=args.seed,
            budget=start.budget,
        )
        return Search(
            run=run,
            space=candidate.space,
            objective=args.objective,
            trials=args.trials,
            seed=args.seed,
            pareto=args.pareto,
            retrain=retrain,
            references=references,
            fixed=candidate.fixed,
        )

    return {candidate.text: search_of(candidate) for candidate in candidates}


def _about(args: argparse.Namespace, order: Search) -> str:
    """What the search minimises, what it needed for that, and on what it ran."""

    from regun.experiments.search import OBJECTIVES

    what = f"objective {args.objective}: {OBJECTIVES[args.objective].partition(';')[0]}"
    oracle = "No retrained model is used"
    if order.retrain is not None:
        others = ", ".join(r.key[:12] for r in order.references)
        oracle = f"It needs the oracle: retrained model {order.retrain.key[:12]}, references {others}"
    spent = f", {args.budget} each" if args.budget else ""
    trials = f"{args.trials} trials a method{spent}, seed {args.seed}"
    where = f"Base {order.run.base.key[:12]}, forget {args.forget}, {trials}"
    return f"{what}. {oracle}. {where}. Test data are not used."


def _search(args: argparse.Namespace, name: str, wanted: Search, start: Start) -> SearchResult:
    from regun.cli.display import open_display
    from regun.experiments.search import search
    from regun.training.job import Callbacks

    display = open_display(args, f"tune {name}")
    about = {**start.setup.about(), "request": args.forget, "split_digest": wanted.run.splits.digest}
    watch, tell = Callbacks(on_progress=display.progress), display.trials(wanted.wanted)
    tuned = search(wanted, start.context.store, start.context.device, about=about, watch=watch, on_trial=tell)
    note = f"; {tuned.note}" if tuned.note else ""
    display.note(f"best {fixed(tuned.best_score)}, default {fixed(tuned.default_score)}{note}")
    return tuned


def _json(
    args: argparse.Namespace, order: Search, about: str, found: Mapping[str, SearchResult], files: list[Path]
) -> dict[str, Any]:

    return {
        "about": about,
        "objective": args.objective,
        "request": args.forget,
        "base": order.run.base.key,
        "retrain": order.retrain.key if order.retrain else None,
        "references": [r.key for r in order.references],
        "methods": {name: each.to_json() for name, each in found.items()},
        "files": [str(f) for f in files],
    }


def _print(found: Mapping[str, SearchResult], about: str, args: argparse.Namespace, files: list[Path]) -> None:
    from regun.experiments.report.search_page import HEAD, summary_rows
    from regun.experiments.search import OBJECTIVES

    print(f"{about}\n")
    print_table(HEAD, summary_rows(found))
    print(f"\nScore: {OBJECTIVES[args.objective]}. In points; good is 0.")
    for name, each in found.items():
        diverged = sum(1 for t in each.trials if t.diverged)
        if diverged:
            print(f"{name}: {diverged} of {len(each.trials)} trials diverged and count as the worst.")
    if files:
        print(f"\nfiles {files[0].parent}: {', '.join(f.name for f in files)}")
        print(
            f"next  regun unlearn --base KEY --forget ... --method NAME --settings {files[0]}{location_options(args)}"
        )
