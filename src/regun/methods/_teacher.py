"""ReGUn's teacher: a model that never saw the forgotten examples, asked about those very examples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.errors import DivergedError, RegunError
from regun.methods._contract import Work, passes
from regun.methods._fresh_weights import fresh_model
from regun.methods._subsets import first_part
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
        None, "a teacher's update rule (default: the base's, or adamw)", choices=(None, "sgd", "adamw")
    )
    teacher_lr: float | None = setting(None, "a teacher's learning rate (default: the base's, or 0.001)", above=0)
    teacher_batch: int | None = setting(None, "a teacher's batch size (default: the base's, or at most 64)", low=1)
    teachers: int = setting(1, "how many are trained; the mean of their answers is learned", low=1)


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
    """Epochs over the retain set."""
    return passes(recipe.epochs, retain, recipe.batch_size)


def train_teachers(job: Job, config: TeacherSettings, after: Work) -> list[nn.Module]:
    """Fresh models trained on the retain set alone, frozen; their cost is the job's, and so is their part of a budget.

    `after` is the work planned for what comes after them. Nobody watches their epochs: they are not the model's.
    """
    retain, count = len(job.indices("retain")), config.teachers
    recipe = teacher_recipe(job.recipe, config, retain)
    each = teacher_work(recipe, retain)
    return [taught(job, recipe, sum([each] * (count - 1 - k), after), k) for k in range(count)]


def taught(job: Job, recipe: Recipe, after: Work, number: int = 0) -> nn.Module:
    """A teacher trained by this very recipe; each number has weights and batches of its own."""
    retain, name = job.indices("retain"), ("teacher", number) if number else ("teacher",)
    part = first_part(job, teacher_work(recipe, len(retain)), after)
    pupil = replace(part, model=fresh_model(job, *name), seed=job.derive(*name))
    fitted = train_from_scratch(pupil, retain, recipe)
    if fitted.diverged:
        raise DivergedError(
            f"the teacher's training stopped: {fitted.diverged}. Lower teacher_lr. Nothing was changed."
        )
    return frozen_copy(pupil.model)


def given_teacher(job: Job) -> nn.Module:
    """The user's own model that never saw the forgotten examples."""
    if job.teacher is None:
        raise RegunError("regun.reference is 'given', but no teacher was given; give teacher=, or use 'base'.")
    return frozen_copy(job.teacher)


def answers_of(teachers: Sequence[nn.Module], job: Job, temperature: float) -> Callable[[Step], Tensor]:
    """Soft targets (b, K) of a step's forget batch: mean answers to its examples as they are, asked once."""
    forget = job.indices("forget")
    logits = torch.stack([eval_logits(teacher, job.examples, forget, job.device) for teacher in teachers])
    answers = functional.softmax(logits.double() / temperature, dim=-1).mean(dim=0).float()
    place = torch.full((len(job.examples),), -1)
    place[torch.from_numpy(forget)] = torch.arange(len(forget))
    return lambda step: answers[place[step.forget.indices.cpu()]].to(job.device)
