"""How long a plan will take on this machine."""

import time
from dataclasses import replace

from torch.nn import functional

from regun.models import build_model
from regun.store import Store
from regun.study.plan import Plan
from regun.study.spec import Study
from regun.study.workshop import Workshop
from regun.training.fit import fit
from regun.training.job import Budget, Job, private_copy
from regun.training.streams import one_pass

PROBE_STEPS = 4


def remembered_speed(study: Study, store: Store) -> float | None:
    """Samples a second of the last training of the study's model in the store; None if there was none."""
    model = study.model_spec.describe()
    for artefact in reversed(store.artefacts()):
        cost = artefact.info.get("cost", {})
        trained = "recipe" in artefact.inputs and artefact.inputs.get("model") == model
        if trained and cost.get("seconds", 0) > 0 and cost["backward"]:
            return cost["backward"] / cost["seconds"]
    return None


def measured_speed(workshop: Workshop) -> float:
    """Samples a second of a few steps of the study's training, of which nothing is kept."""
    study, device = workshop.study, workshop.device
    task = next(task for task in workshop.plan.tasks.values() if task.kind == "train")
    training = workshop.training(task)
    recipe = replace(study.recipe_value, compile=False)
    model = build_model(study.model_spec, training.data.train.num_classes, training.input_shape(), 0)
    for steps in (1, PROBE_STEPS):  # the first warms up
        job = Job(private_copy(model, device), training.data.train, None, 0, device, budget=Budget(steps=steps))
        stream = one_pass(job, "train", training.trained_on, recipe.batch_size)
        started = time.perf_counter()
        fit(job, stream, lambda s, j=job: functional.cross_entropy(j.logits(s.train.x).float(), s.train.y), recipe)
        seconds = time.perf_counter() - started
    return job.cost.backward / seconds


def seconds_left(plan: Plan, done: set[str], speed: float, workers: int = 1) -> float:
    """What the tasks that are not done take at this many samples a second, each worker with the full speed."""
    left = sum(task.work.samples for task in plan.tasks.values() if task.work and task.id not in done)
    return left / speed / workers
