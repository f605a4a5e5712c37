"""Cross-fitted references: distill each forgotten record towards what models that never saw it predict.

    q(x) = out-of-fold prediction of x, from the table that `regun.prepare` made before the request
    L = (1 - w) 1/b sum over B_f of KL(q(x) || p_theta(.|x))
        + w [ (1 - d) CE(B_r) + d T^2 mean over B_r of KL(p_base(.|x; T) || p_theta(.|x; T)) ]

ReGUn's own idea carried to its end: the reference of a record is a model that really never saw it. b is the full size
of a forget batch, so that a single record weighs as much as one of many. Both batches go through the model together
and through the training augmentation: on plain inputs the model over-forgets. The learning rate starts at `rate` times
that of training and anneals to 0. The request costs `share` of a retraining; no other model is trained.

Own to regun. Related: oracle matching and datamodel matching (Georgiev et al., Attribute-to-Delete, ICLR 2025);
cross-fitting in statistics.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from regun.data.examples import Inputs
from regun.devices import send
from regun.errors import RegunError
from regun.methods._contract import Needs, Range, Ranges, Work
from regun.methods._teacher import rows_of_step
from regun.models.forward import logits_of
from regun.settings import check, setting
from regun.training.fit import Fitted, fit
from regun.training.job import Job, Step, frozen_copy
from regun.training.recipes import Recipe, assumed_recipe
from regun.training.streams import in_rounds, paired

TITLE = "Cross-fitted references"
NEEDS = Needs(out_of_fold=True)
TRAINING_AUGMENTATION = True
SEARCH: Ranges = {
    "resnet": {"rate": Range(0.1, 1.0, log=True), "w": Range(0.3, 0.8), "distill": Range(0.0, 0.8)},
    "swin": {"rate": Range(0.1, 2.0, log=True), "w": Range(0.3, 0.8), "distill": Range(0.0, 0.8)},
}
PRESETS: Mapping[str, Mapping[str, Any]] = {}
ROUNDS = 20
"""Parts of a run, each at its own learning rate."""
LEAST_STEPS = 40
"""Fewer steps neither forget nor repair."""


@dataclass(frozen=True)
class Config:
    """Settings of cross-fitted references."""

    share: float = setting(0.16, "samples of the update as a share of those of a retraining", above=0, high=1)
    steps: int | None = setting(None, "steps of the update (default: what `share` allows)", low=1)
    batch_size: int = setting(64, "forgotten examples per batch", low=1)
    retain_batch: int = setting(64, "retained examples per batch", low=1)
    rate: float = setting(0.5, "learning rate as a multiple of that of training", above=0)
    lr: float | None = setting(None, "learning rate (default: rate times that of training)", above=0)
    w: float = setting(0.5, "weight of the retain loss", low=0, high=1)
    distill: float = setting(0.5, "share of the retain loss that follows the base's predictions", low=0, high=1)
    temperature: float = setting(2.0, "temperature of the base's predictions on retained examples", above=0)

    def __post_init__(self) -> None:
        check(self, "crossfit")


def plan_steps(config: Config, forget: int, retain: int, recipe: Recipe | None) -> int:
    """Return the number of steps: those set, or what `share` of a retraining allows."""
    if config.steps is not None:
        return config.steps
    samples = (recipe or assumed_recipe(retain)).epochs * retain
    each = min(config.batch_size, forget) + min(config.retain_batch, retain)
    return max(LEAST_STEPS, round(config.share * samples / each))


def work(config: Config, forget: int, retain: int, recipe: Recipe | None) -> Work:
    """Return the work: the steps of the update."""
    rounds, each = _rounds(plan_steps(config, forget, retain, recipe))
    steps = rounds * each
    return Work(steps, steps * (min(config.batch_size, forget) + min(config.retain_batch, retain)))


def is_loss(config: Config) -> bool:
    """Return True if any loop can run the method (`regun.steps`)."""
    return True


def unlearn(job: Job, config: Config) -> Fitted:
    """Distill forgotten records towards their out-of-fold predictions while training on retained ones."""
    if job.out_of_fold is None:
        raise RegunError("crossfit needs a prepared table; make one with regun.prepare and give prepared=.")
    forget, base = job.indices("forget"), frozen_copy(job.model) if config.distill > 0 else None
    targets = rows_of_step(job, job.out_of_fold.cpu())

    def loss(step: Step) -> Tensor:
        logits, retained = joint_logits(job, step.forget.x, step.retain.x)
        target = send(targets(step), job.device)
        forgetting = functional.kl_div(functional.log_softmax(logits, dim=1), target, reduction="sum")
        keeping = functional.cross_entropy(retained, step.retain.y)
        if base is not None:
            heat = config.temperature
            with torch.no_grad():
                before = functional.log_softmax(logits_of(base, step.retain.x).float() / heat, dim=1)
            now = functional.log_softmax(retained / heat, dim=1)
            soft = functional.kl_div(now, before, reduction="batchmean", log_target=True)
            keeping = (1 - config.distill) * keeping + config.distill * heat**2 * soft
        return (1 - config.w) * forgetting / config.batch_size + config.w * keeping

    retain = len(job.indices("retain"))
    recipe = job.recipe or assumed_recipe(retain)
    rounds, each = _rounds(plan_steps(config, len(forget), retain, recipe))
    updates = recipe.annealed(rounds, config.lr or config.rate * recipe.lr)
    return fit(job, in_rounds(paired(job, config.batch_size, config.retain_batch), each), loss, updates)


def _rounds(steps: int) -> tuple[int, int]:
    """Return how many rounds a run has, and how many steps each."""
    each = max(1, round(steps / ROUNDS))
    return max(1, round(steps / each)), each


def joint_logits(job: Job, first: Inputs, second: Inputs) -> tuple[Tensor, Tensor]:
    """Return the logits of two batches that pass through the model as one, so that BatchNorm sees both together.

    Batches whose tensors cannot be joined, such as texts padded to two lengths, pass one after the other.
    """
    parts = [batch if isinstance(batch, Mapping) else {"": batch} for batch in (first, second)]
    if any(parts[0][name].shape[1:] != parts[1][name].shape[1:] for name in parts[0]):
        return job.logits(first), job.logits(second)
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    logits = job.logits(joined if isinstance(first, Mapping) else joined[""])
    size = len(next(iter(parts[0].values())))
    return logits[:size], logits[size:]
