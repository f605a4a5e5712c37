"""What a run did to the model: how many weights moved, by how much, and whether its predictions changed."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from regun.auditing import Predictions, SplitPredictions
from regun.deletion.rule import ALL, Finding
from regun.methods._fresh_weights import is_norm
from regun.render.numbers import many

ROUNDING = 8.0
"""Times the machine epsilon of a weight's type that count as rounding, not as a change."""
SAME_PREDICTION, LEAST = 1e-4, -50.0
"""Change of a log-probability that counts as none (sums in another order change it by a hundredth of that in single
precision), and the log-probability below which all are alike."""


@dataclass(frozen=True)
class Change:
    """The weights of a model, those that moved by more than rounding, how far all moved relative to their size, the
    optimizer's steps, the largest change of a log-probability on forgotten records, and the frozen weights."""

    weights: int
    moved: int
    relative: float
    steps: int
    answers: float
    frozen: int = 0

    @property
    def nothing(self) -> str:
        """Why this is no change at all; empty if it is one."""
        if not self.moved:
            how = "its weights are equal" if not self.relative else "its weights moved by less than rounding"
            return f"the model was not changed: {how}, after {many(self.steps, 'step')}"
        if self.answers <= SAME_PREDICTION:
            return "the model was not changed where it matters: its predictions on the forgotten records are equal"
        return ""

    def refusals(self) -> tuple[Finding, ...]:
        """Return the finding that rejects a run without any change, whatever the rule is."""
        why = self.nothing
        return (Finding("changed", ALL, "failed", why, "the run changed the model"),) if why else ()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "nothing": self.nothing}


def measure_change(
    before: nn.Module, after: nn.Module, steps: int, predictions: tuple[SplitPredictions, SplitPredictions]
) -> Change:
    """Measure the change from one model to another; `predictions` are those of the two."""
    old, new = dict(_weights(before)), dict(_weights(after))
    total = moved = 0
    squares, size = 0.0, 0.0
    for name, was in old.items():
        step = ROUNDING * (torch.finfo(was.dtype).eps if was.is_floating_point() or was.is_complex() else 0.0)
        one, two = _doubles(was), _doubles(new[name])
        apart, usual = (two - one).abs(), one.square().mean().sqrt()
        scale = torch.maximum(torch.maximum(one.abs(), two.abs()), usual)  # a weight near 0 is rounded like the rest
        total, moved = total + was.numel(), moved + int((apart > step * scale).sum())
        squares, size = squares + float(apart.square().sum()), size + float(one.square().sum())
    relative = (squares / size) ** 0.5 if size else squares**0.5
    frozen = sum(p.numel() for p in after.parameters() if not p.requires_grad)
    return Change(total, moved, relative, steps, _largest_change(*(one["forget"] for one in predictions)), frozen)


def _weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the state of a model but for the statistics of normalisation layers, which follow any batch."""
    layers = cast("Iterator[tuple[str, nn.Module]]", model.named_modules())
    norms = {f"{name}.{b}".lstrip(".") for name, layer in layers if is_norm(layer) for b, _ in layer.named_buffers()}
    state = cast("Mapping[str, Tensor]", model.state_dict())
    yield from ((name, value.detach().cpu()) for name, value in state.items() if name not in norms)


def _doubles(values: Tensor) -> Tensor:
    return (torch.view_as_real(values) if values.is_complex() else values).double()


def _largest_change(before: Predictions, after: Predictions) -> float:
    old, new = (np.maximum(one.log_probs, LEAST) for one in (before, after))
    return float(np.abs(old - new).max())
