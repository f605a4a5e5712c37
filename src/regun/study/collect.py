"""From a workshop to its results: what has been made so far, gathered and handed to the one aggregation."""

from collections.abc import Iterator, Mapping
from typing import Any

from regun.errors import NotFiniteError
from regun.evaluate import Evaluation, Signals, risk_list
from regun.evaluate.intervals import LEVEL
from regun.evaluate.relearning import with_relearning
from regun.runs.audit import split_signals
from regun.store import Artefact, machine, versions
from regun.study.asked import request_label
from regun.study.closeup import Closeup
from regun.study.paper import Paper
from regun.study.relearning import RelearnBook
from regun.study.results import PAPER_COLUMNS, Block, Found, Kind, Results, Run, block_of, metrics_of
from regun.study.tasks import Judge, Relearn, Select, Train, TrainEarly, Tune, Unlearn
from regun.study.workshop import Workshop
from regun.tune import Tuned


def collect(shop: Workshop, failed: Mapping[str, str] | None = None, paper: Paper | None = None) -> Results:
    """All that is finished; what is not is named in `missing`."""
    study, plan, lost = shop.study, shop.plan, failed or {}
    book = RelearnBook(shop)
    blocks = tuple(_block(shop, forget, book) for forget in study.forget)
    missing = [
        f"{task.label}: {lost.get(task.id, 'not made yet')}"
        for task in plan.tasks.values()
        if (isinstance(task, Train | TrainEarly | Select | Tune | Unlearn | Relearn) and not shop.done(task))
        or (task.id in lost and not any(need in lost for need in task.needs))
    ]
    metrics = metrics_of(blocks)
    asked = [name for name in study.columns(metrics) if name not in PAPER_COLUMNS]
    runs = [run.evaluation for block in blocks for row in block.rows for run in row.runs if run.evaluation]
    return Results(
        name=study.name,
        title=study.title or study.name,
        about=about(shop),
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


def about(shop: Workshop) -> dict[str, str]:
    """What was run, for people."""
    study, data = shop.study, shop.data
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
        "device": str(shop.device),
    }
    if study.tuning:
        found["tuned"] = f"{study.tuning.trials} trials a method by {study.tuning.objective}, on seed {study.tuned_on}"
    return found


def evaluation_of(shop: Workshop, task: Judge) -> tuple[bool, Evaluation | None]:
    """Whether a model has been judged, and the evaluation; None where there was nothing finite to judge."""
    kept = shop.made(task)
    if kept is None:
        return False, None
    return True, Evaluation.from_json(kept.info["evaluation"]) if kept.info["evaluation"] else None


def closeup(shop: Workshop, forget: str) -> Closeup | None:
    """What the models of one request answered, of the first seed and run; None until Retrain and Base are there."""
    seed = shop.study.seeds[0]
    tasks = [task for task in shop.plan.judged() if (task.forget, task.seed, task.repeat) == (forget, seed, 0)]
    signals: dict[str, Mapping[str, Signals]] = {}
    for task in tasks:
        model = shop.model(task.model)
        found = _answers(shop, task, model) if model is not None else None
        if found:
            signals[task.entry] = found
    if not {"retrain", "base"} <= signals.keys():
        return None
    others = [shop.model(name) for name in tasks[0].judges[1:]]
    references = [_answers(shop, tasks[0], other) for other in others if other is not None]
    again = RelearnBook(shop).curves(tasks) if shop.study.relearn else None
    return Closeup(forget, seed, signals, [found for found in references if found], again)


def searches(shop: Workshop, forget: str) -> dict[str, Tuned]:
    """How the settings of a study that tunes were found, by the title of the row."""
    tasks = [t for t in shop.plan.tasks.values() if isinstance(t, Tune) and t.forget == forget]
    found = {shop.study.title_of(task.entry): shop.tuned(task) for task in tasks}
    return {title: tuned for title, tuned in found.items() if tuned is not None}


def example_rows(shop: Workshop, attack: str | None = None) -> Iterator[dict[str, Any]]:
    """One plain row for every forgotten example of every judged model: its score, and its place among unseen ones."""
    for task in shop.plan.judged():
        models = shop.models((task.model, *task.judges[1:]))
        answers = [_answers(shop, task, model) for model in models or ()]
        target, others = (answers[0], [found for found in answers[1:] if found]) if answers else (None, [])
        if target is None or task.model in task.judges:
            continue
        who = {"forget": task.forget, "method": task.entry, "seed": task.seed, "repeat": task.repeat}
        for risk in risk_list(target, others, attack=attack):
            yield {**who, **vars(risk)}


def _answers(shop: Workshop, task: Judge, model: Artefact) -> dict[str, Signals] | None:
    try:
        return split_signals(model, shop.data, shop.splits(task.split, task.forget), shop.store, shop.device)
    except NotFiniteError:
        return None


def _block(shop: Workshop, forget: str, book: RelearnBook) -> Block:
    study = shop.study
    tasks: dict[str, list[Judge]] = {}
    for task in shop.plan.judged():
        if task.forget == forget:
            tasks.setdefault(task.entry, []).append(task)
    found = [_found(shop, name, tasks[name], book) for name in ("retrain", "base", *study.entries())]
    sizes = {**shop.sizes(forget), "test": len(shop.data.test.labels)}
    return block_of(forget, request_label(forget), sizes, found)


def _found(shop: Workshop, name: str, tasks: list[Judge], book: RelearnBook) -> Found:
    kinds: dict[str, Kind] = {"retrain": "retrain", "base": "base"}
    runs = [run for task in tasks if (run := _run(shop, task, book)) is not None]
    return Found(
        name=name,
        title=shop.study.title_of(name),
        kind=kinds.get(name, "method"),
        runs=tuple(runs),
        planned=len(tasks),
        beside=shop.study.entries().get(name) in shop.study.beside,
    )


def _run(shop: Workshop, task: Judge, book: RelearnBook) -> Run | None:
    """One judged model; None until it has been judged."""
    target, (judged, evaluation) = shop.model(task.model), evaluation_of(shop, task)
    if target is None or not judged:
        return None
    info, again = target.info, book.found(task) if shop.study.relearn else None
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
