"""From the artifacts of a study to its results: what has been made so far, handed to the one aggregation."""

from collections.abc import Iterator, Mapping
from typing import Any

from regun.artifacts import Artifact, machine, versions
from regun.artifacts.audits import split_predictions
from regun.artifacts.out_of_fold import SHARE
from regun.auditing import Evaluation, Predictions, risk_list
from regun.auditing.durability import with_relearning
from regun.auditing.intervals import LEVEL
from regun.errors import NotFiniteError
from regun.experiments.search import SearchResult
from regun.experiments.study.context import StudyContext
from regun.experiments.study.details import RequestDetails
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.paper import Paper
from regun.experiments.study.relearn_curves import RelearnChecks
from regun.experiments.study.results import PAPER_COLUMNS, Block, Kind, Results, Run, block_of, metrics_of, row_of
from regun.experiments.study.tasks import Evaluate, MeasureFloor, Predict, Tune, Unlearn


def collect(opened: OpenStudy, failed: Mapping[str, str] | None = None, paper: Paper | None = None) -> Results:
    """Return the results of all that is finished; what is not is named in `missing`."""
    study, errors = opened.study, failed or {}
    checks = RelearnChecks(opened)
    blocks = tuple(_block(opened, forget, checks) for forget in study.forget)
    missing = [
        f"{task.id}: {errors.get(task.id, 'not made yet')}"
        for task in opened.plan.tasks.values()
        if (not isinstance(task, Predict | MeasureFloor | Evaluate) and not task.done(opened))
        or (task.id in errors and not any(need.id in errors for need in task.needs))
    ]
    metrics = metrics_of(blocks)
    more = [name for name in study.columns(metrics) if name not in PAPER_COLUMNS]
    evaluations = [run.evaluation for block in blocks for row in block.rows for run in row.runs if run.evaluation]
    return Results(
        name=study.name,
        title=study.title or study.name,
        about=_about(opened),
        seeds=study.seeds,
        repeats=study.repeats,
        blocks=blocks,
        metrics=metrics,
        columns=(*PAPER_COLUMNS, *more),
        level=next((float(one.settings["level"]) for one in evaluations if "level" in one.settings), LEVEL),
        missing=tuple(missing),
        versions=versions(),
        machine=machine(),
        paper=paper,
    )


def _about(ctx: StudyContext) -> dict[str, str]:
    """Return what was run, for people."""
    study, data = ctx.study, ctx.data
    about = {
        "data": f"{study.data}: {len(data.train.labels):,} training and {len(data.test.labels):,} test examples",
        "model": study.model or study.model_spec.name,
        "recipe": study.recipe or "the model's own",
        "forget": ", ".join(spec.label for spec in study.requests.values()),
        "seeds": ", ".join(map(str, study.seeds)),
        "repeats": f"{study.repeats} unlearning runs for each seed",
        "split": "moves with the seed" if study.split_seed is None else f"seed {study.split_seed} for all",
        "references": f"{study.references} for each forget set and seed",
        "budget": study.budget or "each method's own epochs",
        "updates": "as in base training" if study.updates == "base" else "each method's own",
        "data digest": data.train.digest,
        "device": str(ctx.device),
    }
    if study.table_share != SHARE:
        about["prepared table"] = f"of models trained for {100 * study.table_share:g} % of the epochs"
    if study.tuning:
        trials, objective = study.tuning.trials, study.tuning.objective
        about["tuned"] = f"{trials} trials per method by {objective}, on seed {study.tuned_on}"
        if study.untuned:
            about["not tuned"] = ", ".join(row.title for row in study.rows.values() if row.text in study.untuned)
    return about


def stored_evaluation(ctx: StudyContext, task: Evaluate) -> Evaluation | None:
    """Return the evaluation of a model; None if there is none yet or its predictions are not finite."""
    artifact = task.result(ctx)
    value = artifact.info["evaluation"] if artifact is not None else None
    return Evaluation.from_json(value) if value else None


