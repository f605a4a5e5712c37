"""What a run did to the model: how many weights moved, by how much, and whether its predictions changed."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from regun.auditing import SplitPredictions
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

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "nothing": self.nothing}


def measure_change(
    before: nn.Module, after: nn.Module, steps: int, predictions: tuple[SplitPredictions, SplitPredictions]
) -> Change:
    """Measure the change from one model to another; `predictions` are those of the two."""
    new, total, moved, squares, size = dict(_weights(after)), 0, 0, 0.0, 0.0
    for name, weight in _weights(before):
        epsilon = torch.finfo(weight.dtype).eps if weight.is_floating_point() or weight.is_complex() else 0.0
        old, now = (torch.view_as_real(w).double() if w.is_complex() else w.double() for w in (weight, new[name]))
        difference = (now - old).abs()
        # a weight near 0 is rounded like the rest
        scale = torch.maximum(old.abs(), now.abs()).clamp_min(float(old.square().mean().sqrt()))
        total, moved = total + weight.numel(), moved + int((difference > ROUNDING * epsilon * scale).sum())
        squares, size = squares + float(difference.square().sum()), size + float(old.square().sum())
    relative = (squares / size) ** 0.5 if size else squares**0.5
    log_probs = [np.maximum(sets["forget"].log_probs, LEAST) for sets in predictions]
    frozen = sum(p.numel() for p in after.parameters() if not p.requires_grad)
    return Change(total, moved, relative, steps, float(np.abs(log_probs[0] - log_probs[1]).max()), frozen)


def _weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the state of a model but for the statistics of normalisation layers, which follow any batch."""
    layers = cast("Iterator[tuple[str, nn.Module]]", model.named_modules())
    norms = {f"{name}.{b}".lstrip(".") for name, layer in layers if is_norm(layer) for b, _ in layer.named_buffers()}
    state = cast("Mapping[str, Tensor]", model.state_dict())
    yield from ((name, value.detach().cpu()) for name, value in state.items() if name not in norms)
