"""Run a method on a job, and return its outcome with warnings."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.errors import RegunError, unknown
from regun.guards import Guard
from regun.inputs import unwrap
from regun.methods import Method
from regun.parallel import is_writer
from regun.render.numbers import duration, many, settings_text
from regun.render.tables import folded
from regun.settings import shown, to_json
from regun.training.best_state import BestState
from regun.training.fit import Fitted
from regun.training.forward import eval_logits
from regun.training.job import Cost, Epoch, Job
from regun.training.weights import broken_weights

LOG = logging.getLogger("regun")
EPOCHS = logging.getLogger("regun.epochs")

WITHOUT_HELDOUT = (
    "labelled examples the model was not trained on. Use a part of the validation set that no metric uses, "
    "or collect and label new examples (next time, reserve them before training: regun train --split heldout=0.1). "
    "Methods that need none: auto and regun@teacher, which train a teacher without the records; finetune, salun, scrub "
    "and more that regun methods lists."
)
"""Explains held-out examples, and the alternatives to them."""

ReadSplit = Callable[[str], tuple[Tensor, Tensor]]
"""Split name -> the model's logits and the labels."""
Criterion = Callable[[ReadSplit], float]
"""Score of a model; the larger, the better."""


def _val_accuracy(read: ReadSplit) -> float:
    """Return the accuracy on validation examples."""
    logits, labels = read("val")
    return float((logits.argmax(1) == labels).double().mean())


def _val_loss(read: ReadSplit) -> float:
    """Return minus the cross-entropy on validation examples."""
    logits, labels = read("val")
    return -float(functional.cross_entropy(logits.double(), labels))


def _unseen_error(read: ReadSplit) -> float:
    """Return minus the distance of the error on forgotten examples to that on unseen ones of the same classes.

    SCRUB rewinds to the epoch where this is highest.
    """
    (forget, forget_labels), (unseen, labels) = read("forget"), read("val")
    same = torch.isin(labels, forget_labels)
    if not bool(same.any()):
        raise RegunError("the criterion unseen_error needs val examples of the forgotten classes; there are none.")
    pairs = ((forget, forget_labels), (unseen[same], labels[same]))
    errors = [(logits.argmax(1) != y).double().mean() for logits, y in pairs]
    return -float((errors[0] - errors[1]).abs())


CRITERIA: dict[str, Criterion] = {
    "val_accuracy": _val_accuracy,
    "val_loss": _val_loss,
    "unseen_error": _unseen_error,
}


MUCH = 0.5
"""Share of a retraining above which retraining would have been the better choice."""


@dataclass(frozen=True)
class Price:
    """What a run cost, next to what a retraining costs.

    >>> outcome = regun.unlearn(model, forget=forget, retain=retain)  # doctest: +SKIP
    >>> outcome.price.branch, outcome.price.share, outcome.price.advice  # doctest: +SKIP
    """

    samples: int
    """Samples that went through backward passes; 0 where a training function of your own ran."""
    seconds: float
    retraining: int | None
    """Samples of one retraining: the recipe's epochs times the retained records; None if unknown."""
    estimated: bool = False
    """True if `retraining` is an estimate, because the recipe is unknown."""
    planned: int | None = None
    """Samples that the plan allowed, where there was a plan."""
    branch: str | None = None
    """What `auto` did: retrained, distilled, cross-fitted, or base (returned unchanged)."""
    reason: str | None = None
    """Why it did that."""
    retrained: bool = False

    @property
    def share(self) -> float | None:
        """Samples as a share of a retraining's."""
        return self.samples / self.retraining if self.retraining else None

    def __str__(self) -> str:
        done = "" if self.branch is None else f"{self.branch}, because {self.reason}; "
        if not self.retraining or self.share is None:
            return f"{done}{self.samples:,} samples" if self.samples else done.removesuffix("; ")
        whole = f"{'an estimated' if self.estimated else 'a'} retraining"
        return f"{done}{self.samples:,} samples, {self.share:.0%} of {whole} ({self.retraining:,})"

    @property
    def advice(self) -> str | None:
        """A sentence where retraining would have been the better choice, else None."""
        if self.share is None or self.share <= MUCH or (self.retrained and not self.estimated):
            return None
        cost = f"This run took {self.share:.0%} of {'an estimated' if self.estimated else 'a'} retraining"
        if self.retrained:
            return (
                f"{cost}: it trained from scratch without your recipe. Your own training script gives a closer model."
            )
        return f"{cost}, so retraining would have been the better choice (method='retrain' with recipe= or train=)."


