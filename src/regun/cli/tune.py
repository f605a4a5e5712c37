"""`regun tune`: the searches of several methods' settings, one after the other."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regun.artifacts.unlearnings import Unlearning
from regun.cli.arguments import BAD_INPUT, location_options
from regun.cli.display import open_display
from regun.cli.options import Start, read_start, retrained_models
from regun.cli.terminal import emit, print_table, write
from regun.errors import Problems, SettingsError
from regun.experiments.report.search_page import HEAD, summary_rows, tuning_files
from regun.experiments.search import OBJECTIVES, Search, SearchResult, Space, check_objective, need_optuna, search
from regun.methods import MethodSpec, method_names
from regun.render.numbers import fixed
from regun.training.job import Callbacks


def run(args: argparse.Namespace) -> int:
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
    family, recipe = (start.family, start.recipe) if start else ("resnet", None)
    specs = problems.attempt(lambda: read_methods(args.methods, family, recipe))
    problems.stop_if_any()
    if start is None or specs is None:
        return BAD_INPUT
    searches = _searches(args, start, specs)
    first = next(iter(searches.values()))
    summary = _summary(args, first)
    start.context.display.note(summary)
    results = {name: _search(args, name, one, start) for name, one in searches.items()}
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


def read_methods(text: str | None, family: str, recipe: Mapping[str, Any] | None) -> list[tuple[MethodSpec, Any]]:
    """Return the methods to tune, each with the settings that its search starts from.

    In `regun,lr=0.1,finetune` a part with `=` belongs to the method before it.
    """
    texts: list[str] = []
    for part in text.split(",") if text else [name for name in method_names() if name != "retrain"]:
        if "=" in part and texts:
            texts[-1] += f",{part}"
        else:
            texts.append(part)
    problems = Problems()
    specs = list[tuple[MethodSpec, Any]]()
    searchable = False
    for text in texts:
        with problems.collect():
            spec = MethodSpec.parse(text)
            specs.append((spec, spec.configure(family, recipe)))
            searchable |= Space.of(spec.method, specs[-1][1], family, tuple(spec.settings)).size != 1
    names = [spec.label for spec, _ in specs]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add(f"--methods names {name} more than once; name each once.")
    problems.stop_if_any()
    if not searchable:
        raise SettingsError(
            [
                f"{', '.join(names)}: nothing to search for models of the family {family}, or every setting is fixed; "
                f"`regun methods NAME` shows the search ranges."
            ]
        )
    return specs


def _searches(args: argparse.Namespace, start: Start, specs: list[tuple[MethodSpec, Any]]) -> dict[str, Search]:
    """Return the search per method; nothing has run yet."""
    base, data, splits = start.load(args.base)
    gap, store = args.objective == "gap", start.context.store
    retrain, references = retrained_models(args.retrained, base, splits, store) if gap else (None, ())
    searches: dict[str, Search] = {}
    for spec, config in specs:
        run = Unlearning(
            base=base,
            data=start.setup.data_for(spec.method, data),
            splits=splits,
            method=spec.method,
            config=config,
            seed=args.seed,
            budget=start.budget,
        )
        searches[spec.label] = Search(
            run=run,
            space=Space.of(spec.method, config, start.family, tuple(spec.settings)),
            objective=args.objective,
            trials=args.trials,
            seed=args.seed,
            retrain=retrain,
            references=references,
            fixed=tuple(spec.settings),
        )
    return searches


def _summary(args: argparse.Namespace, search: Search) -> str:
    """Return what the searches minimize, the models they need for it, and what they run on."""
    models = "No retrained model is used"
    if search.retrain is not None:
        references = ", ".join(r.key[:12] for r in search.references)
        models = f"Retrained model {search.retrain.key[:12]}, references {references}"
    budget = f", {args.budget} each" if args.budget else ""
    where = f"Base {search.run.base.key[:12]}, forget {args.forget}, {args.trials} trials per method{budget}"
    objective = f"objective {args.objective}: {OBJECTIVES[args.objective].partition(';')[0]}"
    return f"{objective}. {models}. {where}, seed {args.seed}. Test data are not used."


def _search(args: argparse.Namespace, name: str, plan: Search, start: Start) -> SearchResult:
    display, context = open_display(args, f"tune {name}"), start.context
    about = {**start.setup.about(), "request": args.forget, "split_digest": plan.run.splits.digest}
    callbacks, on_trial = Callbacks(on_progress=display.progress), display.trials(plan.space.at_most(plan.trials))
    result = search(plan, context.store, context.device, about=about, watch=callbacks, on_trial=on_trial)
    note = f"; {result.note}" if result.note else ""
    display.note(f"best {fixed(result.best_score)}, default {fixed(result.default_score)}{note}")
    display.close()
    return result


def _print(args: argparse.Namespace, results: Mapping[str, SearchResult], files: list[Path]) -> None:
    print_table(HEAD, summary_rows(results))
    print(f"\nScore: {OBJECTIVES[args.objective]}. In points; good is 0.")
    for name, result in results.items():
        diverged = sum(1 for trial in result.trials if trial.diverged)
        if diverged:
            print(f"{name}: {diverged} of {len(result.trials)} trials diverged and count as the worst.")
    print()
    for name, result in results.items():
        print(f"best  {name}: regun audit {str(result.best.model)[:12]}{location_options(args)}")
    if files:
        print(f"files {files[0].parent}: {', '.join(f.name for f in files)}")
        print(
            f"next  regun unlearn --base KEY --forget ... --method NAME --settings {files[0]}{location_options(args)}"
        )
