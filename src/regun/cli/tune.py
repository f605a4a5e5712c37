"""`regun tune`: the searches of several methods' settings, one after the other."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
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
    methods = "methods separated by commas, each NAME[@PRESET][,KEY=VALUE...]; settings in it stay fixed"
    add_options(parser, {"--methods NAMES": f"{methods}; default: all but retrain"})
    add_number(parser, "--trials N", whole(high=100_000), 20, "settings to try per method (default 20)")
    parser.add_argument(
        "--objective",
        default="gap",
        metavar="NAME",
        help="gap: distance to Retrain on validation, needs retrained models (default); "
        "reference: forgotten examples look unseen, with little loss of accuracy; needs none",
    )
    add_options(
        parser,
        {
            "--pareto": "search the Pareto front of forgetting and utility instead of one score",
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
    """A method to tune: its text, the settings it starts from, those that stay fixed, and its search space."""

    text: str
    method: Method
    start: Any
    fixed: tuple[str, ...]
    space: Space


def run(args: argparse.Namespace) -> int:
    from regun.artifacts.setup import family_of
    from regun.cli.options import Problems, read_start
    from regun.experiments.report.search_page import tuning_files
    from regun.experiments.search import check_objective, need_optuna

    problems = Problems()
    problems.attempt(lambda: check_objective(args.objective))
    if args.trials < 1:
        problems.add(f"--trials is {args.trials}; give at least 1.")
    if args.objective != "gap" and args.retrained:
        problems.add(f"--retrained is for the objective gap, not {args.objective}.")
    if args.out and Path(args.out).exists() and not Path(args.out).is_dir():
        problems.add(f"--out is {args.out}, a file; give a folder, new or existing.")
    problems.attempt(need_optuna)
    start = read_start(args, "tune", problems)
    family = family_of(start.setup.model.name if start else "")
    recipe = start.base.inputs.get("recipe") if start and start.base else None
    candidates = problems.attempt(lambda: read_candidates(args.methods, family, recipe))
    problems.stop_if_any()
    if start is None or candidates is None:
        return BAD_INPUT
    searches = _searches(args, start, candidates)
    first = next(iter(searches.values()))
    summary = _summary(args, first)
    start.context.display.note(summary)
    results = {name: _search(args, name, search, start) for name, search in searches.items()}
    contents = tuning_files(results, args.forget, summary) if args.out else {}
    files = [write(Path(args.out) / name, content) for name, content in contents.items()]
    if args.json:
        emit(
            {
                "summary": summary,
                "objective": args.objective,
                "request": args.forget,
                "base": first.run.base.key,
                "retrain": first.retrain.key if first.retrain else None,
                "references": [r.key for r in first.references],
                "methods": {name: result.to_json() for name, result in results.items()},
                "files": [str(file) for file in files],
            }
        )
    else:
        print(f"{summary}\n")
        _print(args, results, files)
    return 0


def read_candidates(text: str | None, family: str, recipe: Mapping[str, Any] | None) -> list[Candidate]:
    """Return the methods to tune; in `regun,lr=0.1,finetune` a part with `=` belongs to the method before it."""
    from regun.cli.options import Problems
    from regun.experiments.search import Space
    from regun.methods import MethodSpec, method_names

    texts: list[str] = []
    for part in text.split(",") if text else [name for name in method_names() if name != "retrain"]:
        if "=" in part and texts:
            texts[-1] += f",{part}"
        else:
            texts.append(part)

    def read(text: str) -> Candidate:
        spec = MethodSpec.parse(text)
        start, fixed = spec.configure(family, recipe), tuple(spec.settings)
        return Candidate(spec.label, spec.method, start, fixed, Space.of(spec.method, start, family, fixed))

    problems = Problems()
    attempts = [problems.attempt(lambda text=text: read(text)) for text in texts]
    candidates = [candidate for candidate in attempts if candidate is not None]
    names = [candidate.text for candidate in candidates]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add(f"--methods names {name} more than once; name each once.")
    problems.stop_if_any()
    if all(candidate.space.size == 1 for candidate in candidates):
        raise SettingsError(
            [
                f"{', '.join(names)}: nothing to search for models of the family {family}, or every setting is fixed; "
                f"`regun methods NAME` shows the search ranges."
            ]
        )
    return candidates


def _searches(args: argparse.Namespace, start: Start, candidates: list[Candidate]) -> dict[str, Search]:
    """Return the search per method; nothing has run yet."""
    from regun.artifacts.unlearnings import Unlearning
    from regun.cli.options import retrained_models
    from regun.experiments.search import Search

    base, data, splits = start.load(args.base)
    gap, store = args.objective == "gap", start.context.store
    retrain, references = retrained_models(args.retrained, base, splits, store) if gap else (None, ())
    searches: dict[str, Search] = {}
    for candidate in candidates:
        run = Unlearning(
            base=base,
            data=start.setup.data_for(candidate.method, data),
            splits=splits,
            method=candidate.method,
            config=candidate.start,
            seed=args.seed,
            budget=start.budget,
        )
        searches[candidate.text] = Search(
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
    return searches


def _summary(args: argparse.Namespace, search: Search) -> str:
    """Return what the searches minimize, the models they need for it, and what they run on."""
    from regun.experiments.search import OBJECTIVES

    models = "No retrained model is used"
    if search.retrain is not None:
        references = ", ".join(r.key[:12] for r in search.references)
        models = f"Retrained model {search.retrain.key[:12]}, references {references}"
    budget = f", {args.budget} each" if args.budget else ""
    where = f"Base {search.run.base.key[:12]}, forget {args.forget}, {args.trials} trials per method{budget}"
    objective = f"objective {args.objective}: {OBJECTIVES[args.objective].partition(';')[0]}"
    return f"{objective}. {models}. {where}, seed {args.seed}. Test data are not used."


def _search(args: argparse.Namespace, name: str, plan: Search, start: Start) -> SearchResult:
    from regun.cli.display import open_display
    from regun.experiments.search import search
    from regun.training.job import Callbacks

    display, context = open_display(args, f"tune {name}"), start.context
    about = {**start.setup.about(), "request": args.forget, "split_digest": plan.run.splits.digest}
    callbacks, on_trial = Callbacks(on_progress=display.progress), display.trials(plan.wanted)
    result = search(plan, context.store, context.device, about=about, watch=callbacks, on_trial=on_trial)
    note = f"; {result.note}" if result.note else ""
    display.note(f"best {fixed(result.best_score)}, default {fixed(result.default_score)}{note}")
    display.close()
    return result


def _print(args: argparse.Namespace, results: Mapping[str, SearchResult], files: list[Path]) -> None:
    from regun.experiments.report.search_page import HEAD, summary_rows
    from regun.experiments.search import OBJECTIVES

    print_table(HEAD, summary_rows(results))
    print(f"\nScore: {OBJECTIVES[args.objective]}. In points; good is 0.")
    for name, result in results.items():
        diverged = sum(1 for trial in result.trials if trial.diverged)
        if diverged:
            print(f"{name}: {diverged} of {len(result.trials)} trials diverged and count as the worst.")
    if files:
        print(f"\nfiles {files[0].parent}: {', '.join(f.name for f in files)}")
        print(
            f"next  regun unlearn --base KEY --forget ... --method NAME --settings {files[0]}{location_options(args)}"
        )