DONE = {
    "retrained": "retrained from scratch, without the forgotten records",
    "distilled": "updated, with a teacher that never saw the forgotten records",
    "cross-fitted": "updated, with the prepared table",
    "base": "returned unchanged: nothing was forgotten",
    None: "updated",
}
"""What was done, by the branch of a run."""


@dataclass(frozen=True, repr=False)
class Outcome:
    """An unlearned model, how it was made, and what that cost. `print(outcome)` shows it.

    >>> outcome = regun.unlearn(model, forget=forget, retain=retain)  # doctest: +SKIP
    >>> outcome.model, outcome.cost.seconds, outcome.warnings  # doctest: +SKIP
    """

    model: nn.Module
    method: str
    config: dict[str, Any]
    """All settings of the method, by name."""
    cost: Cost
    epochs: list[Epoch]
    diverged: str | None
    """Why the run stopped early; None if it did not."""
    notes: dict[str, Any]
    """Notes of the method: the plan of `auto`, for example."""
    watched: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    """With keep="best": the criterion after each epoch."""
    trials: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """With `regun.tune`: the settings that were tried, with their scores."""
    warnings: tuple[str, ...] = ()
    """Likely problems, each with advice."""
    from_scratch: bool = False
    """True if the whole model was trained from scratch on the retain set."""

    @property
    def price(self) -> Price:
        """What the run cost, next to a retraining."""
        facts: dict[str, Any] = self.notes.get("price", {"retraining": None})
        return Price(self.cost.backward, self.cost.seconds, retrained=self.from_scratch, **facts)

    def __repr__(self) -> str:
        return f"Outcome({self.method!r}, {self._done()!r}; print it for cost and warnings)"

    def __str__(self) -> str:
        rows = [f"{name:10}{text}" for name, text in self._facts().items() if text]
        facts = [folded(row, "  ", " " * 12) for row in rows]
        warnings = [folded(warning, "  - ", "    ") for warning in self.warnings]
        return "\n".join([f"{self.method}: {self._done()}", *facts, *(["Warnings:", *warnings] if warnings else [])])

    def _repr_html_(self) -> str:
        cell = 'style="padding:.15em .7em;text-align:left;vertical-align:top"'
        label = cell.replace("top", "top;white-space:nowrap")
        facts = {name: text for name, text in self._facts().items() if text}
        rows = [*facts.items(), *(("warning", warning) for warning in self.warnings)]
        body = "".join(f"<tr><th {label}>{escape(name)}</th><td {cell}>{escape(text)}</td></tr>" for name, text in rows)
        title = f"<p><b>{escape(self.method)}</b>: {escape(self._done())}</p>"
        return f'<div style="max-width:60em;overflow-wrap:anywhere">{title}<table>{body}</table></div>'

    def _done(self) -> str:
        if self.diverged is not None:
            return f"DIVERGED, the model cannot be used: {self.diverged}"
        return DONE["retrained" if self.from_scratch else self.price.branch]

    def _facts(self) -> dict[str, str]:
        """Return why, cost, accuracy, settings and advice, as far as they are known."""
        price, cost = self.price, self.cost
        spent = f"{cost.backward:,} samples in {many(cost.steps, 'step')}, {duration(cost.seconds)}"
        if price.share is not None:
            a = "an estimated" if price.estimated else "a"
            time = f", about {duration(price.seconds / price.share)}" if price.share and not self.from_scratch else ""
            spent += f": {price.share:.0%} of {a} retraining ({price.retraining or 0:,} samples{time})"
        return {
            "why": price.reason or "",
            "cost": spent,
            "accuracy": str(self.notes.get("accuracy", "")),
            "settings": settings_text(self.config),
            "advice": price.advice or "",
        }


