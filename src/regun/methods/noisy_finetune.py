"""Noisy fine-tuning: clipped gradient steps on the retain set with Gaussian noise, and the guarantee that follows.

    theta_0 <- theta_0 min(1, R / |theta_0|)
    theta <- theta - lr (clip(grad CE(B_r), C) + decay theta) + N(0, noise^2)

Paper: Koloskova et al. 2025, "Certified Unlearning for Neural Networks" (ICML), with gradient clipping. The outcome
carries the (epsilon, delta) bound of `_certificate.py` in `notes["certificate"]`: so hard are the weights to tell
from those of the same run begun at a model that never saw the forgotten examples. It `holds` only where every
assumption is met and stated: `radius` given, and not read off this model; noise on every weight; and two that only
the user can know, `secret_seed` and, with frozen weights or buffers other than BatchNorm's, `rest_is_clean`.
BatchNorm's statistics are measured again at the end, from the last weights and the retain set. The last `repair_epochs`
run without noise and clipping: they see nothing but the retain set, so the bound stays. On a network of usual size a
small epsilon needs noise that ruins it: look at the number, not at the word.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regun.errors import SettingsError
from regun.methods._batchnorm import reestimate_statistics
from regun.methods._certificate import certificate, divergence_rate, epsilon_of, without_noise
from regun.methods._contract import RESNET_LR, Needs, Range, Ranges, Work, passes
from regun.methods._steer import clipped, gradients, steered
from regun.methods.finetune import retain_loss
from regun.models.forward import batchnorms
from regun.rng import own_torch_rng
from regun.settings import setting
from regun.training.fit import Fitted, fit
from regun.training.gradients import trainable
from regun.training.job import Job, Step
from regun.training.recipes import Updates
from regun.training.streams import one_pass

TITLE = "Noisy finetune"
NEEDS = Needs()
AXES = {"lr": RESNET_LR, "noise": Range(1e-5, 1e-1, log=True), "clip": Range(0.1, 10, log=True)}
SEARCH: Ranges = {"resnet": AXES, "swin": AXES}
PRESETS: Mapping[str, Mapping[str, Any]] = {}


@dataclass(frozen=True)
class Config(Updates):
    """Settings of noisy fine-tuning."""

    momentum: float = setting(0.0, "always 0: momentum remembers earlier weights", low=0, high=1)
    clip: float = setting(1.0, "C: the batch gradient is clipped to this norm", above=0)
    noise: float = setting(1e-3, "standard deviation of the noise on every weight at every step", low=0)
    radius: float | None = setting(None, "R: the start is scaled into a ball of this radius (none: no bound)", above=0)
    delta: float = setting(1e-5, "delta of the bound", above=0, high=1)
    repair_epochs: int = setting(0, "last epochs without noise and clipping", low=0)
    secret_seed: bool = setting(False, "I state that the seed is random and stays secret")
    rest_is_clean: bool = setting(False, "I state that what gets no noise never depended on the forgotten examples")

    def __post_init__(self) -> None:
        super().__post_init__()
        required = {"optimizer": "sgd", "momentum": 0, "schedule": "constant", "warmup_epochs": 0, "decay": "all"}
        actual = {name: vars(self)[name] for name in required}
        problems = [
            f"noisy_finetune.{name} is {actual[name]!r}; the bound knows {required[name]!r} only."
            for name in required
            if actual[name] != required[name]
        ]
        if self.lr == 0 or self.lr * self.weight_decay >= 1:
            problems.append(f"noisy_finetune.lr is {self.lr}; give one above 0 and below 1 / weight_decay.")
        if problems:
            raise SettingsError(problems)


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: epochs over the retain set."""
    return passes(config.epochs, retain, config.batch_size)


def unlearn(job: Job, config: Config) -> Fitted:
    """Scale into the ball, take noisy steps, say what they prove."""
    parameters = trainable(job.model)
    weights = list(parameters.values())
    if config.radius is not None:
        with torch.no_grad():
            for weight, inside in zip(weights, clipped(weights, config.radius), strict=True):
                weight.copy_(inside)
    noisy_steps = 0

    def loss(step: Step) -> Tensor:
        nonlocal noisy_steps
        value = retain_loss(job, step)
        if step.epoch >= step.epochs - config.repair_epochs:
            return value
        noisy_steps += 1
        directions = clipped(gradients(value, weights), config.clip)
        with own_torch_rng(job.derive("noise", step.epoch, step.number), job.device):
            noise = [torch.randn(w.shape, device=w.device) * (config.noise / config.lr) for w in weights]
        return steered(value, weights, [d - n.to(d) for d, n in zip(directions, noise, strict=True)])

    fitted = fit(job, one_pass(job, "retain", job.indices("retain"), config.batch_size), loss, config)
    if not fitted.diverged:
        reestimate_statistics(job, job.indices("retain"), config.batch_size)
    fitted.notes["certificate"] = proven(job, config, noisy_steps, whole=fitted.diverged is None)
    return fitted


def proven(job: Job, config: Config, steps: int, *, whole: bool) -> dict[str, Any]:
    """Return the bound after `steps` noisy steps, its assumptions, and whether all of them are met and stated."""
    norms = batchnorms(job.model)
    alone = bool(norms) and (config.batch_size < 3 or len(job.indices("retain")) == 1)
    missing = {
        "no radius was given": config.radius is None,
        "there was no noise": not config.noise or not steps,
        "secret_seed was not stated": not config.secret_seed,
        "some weights or buffers got no noise, and rest_is_clean was not stated": (
            without_noise(job.model, norms) and not config.rest_is_clean
        ),
        "batches of one example were normalised by statistics of earlier weights": alone,
        "the run diverged": not whole,
    }
    epsilon = None
    if config.radius is not None and config.noise and steps:
        terms = {name: vars(config)[name] for name in ("lr", "weight_decay", "radius", "clip", "noise")}
        epsilon = epsilon_of(divergence_rate(steps=steps, **terms), config.delta)
    return certificate(epsilon, config.delta, steps, [reason for reason, lacks in missing.items() if lacks])
