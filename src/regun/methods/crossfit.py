"""Cross-fitted references: distill each forgotten record towards what models that never saw it predict.

    q(x) = out-of-fold prediction of x, from the table that `regun.prepare` made before the request
    x'   = x for a share `plain` of the forgotten inputs, x after the training augmentation for the others
    first part: L = (1 - w) 1/b sum over B_f of KL(q(x) || p_theta(.|x')) + w CE(B_r)
    last part:  L = CE(B_r), for a share `repair` of the steps

ReGUn's own idea carried to its end: the reference of a record is a model that really never saw it. With augmented
inputs alone the model forgets too little, and what it forgot comes back; with plain ones alone an attack sees that it
knows them less than unseen ones. The last part repairs retain accuracy; forgetting that further training undoes is
undone there, and not after the request. b is the full size of a forget batch, so that a single record weighs as much as
one of many. All batches of a step go through the model together. The learning rate starts at `rate` times that of
training, scaled to the size of a step, and anneals to 0. The request costs `share` of a retraining; no other model is
trained.

Own to regun. Related: oracle matching and datamodel matching (Georgiev et al., Attribute-to-Delete, ICLR 2025);
cross-fitting in statistics.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from regun.data.examples import Batch, Inputs
from regun.devices import send
from regun.errors import RegunError
from regun.methods._contract import Needs, Range, Ranges, Work
from regun.settings import check, setting
from regun.training.fit import Fitted, fit
from regun.training.job import Job, Step
from regun.training.recipes import Recipe, assumed_recipe
from regun.training.streams import Stream, chained, in_rounds, one_pass, side_by_side

TITLE = "Cross-fitted references"
NEEDS = Needs(out_of_fold=True)
TRAINING_AUGMENTATION = True
SEARCH: Ranges = {
    "resnet": {"rate": Range(0.1, 2.0, log=True), "w": Range(0.3, 0.8), "repair": Range(0.0, 0.6)},
    "swin": {"rate": Range(0.1, 2.0, log=True), "w": Range(0.3, 0.8), "repair": Range(0.0, 0.6)},
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
    batch_size: int = setting(32, "forgotten inputs per step", low=1)
    retain_batch: int = setting(32, "retained examples per step", low=1)
    rate: float = setting(0.5, "learning rate per example as a multiple of that of training", above=0)
    lr: float | None = setting(None, "learning rate (default: from rate)", above=0)
    w: float = setting(0.5, "weight of the retain loss in the first part", low=0, high=1)
    plain: float = setting(0.75, "share of the forgotten inputs that are not augmented", low=0, high=1)
    repair: float = setting(0.4, "last part of the steps, on retained examples alone", low=0, high=1)

    def __post_init__(self) -> None:
        check(self, "crossfit")


def step_samples(config: Config, forget: int, retain: int) -> int:
    """Return the most examples that a step sees."""
    plain, augmented = _forget_batches(config)
    return min(plain, forget) + min(augmented, forget) + min(config.retain_batch, retain)


def plan_steps(config: Config, forget: int, retain: int, recipe: Recipe | None) -> int:
    """Return the number of steps: those set, or what `share` of a retraining allows."""
    if config.steps is not None:
        return config.steps
    samples = (recipe or assumed_recipe(retain)).epochs * retain
    return max(LEAST_STEPS, round(config.share * samples / step_samples(config, forget, retain)))


def work(config: Config, forget: int, retain: int, recipe: Recipe | None) -> Work:
    """Return the work: the steps of the update."""
    rounds, each = _rounds(plan_steps(config, forget, retain, recipe))
    steps = rounds * each
    return Work(steps, steps * step_samples(config, forget, retain))


def is_loss(config: Config) -> bool:
    """Return True if any loop can run the method (`regun.steps`)."""
    return True


def unlearn(job: Job, config: Config) -> Fitted:
    """Distill forgotten records towards their out-of-fold predictions, then repair on retained ones."""
    if job.out_of_fold is None:
        raise RegunError("crossfit needs a prepared table; make one with regun.prepare and give prepared=.")
    forget, retain = len(job.indices("forget")), len(job.indices("retain"))
    target = _rows_of(job, job.out_of_fold.cpu())

    def loss(step: Step) -> Tensor:
        if not (step.has("forget") or step.has("plain")):
            return functional.cross_entropy(job.logits(step.retain.x), step.retain.y)
        forgotten = [step.part(name) for name in ("plain", "forget") if step.has(name)]
        *outputs, retained = joint_logits(job, *(batch.x for batch in forgotten), step.retain.x)
        q = send(torch.cat([target(batch) for batch in forgotten]), job.device)
        forgetting = functional.kl_div(functional.log_softmax(torch.cat(outputs), dim=1), q, reduction="sum")
        keeping = functional.cross_entropy(retained, step.retain.y)
        return (1 - config.w) * forgetting / config.batch_size + config.w * keeping

    recipe = job.recipe or assumed_recipe(retain)
    rounds, each = _rounds(plan_steps(config, forget, retain, recipe))
    scale = min(1.0, (config.batch_size + config.retain_batch) / recipe.batch_size)
    updates = recipe.annealed(rounds, config.lr or config.rate * scale * recipe.lr)
    return fit(job, _stream(job, config, rounds, each), loss, updates)


def _stream(job: Job, config: Config, rounds: int, each: int) -> Stream:
    """Return rounds of `each` steps with plain and augmented forgotten inputs, then rounds of retained ones alone."""
    forget, retain = job.indices("forget"), job.indices("retain")
    plain, augmented = _forget_batches(config)
    parts = [one_pass(job, "retain", retain, config.retain_batch)]
    parts += [one_pass(job, "plain", forget, plain, augment=False)] if plain else []
    parts += [one_pass(job, "forget", forget, augmented)] if augmented else []
    forgetting = side_by_side([in_rounds(part, each) for part in parts])
    repairing = in_rounds(one_pass(job, "retain", retain, step_samples(config, len(forget), len(retain))), each)
    first = rounds - round(config.repair * rounds)
    return chained(lambda epoch: [(forgetting, epoch) if epoch < first else (repairing, epoch - first)])


def _forget_batches(config: Config) -> tuple[int, int]:
    """Return how many of the forgotten inputs of a step are plain, and how many augmented."""
    plain = round(config.plain * config.batch_size)
    return plain, config.batch_size - plain


def _rows_of(job: Job, values: Tensor) -> Callable[[Batch], Tensor]:
    """Return the function from a batch of forgotten examples to their rows of `values`."""
    forget = torch.from_numpy(job.indices("forget"))
    place = torch.full((len(job.examples),), -1)
    place[forget] = torch.arange(len(forget))
    return lambda batch: values[place[batch.indices.cpu()]]


def _rounds(steps: int) -> tuple[int, int]:
    """Return how many rounds a run has, and how many steps each."""
    each = max(1, round(steps / ROUNDS))
    return max(1, round(steps / each)), each


def joint_logits(job: Job, *batches: Inputs) -> list[Tensor]:
    """Return the logits of batches that pass through the model as one, so that BatchNorm sees them together.

    Batches whose tensors cannot be joined, such as texts padded to two lengths, pass one after the other.
    """
    parts = [batch if isinstance(batch, Mapping) else {"": batch} for batch in batches]
    if any(part[name].shape[1:] != parts[0][name].shape[1:] for part in parts for name in parts[0]):
        return [job.logits(batch) for batch in batches]
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    logits = job.logits(joined if isinstance(batches[0], Mapping) else joined[""])
    return list(torch.split(logits, [len(next(iter(part.values()))) for part in parts]))
