"""What a run did to a model: how many weights moved and how far, and whether its answers did."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from regun.evaluate import Signals, SplitSignals
from regun.methods._fresh import is_norm
from regun.requests.rule import ALL, Finding
from regun.show.numbers import many

ROUNDING = 8.0
"""Times the smallest relative step of a weight's type that count as rounding, not as a change."""
SAME_ANSWER, LEAST = 1e-4, -50.0
"""Change of a log-probability that counts as none (sums taken in another order change it by a hundredth of that in
single precision), and the log-probability below which all are alike."""


@dataclass(frozen=True)
class Change:
    """Weights of a model, those that moved by more than rounding, how far all moved in proportion to their size, the
    optimizer's steps, and the largest change of a log-probability on forgotten records."""

    weights: int
    moved: int
    relative: float
    steps: int
    answers: float

    @property
    def nothing(self) -> str:
        """Why this is no change at all; empty if it is one."""
        if not self.moved:
            how = "its weights are as they were" if not self.relative else "its weights moved by less than rounding"
            return f"the model was not changed: {how}, after {many(self.steps, 'step')}"
        if self.answers <= SAME_ANSWER:
            return "the model was not changed where it matters: its answers to the forgotten records are as they were"
        return ""

    def refusals(self) -> tuple[Finding, ...]:
        """The finding that refuses what is no change, whatever the rule says; none where there is one."""
        why = self.nothing
        return (Finding("changed", ALL, "failed", why, "the run changed the model"),) if why else ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def change(before: nn.Module, after: nn.Module, steps: int, said: tuple[SplitSignals, SplitSignals]) -> Change:
    """From a model to what a run made of it; `said` is what the two say of the sets."""
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
    return Change(total, moved, relative, steps, _largest_change(said[0]["forget"], said[1]["forget"]))


def _weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All that a model knows: its state but for the statistics of normalisation layers, which follow any batch."""
    layers = cast("Iterator[tuple[str, nn.Module]]", model.named_modules())
    norms = {
        f"{name}.{own}".lstrip(".") for name, layer in layers if is_norm(layer) for own, _ in layer.named_buffers()
    }
    state = cast("Mapping[str, Tensor]", model.state_dict())
    yield from ((name, value.detach().cpu()) for name, value in state.items() if name not in norms)


def _doubles(values: Tensor) -> Tensor:
    return (torch.view_as_real(values) if values.is_complex() else values).double()


def _largest_change(before: Signals, after: Signals) -> float:
    old, new = (np.maximum(signals.log_probs, LEAST) for signals in (before, after))
    return float(np.abs(old - new).max())
