"""Training from scratch without a recipe: the learning rate by trials, the length by how well the base fits."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional

from regun.methods._budget import unobserved
from regun.methods._contract import Work
from regun.methods._fresh_weights import fresh_model
from regun.splits import sample
from regun.training.forward import eval_logits
from regun.training.job import Budget, Job, copied, frozen_copy
from regun.training.recipes import Recipe, assumed_recipe
from regun.training.scratch import train_from_scratch

LOG = logging.getLogger("regun.auto")
RATES = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
"""Learning rates of AdamW that are tried where the recipe is unknown."""
TRIAL_STEPS, TRIAL_SAMPLE = 40, 512
"""Steps of a trial, and how many retain examples its loss is measured on."""
ROUND_STEPS, ROUND_EPOCHS = 300, 5
"""Steps and epochs of the first round of training, at least; every further round is twice as long."""


def trial_work(retain: int, batch: int, rates: int) -> Work:
    """Return the work of trying so many rates."""
    steps = TRIAL_STEPS * rates
    return Work(steps, steps * min(batch, retain))


def first_round(retain: int) -> int:
    """Return the epochs of the first round."""
    return max(ROUND_EPOCHS, math.ceil(ROUND_STEPS / math.ceil(retain / assumed_recipe(retain).batch_size)))


def most_epochs(retain: int, most: int) -> int:
    """Return the epochs of all rounds that together take at most `most` samples."""
    epochs = total = first_round(retain)
    while (total + 2 * epochs) * retain <= most:
        epochs, total = 2 * epochs, total + 2 * epochs
    return total


def find_rate(job: Job, model: nn.Module, recipe: Recipe, rates: Sequence[float]) -> Recipe:
    """Return the recipe with the learning rate that lowers the retain loss most within a few steps."""
    losses = {lr: _trial_loss(job, model, replace(recipe, lr=lr)) for lr in rates}
    best = min(rates, key=lambda lr: losses[lr])
    listed = ", ".join(f"{lr:g}: {loss:.3f}" for lr, loss in losses.items())
    LOG.info("learning rate %g, by the loss after %d steps (%s)", best, TRIAL_STEPS, listed)
    return replace(recipe, lr=best)


def train_in_rounds(job: Job, recipe: Recipe, most: int, fitted: Callable[[nn.Module], bool]) -> nn.Module:
    """Train fresh weights on the retain set in ever longer rounds, until `fitted` or `most` samples are used."""
    retain = job.indices("retain")
    student = replace(unobserved(job), model=fresh_model(job, "teacher"))
    epochs, used, number = first_round(len(retain)), 0, 0
    while True:
        this_round = replace(student, seed=job.derive("teacher", number))
        result = train_from_scratch(this_round, retain, replace(recipe, epochs=epochs))
        used += epochs * len(retain)
        enough = bool(result.diverged) or fitted(student.model)
        LOG.info("trained from scratch for %d epochs, %s", used // len(retain), "enough" if enough else "not enough")
        if enough or used + 2 * epochs * len(retain) > most:
            return frozen_copy(student.model)
        epochs, number = 2 * epochs, number + 1


def _trial_loss(job: Job, model: nn.Module, recipe: Recipe) -> float:
    """Return the retain loss of a copy of the model after a few steps; infinite if it diverged."""
    retain, budget = job.indices("retain"), Budget(steps=job.cost.steps + TRIAL_STEPS)
    trial = replace(unobserved(job), model=copied(model), seed=job.derive("rate"), budget=budget)
    fitted = train_from_scratch(trial, retain, replace(recipe, schedule="constant", warmup_epochs=0))
    if fitted.diverged:
        return math.inf
    examples = sample(retain, TRIAL_SAMPLE, job.seed, "rate")
    logits = eval_logits(trial.model, job.examples, examples, job.device)
    loss = float(functional.cross_entropy(logits, torch.from_numpy(job.examples.labels_at(examples))))
    return loss if math.isfinite(loss) else math.inf
