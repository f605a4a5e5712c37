"""Guard rails: what looks wrong with an unlearned model, whichever method made it, as sentences with what to do."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.methods import Method
from regun.models.forward import counting
from regun.splits import sample
from regun.training.forward import eval_logits
from regun.training.job import HALF, Job
from regun.types import Indices

ASKED = 500
"""Examples of a set that are asked before and after, at most."""
LARGE_LOSS = 0.05
"""Accuracy lost beyond what chance explains (two standard errors) that is said."""
FEW_STEPS = 50
"""Fewer steps than these, with a retain set to repair by, are said."""
DAMAGED = "Use method='auto', tune=8, a lower lr or more retain examples a step; or retrain."
UNSURE = "Use method='auto', or more steps with more retain examples in each."
AFTER_AUTO = "Retrain it (method='retrain' with recipe=, how it was trained)."
"""What to do; who has run auto is not sent there again."""
SETS = {"val": "validation", "heldout": "held-out", "retain": "retain"}


@dataclass(frozen=True)
class Said:
    """What a model said about the same examples of a set: which it got right, and how sure it was (N,)."""

    right: Tensor
    sure: Tensor

    def only(self, kept: Tensor) -> "Said":
        return Said(self.right[kept], self.sure[kept])


class Guard:
    """Looks at the model before a method runs, and says after it what looks wrong. Its passes are nobody's cost."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.rows = {name: _sample(job, name) for name in SETS if job.splits and len(getattr(job.splits, name))}
        said = self._said()  # labels that have to be read are known from now on
        kept = {name: _of_retained_classes(job, rows) for name, rows in self.rows.items()}
        self.rows = {name: rows[kept[name]] for name, rows in self.rows.items() if kept[name].any()}
        self.before = {name: said[name].only(torch.from_numpy(kept[name])) for name in self.rows}
        self.weights = {n: p.detach().clone() for n, p in job.model.named_parameters() if p.requires_grad}

    def warnings(self, method: Method, config: Any, anew: bool = False) -> tuple[str, ...]:
        """Every sentence there is to say, the gravest first; `anew`: the model was trained from scratch."""
        after = self._said()
        steps = () if method.from_scratch else self._steps(method, config)
        said = (*self._accuracy(after, method, anew), *self._confidence(after, method, config))
        return (*said, *self._weights(), *steps)

    def _said(self) -> dict[str, Said]:
        with counting(None):
            return {name: self._of(rows) for name, rows in self.rows.items()}

    def _of(self, rows: Indices) -> Said:
        job = self.job
        logits = eval_logits(job.model, job.examples, rows, job.device).double()
        labels = torch.from_numpy(job.examples.labels_at(rows))
        return Said((logits.argmax(1) == labels).double(), functional.softmax(logits, dim=1).amax(1))

    def _accuracy(self, after: dict[str, Said], method: Method, anew: bool) -> Iterator[str]:
        """One set is enough: validation where there is some, then held-out, then retain."""
        for name, said in after.items():
            lost = self.before[name].right - said.right
            error = float(lost.std(correction=0)) / math.sqrt(len(lost))
            if float(lost.mean()) - 2 * error > LARGE_LOSS:
                was, now = self.before[name].right.mean(), said.right.mean()
                yield f"accuracy on {SETS[name]} examples fell from {was:.1%} to {now:.1%}, " + (
                    "although the model was trained anew: check that the recipe is that of the model before."
                    if anew
                    else "more than forgetting explains: the model was damaged. "
                    f"{AFTER_AUTO if method.name == 'auto' else DAMAGED}"
                )
                return

    def _confidence(self, after: dict[str, Said], method: Method, config: Any) -> Iterator[str]:
        chance = 1 / self.job.examples.num_classes
        for name, said in after.items():
            was, now = float(self.before[name].sure.mean()), float(said.sure.mean())
            if not math.isfinite(now):
                yield (
                    f"answers on {SETS[name]} examples are not finite numbers: the model cannot be used."
                    f"{' Lower lr.' if hasattr(config, 'lr') else ''}"
                )
                return
            if now - chance < 0.5 * (was - chance):
                yield (
                    f"mean confidence on {SETS[name]} examples fell from {was:.1%} to {now:.1%}: the model has become "
                    f"unsure of everything, not of the forgotten examples alone. "
                    f"{AFTER_AUTO if method.name == 'auto' else UNSURE}"
                )
                return

    def _weights(self) -> Iterator[str]:
        """Weights that stayed, or moved by less than their precision can hold."""
        moved = still = 0.0
        for name, parameter in self.job.model.named_parameters():
            if name in self.weights:
                before = self.weights[name].double()
                moved += float((parameter.detach().double() - before).square().sum())
                still += float(before.square().sum())
        if not self.weights:
            return
        if moved == 0:
            yield (
                "no weight has changed: the model is the one before, and nothing was forgotten. Give more steps, a "
                "larger lr, or another method."
            )
        elif math.sqrt(moved) < torch.finfo(torch.float32).eps * math.sqrt(still):
            yield (
                "the weights have changed by less than single precision can hold: nothing was forgotten. Give a larger "
                "lr, or another method."
            )

    def _steps(self, method: Method, config: Any) -> Iterator[str]:
        steps, iterative = self.job.cost.steps, hasattr(config, "epochs")
        if not iterative or not method.needs_of(config).retain:
            return
        if not steps:
            yield f"{method.title} ran no step. Give epochs or a budget of at least {FEW_STEPS} steps."
        elif steps < FEW_STEPS:
            yield (
                f"{method.title} ran {steps} step{'s' if steps > 1 else ''}: too few for the retain examples to repair "
                "what forgetting breaks. Take more (epochs, or budget=regun.Budget(steps=300), --budget steps=300), or "
                "method='auto'."
            )


def lost_in_precision(before: nn.Module, after: nn.Module) -> Iterator[str]:
    """What to say of a model that has changed, but not in the precision in which it is given back."""
    theirs = before.state_dict()
    kinds = {p.dtype for p in after.parameters() if p.dtype in HALF}
    if kinds and all(torch.equal(value, theirs[name]) for name, value in after.state_dict().items()):
        yield (
            f"every change is lost in {', '.join(str(kind) for kind in kinds)}: the model is the one before, and "
            f"nothing was forgotten. Give more steps or a larger lr, or take the model in float32 (model.float())."
        )


def _of_retained_classes(job: Job, rows: Indices) -> npt.NDArray[np.bool_]:
    """Which of these examples are of classes that are retained: others may well be forgotten whole."""
    gone = np.setdiff1d(_classes(job, "forget"), _classes(job, "retain"))
    return ~np.isin(job.examples.labels_at(rows), gone)


def _sample(job: Job, name: str) -> Indices:
    """At most `ASKED` examples of a set, always the same: labels of a data set may have to be read."""
    return np.sort(sample(getattr(job.splits, name), ASKED, job.seed, "guard", name))


def _classes(job: Job, name: str) -> Indices:
    return np.unique(job.examples.labels_at(_sample(job, name)))
