"""Untargeted L2 projected gradient ascent, for AMUN."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

EVERY = 8
"""Steps after which the host reads from an accelerator which inputs still resist."""


@dataclass(frozen=True)
class Adversarial:
    """Inputs that fool the model, the wrong labels it gives them, and which originals were not fooled in time."""

    x: Tensor
    labels: Tensor
    failed: Tensor
    epsilon: Tensor
    samples: int


@dataclass(frozen=True)
class AscentSettings:
    """How to look: rounds of `steps` of length `step * epsilon` inside the ball; epsilon doubles after each round."""

    epsilon: float
    steps: int
    step: float
    rounds: int
    freeze: bool = True
    restart: bool = False


@dataclass(frozen=True)
class View:
    """What is attacked: inputs `x`, the box they must stay in, and the model's logits of changed rows (z, rows)."""

    x: Tensor
    logits: Callable[[Tensor, Tensor], Tensor]
    low: Tensor | None = None
    high: Tensor | None = None


def find(view: View, y: Tensor, attack: AscentSettings) -> Adversarial:
    """Return, for each input, the first misclassified point on its path (with `freeze`), inside the box.

    Only inputs that still resist are run further, so the cost is what is needed and not steps times inputs. On an
    accelerator, whose host would wait to learn which do, fooled inputs are left out every `EVERY` steps.
    """
    x = view.x
    every = 1 if x.device.type == "cpu" else EVERY
    best, labels = x.clone(), y.clone()
    alive = torch.arange(len(x), device=x.device)
    done = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    current = x.clone()
    epsilon = torch.full((len(x),), attack.epsilon, device=x.device)
    samples = 0
    for number in range(attack.rounds):
        for step_number in range(attack.steps + 1):
            last = step_number == attack.steps
            guess, gradient = _predict(view, current[alive], alive, y[alive], need_gradient=not last)
            samples += len(alive)
            if attack.freeze or last or (step_number == 0 and number == 0):
                fooled = (guess != y[alive]) & ~done
                best[alive] = torch.where(_view(fooled, x), current[alive], best[alive])
                labels[alive] = torch.where(fooled, guess, labels[alive])
                done |= fooled
                if last or step_number % every == 0:
                    resisting = (~done).nonzero().squeeze(1)
                    alive, gradient, done = alive[resisting], gradient[resisting], done[resisting]
            if last or not len(alive):
                break
            length = attack.step * epsilon[alive]
            moved = current[alive] + _view(length, x) * gradient / _view(_norm(gradient).clamp(min=1e-12), x)
            current[alive] = _project(moved, x[alive], epsilon[alive], view)
        if not len(alive):
            break
        if number + 1 < attack.rounds:
            epsilon[alive] *= 2
            if attack.restart:
                current[alive] = x[alive]
    failed = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    failed[alive] = True
    return Adversarial(best, labels, failed, epsilon, samples)


def _predict(view: View, x: Tensor, rows: Tensor, y: Tensor, *, need_gradient: bool) -> tuple[Tensor, Tensor]:
    """Return predicted classes and, if wanted, the gradient of the summed cross-entropy by the input."""
    if not need_gradient:
        with torch.no_grad():
            return view.logits(x, rows).argmax(1), torch.zeros_like(x)
    x = x.detach().requires_grad_(True)
    out = view.logits(x, rows).float()
    (gradient,) = torch.autograd.grad(functional.cross_entropy(out, y, reduction="sum"), x)
    return out.detach().argmax(1), gradient


def _project(moved: Tensor, start: Tensor, epsilon: Tensor, view: View) -> Tensor:
    """Return `moved` put back into the ball around `start`, then into the box; the box contains `start`."""
    offset = moved - start
    shrink = (epsilon / _norm(offset).clamp(min=1e-12)).clamp(max=1)
    inside = start + _view(shrink, start) * offset
    if view.low is None or view.high is None:
        return inside
    return torch.maximum(torch.minimum(inside, view.high), view.low)


def _norm(x: Tensor) -> Tensor:
    return x.flatten(1).square().sum(1).sqrt()


def _view(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *([1] * (like.ndim - 1)))
