"""`regun tune`."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regun.cli.options import Problems, load, read_device, read_origin, use_threads
from regun.cli.terminal import Display, emit, table
from regun.cli.unlearn import trial_teller
from regun.data.examples import Data
from regun.errors import SettingsError
from regun.methods import Method, method_names, read_method
from regun.runs.audit import Models, find_retrained
from regun.runs.setup import Setup, family_of, read_budget, read_request
from regun.runs.training import Watch, import_model
from regun.settings import parse_spec
from regun.splits import Request, Splits, make_splits
from regun.store import Artefact, Store
from regun.training.job import Budget
from regun.tune import OBJECTIVES, Space, Tuned, check_objective, check_oracle, need_optuna, tune_method
from regun.tune.report import HEAD, summary_rows, write_report
from regun.tune.settings_file import method_name


@dataclass(frozen=True)
class Candidate:
    """A method to tune: its text, the settings it starts from, those that were given and stay, where to look."""

    text: str
    method: Method
    start: Any
    fixed: tuple[str, ...]
    space: Space


@dataclass(frozen=True)
class Ground:
    """What every method is tuned on."""

    base: Artefact
    data: Data
    splits: Splits
    models: Models | None
    store: Store
    device: torch.device
    family: str
    budget: Budget | None


@dataclass(frozen=True)
class Order:
    """What the arguments ask for, checked but not yet loaded; `base` is None where it comes from a file."""

    setup: Setup
    request: Request
    store: Store
    device: torch.device
    family: str
    base: Artefact | None
    budget: Budget | None
    candidates: list[Candidate]


def run(args: argparse.Namespace) -> int:
    order = _read(args)
    if order is None:
        return 2
    display = Display("tune", args.quiet)
    ground = _ground(args, order, display)
    about = _about(args, ground)
    display.note(about)
    tuned = {candidate.text: _tune(args, candidate, ground) for candidate in order.candidates}
    files = write_report(Path(args.out), tuned, args.forget, about) if args.out else []
    if args.json:
        emit(_json(args, ground, about, tuned, files))
    else:
        _print(tuned, about, args.objective, files)
    return 0


def _read(args: argparse.Namespace) -> Order | None:
    """Everything the arguments say; all mistakes at once."""
    problems = Problems()
    problems.attempt(lambda: _check(args))
    store = problems.attempt(lambda: Store(args.store, snapshot_seconds=args.snapshot_seconds))
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
    return Order(setup, request, store, device, family, base, budget, candidates)


def _check(args: argparse.Namespace) -> None:
    """What can be said without the store: the objective, the number of trials, Optuna and its storage."""
    problems = Problems()
    problems.attempt(lambda: check_objective(args.objective))
    if args.trials < 1:
        problems.found.append(f"--trials is {args.trials}; give at least 1.")
    if args.objective != "gap" and (args.retrain or args.references):
        problems.found.append(f"--retrain and --references are for the objective gap, not {args.objective}.")
    problems.attempt(lambda: _check_storage(args.storage))
    problems.stop_if_any()


def _check_storage(address: str | None) -> None:
    need_optuna()
    if address is not None:
        from regun.tune.storage import open_storage

        open_storage(address)


def read_candidates(text: str | None, family: str, recipe: Mapping[str, Any] | None) -> list[Candidate]:
    """The methods to tune; in `regun,lr=0.1,finetune` a part with `=` belongs to the method before it."""
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
    method, start = read_method(text, family, recipe)
    fixed = tuple(parse_spec(text)[1])
    return Candidate(method_name(text), method, start, fixed, Space.of(method, start, family, fixed))


def _ground(args: argparse.Namespace, order: Order, display: Display) -> Ground:
    data, kept = load(order.setup, display)
    splits = make_splits(data.train.labels, order.request, kept)
    base = order.base
    if base is None:
        about = order.setup.about()
        base = import_model(Path(args.base), data, kept.base, order.setup.model, order.store, about=about)
    models = _models(args, base, splits, order.store) if args.objective == "gap" else None
    return Ground(base, data, splits, models, order.store, order.device, order.family, order.budget)


def _models(args: argparse.Namespace, base: Artefact, splits: Splits, store: Store) -> Models:
    """The retrained models: those named, or those in the store that were trained like the base on the retain set."""
    found = find_retrained(store, base, splits)
    retrain = store.find(args.retrain, "model") if args.retrain else next(iter(found), None)
    named = [store.find(key, "model") for key in args.references.split(",")] if args.references else found
    models = Models(base, retrain, tuple(r for r in named if retrain is None or r.key != retrain.key))
    check_oracle(models, splits)
    return models


def _about(args: argparse.Namespace, ground: Ground) -> str:
    """What the search minimises, what it needed for that, and on what it ran."""
    what = f"objective {args.objective}: {OBJECTIVES[args.objective].partition(';')[0]}"
    if ground.models is not None and ground.models.retrain is not None:
        others = ", ".join(r.key[:12] for r in ground.models.references)
        oracle = f"It needs the oracle: retrained model {ground.models.retrain.key[:12]}, references {others}"
    else:
        oracle = "No retrained model is used"
    spent = f", {args.budget} each" if args.budget else ""
    trials = f"{args.trials} trials a method{spent}, seed {args.seed}"
    where = f"Base {ground.base.key[:12]}, forget {args.forget}, {trials}"
    return f"{what}. {oracle}. {where}. Test data are not used."


def _tune(args: argparse.Namespace, candidate: Candidate, ground: Ground) -> Tuned:
    display = Display(f"tune {candidate.text}", args.quiet)
    running = display if display.live else Display(display.title, args.quiet)  # keeps its own pace in a log
    tuned = tune_method(
        ground.base,
        ground.data,
        ground.splits,
        candidate.method,
        candidate.start,
        ground.models,
        ground.store,
        ground.device,
        objective=args.objective,
        trials=args.trials,
        seed=args.seed,
        budget=ground.budget,
        family=ground.family,
        fixed=candidate.fixed,
        pareto=args.pareto,
        storage=args.storage,
        watch=Watch(on_progress=running.progress),
        on_trial=trial_teller(display, min(args.trials, candidate.space.size or args.trials)),
    )
    note = f"; {tuned.note}" if tuned.note else ""
    display.note(f"best {tuned.best_score:.2f}, default {tuned.default_score:.2f}{note}")
    return tuned


def _json(
    args: argparse.Namespace, ground: Ground, about: str, tuned: Mapping[str, Tuned], files: list[Path]
) -> dict[str, Any]:
    models = ground.models
    return {
        "about": about,
        "objective": args.objective,
        "request": args.forget,
        "base": ground.base.key,
        "retrain": models.retrain.key if models and models.retrain else None,
        "references": [r.key for r in models.references] if models else [],
        "methods": {name: each.to_json() for name, each in tuned.items()},
        "files": [str(f) for f in files],
    }


def _print(tuned: Mapping[str, Tuned], about: str, objective: str, files: list[Path]) -> None:
    print(f"{about}\n")
    print(table(HEAD, summary_rows(tuned)))
    print(f"\nScore: {OBJECTIVES[objective]}. In points; good is 0.")
    for name, each in tuned.items():
        diverged = sum(1 for t in each.trials if t.judged.diverged)
        if diverged:
            print(f"{name}: {diverged} of {len(each.trials)} trials diverged and count as the worst.")
    if files:
        print(f"\nfiles {files[0].parent}: {', '.join(f.name for f in files)}")
        print(f"next  regun unlearn --base KEY --forget REQUEST --method NAME --settings {files[0]}")
