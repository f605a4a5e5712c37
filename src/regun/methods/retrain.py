"""Retrain: train from scratch on the retain set. The truth every other method is measured against.

    theta_r = fit(fresh weights, D_r)  by the base model's own recipe

Exact, and as expensive as the first training. A model that regun did not build itself must be given a way to make it
afresh (`rebuild`), unless all its layers can reset their own weights.
"""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.errors import RegunError
from regun.methods._contract import Needs, Search, Work, passes
from regun.seeds import isolated
from regun.settings import to_json
from regun.training.fit import Fitted, fit
from regun.training.job import Job, Step
from regun.training.recipes import RECIPES, Recipe
from regun.training.streams import one_pass

TITLE = "Retrain"
NEEDS = Needs(fresh_model=True)
SEARCH: Search = {"resnet": {}, "swin": {}}
PRESETS = {name: to_json(recipe) for name, recipe in RECIPES.items()}


@dataclass(frozen=True)
class Config(Recipe):
    """Settings of Retrain: a training recipe."""


def work(config: Config, forget: int, retain: int) -> Work:
    """The training recipe on the retain set."""
    return passes(config.epochs, retain, config.batch_size)


def unlearn(job: Job, config: Config) -> Fitted:
    """Start from fresh weights and train on the retain set."""
    seed = job.derive("init")
    fresh = job.rebuild(seed) if job.rebuild is not None else reset(job.model, seed)
    job.model.load_state_dict(fresh.state_dict())

    def loss(step: Step) -> Tensor:
        logits = job.logits(step.retain.x).float()
        return functional.cross_entropy(logits, step.retain.y, label_smoothing=config.label_smoothing)

    return fit(job, one_pass(job, "retain", job.indices("retain"), config.batch_size), loss, config)


def reset(model: nn.Module, seed: int) -> nn.Module:
    """A copy whose every layer has drawn its weights anew; refused when a layer does not know how."""
    fresh = copy.deepcopy(model)
    values = dict([*fresh.named_parameters(), *fresh.named_buffers()])
    values = {name: value for name, value in values.items() if value.is_floating_point() or value.is_complex()}
    with torch.no_grad():
        for value in values.values():
            value.fill_(math.nan)  # so that what no layer draws anew shows, and cannot be the trained value
    with isolated(seed):
        for module in fresh.modules():
            own_reset = getattr(module, "reset_parameters", None)
            if callable(own_reset):
                own_reset()
    left = [name for name, value in values.items() if value.isnan().any()]
    if left:
        raise RegunError(
            f"Retrain cannot make fresh weights for {len(left)} parameters or buffers (the first is {left[0]!r}); "
            f"give rebuild=a function that returns a new, untrained model."
        )
    return fresh
