"""`regun tune`: the searches of several methods' settings, one after the other."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regun.artifacts.setup import family_of
from regun.artifacts.unlearnings import Unlearning
from regun.cli.arguments import WRONG, same_place
from regun.cli.options import Problems, Start, read_start, retrained_models
from regun.cli.terminal import Display, emit, write
from regun.errors import SettingsError
from regun.experiments.report.search_page import HEAD, summary_rows, tuning_files
from regun.experiments.search import OBJECTIVES, Search, SearchResult, Space, check_objective, need_optuna, search
from regun.methods import Method, MethodSpec, method_names
from regun.render.numbers import fixed
from regun.render.tables import table
from regun.training.job import Callbacks


@dataclass(frozen=True)
class Candidate:
    """A method to tune: its text, the settings it starts from, those that were given and stay, where to look."""

    text: str
    method: Method
    start: Any
    fixed: tuple[str, ...]
    space: Space


def run(args: argparse.Namespace) -> int:
    problems = Problems()
    problems.attempt(lambda: _check(args))
    start = read_start(args, "tune", problems)
    family = family_of(start.setup.model.name if start else "")
    recipe = start.base.inputs.get("recipe") if start and start.base else None
    candidates = problems.attempt(lambda: read_candidates(args.methods, family, recipe))
    problems.stop_if_any()
    if start is None or candidates is None:
        return WRONG
    searches = _searches(args, start, candidates)
    any_search = next(iter(searches.values()))
    about = _about(args, any_search)
    start.place.display.note(about)
    found = {name: _search(args, name, each, start) for name, each in searches.items()}
    contents = tuning_files(found, args.forget, about) if args.out else {}
    files = [write(Path(args.out) / name, content) for name, content in contents.items()]
    emit(_json(args, any_search, about, found, files)) if args.json else _print(found, about, args, files)
    return 0


def _check(args: argparse.Namespace) -> None:
    """What can be said without the store: the objective, the number of trials, Optuna."""
    problems = Problems()
    problems.attempt(lambda: check_objective(args.objective))
    if args.trials < 1:
        problems.found.append(f"--trials is {args.trials}; give at least 1.")
    if args.objective != "gap" and (args.retrain or args.references):
        problems.found.append(f"--retrain and --references are for the objective gap, not {args.objective}.")
    if args.out and Path(args.out).exists() and not Path(args.out).is_dir():
        problems.found.append(f"--out is {args.out}, a file; name a folder, new or there already.")
    problems.attempt(need_optuna)
    problems.stop_if_any()


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
    spec = MethodSpec.parse(text)
    start, fixed = spec.configure(family, recipe), tuple(spec.settings)
    return Candidate(spec.label, spec.method, start, fixed, Space.of(spec.method, start, family, fixed))


def _searches(args: argparse.Namespace, start: Start, candidates: Sequence[Candidate]) -> dict[str, Search]:
    """The search of every method, by its text; nothing has run yet."""
    base, data, splits = start.load(args.base)
    gap, store = args.objective == "gap", start.place.store
    retrain, references = retrained_models(args, base, splits, store) if gap else (None, ())

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


def _about(args: argparse.Namespace, search: Search) -> str:
    """What the search minimises, what it needed for that, and on what it ran."""
    what = f"objective {args.objective}: {OBJECTIVES[args.objective].partition(';')[0]}"
    oracle = "No retrained model is used"
    if search.retrain is not None:
        others = ", ".join(r.key[:12] for r in search.references)
        oracle = f"It needs the oracle: retrained model {search.retrain.key[:12]}, references {others}"
    spent = f", {args.budget} each" if args.budget else ""
    trials = f"{args.trials} trials a method{spent}, seed {args.seed}"
    where = f"Base {search.run.base.key[:12]}, forget {args.forget}, {trials}"
    return f"{what}. {oracle}. {where}. Test data are not used."


def _search(args: argparse.Namespace, name: str, wanted: Search, start: Start) -> SearchResult:
    display = Display(f"tune {name}", args.quiet)
    running = display if display.live else Display(display.title, args.quiet)  # keeps its own pace in a log
    about = {**start.setup.about(), "request": args.forget, "split_digest": wanted.run.splits.digest}
    watch, tell = Callbacks(on_progress=running.progress), display.trials(wanted.wanted)
    tuned = search(wanted, start.place.store, start.place.device, about=about, watch=watch, on_trial=tell)
    note = f"; {tuned.note}" if tuned.note else ""
    display.note(f"best {fixed(tuned.best_score)}, default {fixed(tuned.default_score)}{note}")
    return tuned


def _json(
    args: argparse.Namespace, search: Search, about: str, found: Mapping[str, SearchResult], files: list[Path]
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


def _print(found: Mapping[str, SearchResult], about: str, args: argparse.Namespace, files: list[Path]) -> None:
    print(f"{about}\n")
    print(table(HEAD, summary_rows(found)))
    print(f"\nScore: {OBJECTIVES[args.objective]}. In points; good is 0.")
    for name, each in found.items():
        diverged = sum(1 for t in each.trials if t.diverged)
        if diverged:
            print(f"{name}: {diverged} of {len(each.trials)} trials diverged and count as the worst.")
    if files:
        print(f"\nfiles {files[0].parent}: {', '.join(f.name for f in files)}")
        print(f"next  regun unlearn --base KEY --forget REQUEST --method NAME --settings {files[0]}{same_place(args)}")
