"""Cross-fitted references: distill each forgotten record towards what models that never saw it predict.

    t(x) = out-of-fold prediction of x, from the table that `regun.prepare` made before the request
    q(x) = softmax(log t(x) / temperature + label_logit e_y), e_y the one-hot vector of the label; for SGD q = t
    first part: L = (1 - w) 1/b sum over B_f of KL(q(x) || p_theta(.|x)) + w CE(B_r)
    last part:  L = CE(B_r), for a share `repair` of the steps

As in ReGUn, the target is a prediction on unseen data; here the reference of a record is a model that never saw it. The
last part restores retain accuracy, and with it what retained examples teach about the forgotten ones. Its share of the
steps is the mean of t at the labels, at most a half. What further training would bring back comes back in this part,
and not after the request. b is the full size of a forget batch, so that a single record weighs as much
as one of many. All batches of a step go through the model together, and CE is smoothed as in training. The learning
rate starts at `rate` times that of training, scaled to the size of a step, and anneals to 0. The request costs `share`
of a retraining; no other model is trained.

The models of the table are trained for a fraction of the epochs. They are less confident than a model that is trained
fully, and less often right. Distilled towards such predictions, a model would be less sure of forgotten records than of
other unseen ones, and more would come back in further training. With Adam, targets are sharpened until they are as
confident as the base is on held-out examples. Then labels gain: their mean probability rises by half of what the table
lacks in accuracy, compared with the base on held-out examples. With SGD this gained nothing, and targets stay as they
are; so they do if the recipe of training is unknown.

Forgotten inputs are plain, not augmented: they are forgotten as they were learned and as an attack sees them. A part
of the retained ones is plain too: the rate is high enough to disturb them, and a short update has too few passes to
learn augmented inputs again. The shorter the update and the better the base fits them, the more are plain: all in
updates of up to 8 % of a retraining of a base that fits 95 % of them, none where it fits 75 %.

Steps follow the optimizer of training. SGD takes 32 forgotten and 32 retained examples. Adam moves every weight by
about its rate, however small the gradient. It forgets more for the same samples in many small steps at a higher rate:
half of the batch of training, three eighths of it forgotten.

Own to regun. Related: oracle matching and datamodel matching (Georgiev et al., Attribute-to-Delete, ICLR 2025);
cross-fitting in statistics.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from regun.data.examples import Batch, Inputs
from regun.devices import send
from regun.errors import RegunError
from regun.methods._contract import Needs, Range, Ranges, Work
from regun.settings import check, setting
from regun.splits import sample
from regun.training.fit import Fitted, fit
from regun.training.forward import eval_logits
from regun.training.job import Job, Step
from regun.training.recipes import Recipe, assumed_recipe
from regun.training.streams import Stream, chained, in_rounds, one_pass, side_by_side

TITLE = "Cross-fitted references"
NEEDS = Needs(out_of_fold=True, heldout_helps=True)
TRAINING_AUGMENTATION = True
SEARCH: Ranges = {
    "resnet": {"w": Range(0.3, 0.8), "plain": Range(0.0, 1.0)},
    "swin": {"w": Range(0.3, 0.8), "plain": Range(0.0, 1.0)},
}
"""Without rate, targets and repair, whose defaults follow from the training, held-out examples and the table."""
PRESETS: Mapping[str, Mapping[str, Any]] = {}
ROUNDS = 20
"""Parts of a run, each at its own learning rate."""
LEAST_STEPS = 40
"""Fewer steps neither forget nor repair."""
PLAIN_SHARE = 0.08
"""Share of a retraining up to which all retained inputs may be plain; longer updates see as many plain ones."""
FIT_RANGE = (0.75, 0.95)
"""Accuracies of the base on retained inputs: no plain ones at the first, all that `share` allows from the second on."""
FIT_SAMPLE = 1000
"""Examples, at most, on which that accuracy, and the base on held-out examples, are measured."""
TEMPERATURES, LABEL_LOGITS = (0.2, 1.0), (0.0, 2.0)
"""Bounds of the two numbers that are fitted to the base on held-out examples."""
WITHOUT_HELDOUT = (0.5, 0.25)
"""The two without held-out examples."""
Counts = tuple[int, int]
"""Inputs per step: plain and augmented."""
PLAIN, AUGMENTED = "_plain", ""
"""Endings of the names of the parts of a step."""


@dataclass(frozen=True)
class Config:
    """Settings of cross-fitted references; those without a default follow from the training and from `share`."""

    share: float = setting(0.16, "samples of the update as a share of those of a retraining", above=0, high=1)
    steps: int | None = setting(None, "steps of the update (default: what `share` allows)", low=1)
    batch_size: int | None = setting(None, "forgotten inputs per step (default: 32; Adam: 3/16 of a batch)", low=1)
    retain_batch: int | None = setting(None, "retained examples per step (default: 32; Adam: 5/16 of a batch)", low=1)
    rate: float | None = setting(
        None, "learning rate per example as a multiple of that of training (default: 0.75; Adam: 1.5)", above=0
    )
    lr: float | None = setting(None, "learning rate (default: from rate)", above=0)
    w: float = setting(0.4, "weight of the retain loss in the first part", low=0, high=1)
    temperature: float | None = setting(
        None,
        "temperature of the targets (default: 1; Adam: as confident as the base on held-out examples)",
        above=0,
    )
    label_logit: float | None = setting(
        None, "added to the label's logit in the targets (default: 0; Adam: from the base on held-out examples)"
    )
    plain: float = setting(1.0, "share of the forgotten inputs that are not augmented", low=0, high=1)
    retain_plain: float | None = setting(
        None,
        "share of the retained inputs that are not augmented (default: from share and the base's fit)",
        low=0,
        high=1,
    )
    repair: float | None = setting(
        None, "last part of the steps, on retained examples alone (default: mean of q, at most half)", low=0, high=1
    )

    def __post_init__(self) -> None:
        check(self, "crossfit")


@dataclass(frozen=True)
class _Update:
    """Examples of a step, the forgotten ones as a pair (plain, augmented), and the learning rate."""

    forget: Counts
    retain: int
    lr: float


def _update(config: Config, recipe: Recipe) -> _Update:
    """Return the settings with what follows from the recipe of training."""
    if recipe.optimizer == "sgd":
        forget, retain, rate = 32, 32, 0.75
    else:
        forget, retain, rate = max(1, 3 * recipe.batch_size // 16), max(1, 5 * recipe.batch_size // 16), 1.5
    forget, retain = config.batch_size or forget, config.retain_batch or retain
    return _Update(
        forget=_divided(forget, config.plain),
        retain=retain,
        lr=config.lr or (config.rate or rate) * min(1.0, (forget + retain) / recipe.batch_size) * recipe.lr,
    )


def _divided(count: int, share: float) -> Counts:
    """Return how many of `count` inputs are plain and how many augmented."""
    plain = round(share * count)
    return plain, count - plain


def step_samples(config: Config, forget: int, retain: int, recipe: Recipe | None) -> int:
    """Return the most examples that a step sees."""
    update = _update(config, recipe or assumed_recipe(retain))
    return sum(min(count, forget) for count in update.forget) + min(update.retain, retain)


def plan_steps(config: Config, forget: int, retain: int, recipe: Recipe | None) -> int:
    """Return the number of steps: those set, or what `share` of a retraining allows."""
    if config.steps is not None:
        return config.steps
    samples = (recipe or assumed_recipe(retain)).epochs * retain
    return max(LEAST_STEPS, round(config.share * samples / step_samples(config, forget, retain, recipe)))


def work(config: Config, forget: int, retain: int, recipe: Recipe | None) -> Work:
    """Return the work: the steps of the update."""
    rounds, each = _rounds(plan_steps(config, forget, retain, recipe))
    steps = rounds * each
    return Work(steps, steps * step_samples(config, forget, retain, recipe))


def is_loss(config: Config) -> bool:
    """Return True if any loop can run the method (`regun.steps`)."""
    return True


def unlearn(job: Job, config: Config) -> Fitted:
    """Distill forgotten records towards their out-of-fold predictions, then repair on retained ones."""
    if job.out_of_fold is None:
        raise RegunError("crossfit needs a prepared table; make one with regun.prepare and give prepared=.")
    forget, retain = len(job.indices("forget")), len(job.indices("retain"))
    recipe = job.recipe or assumed_recipe(retain)
    update = _update(config, recipe)
    table, labels_of_forgotten = job.out_of_fold.cpu(), torch.from_numpy(job.examples.labels_at(job.indices("forget")))
    sharpening = _sharpening(job, config, table, labels_of_forgotten)
    target = _rows_of(job, targets(table, labels_of_forgotten, *sharpening))

    def loss(step: Step) -> Tensor:
        forgotten, retained = _parts(step, "forget"), _parts(step, "retain")
        outputs = joint_logits(job, *(batch.x for batch in (*forgotten, *retained)))
        answers, labels = torch.cat(outputs[len(forgotten) :]), torch.cat([batch.y for batch in retained])
        keeping = functional.cross_entropy(answers, labels, label_smoothing=recipe.label_smoothing)
        if not forgotten:
            return keeping
        q = send(torch.cat([target(batch) for batch in forgotten]), job.device)
        p = functional.log_softmax(torch.cat(outputs[: len(forgotten)]), dim=1)
        forgetting = functional.kl_div(p, q, reduction="sum") / sum(update.forget)
        return (1 - config.w) * forgetting + config.w * keeping

    rounds, each = _rounds(plan_steps(config, forget, retain, recipe))
    repair = _mean_of_labels(job) if config.repair is None else config.repair
    plain = _plain_share(job, config)
    together = _divided(min(update.retain, retain), plain)
    alone = _divided(min(step_samples(config, forget, retain, recipe), retain), plain)
    stream = _stream(job, update.forget, together, alone, rounds - round(repair * rounds), each)
    return fit(job, stream, loss, recipe.annealed(rounds, update.lr))


def _sharpening(job: Job, config: Config, table: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return temperature and label logit of the targets: those set, else what fits optimizer and held-out examples."""
    heldout = np.sort(sample(job.indices("heldout"), FIT_SAMPLE, job.seed, "heldout"))
    fits = job.recipe is not None and job.recipe.optimizer != "sgd"
    usual = WITHOUT_HELDOUT if fits else (1.0, 0.0)
    if not fits or not len(heldout) or None not in (config.temperature, config.label_logit):
        return config.temperature or usual[0], usual[1] if config.label_logit is None else config.label_logit
    p = eval_logits(job.model, job.examples, heldout, job.device).double().softmax(dim=1)
    confidence, answers = p.max(dim=1)
    correct = (answers == torch.from_numpy(job.examples.labels_at(heldout))).double().mean()
    lack = correct - (table.argmax(dim=1) == labels).double().mean()
    temperature = config.temperature or fitted_temperature(table, float(confidence.mean()))
    if config.label_logit is not None:
        return temperature, config.label_logit
    return temperature, fitted_label_logit(table, labels, temperature, float(lack) / 2)


