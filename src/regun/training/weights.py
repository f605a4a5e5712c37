"""Checks of weights: finite numbers, names and shapes that fit a model."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def broken_weights(model: nn.Module) -> str | None:
    """Return the first parameter that holds NaN or infinity, or buffer that holds NaN (a mask may be infinite)."""
    buffers = {name: b for name, b in model.named_buffers() if b.is_floating_point() and not b.is_meta}
    return first_not_finite(dict(model.named_parameters())) or next(
        (n for n, b in buffers.items() if b.isnan().any()), None
    )


def first_not_finite(state: Mapping[str, Tensor]) -> str | None:
    numbers = {name: t for name, t in state.items() if t.is_floating_point() and not t.is_meta}
    return next((name for name, t in numbers.items() if not bool(torch.isfinite(t).all())), None)


def misfits(state: Mapping[str, Tensor], template: Mapping[str, Tensor]) -> list[str]:
    """Return how a state dict differs in names and shapes from what a model expects."""
    missing, extra = sorted(set(template) - set(state)), sorted(set(state) - set(template))
    shapes = [
        f"{name} has shape {tuple(state[name].shape)}, expected {tuple(template[name].shape)}"
        for name in template
        if name in state and state[name].shape != template[name].shape
    ]
    lacks = [f"it lacks {len(missing)} tensors (the first is {missing[0]!r})"] if missing else []
    surplus = [f"it has {len(extra)} others (the first is {extra[0]!r})"] if extra else []
    return [*lacks, *surplus, *shapes]
