"""How long a plan will take on this machine."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from regun.artifacts import Store
from regun.auditing import Predictions, evaluate, noise_floor
from regun.experiments.study.context import StudyContext
from regun.experiments.study.planning import StudyPlan
from regun.experiments.study.spec import Study
from regun.experiments.study.tasks import Answer, Judge, MeasureFloor, Select, Task, Train, Tune
from regun.models import build_model
from regun.training.job import Budget, Job, private_copy
from regun.training.scratch import train_from_scratch

PROBE_SECONDS, PROBE_STEPS = 2.0, 64
"""How long a probe of training runs at least, unless it has taken so many steps."""
TASK = 0.15
"""Seconds that a task takes besides its samples: reading models, writing results."""
PARTS = 5
"""Results that a model's answers are kept as, one a split."""


@dataclass(frozen=True)
class Speed:
    """How fast this machine is at what a study does."""

    samples: float
    """A second, forward and backward."""
    judging: float = 0.0
    """Seconds of one evaluation."""
    floor: float = 0.0
    """Seconds of one noise floor."""

    def seconds(self, task: Task) -> float:
        """What a task takes."""
        samples = task.work.samples / self.samples if task.work else 0.0
        match task:
            case Judge():
                return TASK + self.judging
            case MeasureFloor():
                return TASK + self.floor
            case Answer() | Select():
                return samples + PARTS * TASK / 3
            case Tune():
                return samples + 2 * TASK * task.trials
            case _:
                return samples + TASK


def remembered_speed(study: Study, store: Store) -> float | None:
    """Samples a second of the last training of the study's model in the store; None if there was none."""
    model = study.model_spec.describe()
    for artifact in reversed(store.artifacts("model")):
        cost = artifact.info.get("cost", {})
        trained = {"recipe", "trained_on"} <= artifact.inputs.keys() and artifact.inputs["model"] == model
        if trained and cost.get("seconds", 0) > 0 and cost["backward"]:
            return cost["backward"] / cost["seconds"]
    return None


def measured_speed(ctx: StudyContext) -> float:
    """Samples a second of a few steps of the study's training, of which nothing is kept."""
    study, device = ctx.study, ctx.device
    training = next(task for task in ctx.plan.tasks.values() if isinstance(task, Train)).run(ctx)
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


def speed_here(ctx: StudyContext, samples: float) -> Speed:
    """The speed of training, and of evaluations of the study's size, which are tried once on made-up answers."""
    study, classes = ctx.study, ctx.data.train.num_classes
    sizes = {**ctx.plan.sizes[study.forget[0]], "test": len(ctx.data.test)}
    rng = np.random.default_rng(0)

    def answers() -> dict[str, Predictions]:
        made: dict[str, Predictions] = {}
        for name, n in sizes.items():
            ids = np.arange(n) + sum(map(len, made.values()))
            if n:
                made[name] = Predictions.from_logits(3 * rng.standard_normal((n, classes)), ids % classes, ids)
        return made

    target, retrain, *others = (answers() for _ in range(2 + study.references))
    attacks, bootstrap = study.audit_attacks, study.bootstrap
    judging = _seconds(lambda: evaluate(target, retrain, others, attacks=attacks, bootstrap=bootstrap, floor=False))
    floor = _seconds(lambda: noise_floor(retrain, others, attacks=attacks)) if len(others) > 1 else 0.0
    return Speed(samples, judging, floor)


def seconds_left(plan: StudyPlan, done: set[str], speed: Speed, workers: int = 1) -> float:
    """What the tasks that are not done take, each worker with the full speed."""
    return sum(speed.seconds(task) for task in plan.tasks.values() if task.id not in done) / workers


def _seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
