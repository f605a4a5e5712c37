"""Seeds and generators without global state."""

import json
import random
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import numpy as np
import torch

from regun.hashing import canonical_json, digest

OLD_NAMES = {"auto": {"from_scratch": "anew"}, "regun": {"source": "reference"}}
"""Settings by method that were renamed after results were published; seeds follow from the old names."""

ADDED = {
    "clip_norm": None, "warmup_ratio": 0.0, "step_every": "auto", "min_lr": 0.0, "milestone_factor": 0.1,
    "temperature": None, "label_logit": None,
}  # fmt: skip
"""Settings that were added after results were published; at their defaults seeds do not depend on them."""


def derive(seed: int | str, *names: int | str) -> int:
    """Return a seed that depends on `seed` and `names` only, never on earlier draws."""
    return int(digest([seed, *names])[:15], 16)


def rng_key(inputs: Any) -> str:
    """Return the key of a run's seeds: a digest of its inputs without digests of code, which change with each edit."""
    return digest(_pinned(json.loads(canonical_json(inputs))))


def _pinned(value: Any) -> Any:
    """Return inputs without digests of code, and with the old names of renamed settings."""
    if isinstance(value, list):
        return [_pinned(part) for part in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    named = {name: part for name, part in cast("dict[str, Any]", value).items() if name != "code"}
    parts = {name: _pinned(part) for name, part in named.items() if name not in ADDED or part != ADDED[name]}
    old, config = OLD_NAMES.get(str(parts.get("name")), {}), parts.get("config")
    if old and isinstance(config, dict):
        parts["config"] = {old.get(key, key): part for key, part in cast("dict[str, Any]", config).items()}
    return parts


def generator(seed: int | str, *names: int | str) -> torch.Generator:
    """Return a new CPU generator seeded by `derive`; draws are copied to devices, so results do not depend on them."""
    return torch.Generator().manual_seed(derive(seed, *names))


@contextmanager
def own_torch_rng(seed: int, device: torch.device | None = None) -> Generator[None]:
    """Seed torch's global generators inside the block only; the caller's states are restored after it.

    `torch.manual_seed` would also queue a seeding of every accelerator, with a stack trace each, on every call.
    """
    with torch.random.fork_rng(devices=[]), _own_device_rng(seed, device):
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def _own_device_rng(seed: int, device: torch.device | None) -> Generator[None]:
    """Seed the generator of an accelerator inside the block only."""
    if device is None or device.type in ("cpu", "meta"):
        yield
        return
    module = torch.get_device_module(device)
    place = () if device.type == "mps" else (device,)  # MPS has one device, which its functions do not take
    before = module.get_rng_state(*place)
    with module.device(device) if hasattr(module, "device") else nullcontext():
        module.manual_seed(seed)
    try:
        yield
    finally:
        module.set_rng_state(before, *place)


@contextmanager
def isolated(seed: int, device: torch.device | None = None) -> Generator[None]:
    """Seed the global generators (torch, numpy, random) in the block only; the caller's states are restored after."""
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    with own_torch_rng(seed, device):
        try:
            np.random.seed(seed % 2**32)  # noqa: NPY002
            random.seed(seed)
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)
