"""Estimates of how long a plan takes on this machine."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from regun.artifacts import Store
from regun.auditing import Predictions, evaluate, noise_floor
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.plan import StudyPlan
from regun.experiments.study.spec import Study
from regun.experiments.study.tasks import Evaluate, MeasureFloor, Predict, Select, Task, Train, Tune
from regun.models import build_model
from regun.training.job import Budget, Job, private_copy
from regun.training.scratch import train_from_scratch

PROBE_SECONDS, PROBE_STEPS = 2.0, 64
"""A probe of training runs for so many seconds or steps, whichever comes first."""
TASK = 0.15
"""Seconds that a task takes besides its samples: reading models, writing results."""
PARTS = 5
"""Artifacts of a model's predictions, one per split."""


@dataclass(frozen=True)
class Speed:
    """The speed of this machine."""

    samples: float
    """Per second, forward and backward."""
    evaluation: float = 0.0
    """Seconds of one evaluation."""
    floor: float = 0.0
    """Seconds of one noise floor."""

    def seconds(self, task: Task) -> float:
        """Return the seconds that a task takes."""
        samples = task.work.samples / self.samples if task.work else 0.0
        match task:
            case Evaluate():
                return TASK + self.evaluation
            case MeasureFloor():
                return TASK + self.floor
            case Predict() | Select():
                return samples + PARTS * TASK / 3
            case Tune():
                return samples + 2 * TASK * task.trials
            case _:
                return samples + TASK


def remembered_speed(study: Study, store: Store) -> float | None:
    """Return samples per second of the last training of the study's model in the store; None if there was none."""
    model = study.model_spec.describe()
    for artifact in reversed(store.artifacts("model")):
        cost = artifact.info.get("cost", {})
        trained = {"recipe", "trained_on"} <= artifact.inputs.keys() and artifact.inputs["model"] == model
        if trained and cost.get("seconds", 0) > 0 and cost["backward"]:
            return cost["backward"] / cost["seconds"]
    return None


def measured_speed(opened: OpenStudy) -> float:
    """Return samples per second of a few steps of the study's training, of which nothing is saved."""
    study, device = opened.study, opened.device
    training = opened.plan.of_type(Train)[0].training(opened)
    recipe = replace(study.recipe_value, compile=False)
    model = build_model(study.model_spec, training.data.train.num_classes, training.input_shape(), 0)
    steps, speed = 1, 0.0
    while True:  # the first step warms up; then as many as fill the time
        job = Job(
            model=private_copy(model, device),
            examples=training.data.train,
            seed=0,
            device=device,
            budget=Budget(steps=steps),
        )
        seconds = _seconds(lambda job=job: train_from_scratch(job, training.trained_on, recipe, "train"))
        speed = job.cost.backward / seconds
        if steps > 1 and (seconds >= PROBE_SECONDS or steps >= PROBE_STEPS):
            return speed
        steps = max(4, min(PROBE_STEPS, round(1.3 * steps * PROBE_SECONDS / seconds)))


def speed_here(opened: OpenStudy, samples: float) -> Speed:
    """Return the speed of training, and of evaluations of the study's size, timed once on random predictions."""
    study, data = opened.study, opened.data
    sizes, classes = {**opened.plan.sizes[study.forget[0]], "test": len(data.test)}, data.train.num_classes
    rng = np.random.default_rng(0)

    def predictions() -> dict[str, Predictions]:
        made: dict[str, Predictions] = {}
        for name, n in sizes.items():
            ids = np.arange(n) + sum(map(len, made.values()))
            if n:
                made[name] = Predictions.from_logits(3 * rng.standard_normal((n, classes)), ids % classes, ids)
        return made

    target, retrain, *references = (predictions() for _ in range(2 + study.references))
    attacks, bootstrap = study.audit_attacks, study.bootstrap
    evaluation = _seconds(
        lambda: evaluate(target, retrain, references, attacks=attacks, bootstrap=bootstrap, floor=False)
    )
    floor = _seconds(lambda: noise_floor(retrain, references, attacks=attacks)) if len(references) > 1 else 0.0
    return Speed(samples, evaluation, floor)


def seconds_left(plan: StudyPlan, done: set[str], speed: Speed) -> float:
    """Return the time for the tasks that are not done, one after the other."""
    return sum(speed.seconds(task) for task in plan.tasks.values() if task.id not in done)


def _seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
