"""From a workshop to its results: what has been made so far, gathered and handed to the one aggregation."""

from collections.abc import Iterator, Mapping
from typing import Any

from regun.artifacts import Artifact, machine, versions
from regun.artifacts.audits import split_predictions
from regun.auditing import Evaluation, Predictions, risk_list
from regun.auditing.durability import with_relearning
from regun.auditing.intervals import LEVEL
from regun.errors import NotFiniteError
from regun.experiments.search import SearchResult
from regun.experiments.study.context import StudyContext
from regun.experiments.study.details import RowDetails
from regun.experiments.study.forget_sets import request_label
from regun.experiments.study.paper import Paper
from regun.experiments.study.relearn_curves import RelearnBook
from regun.experiments.study.results import PAPER_COLUMNS, Block, Found, Kind, Results, Run, block_of, metrics_of
from regun.experiments.study.tasks import Judge, Relearn, Select, Train, TrainEarly, Tune, Unlearn


def collect(ctx: StudyContext, failed: Mapping[str, str] | None = None, paper: Paper | None = None) -> Results:
    """All that is finished; what is not is named in `missing`."""
    study, plan, lost = ctx.study, ctx.plan, failed or {}
    book = RelearnBook(ctx)
    blocks = tuple(_block(ctx, forget, book) for forget in study.forget)
    missing = [
        f"{task.label}: {lost.get(task.id, 'not made yet')}"
        for task in plan.tasks.values()
        if (isinstance(task, Train | TrainEarly | Select | Tune | Unlearn | Relearn) and not ctx.done(task))
        or (task.id in lost and not any(need in lost for need in task.needs))
    ]
    metrics = metrics_of(blocks)
    asked = [name for name in study.columns(metrics) if name not in PAPER_COLUMNS]
    runs = [run.evaluation for block in blocks for row in block.rows for run in row.runs if run.evaluation]
    return Results(
        name=study.name,
        title=study.title or study.name,
        about=about(ctx),
        seeds=study.seeds,
        repeats=study.repeats,
        blocks=blocks,
        metrics=metrics,
        columns=(*PAPER_COLUMNS, *asked),
        level=next((float(found.settings["level"]) for found in runs if "level" in found.settings), LEVEL),
        missing=tuple(missing),
        versions=versions(),
        machine=machine(),
        paper=paper,
    )


def about(ctx: StudyContext) -> dict[str, str]:
    """What was run, for people."""
    study, data = ctx.study, ctx.data
    found = {
        "data": f"{study.data}: {len(data.train.labels):,} training and {len(data.test.labels):,} test examples",
        "model": study.model or study.model_spec.name,
        "recipe": study.recipe or "the model's own",
        "forget": ", ".join(map(request_label, study.forget)),
        "seeds": ", ".join(map(str, study.seeds)),
        "repeats": f"{study.repeats} unlearning runs for each seed",
        "split": "moves with the seed" if study.split_seed is None else f"seed {study.split_seed} for all",
        "references": f"{study.references} for each forget set and seed",
        "budget": study.budget or "each method's own epochs",
        "updates": "as in base training" if study.updates == "base" else "each method's own",
        "data digest": data.train.digest,
        "device": str(ctx.device),
    }
    if study.tuning:
        found["tuned"] = f"{study.tuning.trials} trials a method by {study.tuning.objective}, on seed {study.tuned_on}"
    return found


def evaluation_of(ctx: StudyContext, task: Judge) -> tuple[bool, Evaluation | None]:
    """Whether a model has been judged, and the evaluation; None where there was nothing finite to judge."""
    kept = ctx.made(task)
    if kept is None:
        return False, None
    return True, Evaluation.from_json(kept.info["evaluation"]) if kept.info["evaluation"] else None


