"""Devices: which one is used, and how tensors get there."""

import torch
from torch import Tensor

from regun.errors import RegunError

KINDS = ("cuda", "xpu", "mps")
"""Accelerators in the order in which `auto` chooses."""


def as_device(device: torch.device | str) -> torch.device:
    """Return the device after writing a number to it and reading it back; `auto` is the best one there is.

    >>> as_device("cpu")
    device(type='cpu')
    """
    try:
        probe = torch.empty(1, device=best_kind() if device == "auto" else device)
        probe.tolist()  # `meta` has tensors, but they hold nothing
    except (RuntimeError, AssertionError, ImportError, ValueError, TypeError) as fault:
        reason = f"{fault}".splitlines()[0].split(". ")[0] if f"{fault}" else type(fault).__name__
        here = ["auto", "cpu"]
        for kind in filter(_is_available, KINDS):
            count = torch.get_device_module(kind).device_count()
            here += [kind] if count == 1 else [f"{kind}:{number}" for number in range(count)]
        raise RegunError(
            f"device {str(device)[:80]!r} cannot be used ({reason[:200]}); use one that is here: {', '.join(here)}."
        ) from None
    return probe.device  # with its number, as its tensors have it


def best_kind() -> str:
    """Return the first kind of accelerator that is available, or cpu."""
    return next((kind for kind in KINDS if _is_available(kind)), "cpu")


def describe_device(device: torch.device) -> str:
    """Return the device's name for manifests, with the model of a graphics card.

    >>> describe_device(torch.device("cpu"))
    'cpu'
    """
    module = torch.get_device_module(device)
    name = module.get_device_name(device) if hasattr(module, "get_device_name") else ""
    return f"{device} ({name})" if name else str(device)


def send(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Return the tensor on `device`; the host does not wait for a copy from its memory to an accelerator.

    Such a copy goes through pinned memory. MPS has none, so there the host waits.
    """
    target = torch.device(device)
    if tensor.device.type != "cpu" or target.type in ("cpu", "mps"):
        return tensor.to(target)
    return tensor.pin_memory().to(target, non_blocking=True)


def _is_available(kind: str) -> bool:
    return bool(torch.get_device_module(kind).is_available())
