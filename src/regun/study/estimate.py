"""How long a plan will take on this machine."""

import time
from dataclasses import replace

from regun.models import build_model
from regun.store import Store
from regun.study.plan import StudyPlan
from regun.study.spec import Study
from regun.study.tasks import Train
from regun.study.workshop import Workshop
from regun.training.job import Budget, Job, private_copy
from regun.training.scratch import train_from_scratch

PROBE_STEPS = 4


def remembered_speed(study: Study, store: Store) -> float | None:
    """Samples a second of the last training of the study's model in the store; None if there was none."""
    model = study.model_spec.describe()
    for artefact in reversed(store.artefacts("model")):
        cost = artefact.info.get("cost", {})
        trained = {"recipe", "trained_on"} <= artefact.inputs.keys() and artefact.inputs["model"] == model
        if trained and cost.get("seconds", 0) > 0 and cost["backward"]:
            return cost["backward"] / cost["seconds"]
    return None


def measured_speed(shop: Workshop) -> float:
    """Samples a second of a few steps of the study's training, of which nothing is kept."""
    study, device = shop.study, shop.device
    training = next(task for task in shop.plan.tasks.values() if isinstance(task, Train)).run(shop)
    recipe = replace(study.recipe_value, compile=False)
    model = build_model(study.model_spec, training.data.train.num_classes, training.input_shape(), 0)
    for steps in (1, PROBE_STEPS):  # the first warms up
        job = Job(
            model=private_copy(model, device),
            examples=training.data.train,
            seed=0,
            device=device,
            budget=Budget(steps=steps),
        )
        started = time.perf_counter()
        train_from_scratch(job, training.trained_on, recipe, "train")
        seconds = time.perf_counter() - started
    return job.cost.backward / seconds


def seconds_left(plan: StudyPlan, done: set[str], speed: float, workers: int = 1) -> float:
    """What the tasks that are not done take at this many samples a second, each worker with the full speed."""
    left = sum(task.work.samples for task in plan.tasks.values() if task.work and task.id not in done)
    return left / speed / workers
