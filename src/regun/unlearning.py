"""..."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.errors import RegunError, unknown
from regun.guards import Guard
from regun.inputs import unwrap
from regun.methods import Method
from regun.settings import shown
from regun.training.best_state import BestState
from regun.training.fit import Fitted
from regun.training.forward import eval_logits
from regun.training.job import Cost, Epoch, Job
from regun.training.weights import broken_weights

LOG = logging.getLogger("regun")
EPOCHS = logging.getLogger("regun.epochs")


WAYS_OUT = (
    "labelled examples the model was never trained on. Give a part of the validation set that nothing else is judged "
    "by, or collect and label new examples of the same kind (next time: set some aside before training, as regun train "
    "--heldout 0.1 does). Without any, use a method that needs none: auto or regun@teacher, which learn from a model "
    "trained without the records, or finetune, salun, scrub, ..., as regun methods lists them."
)
"""What to do without held-out data."""


Said = Callable[[str], tuple[Tensor, Tensor]]
"""The logits and labels of a split."""


Criterion = Callable[[Said], float]
"""What a model says to a number; the larger, the better."""


def _val_accuracy(said: Said) -> float:
    logits, labels = said("val")
    return float((logits.argmax(1) == labels).double().mean())


def _val_loss(said: Said) -> float:
    logits, labels = said("val")
    return -float(functional.cross_entropy(logits.double(), labels))


def _unseen_error(said: Said) -> float:
    """SCRUB's rewinding: forgotten examples are misjudged as often as unseen ones of the same classes."""
    (forgot, asked), (seen, labels) = said("forget"), said("val")
    same = torch.isin(labels, asked)
    if not bool(same.any()):
        raise RegunError(
            "the criterion unseen_error needs validation examples of the forgotten classes; there are none."
        )
    wrong = [(logits.argmax(1) != y).double().mean() for logits, y in ((forgot, asked), (seen[same], labels[same]))]
    return -float((wrong[0] - wrong[1]).abs())


CRITERIA: dict[str, Criterion] = {
    "val_accuracy": _val_accuracy,
    "val_loss": _val_loss,
    "unseen_error": _unseen_error,
}


@dataclass(frozen=True)
class Outcome:
    """An unlearned model, how it was made and what that cost; `diverged` says why a run stopped early, if it did.

    `warnings` are sentences about what looks wrong, with what to do; `trained_anew` is True for a model that was
    trained from scratch on the retain set alone. `trials` are the settings a search tried before, of which these were
    the best, with their scores.
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
    warnings: tuple[str, ...] = ()
    from_scratch: bool = False


def unlearn_job(
    job: Job, method: Method, config: Any, *, keep: str = "last", criterion: str = "val_accuracy", guard: bool = True
) -> Outcome:
    """Run `method` on `job`; with keep="best", return the epoch that scores highest by the `criterion`.

    Validation is only watched: the method itself never sees it, and test data are not part of a job at all. With
    `guard`, some examples of every set are asked before and after, and what looks wrong is in `warnings`. Weights that
    are not finite are a run that diverged, whether or not the method says so.
    """
    if keep not in ("last", "best"):
        raise RegunError(unknown("choice of keep", keep, ("last", "best")))
    check_missing_needs(job, method, config)
    rail = Guard(job) if guard else None
    watcher = _Watcher(job, criterion) if keep == "best" else None
    watched = replace(job, on_epoch=_Teller(method.title, watcher or job.on_epoch))
    started = time.perf_counter()
    fitted = _fitted(method, method.run(watched, config))
    job.cost.seconds = time.perf_counter() - started - (watcher.seconds if watcher else 0.0)
    notes = dict(fitted.notes)
    own, anew = tuple(notes.pop("warnings", ())), _is_from_scratch(method, notes)
    if watcher is not None and not anew:  # a model that was trained anew is none of the epochs watched
        watcher.best.restore(job.model)
    job.model.eval()
    warnings = (*own, *(rail.warnings(method, config, anew) if rail is not None else ()))
    return Outcome(
        model=job.model,
        method=method.name,
        config=method.describe(config)["config"],
        cost=job.cost,
        epochs=fitted.epochs,
        diverged=fitted.diverged or not_finite(unwrap(job.model)),
        notes=notes,
        watched=watcher.history if watcher else [],
        warnings=warnings,
        from_scratch=anew,
    )


def log_warnings(warnings: Iterable[str]) -> None:
    """Log each warning of an outcome that is kept."""
    for warning in warnings:
        LOG.warning(warning)


def not_finite(model: nn.Module) -> str | None:
    """Why nobody would want a model; None if its weights are numbers."""
    broken = broken_weights(model)
    return f"the weights {broken} are not finite numbers" if broken is not None else None


def _fitted(method: Method, returned: object) -> Fitted:
    """What a method returned; a user's own may return anything."""
    if isinstance(returned, Fitted):
        return returned
    kind = type(returned).__name__
    what = f"{shown(returned)} (type {kind})" if isinstance(returned, str | int | float) else f"a {kind}"
    raise RegunError(
        f"the method {method.name} returned {what}; return a regun.training.fit.Fitted or nothing, and leave what was "
        f"unlearned in job.model."
    )


def _is_from_scratch(method: Method, notes: dict[str, Any]) -> bool:
    """Whether all of the model was: a method that always does so says which layers it trained, if not all."""
    return notes.get("from_scratch") is True or (method.from_scratch and "trained" not in notes)


def check_missing_needs(job: Job, method: Method, config: Any) -> None:
    """Say before any work what a method needs with these settings and does not have."""
    needs = method.needs_of(config)
    if needs.retain and not len(job.indices("retain")):
        raise RegunError(f"{method.title} needs retain examples and none were given; give some, or use neggrad.")
    if needs.heldout and not len(job.indices("heldout")):
        raise RegunError(f"{method.title} needs a held-out set: {WAYS_OUT}")


class _Teller:
    """Logs every epoch, for those who turn logging on (`logging.getLogger("regun")`, INFO)."""

    def __init__(self, title: str, then: Callable[[Epoch, nn.Module], None]) -> None:
        self.title, self.then = title, then

    def __call__(self, epoch: Epoch, model: nn.Module) -> None:
        EPOCHS.info("%s: epoch %d of %d, loss %.4f", self.title, epoch.number, epoch.epochs, epoch.loss)
        self.then(epoch, model)


class _Watcher:
    """Judges the model by a criterion after each epoch and remembers the best weights."""

    def __init__(self, job: Job, criterion: str) -> None:
        if criterion not in CRITERIA:
            raise RegunError(unknown("criterion", criterion, CRITERIA))
        if job.splits is None or not len(job.splits.val):
            raise RegunError('keep="best" needs validation examples and there are none; give val, or keep="last".')
        self.job, self.name, self.splits = job, criterion, job.splits
        self.best, self.seconds = BestState(), 0.0
        self.history: list[dict[str, float]] = []

    def __call__(self, epoch: Epoch, model: nn.Module) -> None:
        self.job.on_epoch(epoch, model)
        started = time.perf_counter()
        score = CRITERIA[self.name](lambda part: self._said(model, part))
        self.history.append({"epoch": epoch.number, self.name: score})
        self.best.update(score, model)
        self.seconds += time.perf_counter() - started

    def _said(self, model: nn.Module, part: str) -> tuple[Tensor, Tensor]:
        indices, examples = getattr(self.splits, part), self.job.examples
        return eval_logits(model, examples, indices, self.job.device), torch.from_numpy(examples.labels_at(indices))
