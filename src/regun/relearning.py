"""Relearning check: train on retained examples only, and measure at a few steps what returns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from regun.auditing.durability import Relearned, RelearningCurve, relearned
from regun.auditing.predictions import UNSEEN
from regun.data.examples import Batch, Examples
from regun.errors import AuditError, NotFiniteError
from regun.predict import predict
from regun.rng import derive
from regun.splits import Splits
from regun.training.fit import Fitted, fit
from regun.training.job import Cost, Epoch, Job, device_of, private_copy
from regun.training.recipes import Recipe, Updates
from regun.training.streams import Stream, one_pass
from regun.types import Indices

CHECKPOINT_DIVISORS = (8, 4, 2, 1)
"""The model is measured after an eighth, a quarter, a half and all of the steps."""
RATE_SHARE = 0.1
"""Learning rate as a share of the highest one of the model's training."""


def relearn_updates(recipe: Recipe | None) -> Updates:
    """Return two passes over the retain set at a tenth of the base's rate, constant, without decay.

    Larger rates damage a retrained model on the retain set; smaller ones bring nothing back.
    """
    if recipe is None:
        return Updates(epochs=2, batch_size=64, lr=0.01)
    return Updates(
        epochs=2,
        batch_size=64,
        lr=RATE_SHARE * recipe.lr,
        optimizer=recipe.optimizer,
        momentum=recipe.momentum,
        beta1=recipe.beta1,
        beta2=recipe.beta2,
    )


def relearning_checkpoints(updates: Updates, retain: int) -> tuple[int, ...]:
    """Return the steps at which a model is measured; the first is 0."""
    total = updates.epochs * -(-retain // updates.batch_size)
    return tuple(dict.fromkeys((0, *(-(-total // part) for part in CHECKPOINT_DIVISORS))))


def relearn_steps(job: Job, updates: Updates, measure: Callable[[nn.Module], None]) -> Fitted:
    """Train the job's model on its retain set; call `measure` at every checkpoint, the first before any step."""
    stream = one_pass(job, "retain", job.indices("retain"), updates.batch_size)
    points = relearning_checkpoints(updates, len(job.indices("retain")))

    def on_epoch(epoch: Epoch, model: nn.Module) -> None:
        job.on_epoch(epoch, model)
        measure(model)

    measure(job.model)
    return fit(
        replace(job, on_epoch=on_epoch),
        _between(stream, points),
        lambda step: functional.cross_entropy(job.logits(step.retain.x), step.retain.y),
        replace(updates, epochs=len(points) - 1),
    )


def _between(stream: Stream, points: tuple[int, ...]) -> Stream:
    """Return the same batches in the same order, with one epoch from each checkpoint to the next."""
    whole = stream.steps(0)

    def run(epoch: int, start: int) -> Iterator[Mapping[str, Batch]]:
        at, end = points[epoch] + start, points[epoch + 1]
        while at < end:
            number, inside = divmod(at, whole)
            count = min(end - at, whole - inside)
            yield from islice(stream.run(number, inside), count)
            at += count

    def steps(epoch: int) -> int:
        return points[epoch + 1] - points[epoch]

    return Stream(steps, lambda epoch: steps(epoch) * -(-stream.samples(0) // whole), run)


RETAINED = 2000
"""Retained examples that are measured, evenly spread over the retain set."""

MeasuredSets = Mapping[str, tuple[Examples, Indices]]
"""Examples and rows to measure, by split."""


def relearning_sets(examples: Examples, splits: Splits, unseen: MeasuredSets) -> MeasuredSets:
    """Return the sets to measure: forget, a part of retain, and the first unseen set that has examples."""
    name = next((name for name in UNSEEN if name in unseen and len(unseen[name][1])), None)
    if name is None:
        raise AuditError("the relearning check compares with unseen examples, and there are none; give test.")
    if not len(splits.retain):
        raise AuditError("the relearning check trains on retained examples, and there are none; give retain.")
    part = np.linspace(0, len(splits.retain) - 1, min(RETAINED, len(splits.retain))).round().astype(np.int64)
    return {"forget": (examples, splits.forget), name: unseen[name], "retain": (examples, splits.retain[part])}


def relearning_curve(job: Job, updates: Updates, sets: MeasuredSets) -> RelearningCurve:
    """Return the predictions of the job's model on every set before, during and after its steps."""
    log_probs: dict[str, list[Any]] = {name: [] for name in sets}
    right: dict[str, list[Any]] = {name: [] for name in sets}

    def measure(model: nn.Module) -> None:
        for name, (examples, rows) in sets.items():
            predicted = predict(model, examples, rows, job.device)
            log_probs[name].append(predicted.true_log_prob)
            right[name].append(predicted.predicted == predicted.labels)

    fitted = relearn_steps(job, updates, measure)
    if fitted.diverged:
        raise NotFiniteError(f"relearning stopped: {fitted.diverged}.")
    return RelearningCurve(
        relearning_checkpoints(updates, len(job.indices("retain"))),
        {name: np.stack(values) for name, values in log_probs.items()},
        {name: np.stack(values) for name, values in right.items()},
    )


def relearn(
    models: Sequence[nn.Module],
    examples: Examples,
    splits: Splits,
    unseen: MeasuredSets,
    *,
    updates: Updates,
    seed: int = 0,
    device: torch.device | None = None,
    before: bool = False,
) -> tuple[Relearned, Cost]:
    """Compare how models in memory relearn; return the comparison and its cost. All models are copied.

    The first model is the audited one, then come Retrain and the references; with `before`, the last is the model
    before unlearning.
    """
    sets, cost, curves = relearning_sets(examples, splits, unseen), Cost(), list[RelearningCurve]()
    for model in models:
        target = device if device is not None else device_of(model)
        copy = private_copy(model, target)
        job = Job(model=copy, examples=examples, splits=splits, seed=derive(seed, "relearn"), device=target)
        curves.append(relearning_curve(job, updates, sets))
        cost.add(**vars(job.cost))
    return compare_curves(curves, with_before=before), cost


def compare_curves(curves: Sequence[RelearningCurve], *, with_before: bool) -> Relearned:
    """Compare the first curve with those of Retrain and references; the last is the model before, if `with_before`."""
    target, *rest = curves
    before = rest.pop() if with_before else None
    return relearned(target, rest[0] if rest else None, rest[1:], before=before)
