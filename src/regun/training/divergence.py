"""Divergence: losses and gradients that are not finite, noticed on the device, and the way back."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from regun.training.job import Cost

EVERY = 16
"""Steps after which the host reads losses from an accelerator."""


@dataclass(frozen=True)
class StepRecord:
    """A step that the host has not read yet: its loss, its largest gradient, and where the run stood before it."""

    loss: Tensor
    largest: Tensor
    step: int
    samples: int
    lr: float
    cost: Cost


@dataclass(frozen=True)
class Divergence:
    """The first step whose `what` (loss or gradient) is not finite."""

    what: str
    record: StepRecord


class DivergenceWatch:
    """Checks every step, and makes the host wait for the result only every `every` steps.

    A step with a loss or gradient that is not finite sets `diverged` on the device. From then on the optimizer, which
    reads it as `found_inf`, updates nothing, and `buffers` keep the values they had before that step. On the CPU the
    host reads every step; so it does on MPS, whose fused optimizers are not known to read `found_inf`.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self.every = 1 if device.type in ("cpu", "mps") else EVERY
        self.buffers = list(model.buffers())
        self.saved: dict[torch.dtype, Tensor] = {}
        self.pending: list[StepRecord] = []
        self.diverged: Tensor | None = None
        if self.every > 1:
            self.diverged = torch.zeros((), device=device)
            optimizer.found_inf = self.diverged  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def due(self) -> bool:
        """True if the host must read the losses before the optimizer's next update."""
        return len(self.pending) >= self.every

    def save_buffers(self) -> None:
        """Copy the buffers as they are before a step."""
        for dtype, parts in self._by_dtype().items():
            now = torch.cat([part.detach().reshape(-1) for part in parts])
            old = self.saved.get(dtype)
            self.saved[dtype] = (
                now if self.diverged is None or old is None else torch.where(self.diverged > 0, old, now)
            )

    def add(self, loss: Tensor, gradients: list[Tensor], step: int, samples: int, lr: float, cost: Cost) -> None:
        """Check a step after its backward pass; `step`, `samples` and `cost` are those before it."""
        loss = loss.detach().reshape(())
        largest = largest_value(gradients) if gradients else torch.zeros_like(loss)
        if self.diverged is not None:
            finite = torch.isfinite(loss) & torch.isfinite(largest)
            torch.maximum(self.diverged, (~finite).float(), out=self.diverged)
        self.pending.append(StepRecord(loss, largest, step, samples, lr, replace(cost)))

    def read(self) -> tuple[list[float], Divergence | None]:
        """Return the losses of the steps since the last call, up to the first that is not finite, and that one."""
        losses = _numbers([record.loss for record in self.pending])
        largest = _numbers([record.largest for record in self.pending])
        records, self.pending = self.pending, []
        for position, (record, loss, value) in enumerate(zip(records, losses, largest, strict=True)):
            if not math.isfinite(loss) or not math.isfinite(value):
                what = "gradient" if math.isfinite(loss) else "loss"
                return losses[:position], Divergence(what, record)
        return losses, None

    def restore(self, parameters: Mapping[str, nn.Parameter], start: Mapping[str, Tensor]) -> None:
        """Set the buffers as before the step that diverged; weights that overflowed go back to `start`."""
        with torch.no_grad():
            for dtype, parts in self._by_dtype().items():
                saved = torch.split(self.saved[dtype], [part.numel() for part in parts])
                for part, values in zip(parts, saved, strict=True):
                    part.copy_(values.view(part.shape))
            if not math.isfinite(float(largest_value(list(parameters.values())))):
                for name, parameter in parameters.items():
                    parameter.copy_(start[name])

    def _by_dtype(self) -> dict[torch.dtype, list[Tensor]]:
        groups: dict[torch.dtype, list[Tensor]] = {}
        for part in self.buffers:
            groups.setdefault(part.dtype, []).append(part)
        return groups


def largest_value(tensors: Sequence[Tensor]) -> Tensor:
    """Return the largest absolute value; it is finite if and only if every number is."""
    if tensors[0].device.type == "cpu":  # where the norm is not vectorized: ten times slower
        return torch.stack([end for t in tensors for end in torch.aminmax(t.detach())]).abs().amax()
    norms = torch._foreach_norm([t.detach() for t in tensors], math.inf)  # pyright: ignore
    return torch.stack(list(norms)).amax()


def _numbers(values: list[Tensor]) -> list[float]:
    """Return scalars as numbers, in one transfer from the device."""
    return cast("list[float]", torch.stack(values).tolist()) if len(values) > 1 else [float(v) for v in values]
