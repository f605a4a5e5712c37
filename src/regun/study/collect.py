"""From a workshop to its results: what has been made so far, gathered as plain data."""

from collections.abc import Mapping
from typing import Any

from regun.errors import NotFiniteError
from regun.evaluate import Evaluation, Signals
from regun.runs.audit import evaluation_inputs, split_signals
from regun.store import Artefact, versions
from regun.study.plan import Task, request_label
from regun.study.results import Block, Closeup, Entry, Kind, Results, Run
from regun.study.workshop import Workshop


def collect(workshop: Workshop, failed: Mapping[str, str] | None = None) -> Results:
    """All that is finished; what is not is named in `missing`."""
    study, plan = workshop.study, workshop.plan
    tasks = {(t.forget, t.entry, t.seed): t for t in plan.tasks.values() if t.kind == "evaluate"}
    blocks = [
        Block(
            forget,
            request_label(forget),
            {**plan.sizes[forget], "test": len(workshop.data.test.labels)},
            tuple(_entry(workshop, forget, name, tasks) for name in ("retrain", "base", *study.entries())),
        )
        for forget in study.forget
    ]
    lost = failed or {}
    missing = [
        f"{task.label}: {lost.get(task.id, 'not made yet')}"
        for task in plan.tasks.values()
        if (task.kind in ("train", "tune", "unlearn") and not workshop.done(task))
        or (task.id in lost and not any(need in lost for need in task.needs))
    ]
    return Results(
        study.name, study.title or study.name, about(workshop), study.seeds, tuple(blocks), tuple(missing), versions()
    )


def about(workshop: Workshop) -> dict[str, str]:
    """What was run, for people."""
    study, data = workshop.study, workshop.data
    found = {
        "data": f"{study.data}: {len(data.train.labels):,} training and {len(data.test.labels):,} test examples",
        "model": study.model or study.model_spec.name,
        "recipe": study.recipe or "the model's own",
        "forget": ", ".join(map(request_label, study.forget)),
        "seeds": ", ".join(map(str, study.seeds)),
        "split": "moves with the seed" if study.split_seed is None else f"seed {study.split_seed} for all",
        "references": f"{study.references} for each forget set and seed",
        "budget": study.budget or "each method's own epochs",
        "data digest": data.train.digest,
        "device": str(workshop.device),
    }
    if study.tuning:
        found["tuned"] = f"{study.tuning.trials} trials a method by {study.tuning.objective}, on seed {study.tuned_on}"
    return found


def closeup(workshop: Workshop, forget: str) -> Closeup | None:
    """What the models of one request answered, of the first seed; None until Retrain and Base are there."""
    seed = workshop.study.seeds[0]
    tasks = [t for t in workshop.plan.tasks.values() if t.kind == "evaluate" and (t.forget, t.seed) == (forget, seed)]
    signals: dict[str, dict[str, Signals]] = {}
    for task in tasks:
        model = workshop.model(task.models[0])
        found = _answers(workshop, task, model) if model is not None else None
        if found:
            signals[task.entry] = found
    if not {"retrain", "base"} <= signals.keys():
        return None
    others = [workshop.model(name) for name in tasks[0].models[2:]]
    references = [_answers(workshop, tasks[0], other) for other in others if other is not None]
    return Closeup(forget, seed, signals, [found for found in references if found])


def _answers(workshop: Workshop, task: Task, model: Artefact) -> dict[str, Signals] | None:
    splits = workshop.splits(task.split, task.forget)
    try:
        return split_signals(model, workshop.data, splits, workshop.store, workshop.device)
    except NotFiniteError:
        return None


def _entry(workshop: Workshop, forget: str, name: str, tasks: Mapping[tuple[str, str, int], Task]) -> Entry:
    study = workshop.study
    kind: Kind = "retrain" if name == "retrain" else "base" if name == "base" else "method"
    title = study.titles.get(name, name.capitalize()) if kind != "method" else study.title_of(name)
    found = [_run(workshop, tasks[forget, name, seed], seed) for seed in study.seeds]
    return Entry(name, title, kind, tuple(run for run in found if run is not None))


def _run(workshop: Workshop, task: Task, seed: int) -> Run | None:
    """The judged model of one seed; None until it has been judged."""
    target, kept = workshop.model(task.models[0]), verdict(workshop, task)
    if target is None or kept is None:
        return None
    info = target.info
    evaluation = Evaluation.from_json(kept["evaluation"]) if kept["evaluation"] else None
    lost = info.get("diverged") or (None if evaluation else "its answers are not finite")
    settings: Mapping[str, Any] = info.get("config", target.inputs.get("recipe", {}))
    return Run(
        seed,
        target.key,
        evaluation,
        info["cost"],
        info["epochs"],
        settings,
        lost,
        info.get("notes", {}),
    )


def verdict(workshop: Workshop, task: Task) -> Mapping[str, Any] | None:
    """What an evaluation's artefact holds, if it is there: its numbers, or why there can be none."""
    models = [workshop.model(name) for name in task.models]
    if any(model is None for model in models):
        return None
    splits = workshop.splits(task.split, task.forget)
    everyone = workshop.judged([model for model in models if model is not None])
    inputs = evaluation_inputs(everyone, workshop.data, splits, workshop.judging)
    key = workshop.store.key("evaluation", inputs)
    return workshop.store.load("evaluation", key).info if workshop.store.has("evaluation", key) else None


def judged(workshop: Workshop, task: Task) -> Evaluation | None:
    """The evaluation that a task made; None if it has not, or there was nothing finite to judge."""
    kept = verdict(workshop, task)
    return Evaluation.from_json(kept["evaluation"]) if kept and kept["evaluation"] else None
