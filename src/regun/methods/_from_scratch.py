"""Training anew without a recipe: the learning rate found by trying, the length by how well the base fits."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional

from regun.errors import RegunError
from regun.methods._contract import Work
from regun.methods._fresh_weights import fresh_model, reset_parameters
from regun.rng import generator, isolated
from regun.splits import sample
from regun.training.forward import eval_logits
from regun.training.job import Budget, Epoch, Job, copied, device_of, frozen_copy
from regun.training.recipes import Recipe, assumed_recipe
from regun.training.scratch import train_from_scratch
from regun.types import Indices

LOG = logging.getLogger("regun.auto")
RATES = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
"""Learning rates of AdamW that are tried where nobody says which was used."""
TRIED_STEPS, ASKED = 40, 512
"""Steps of a trial, and how many retain examples its loss is measured on."""
ROUND_STEPS, ROUND_EPOCHS = 300, 5
"""The first round of training: so many steps and epochs at least; every further one is twice as long."""


def trial_work(retain: int, batch: int, rates: int) -> Work:
    """Trying so many rates."""
    steps = TRIED_STEPS * rates
    return Work(steps, steps * min(batch, retain))


def first_round(retain: int) -> int:
    """Epochs of the first round."""
    return max(ROUND_EPOCHS, math.ceil(ROUND_STEPS / math.ceil(retain / assumed_recipe(retain).batch_size)))


def most_epochs(retain: int, most: int) -> int:
    """Epochs of all rounds together that keep within so many samples."""
    epochs = total = first_round(retain)
    while (total + 2 * epochs) * retain <= most:
        epochs, total = 2 * epochs, total + 2 * epochs
    return total


def found_rate(job: Job, model: nn.Module, recipe: Recipe, rates: Sequence[float]) -> Recipe:
    """The recipe with the one of some learning rates that lowers the loss on the retain set most in a few steps."""
    asked = sample(job.indices("retain"), ASKED, job.seed, "rate")
    losses = {lr: _tried(job, model, replace(recipe, lr=lr), asked) for lr in rates}
    best = min(rates, key=lambda lr: losses[lr])
    told = ", ".join(f"{lr:g}: {loss:.3f}" for lr, loss in losses.items())
    LOG.info("learning rate %g, by the loss after %d steps (%s)", best, TRIED_STEPS, told)
    return replace(recipe, lr=best)


def train_in_rounds(job: Job, recipe: Recipe, most: int, fitted: Callable[[nn.Module], bool]) -> nn.Module:
    """Train fresh weights on the retain set, in rounds of growing length, until `fitted` or `most` samples are used."""
    retain = job.indices("retain")
    pupil = replace(unwatched(job), model=fresh_model(job, "teacher"))
    epochs, used, number = first_round(len(retain)), 0, 0
    while True:
        mine = replace(pupil, seed=job.derive("teacher", number))
        done = train_from_scratch(mine, retain, replace(recipe, epochs=epochs))
        used += epochs * len(retain)
        enough = bool(done.diverged) or fitted(pupil.model)
        LOG.info("trained anew for %d epochs, %s", used // len(retain), "enough" if enough else "not yet enough")
        if enough or used + 2 * epochs * len(retain) > most:
            return frozen_copy(pupil.model)
        epochs, number = 2 * epochs, number + 1


def with_fresh_weights(job: Job) -> tuple[Job, bool]:
    """The job, and whether its model can draw fresh weights; one that cannot gets a `rebuild` that shuffles them."""
    try:
        fresh_model(job, "fresh")
    except RegunError as fault:
        LOG.info("%s Until then, weights that no layer can draw anew are the base's, shuffled.", fault)

        def rebuild(seed: int) -> nn.Module:
            return shuffled(job.model, seed)

        return replace(job, rebuild=rebuild), False
    return job, True


def shuffled(model: nn.Module, seed: int) -> nn.Module:
    """A copy whose layers have drawn their weights anew; where they cannot, every tensor's numbers change places.

    What a tensor knew is in where its numbers stand; their spread is that of weights which can be trained.
    """
    made = copied(model).cpu()
    draw = generator(seed, "shuffled")
    with torch.no_grad():
        for parameter in (p for p in made.parameters() if p.requires_grad):
            flat = parameter.detach().flatten()
            parameter.copy_(flat[torch.randperm(len(flat), generator=draw)].view_as(parameter))
    kept = {name: p.detach().clone() for name, p in made.named_parameters() if not p.requires_grad}
    with isolated(seed):
        reset_parameters(made)
    with torch.no_grad():
        for name, value in kept.items():
            made.get_parameter(name).copy_(value)
    return made.to(device_of(model))


def unwatched(job: Job) -> Job:
    """The job of a model beside the one that is unlearned: nobody watches its epochs, no budget ends it."""
    return replace(job, on_epoch=_nobody, budget=None)


def _nobody(epoch: Epoch, model: nn.Module) -> None:
    """An observer that looks away."""


def _tried(job: Job, model: nn.Module, recipe: Recipe, asked: Indices) -> float:
    """The loss of a copy of the model on some retain examples after a few steps; infinite if it diverged."""
    budget = Budget(steps=job.cost.steps + TRIED_STEPS)
    mine = replace(unwatched(job), model=copied(model), seed=job.derive("rate"), budget=budget)
    fitted = train_from_scratch(mine, job.indices("retain"), replace(recipe, schedule="constant", warmup_epochs=0))
    if fitted.diverged:
        return math.inf
    logits = eval_logits(mine.model, job.examples, asked, job.device)
    loss = float(functional.cross_entropy(logits, torch.from_numpy(job.examples.labels_at(asked))))
    return loss if math.isfinite(loss) else math.inf
