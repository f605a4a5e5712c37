"""Snapshots of a run: what it needs to go on, bit for bit, and where they are kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Snapshot:
    """Everything a run needs to go on: tensors by name, and the rest as JSON."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]


class Checkpoint(Protocol):
    """Where snapshots go; `due` says when one is wanted."""

    def due(self) -> bool: ...
    def load(self) -> Snapshot | None: ...
    def save(self, snapshot: Snapshot) -> None: ...


def state_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return copies of all tensors of a model and of its optimizer's state, by name."""
    tensors = {f"model.{n}": t.detach().clone() for n, t in model.state_dict().items()}
    for index, parameter in enumerate(_trainable(model)):
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{key}"] = value.detach().clone()
    return tensors


def load_state_tensors(tensors: Mapping[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Set a model and its optimizer's state to what `state_tensors` returned."""
    model.load_state_dict({n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")})
    for index, parameter in enumerate(_trainable(model)):
        prefix = f"optimizer.{index}."
        state = {n.removeprefix(prefix): t.clone() for n, t in tensors.items() if n.startswith(prefix)}
        for key, value in state.items():
            if value.shape == parameter.shape:
                # in the parameter's memory layout: fused optimizers walk both side by side, without strides
                like = torch.empty_like(parameter, dtype=value.dtype, requires_grad=False)
                state[key] = like.copy_(value)
        if state:
            optimizer.state[parameter] = state


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]
