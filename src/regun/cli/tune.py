"""`regun tune`: its arguments, and the searches of several methods' settings, one after the other."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regun.cli.arguments import REQUEST_HELP, WRONG, Commands, add_machine, add_setup, command, whole
from regun.cli.options import Problems, load, open_store, read_device, read_origin, splits_of, use_threads
from regun.cli.terminal import Display, emit
from regun.errors import SettingsError
from regun.settings import parse_spec
from regun.show.numbers import duration, fixed, pairs
from regun.show.text import table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from regun.methods import Method
    from regun.runs.choices import Selection
    from regun.runs.setup import Setup
    from regun.splits import Request, Splits
    from regun.store import Artefact, Store
    from regun.training.job import Budget
    from regun.tune import Search, Space, Tried, Tuned


def add_tune(commands: Commands) -> None:
    parser = command(
        commands,
        "tune",
        "search the settings of unlearning methods, with a retrained model or without; test data are never used",
        "tune:run",
        "regun tune --base 3f2a --forget 0.1 --methods regun,finetune --trials 20 --objective reference --out tuned",
    )
    parser.add_argument("--base", required=True, metavar="KEY|FILE", help="the trained model, as in `regun unlearn`")
    parser.add_argument("--forget", required=True, metavar="REQUEST", help=REQUEST_HELP)
    parser.add_argument(
        "--methods",
        metavar="NAMES",
        help="methods separated by commas, each NAME[@PRESET][,KEY=VALUE...]; a setting given stays as it is; "
        "default: all but retrain",
    )
    parser.add_argument(
        "--trials", type=whole(high=100_000), default=20, metavar="N", help="settings to try for each (default 20)"
    )
    parser.add_argument(
        "--objective",
        default="gap",
        help="gap: distance to Retrain on validation, needs retrained models in the store (default); "
        "reference: forgotten examples look unseen at the least loss of accuracy, needs none",
    )
    parser.add_argument(
        "--pareto", action="store_true", help="search the front of forgetting against utility, not one score"
    )
    parser.add_argument("--retrain", metavar="KEY", help="objective gap: the retrained model; default: found")
    parser.add_argument("--references", metavar="KEYS", help="objective gap: further retrained models; default: found")
    parser.add_argument("--budget", metavar="steps=N|samples=N", help="the same budget for every iterative method")
    parser.add_argument("--seed", type=whole(), default=0, help="seed of the search and of its runs (default 0)")
    parser.add_argument(
        "--out", metavar="DIR", help="write tuned.toml, all trials, figures and a report to this folder"
    )
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


@dataclass(frozen=True)
class Order:
    """What the arguments ask for, checked but not yet loaded; `base` is None where it comes from a file."""

    setup: Setup
    request: Request | Selection
    store: Store
    device: torch.device
    base: Artefact | None
    budget: Budget | None
    candidates: list[Candidate]


def run(args: argparse.Namespace) -> int:
    from regun.show.tuning import write_report

    order = _read(args)
    if order is None:
        return WRONG
    display = Display("tune", args.quiet)
    searches = _searches(args, order, display)
    any_search = next(iter(searches.values()))
    about = _about(args, any_search)
    display.note(about)
    found = {name: _search(args, name, each, order) for name, each in searches.items()}
    files = write_report(Path(args.out), found, args.forget, about) if args.out else []
    emit(_json(args, any_search, about, found, files)) if args.json else _print(found, about, args.objective, files)
    return 0


def _read(args: argparse.Namespace) -> Order | None:
    """Everything the arguments say; all mistakes at once."""
    from regun.runs.setup import family_of, read_budget, read_request

    problems = Problems()
    problems.attempt(lambda: _check(args))
    store = problems.attempt(lambda: open_store(args))
    base, setup = read_origin(args, store, problems)
    request = problems.attempt(lambda: read_request(args.forget))
    budget = problems.attempt(lambda: read_budget(args.budget)) if args.budget else None
    device = problems.attempt(lambda: read_device(args.device))
    problems.attempt(lambda: use_threads(args.threads))
    family = family_of(setup.model.name if setup else "")
    recipe = base.inputs.get("recipe") if base else None
    candidates = problems.attempt(lambda: read_candidates(args.methods, family, recipe))
    problems.stop_if_any()
    if setup is None or request is None or device is None or store is None or candidates is None:
        return None
    return Order(setup, request, store, device, base, budget, candidates)


def _check(args: argparse.Namespace) -> None:
    """What can be said without the store: the objective, the number of trials, Optuna."""
    from regun.tune import check_objective, need_optuna

    problems = Problems()
    problems.attempt(lambda: check_objective(args.objective))
    if args.trials < 1:
        problems.found.append(f"--trials is {args.trials}; give at least 1.")
    if args.objective != "gap" and (args.retrain or args.references):
        problems.found.append(f"--retrain and --references are for the objective gap, not {args.objective}.")
    problems.attempt(need_optuna)
    problems.stop_if_any()


def read_candidates(text: str | None, family: str, recipe: Mapping[str, Any] | None) -> list[Candidate]:
    """The methods to tune; in `regun,lr=0.1,finetune` a part with `=` belongs to the method before it."""
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
    from regun.methods import read_method
    from regun.tune import Space
    from regun.tune.settings_file import method_name

    method, start = read_method(text, family, recipe)
    fixed = tuple(parse_spec(text)[1])
    return Candidate(method_name(text), method, start, fixed, Space.of(method, start, family, fixed))


def _searches(args: argparse.Namespace, order: Order, display: Display) -> dict[str, Search]:
    """The search of every method, by its text; nothing has run yet."""
    from regun.runs.training import import_model
    from regun.runs.unlearning import Unlearning
    from regun.tune import Search

    setup, store = order.setup, order.store
    data, kept = load(setup, display)
    base = order.base or import_model(Path(args.base), data, kept.base, setup.model, store, about=setup.about())
    splits = splits_of(order.request, base, setup, data, kept, store, order.device, display)
    retrain, references = _retrained(args, base, splits, store) if args.objective == "gap" else (None, ())

    def search_of(candidate: Candidate) -> Search:
        run = Unlearning(
            base=base,
            data=setup.seen_by(candidate.method, data),
            splits=splits,
            method=candidate.method,
            config=candidate.start,
            seed=args.seed,
            budget=order.budget,
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

    return {candidate.text: search_of(candidate) for candidate in order.candidates}


def _retrained(
    args: argparse.Namespace, base: Artefact, splits: Splits, store: Store
) -> tuple[Artefact | None, tuple[Artefact, ...]]:
    """The retrained models: those named, or those in the store that were trained like the base on the retain set."""
    from regun.runs.training import find_retrained

    found = find_retrained(store, base, splits.retain)
    retrain = store.find(args.retrain, "model") if args.retrain else next(iter(found), None)
    named = [store.find(key, "model") for key in args.references.split(",")] if args.references else found
    return retrain, tuple(r for r in named if retrain is None or r.key != retrain.key)


def _about(args: argparse.Namespace, search: Search) -> str:
    """What the search minimises, what it needed for that, and on what it ran."""
    from regun.tune import OBJECTIVES

    what = f"objective {args.objective}: {OBJECTIVES[args.objective].partition(';')[0]}"
    oracle = "No retrained model is used"
    if search.retrain is not None:
        others = ", ".join(r.key[:12] for r in search.references)
        oracle = f"It needs the oracle: retrained model {search.retrain.key[:12]}, references {others}"
    spent = f", {args.budget} each" if args.budget else ""
    trials = f"{args.trials} trials a method{spent}, seed {args.seed}"
    where = f"Base {search.run.base.key[:12]}, forget {args.forget}, {trials}"
    return f"{what}. {oracle}. {where}. Test data are not used."


def _search(args: argparse.Namespace, name: str, wanted: Search, order: Order) -> Tuned:
    from regun.runs.training import Watch
    from regun.tune import search

    display = Display(f"tune {name}", args.quiet)
    running = display if display.live else Display(display.title, args.quiet)  # keeps its own pace in a log
    about = {**order.setup.about(), "request": args.forget, "split_digest": wanted.run.splits.digest}
    watch, tell = Watch(on_progress=running.progress), trial_teller(display, wanted.wanted)
    tuned = search(wanted, order.store, order.device, about=about, watch=watch, on_trial=tell)
    note = f"; {tuned.note}" if tuned.note else ""
    display.note(f"best {fixed(tuned.best_score)}, default {fixed(tuned.default_score)}{note}")
    return tuned


def trial_teller(display: Display, trials: int) -> Callable[[Tried], None]:
    """Shows each trial of a search as it ends."""

    def tell(trial: Tried) -> None:
        values = " ".join(f"{name}={text}" for name, text in pairs(trial.values))
        state = "  DIVERGED" if trial.diverged else ""
        took = duration(trial.seconds)
        display.note(f"trial {trial.number + 1}/{trials}  score {fixed(trial.score)}{state}  {values}  {took}")

    return tell


def _json(
    args: argparse.Namespace, search: Search, about: str, found: Mapping[str, Tuned], files: list[Path]
) -> dict[str, Any]:
    return {
        "about": about,
        "objective": args.objective,
        "request": args.forget,
        "base": search.run.base.key,
        "retrain": search.retrain.key if search.retrain else None,
        "references": [r.key for r in search.references],
        "methods": {name: each.to_json() for name, each in found.items()},
        "files": [str(f) for f in files],
    }


def _print(found: Mapping[str, Tuned], about: str, objective: str, files: list[Path]) -> None:
    from regun.show.tuning import HEAD, summary_rows
    from regun.tune import OBJECTIVES

    print(f"{about}\n")
    print(table(HEAD, summary_rows(found)))
    print(f"\nScore: {OBJECTIVES[objective]}. In points; good is 0.")
    for name, each in found.items():
        diverged = sum(1 for t in each.trials if t.diverged)
        if diverged:
            print(f"{name}: {diverged} of {len(each.trials)} trials diverged and count as the worst.")
    if files:
        print(f"\nfiles {files[0].parent}: {', '.join(f.name for f in files)}")
        print(f"next  regun unlearn --base KEY --forget REQUEST --method NAME --settings {files[0]}")
