"""The steps of a relearning check: small ones, on retained examples alone, with a look now and then."""

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

LOOKS = (8, 4, 2, 1)
"""Where on its way a model is looked at: after an eighth, a quarter, a half and all of the steps."""
GENTLE = 0.1
"""The rate, as a share of the highest one that the model was trained with."""


def relearn_updates(recipe: Recipe | None) -> Updates:
    """Two passes over the retain set at a tenth of the base's rate, constant, without decay.

    Larger rates make a retrained model worse on the examples it keeps, smaller ones bring nothing back.
    """
    if recipe is None:
        return Updates(epochs=2, batch_size=64, lr=0.01)
    known = {name: getattr(recipe, name) for name in ("optimizer", "momentum", "beta1", "beta2")}
    return Updates(epochs=2, batch_size=64, lr=GENTLE * recipe.lr, **known)


def relearn_points(updates: Updates, retain: int) -> tuple[int, ...]:
    """Steps at which a model is looked at, the first before any."""
    total = updates.epochs * -(-retain // updates.batch_size)
    return tuple(dict.fromkeys((0, *(-(-total // part) for part in LOOKS))))


def relearn_steps(job: Job, updates: Updates, look: Callable[[nn.Module], None]) -> Fitted:
    """Train the job's model on its retain set; `look` sees it before the first step and at every point after."""
    stream = one_pass(job, "retain", job.indices("retain"), updates.batch_size)
    points = relearn_points(updates, len(job.indices("retain")))

    def watched(epoch: Epoch, model: nn.Module) -> None:
        job.on_epoch(epoch, model)
        look(model)

    look(job.model)
    return fit(
        replace(job, on_epoch=watched),
        _between(stream, points),
        lambda step: functional.cross_entropy(job.logits(step.retain.x), step.retain.y),
        replace(updates, epochs=len(points) - 1),
    )


def _between(stream: Stream, points: tuple[int, ...]) -> Stream:
    """The same batches in the same order, an epoch of them from one point to the next."""
    whole = stream.steps(0)

    def run(epoch: int, start: int) -> Iterator[Mapping[str, Batch]]:
        at, end = points[epoch] + start, points[epoch + 1]
        while at < end:
            number, inside = divmod(at, whole)
            wanted = min(end - at, whole - inside)
            yield from islice(stream.run(number, inside), wanted)
            at += wanted

    def steps(epoch: int) -> int:
        return points[epoch + 1] - points[epoch]

    return Stream(steps, lambda epoch: steps(epoch) * -(-stream.samples(0) // whole), run)


RETAINED = 2000
"""Retained examples that are looked at, evenly spread over the retain set: enough to see accuracy fall."""


Looks = Mapping[str, tuple[Examples, Indices]]
"""Which examples are looked at, by split."""


def looked_at(examples: Examples, splits: Splits, unseen: Looks) -> Looks:
    """The splits that a check looks at: forget, a part of retain, and the first unseen one that has examples."""
    there = next((name for name in UNSEEN if name in unseen and len(unseen[name][1])), None)
    if there is None:
        raise AuditError(
            "the relearning check compares with examples that no model saw, and there are none; give test."
        )
    if not len(splits.retain):
        raise AuditError("the relearning check trains on retained examples, and there are none; give retain.")
    part = np.linspace(0, len(splits.retain) - 1, min(RETAINED, len(splits.retain))).round().astype(np.int64)
    return {"forget": (examples, splits.forget), there: unseen[there], "retain": (examples, splits.retain[part])}


def curve_of(job: Job, updates: Updates, looks: Looks) -> RelearningCurve:
    """What the job's model says about every split before, during and after its steps."""
    log_probs: dict[str, list[Any]] = {name: [] for name in looks}
    right: dict[str, list[Any]] = {name: [] for name in looks}

    def look(model: nn.Module) -> None:
        for name, (examples, rows) in looks.items():
            said = predict(model, examples, rows, job.device)
            log_probs[name].append(said.true_log_prob)
            right[name].append(said.predicted == said.labels)

    fitted = relearn_steps(job, updates, look)
    if fitted.diverged:
        raise NotFiniteError(f"relearning stopped: {fitted.diverged}.")
    return RelearningCurve(
        relearn_points(updates, len(job.indices("retain"))),
        {name: np.stack(values) for name, values in log_probs.items()},
        {name: np.stack(values) for name, values in right.items()},
    )


def relearn(
    models: Sequence[nn.Module],
    examples: Examples,
    splits: Splits,
    unseen: Looks,
    *,
    updates: Updates,
    seed: int = 0,
    device: torch.device | None = None,
    before: bool = False,
) -> tuple[Relearned, Cost]:
    """The check on models in memory: the audited one, then, where they are, Retrain and references; with `before`, the
    last is the one before unlearning. All are copied."""
    looks, cost, curves = looked_at(examples, splits, unseen), Cost(), list[RelearningCurve]()
    for model in models:
        where = device if device is not None else device_of(model)
        copy = private_copy(model, where)
        job = Job(model=copy, examples=examples, splits=splits, seed=derive(seed, "relearn"), device=where)
        curves.append(curve_of(job, updates, looks))
        cost.add(**vars(job.cost))
    return compare_curves(curves, len(curves) - 1 - before, known=before), cost


def compare_curves(curves: Sequence[RelearningCurve], others: int, *, known: bool) -> Relearned:
    """What curves say: the audited model's, those of so many others, and that of the model before if it is `known`."""
    target, *rest = curves
    return relearned(target, rest[0] if others else None, rest[1:others], before=rest[-1] if known else None)
