"""Training from scratch within a number of samples: the learning rate by trials, the length by what may be spent."""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional

from regun.errors import DivergedError
from regun.methods._budget import unobserved
from regun.methods._contract import Work, passes
from regun.methods._fresh_weights import fresh_model
from regun.splits import sample
from regun.training.forward import eval_logits
from regun.training.job import Budget, Job, copied, frozen_copy
from regun.training.recipes import Recipe, shorten
from regun.training.scratch import train_from_scratch

LOG = logging.getLogger("regun.auto")
EPOCHS = 8
"""Epochs of a training that is unknown. The estimate is low on purpose: most trainings take longer."""
LEAST_SAMPLES = 12_800
"""Fewer samples (200 steps of 64) teach nothing."""
RATES = (1e-2, 3e-3, 1e-3, 3e-4)
"""Learning rates of AdamW that are tried where the recipe is unknown."""
TRIAL_STEPS, LEAST_TRIAL_STEPS = 40, 4
"""Most and least steps of a trial; with fewer there are no trials."""
TRIAL_SAMPLE = 256
"""Number of retain examples on which a trial's loss is measured."""


def estimated_samples(retain: int) -> int:
    """Return the samples of a retraining whose recipe is unknown: a low estimate."""
    return max(EPOCHS * retain, LEAST_SAMPLES)


def trial_steps(samples: int, rates: int, batch: int) -> int:
    """Return the steps of each trial where all of them may take so many samples; 0 for no trials."""
    steps = min(TRIAL_STEPS, samples // (rates * batch)) if rates else 0
    return steps if steps >= LEAST_TRIAL_STEPS else 0


def training_work(recipe: Recipe, retain: int, samples: int) -> Work:
    """Return the work of `train_for`: whole epochs, or some batches of the first one."""
    epochs = samples // retain
    if epochs:
        return passes(min(recipe.epochs, epochs) or 1, retain, recipe.batch_size)
    batch = min(recipe.batch_size, retain)
    steps = max(1, samples // batch)
    return Work(steps, steps * batch)


def train_for(job: Job, recipe: Recipe, samples: int) -> nn.Module:
    """Return fresh weights trained on the retain set by the recipe, shortened to so many samples; frozen."""
    retain = job.indices("retain")
    student = replace(unobserved(job), model=fresh_model(job, "teacher"), seed=job.derive("teacher"))
    epochs = samples // len(retain)
    short = shorten(recipe, min(1.0, max(1, epochs) / max(1, recipe.epochs)))
    steps = None if epochs else training_work(recipe, len(retain), samples).steps
    result = train_from_scratch(student, retain, short, steps=steps)
    if result.diverged:
        raise DivergedError(f"training from scratch stopped: {result.diverged}. Nothing was changed.")
    return frozen_copy(student.model)


def find_rate(job: Job, model: nn.Module, recipe: Recipe, rates: Sequence[float], steps: int) -> Recipe:
    """Return the recipe with the learning rate that lowers the retain loss most within so many steps."""
    losses = {lr: _trial_loss(job, model, replace(recipe, lr=lr), steps) for lr in rates}
    best = min(rates, key=lambda lr: losses[lr])
    listed = ", ".join(f"{lr:g}: {loss:.3f}" for lr, loss in losses.items())
    LOG.info("learning rate %g, by the loss after %d steps (%s)", best, steps, listed)
    return replace(recipe, lr=best)


def _trial_loss(job: Job, model: nn.Module, recipe: Recipe, steps: int) -> float:
    """Return the retain loss of a copy of the model after a few steps; infinite if it diverged."""
    retain, budget = job.indices("retain"), Budget(steps=job.cost.steps + steps)
    trial = replace(unobserved(job), model=copied(model), seed=job.derive("rate"), budget=budget)
    fitted = train_from_scratch(trial, retain, replace(recipe, schedule="constant", warmup_epochs=0, warmup_ratio=0.0))
    if fitted.diverged:
        return math.inf
    examples = sample(retain, TRIAL_SAMPLE, job.seed, "rate")
    logits = eval_logits(trial.model, job.examples, examples, job.device)
    loss = float(functional.cross_entropy(logits, torch.from_numpy(job.examples.labels_at(examples))))
    return loss if math.isfinite(loss) else math.inf