def unlearn_job(
    job: Job, method: Method, config: Any, *, keep: str = "last", criterion: str = "val_accuracy", guard: bool = True
) -> Outcome:
    """Run `method` on `job`; with keep="best", return the epoch that scores highest by the `criterion`.

    The method does not see validation examples, and test examples are not part of a job. With `guard`, the model is
    measured on a sample of every set before and after, for `warnings`. Weights that are not finite count as diverged.
    """
    if keep not in ("last", "best"):
        raise RegunError(unknown("choice of keep", keep, ("last", "best")))
    check_missing_needs(job, method, config)
    measured = Guard(job) if guard else None
    watcher = _Watcher(job, criterion) if keep == "best" else None
    after_epoch = watcher or job.on_epoch

    def on_epoch(epoch: Epoch, model: nn.Module) -> None:
        EPOCHS.info("%s: epoch %d of %d, loss %.4f", method.title, epoch.number, epoch.epochs, epoch.loss)
        after_epoch(epoch, model)

    started = time.perf_counter()
    fitted = cast(object, method.run(replace(job, on_epoch=on_epoch), config))
    if not isinstance(fitted, Fitted):
        raise RegunError(
            f"the method {method.name} returned {shown(fitted)} (type {type(fitted).__name__}); return a "
            f"regun.training.fit.Fitted or nothing, and leave the unlearned model in job.model."
        )
    job.cost.seconds = time.perf_counter() - started - (watcher.seconds if watcher else 0.0)
    notes = dict(fitted.notes)
    if "price" not in notes and job.recipe is not None:
        notes["price"] = {"retraining": job.recipe.epochs * len(job.indices("retain"))}
    warnings = tuple(notes.pop("warnings", ()))
    # a method that always trains from scratch notes which layers it trained, if not all
    from_scratch = notes.get("from_scratch") is True or (method.from_scratch and "trained" not in notes)
    config_json = to_json(config)  # not `describe`: it reads and parses all code that decides a run
    if from_scratch and "trained_by" not in notes and "epochs" in config_json:  # a budget may have changed the epochs
        notes["trained_by"] = config_json | {"epochs": epochs_run(job.cost.backward, len(job.indices("retain")))}
    if watcher is not None and not from_scratch:  # a retrained model is none of the epochs watched
        watcher.best.restore(job.model)
    job.model.eval()
    if measured is not None:
        warnings += measured.warnings(method, config, from_scratch)
    return Outcome(
        model=job.model,
        method=method.name,
        config=config_json,
        cost=job.cost,
        epochs=fitted.epochs,
        diverged=fitted.diverged or not_finite(unwrap(job.model)),
        notes=notes,
        watched=watcher.history if watcher else [],
        warnings=warnings,
        from_scratch=from_scratch,
    )


def epochs_run(samples: int, records: int) -> float:
    """Return how many passes over the records a training took; a whole number where it took whole ones."""
    passes = round(samples / max(1, records), 3)
    return int(passes) if passes.is_integer() else passes


def log_warnings(warnings: Iterable[str]) -> None:
    """Log each warning; of several processes that share a run, the first does."""
    for warning in warnings if is_writer() else ():
        LOG.warning(warning)


def not_finite(model: nn.Module) -> str | None:
    """Return which weights are NaN or infinite; None if there are none."""
    broken = broken_weights(model)
    return f"the weights {broken} are not finite numbers" if broken is not None else None


def check_missing_needs(job: Job, method: Method, config: Any) -> None:
    """Raise if a method needs examples, with these settings, that the job does not have."""
    needs = method.needs_of(config)
    if needs.retain and not len(job.indices("retain")):
        raise RegunError(f"{method.title} needs retain examples and there are none; give retain, or use neggrad.")
    if needs.out_of_fold and job.out_of_fold is None:
        raise RegunError(f"{method.title} needs a prepared table: make one with regun.prepare and give prepared=.")
    if needs.heldout and not len(job.indices("heldout")):
        raise RegunError(f"{method.title} needs heldout: {WITHOUT_HELDOUT}")


class _Watcher:
    """Scores the model by a criterion after each epoch and keeps the best weights."""

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

        def read(split: str) -> tuple[Tensor, Tensor]:
            indices, examples = getattr(self.splits, split), self.job.examples
            return eval_logits(model, examples, indices, self.job.device), torch.from_numpy(examples.labels_at(indices))

        score = CRITERIA[self.name](read)
        self.history.append({"epoch": epoch.number, self.name: score})
        self.best.update(score, model)
        self.seconds += time.perf_counter() - started