def request_details(opened: OpenStudy, forget: str) -> RequestDetails | None:
    """Return the predictions for one request, of the first seed and run; None until Retrain and Base have them."""
    seed = opened.study.seeds[0]
    evaluations = opened.plan.of_type(Evaluate)
    tasks = [task for task in evaluations if (task.forget, task.seed, task.repeat) == (forget, seed, 0)]
    predictions: dict[str, Mapping[str, Predictions]] = {}
    for task in tasks:
        splits = _predictions(opened, task, task.model.result(opened))
        if splits:
            predictions[task.name] = splits
    if not {"retrain", "base"} <= predictions.keys():
        return None
    references = [_predictions(opened, tasks[0], model.result(opened)) for model in tasks[0].retrained[1:]]
    relearning = RelearnChecks(opened).curves(tasks) if opened.study.relearn else None
    return RequestDetails(forget, seed, predictions, [splits for splits in references if splits], relearning)


def searches(opened: OpenStudy, forget: str) -> dict[str, SearchResult]:
    """Return the finished searches of one request, by the title of the row."""
    tasks = [task for task in opened.plan.of_type(Tune) if task.forget == forget and task.done(opened)]
    return {task.row.title: task.search_result(opened) for task in tasks}


def example_rows(opened: OpenStudy, attack: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield one plain row for every forgotten example of every audited model: its score and its rank among unseen."""
    for task in opened.plan.of_type(Evaluate):
        if task.model in task.retrained:
            continue
        target, *by_reference = (
            _predictions(opened, task, m.result(opened)) for m in (task.model, *task.retrained[1:])
        )
        references = [splits for splits in by_reference if splits]
        if target is None or len(references) < len(by_reference):
            continue
        who = {"forget": task.forget, "method": task.name, "seed": task.seed, "repeat": task.repeat}
        for risk in risk_list(target, references, attack=attack):
            yield {**who, **vars(risk)}


def _predictions(ctx: StudyContext, task: Evaluate, model: Artifact | None) -> dict[str, Predictions] | None:
    """Return a model's predictions by split; None without the model or if they are not finite."""
    if model is None:
        return None
    try:
        return split_predictions(model, ctx.data, task.splits(ctx), ctx.store, ctx.device)
    except NotFiniteError:
        return None


def _block(opened: OpenStudy, forget: str, checks: RelearnChecks) -> Block:
    study = opened.study
    tasks: dict[str, list[Evaluate]] = {}
    for task in opened.plan.of_type(Evaluate):
        if task.forget == forget:
            tasks.setdefault(task.name, []).append(task)
    kinds: dict[str, Kind] = {"retrain": "retrain", "base": "base"}
    rows = [
        row_of(
            name,
            study.title_of(name),
            kinds.get(name, "method"),
            [run for task in tasks[name] if (run := _run(opened, task, checks)) is not None],
            len(tasks[name]),
            unranked=name in study.rows and study.rows[name].unranked,
        )
        for name in ("retrain", "base", *study.rows)
    ]
    sizes = {**opened.sizes(forget), "test": len(opened.data.test.labels)}
    return block_of(forget, study.requests[forget].label, sizes, rows)


def _run(opened: OpenStudy, task: Evaluate, checks: RelearnChecks) -> Run | None:
    """Return one audited model; None until it has been audited."""
    model = task.model.result(opened)
    if model is None or task.result(opened) is None:
        return None
    evaluation = stored_evaluation(opened, task)
    table = task.model.table.result(opened) if isinstance(task.model, Unlearn) and task.model.table else None
    relearned = checks.of(task) if opened.study.relearn else None
    if evaluation is not None and relearned is not None:
        evaluation = with_relearning(evaluation, relearned)
    return Run(
        seed=task.seed,
        repeat=task.repeat,
        key=model.key,
        evaluation=evaluation,
        cost=model.info["cost"],
        once=table.info["cost"] if table is not None else {},
        epochs=model.info["epochs"],
        settings=model.info.get("config", model.inputs.get("recipe", {})),
        diverged=model.info.get("diverged") or (None if evaluation else "its predictions are not finite"),
        notes=model.info.get("notes", {}),
    )
