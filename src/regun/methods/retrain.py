"""Retrain: train from scratch on the retain set. Every other method is compared with this one.

    theta_r = fit(fresh weights, D_r)  by the base model's own recipe

Exact, and as expensive as the first training. A model that regun did not build itself must be given a way to make it
afresh (`rebuild`), unless all its layers can reset their own weights; frozen layers keep theirs. The recipe must be
said: with any other one the outcome is another model than the one that training without the records would have made.

`layers=last:K` draws and trains the last K layers only (EU-k, Goel et al. 2022): cheaper, and exact for those layers
alone, since the others remember what they have seen.
"""

from dataclasses import dataclass

from regun.methods._contract import Needs, Ranges, Work, passes
from regun.methods._fresh_weights import fresh_model
from regun.methods._fresh_weights import reset as reset
from regun.methods._layers import HELP, check_layers, copy_layers, training_only
from regun.settings import setting, to_json
from regun.training.fit import Fitted
from regun.training.job import Job
from regun.training.recipes import RECIPES, Recipe
from regun.training.scratch import train_from_scratch

TITLE = "Retrain"
NEEDS = Needs(fresh_model=True)
FROM_SCRATCH = True
REQUIRED = ("epochs", "lr")
SEARCH: Ranges = {"resnet": {}, "swin": {}}
PRESETS = {name: to_json(recipe) for name, recipe in RECIPES.items()}


@dataclass(frozen=True)
class Config(Recipe):
    """Settings of Retrain: a training recipe."""

    layers: str = setting("all", HELP)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self.layers, "retrain")


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: the training recipe on the retain set."""
    return passes(config.epochs, retain, config.batch_size)


def is_loss(config: Config) -> bool:
    """Return True if any loop can run the method (`regun.steps`)."""
    return config.layers == "all"


def unlearn(job: Job, config: Config) -> Fitted:
    """Start from fresh weights and train on the retain set."""
    copy_layers(fresh_model(job, "init"), job.model, config.layers)
    with training_only(job.model, config.layers) as names:
        fitted = train_from_scratch(job, job.indices("retain"), config)
    if config.layers != "all":
        fitted.notes["trained"] = names
    return fitted
