"""Warnings about a model after unlearning, whichever method made it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.methods import Method
from regun.models.forward import counting
from regun.splits import sample
from regun.training.forward import eval_logits
from regun.training.job import HALF, Job
from regun.types import Indices

SAMPLE = 500
"""Examples per set, at most, on which the model is measured before and after."""
LARGE_LOSS = 0.05
"""Loss of accuracy, beyond two standard errors, that gives a warning."""
FEW_STEPS = 50
"""Number of steps below which a method with a retain set gives a warning."""
IF_DAMAGED = "Use method='auto', regun.tune, a lower lr, or more retain examples per step; or retrain."
IF_UNSURE = "Use method='auto', or more steps with more retain examples in each."
AFTER_AUTO = "Retrain the model (method='retrain', recipe=how it was trained)."
IF_RETRAINED = "The model was retrained from scratch: check that recipe is how it was trained before."
IF_GUESSED = "The model was retrained from scratch by a recipe that was guessed: give recipe=, how it was trained."
SETS = {"val": "validation", "heldout": "held-out", "retain": "retain"}


@dataclass(frozen=True)
class Measured:
    """Which examples of a set a model classifies correctly (N,), and its confidence in each prediction (N,)."""

    correct: Tensor
    confidence: Tensor


class Guard:
    """Measures the model before a method runs, and again after it. Its forward passes are not counted as cost."""

    def __init__(self, job: Job) -> None:
        self.job = job
        names = [name for name in SETS if job.splits is not None and len(getattr(job.splits, name))]
        self.rows = {name: _sample(job, name) for name in names}
        before = self._measure()  # also reads the labels that the data do not list
        forgotten = np.setdiff1d(_classes(job, "forget"), _classes(job, "retain"))  # whole classes, which may be lost
        remaining = {n: np.flatnonzero(~np.isin(job.examples.labels_at(r), forgotten)) for n, r in self.rows.items()}
        self.rows = {name: rows[remaining[name]] for name, rows in self.rows.items() if len(remaining[name])}
        self.before = {
            name: Measured(before[name].correct[remaining[name]], before[name].confidence[remaining[name]])
            for name in self.rows
        }
        self.weights = {n: p.detach().clone() for n, p in job.model.named_parameters() if p.requires_grad}

    def warnings(self, method: Method, config: Any, from_scratch: bool = False) -> tuple[str, ...]:
        """Return all warnings, the gravest first; `from_scratch`: the whole model was retrained."""
        after = self._measure()
        warnings = [*self._accuracy(after, method, from_scratch), *self._confidence(after, method, config)]
        warnings += self._weights()
        steps = self.job.cost.steps
        trains = hasattr(config, "epochs") and not method.from_scratch
        if trains and steps < FEW_STEPS and method.needs_of(config).retain:
            warnings.append(
                f"{method.title} ran {steps} step{'' if steps == 1 else 's'}: too few for the retain examples to "
                f"repair the damage of forgetting. Use at least {FEW_STEPS} (more epochs, or a longer budget=), or "
                f"the method auto."
            )
        return tuple(warnings)

    def _measure(self) -> dict[str, Measured]:
        job, measured = self.job, dict[str, Measured]()
        with counting(None):
            for name, rows in self.rows.items():
                logits = eval_logits(job.model, job.examples, rows, job.device).double()
                labels = torch.from_numpy(job.examples.labels_at(rows))
                correct = (logits.argmax(1) == labels).double()
                measured[name] = Measured(correct, functional.softmax(logits, dim=1).amax(1))
        return measured

    def _accuracy(self, after: dict[str, Measured], method: Method, from_scratch: bool) -> Iterator[str]:
        """Yield at most one warning: of validation, else held-out, else retain examples."""
        for name, now in after.items():
            lost = self.before[name].correct - now.correct
            error = float(lost.std(correction=0)) / math.sqrt(len(lost))
            if float(lost.mean()) - 2 * error > LARGE_LOSS:
                was, is_now = self.before[name].correct.mean(), now.correct.mean()
                advice = AFTER_AUTO if method.name == "auto" else IF_DAMAGED
                if from_scratch:
                    guessed = method.name == "auto" and self.job.recipe is None
                    advice = IF_GUESSED if guessed else IF_RETRAINED
                yield f"accuracy on {SETS[name]} examples fell from {was:.1%} to {is_now:.1%}. {advice}"
                return

    def _confidence(self, after: dict[str, Measured], method: Method, config: Any) -> Iterator[str]:
        """Yield a warning if logits are not finite or mean confidence fell by half."""
        uniform = 1 / self.job.examples.num_classes
        for name, measured in after.items():
            was, now = float(self.before[name].confidence.mean()), float(measured.confidence.mean())
            if not math.isfinite(now):
                advice = " Lower lr." if hasattr(config, "lr") else ""
                yield f"logits on {SETS[name]} examples are not finite: the model cannot be used.{advice}"
                return
            if now - uniform < 0.5 * (was - uniform):
                yield (
                    f"mean confidence on {SETS[name]} examples fell from {was:.1%} to {now:.1%}: the model is unsure "
                    f"of all examples, not only of the forgotten ones. "
                    f"{AFTER_AUTO if method.name == 'auto' else IF_UNSURE}"
                )
                return

    def _weights(self) -> Iterator[str]:
        """Yield a warning if the weights did not change, or by less than rounding."""
        if not self.weights:
            return
        change = norm = 0.0
        for name, parameter in self.job.model.named_parameters():
            if name in self.weights:
                before = self.weights[name].double()
                change += float((parameter.detach().double() - before).square().sum())
                norm += float(before.square().sum())
        if change == 0:
            yield "no weight has changed, so nothing was forgotten. Use more steps, a larger lr, or another method."
        elif math.sqrt(change) < torch.finfo(torch.float32).eps * math.sqrt(norm):
            yield (
                "the weights have changed by less than float32 rounding, so nothing was forgotten. Use a larger lr, or "
                "another method."
            )


def lost_in_precision(before: nn.Module, after: nn.Module) -> Iterator[str]:
    """Yield a warning if all changes are lost in the half precision of the returned model."""
    old = before.state_dict()
    types = {p.dtype for p in after.parameters() if p.dtype in HALF}
    if types and all(torch.equal(value, old[name]) for name, value in after.state_dict().items()):
        yield (
            f"every change is lost in {', '.join(map(str, types))}, so nothing was forgotten. Use more steps or a "
            f"larger lr, or pass the model in float32 (model.float())."
        )


def _sample(job: Job, name: str) -> Indices:
    """Return at most `SAMPLE` examples of a set, always the same: reading labels may be slow."""
    return np.sort(sample(getattr(job.splits, name), SAMPLE, job.seed, "guard", name))


def _classes(job: Job, name: str) -> Indices:
    return np.unique(job.examples.labels_at(_sample(job, name)))