def closeup(ctx: StudyContext, forget: str) -> RowDetails | None:
    """What the models of one request answered, of the first seed and run; None until Retrain and Base are there."""
    seed = ctx.study.seeds[0]
    tasks = [task for task in ctx.plan.judged() if (task.forget, task.seed, task.repeat) == (forget, seed, 0)]
    signals: dict[str, Mapping[str, Predictions]] = {}
    for task in tasks:
        model = ctx.model(task.model)
        found = _answers(ctx, task, model) if model is not None else None
        if found:
            signals[task.entry] = found
    if not {"retrain", "base"} <= signals.keys():
        return None
    others = [ctx.model(name) for name in tasks[0].judges[1:]]
    references = [_answers(ctx, tasks[0], other) for other in others if other is not None]
    again = RelearnBook(ctx).curves(tasks) if ctx.study.relearn else None
    return RowDetails(forget, seed, signals, [found for found in references if found], again)


def searches(ctx: StudyContext, forget: str) -> dict[str, SearchResult]:
    """How the settings of a study that tunes were found, by the title of the row."""
    tasks = [t for t in ctx.plan.tasks.values() if isinstance(t, Tune) and t.forget == forget]
    found = {ctx.study.title_of(task.entry): ctx.tuned(task) for task in tasks}
    return {title: tuned for title, tuned in found.items() if tuned is not None}


def example_rows(ctx: StudyContext, attack: str | None = None) -> Iterator[dict[str, Any]]:
    """One plain row for every forgotten example of every judged model: its score, and its place among unseen ones."""
    for task in ctx.plan.judged():
        models = ctx.models((task.model, *task.judges[1:]))
        answers = [_answers(ctx, task, model) for model in models or ()]
        target, others = (answers[0], [found for found in answers[1:] if found]) if answers else (None, [])
        if target is None or task.model in task.judges:
            continue
        who = {"forget": task.forget, "method": task.entry, "seed": task.seed, "repeat": task.repeat}
        for risk in risk_list(target, others, attack=attack):
            yield {**who, **vars(risk)}


def _answers(ctx: StudyContext, task: Judge, model: Artifact) -> dict[str, Predictions] | None:
    try:
        return split_predictions(model, ctx.data, ctx.splits(task.split, task.forget), ctx.store, ctx.device)
    except NotFiniteError:
        return None


def _block(ctx: StudyContext, forget: str, book: RelearnBook) -> Block:
    study = ctx.study
    tasks: dict[str, list[Judge]] = {}
    for task in ctx.plan.judged():
        if task.forget == forget:
            tasks.setdefault(task.entry, []).append(task)
    found = [_found(ctx, name, tasks[name], book) for name in ("retrain", "base", *study.entries())]
    sizes = {**ctx.sizes(forget), "test": len(ctx.data.test.labels)}
    return block_of(forget, request_label(forget), sizes, found)


def _found(ctx: StudyContext, name: str, tasks: list[Judge], book: RelearnBook) -> Found:
    kinds: dict[str, Kind] = {"retrain": "retrain", "base": "base"}
    runs = [run for task in tasks if (run := _run(ctx, task, book)) is not None]
    return Found(
        name=name,
        title=ctx.study.title_of(name),
        kind=kinds.get(name, "method"),
        runs=tuple(runs),
        planned=len(tasks),
        beside=ctx.study.entries().get(name) in ctx.study.beside,
    )


def _run(ctx: StudyContext, task: Judge, book: RelearnBook) -> Run | None:
    """One judged model; None until it has been judged."""
    target, (judged, evaluation) = ctx.model(task.model), evaluation_of(ctx, task)
    if target is None or not judged:
        return None
    info, again = target.info, book.found(task) if ctx.study.relearn else None
    if evaluation is not None and again is not None:
        evaluation = with_relearning(evaluation, again)
    return Run(
        seed=task.seed,
        repeat=task.repeat,
        key=target.key,
        evaluation=evaluation,
        cost=info["cost"],
        epochs=info["epochs"],
        settings=info.get("config", target.inputs.get("recipe", {})),
        diverged=info.get("diverged") or (None if evaluation else "its answers are not finite"),
        notes=info.get("notes", {}),
    )
