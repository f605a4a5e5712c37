"""One unlearning run on plain objects."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.errors import RegunError, unknown
from regun.methods import Method
from regun.training.fit import Fitted
from regun.training.forward import eval_logits
from regun.training.job import Cost, Epoch, Job


@dataclass(frozen=True)
class Outcome:
    """An unlearned model, how it was made and what that cost; `diverged` says why a run stopped early, if it did.

    `trials` are the settings a search tried before, of which these were the best, with their scores.
    """

    model: nn.Module
    method: str
    config: dict[str, Any]
    cost: Cost
    epochs: list[Epoch]
    diverged: str | None
    notes: dict[str, Any]
    watched: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    trials: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


Criterion = Callable[[Tensor, Tensor], float]
"""Validation logits and labels to a number; the larger, the better."""

CRITERIA: dict[str, Criterion] = {
    "val_accuracy": lambda logits, y: float((logits.argmax(1) == y).double().mean()),
    "val_loss": lambda logits, y: -float(functional.cross_entropy(logits.double(), y)),
}


def unlearn_job(
    job: Job, method: Method, config: Any, *, keep: str = "last", criterion: str = "val_accuracy"
) -> Outcome:
    """Run `method` on `job`; with keep="best", return the epoch that scores highest on the validation split.

    Validation is only watched: the method itself never sees it, and test data are not part of a job at all.
    """
    if keep not in ("last", "best"):
        raise RegunError(unknown("choice of keep", keep, ("last", "best")))
    refuse_missing_needs(job, method)
    watcher = _Watcher(job, criterion) if keep == "best" else None
    watched = replace(job, on_epoch=watcher) if watcher is not None else job
    started = time.perf_counter()
    fitted = method.unlearn(watched, config) or Fitted()
    job.cost.seconds = time.perf_counter() - started - (watcher.seconds if watcher else 0.0)
    if watcher is not None:
        watcher.restore_best()
    job.model.eval()
    described = method.describe(config)["config"]
    history = watcher.history if watcher else []
    return Outcome(job.model, method.name, described, job.cost, fitted.epochs, fitted.diverged, fitted.notes, history)


def refuse_missing_needs(job: Job, method: Method) -> None:
    """Say before any work what a method needs and does not have."""
    if method.needs.retain and not len(job.indices("retain")):
        raise RegunError(f"{method.title} needs retain examples and none were given; give some, or use neggrad.")
    if method.needs.heldout and not len(job.indices("heldout")):
        raise RegunError(
            f"{method.title} needs a held-out set: labelled examples the model was never trained on. Set some aside "
            f"before training (regun train --heldout 0.1), collect new ones, or use a method without it: finetune, "
            f"neggrad_plus, salun, ssd, ..."
        )


class _Watcher:
    """Evaluates validation after each epoch and remembers the best weights."""

    def __init__(self, job: Job, criterion: str) -> None:
        if criterion not in CRITERIA:
            raise RegunError(unknown("criterion", criterion, CRITERIA))
        if job.splits is None or not len(job.splits.val):
            raise RegunError('keep="best" needs a validation split and there is none; use keep="last".')
        self.job, self.name, self.indices = job, criterion, job.splits.val
        self.labels = torch.from_numpy(job.examples.labels[self.indices])
        self.best, self.score, self.seconds = None, float("-inf"), 0.0
        self.history: list[dict[str, float]] = []

    def __call__(self, epoch: Epoch, model: nn.Module) -> None:
        self.job.on_epoch(epoch, model)
        started = time.perf_counter()
        logits = eval_logits(model, self.job.examples, self.indices, self.job.device)
        score = CRITERIA[self.name](logits, self.labels)
        self.history.append({"epoch": epoch.number, self.name: score})
        if score > self.score:
            self.score = score
            self.best = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        self.seconds += time.perf_counter() - started

    def restore_best(self) -> None:
        if self.best is not None:
            self.job.model.load_state_dict(self.best)
