"""Teachers: models that never saw the forgotten examples, and their predictions on these as soft targets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.devices import send
from regun.errors import DivergedError, RegunError
from regun.methods._budget import first_part
from regun.methods._contract import Work, passes
from regun.methods._fresh_weights import fresh_model
from regun.settings import setting
from regun.training.forward import eval_logits
from regun.training.job import Job, Step, frozen_copy
from regun.training.recipes import Recipe, Updates, assumed_recipe, shorten
from regun.training.scratch import train_from_scratch


@dataclass(frozen=True)
class TeacherSettings(Updates):
    """How a teacher is trained, for methods that have one; the rest is how the model itself is updated."""

    teacher_share: float = setting(0.25, "share of the usual epochs a teacher is trained for", above=0, high=1)
    teacher_epochs: int | None = setting(None, "usual epochs to take the share of (default: the base's, or 40)", low=1)
    teacher_optimizer: str | None = setting(
        None, "a teacher's update rule (default: the base's, or adamw)", choices=(None, "sgd", "adam", "adamw")
    )
    teacher_lr: float | None = setting(None, "a teacher's learning rate (default: the base's, or 0.001)", above=0)
    teacher_batch: int | None = setting(None, "a teacher's batch size (default: the base's, or at most 64)", low=1)
    teachers: int = setting(1, "how many are trained; the mean of their predictions is learned", low=1)


def teacher_recipe(recipe: Recipe | None, config: TeacherSettings, retain: int) -> Recipe:
    """Return the base's recipe, or the assumed one, with the teacher's settings, shortened to `teacher_share`."""
    named = {
        "optimizer": config.teacher_optimizer,
        "lr": config.teacher_lr,
        "batch_size": config.teacher_batch,
        "epochs": config.teacher_epochs,
    }
    changes: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if config.teacher_optimizer not in (None, "sgd"):
        changes["nesterov"] = False
    usual = recipe or assumed_recipe(retain)
    warmup = min(usual.warmup_epochs, max(0, changes.get("epochs", usual.epochs) - 1))
    return shorten(replace(usual, warmup_epochs=warmup, **changes), config.teacher_share)


def teacher_work(recipe: Recipe, retain: int) -> Work:
    """Return the work of epochs over the retain set."""
    return passes(recipe.epochs, retain, recipe.batch_size)


def train_teachers(job: Job, config: TeacherSettings, after: Work) -> list[nn.Module]:
    """Return fresh models trained on the retain set alone, frozen; cost and budget are the job's.

    `after` is the work planned for what comes after them. Their epochs are not observed: they are not the model's.
    """
    retain, count = len(job.indices("retain")), config.teachers
    recipe = teacher_recipe(job.recipe, config, retain)
    each = teacher_work(recipe, retain)
    return [train_teacher(job, recipe, sum([each] * (count - 1 - k), after), k) for k in range(count)]


def train_teacher(job: Job, recipe: Recipe, after: Work, number: int = 0) -> nn.Module:
    """Return a teacher trained by this recipe; each number has its own weights and batches."""
    retain, name = job.indices("retain"), ("teacher", number) if number else ("teacher",)
    part = first_part(job, teacher_work(recipe, len(retain)), after)
    student = replace(part, model=fresh_model(job, *name), seed=job.derive(*name))
    fitted = train_from_scratch(student, retain, recipe)
    if fitted.diverged:
        raise DivergedError(
            f"the teacher's training stopped: {fitted.diverged}. Lower teacher_lr. Nothing was changed."
        )
    return frozen_copy(student.model)


def given_teacher(job: Job) -> nn.Module:
    """Return the user's model that never saw the forgotten examples."""
    if job.teacher is None:
        raise RegunError("regun.source is 'given', but no teacher was given; give teacher=, or use 'base'.")
    return frozen_copy(job.teacher)


def answers_of(teachers: Sequence[nn.Module], job: Job, temperature: float) -> Callable[[Step], Tensor]:
    """Return a step's soft targets (b, K): mean predictions on its forget examples without augmentation, cached."""
    forget = job.indices("forget")
    logits = torch.stack([eval_logits(teacher, job.examples, forget, job.device) for teacher in teachers])
    answers = functional.softmax(logits.double() / temperature, dim=-1).mean(dim=0).float()
    rows = rows_of_step(job, answers)
    return lambda step: send(rows(step), job.device)


def rows_of_step(job: Job, values: Tensor) -> Callable[[Step], Tensor]:
    """Return the function from a step to those rows of `values`, one per forgotten example, that its batch needs."""
    forget = job.indices("forget")
    place = torch.full((len(job.examples),), -1)
    place[torch.from_numpy(forget)] = torch.arange(len(forget))
    return lambda step: values[place[step.forget.indices]]