def targets(probabilities: Tensor, labels: Tensor, temperature: float, label_logit: float) -> Tensor:
    """Return the probabilities sharpened by `temperature`, with `label_logit` added to each label's logit.

    >>> table = torch.tensor([[0.6, 0.4]])
    >>> targets(table, torch.tensor([1]), temperature=0.5, label_logit=0.0)  # proportional to 0.36 and 0.16
    tensor([[0.6923, 0.3077]])
    """
    if (temperature, label_logit) == (1.0, 0.0):  # not a rounding error away from the table
        return probabilities
    logits = probabilities.double().log() / temperature
    logits[torch.arange(len(labels)), labels] += label_logit
    return logits.softmax(dim=1).float()


def fitted_temperature(probabilities: Tensor, confidence: float) -> float:
    """Return the temperature that makes the mean largest probability `confidence`, within `TEMPERATURES`."""
    labels = torch.zeros(len(probabilities), dtype=torch.int64)
    return _root(
        lambda value: confidence - float(targets(probabilities, labels, value, 0.0).amax(dim=1).mean()), *TEMPERATURES
    )


def fitted_label_logit(probabilities: Tensor, labels: Tensor, temperature: float, more: float) -> float:
    """Return the label logit that raises the mean probability of the labels by `more`, within `LABEL_LOGITS`."""

    def mean(value: float) -> float:
        return float(targets(probabilities, labels, temperature, value)[torch.arange(len(labels)), labels].mean())

    usual = mean(0.0)
    return _root(lambda value: mean(value) - usual - more, *LABEL_LOGITS)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Return where a rising function is 0, or the bound that is nearest to it, to four digits."""
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return round((low + high) / 2, 4)


def _mean_of_labels(job: Job) -> float:
    """Return the mean probability that the table gives the labels of the forgotten records, at most a half."""
    assert job.out_of_fold is not None
    labels = torch.from_numpy(job.examples.labels_at(job.indices("forget")))
    return min(0.5, float(job.out_of_fold.cpu()[torch.arange(len(labels)), labels].mean()))


def _plain_share(job: Job, config: Config) -> float:
    """Return the share of the retained inputs that are plain; data without augmentation have one kind only."""
    if not job.examples.augments:
        return 0.0
    if config.retain_plain is not None:
        return config.retain_plain
    retain = np.sort(sample(job.indices("retain"), FIT_SAMPLE, job.seed, "fit"))
    labels = torch.from_numpy(job.examples.labels_at(retain))
    accuracy = float((eval_logits(job.model, job.examples, retain, job.device).argmax(1) == labels).double().mean())
    low, high = FIT_RANGE
    return min(1.0, PLAIN_SHARE / config.share) * min(1.0, max(0.0, (accuracy - low) / (high - low)))


def _stream(job: Job, forget: Counts, retain: Counts, repair: Counts, first: int, each: int) -> Stream:
    """Return `first` rounds of `each` steps with forgotten and retained inputs, then rounds of retained ones alone.

    `repair` are the retained inputs of a step of the last rounds.
    """

    def rounds_of(name: str, counts: Counts) -> list[Stream]:
        passes = [
            one_pass(job, f"{name}{ending}", job.indices(name), count, augment=ending == AUGMENTED)
            for ending, count in zip((PLAIN, AUGMENTED), counts, strict=True)
            if count
        ]
        return [in_rounds(each_pass, each) for each_pass in passes]

    forgetting = side_by_side(rounds_of("forget", forget) + rounds_of("retain", retain))
    repairing = side_by_side(rounds_of("retain", repair))
    return chained(lambda epoch: [(forgetting, epoch) if epoch < first else (repairing, epoch - first)])


def _parts(step: Step, name: str) -> list[Batch]:
    """Return the plain and the augmented batch of `forget` or `retain`, those that the step has."""
    return [step.part(name + ending) for ending in (PLAIN, AUGMENTED) if step.has(name + ending)]


def _rows_of(job: Job, values: Tensor) -> Callable[[Batch], Tensor]:
    """Return the function from a batch of forgotten examples to their rows of `values`."""
    forget = torch.from_numpy(job.indices("forget"))
    place = torch.full((len(job.examples),), -1)
    place[forget] = torch.arange(len(forget))
    return lambda batch: values[place[batch.indices.cpu()]]


def _rounds(steps: int) -> Counts:
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
