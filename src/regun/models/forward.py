"""Call a classifier: its logits, its features, and a count of its forward passes."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.module import register_module_forward_pre_hook

from regun.errors import RegunError
from regun.parallel import alone
from regun.parallel.shard import sharded
from regun.types import Inputs


@dataclass
class _Meter:
    """The callback that counts forward passes, and whether one is running; calls inside it are part of it."""

    count: Callable[[int], None]
    inside: bool = False


_METER: ContextVar[_Meter | None] = ContextVar("regun: counter of forward passes", default=None)


def logits_of(model: nn.Module, x: Inputs) -> Tensor:
    """Return the logits (N, K) of `model` on a tensor or a mapping of tensors; its output may hold them as `.logits`.

    A mapping goes by name; one whose names are 0, 1, ... goes by position. The inputs are never changed: a model that
    works on them in place gets a copy.

    >>> import torch
    >>> logits_of(nn.Linear(4, 3), torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """
    if not isinstance(x, Tensor | Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RegunError(f"a model's input must be a tensor or a mapping of tensors, not {_kind(x)}.")
    meter = _METER.get()
    outermost = meter is not None and not meter.inside
    if meter is not None and outermost:  # a compiled model is counted here, since no hook runs in it
        meter.count(examples_in(x))
        meter.inside = True
    try:
        together = sharded(model, x, _logits)
        return _logits(model, x) if together is None else together
    except SystemExit as fault:
        raise RegunError(
            f"{type(model).__name__} called sys.exit({fault.code!r}) in its forward; raise an error instead."
        ) from fault
    finally:
        if meter is not None and outermost:
            meter.inside = False


def batchnorms(model: nn.Module) -> list[_BatchNorm]:
    """Return the layers that have running statistics."""
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]


@contextmanager
def allow_single_example(model: nn.Module, x: Inputs) -> Generator[None]:
    """Normalize a batch of one example by the running statistics inside the block: alone it has no variance."""
    layers = [layer for layer in batchnorms(model) if layer.training] if examples_in(x) == 1 else []
    for layer in layers:
        layer.eval()
    try:
        yield
    finally:
        for layer in layers:
            layer.train()


def features_of(model: nn.Module, x: Inputs) -> Tensor:
    """Return the input (N, D) of the final linear layer: the last nn.Linear or 1x1 nn.Conv2d with one output per class.

    If the layer is applied at many positions, its input is averaged over them. Mode and gradients are the caller's.
    """
    latest: dict[int, tuple[nn.Module, Tensor]] = {}  # by number of outputs

    def record(layer: nn.Module, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor):
            latest[_outputs(layer)] = (layer, args[0])

    hooks = [layer.register_forward_pre_hook(record) for layer in model.modules() if _outputs(layer)]
    try:
        with alone():  # hooks see the whole batch
            logits = logits_of(model, x)
    finally:
        for hook in hooks:
            hook.remove()
    num_classes = logits.shape[-1]
    if num_classes not in latest:
        raise RegunError(
            f"{type(model).__name__} has no final linear layer: no nn.Linear or 1x1 nn.Conv2d with {num_classes} "
            f"outputs ran in its forward (outputs that did run: {sorted(latest) or 'none'}). "
            "Features can only be read from a model that ends in such a layer."
        )
    layer, inputs = latest[num_classes]
    positions = (2, 3) if isinstance(layer, nn.Conv2d) else tuple(range(1, inputs.ndim - 1))
    return inputs.mean(dim=positions) if positions else inputs


@contextmanager
def counting(count: Callable[[int], None] | None) -> Generator[None]:
    """Call `count` with the number of examples of each forward pass inside the block; with None, count nothing.

    A pass is the outermost call of a module that has parameters.
    """
    hooked = register_module_forward_pre_hook(_enter) if count is not None and _METER.get() is None else nullcontext()
    token = _METER.set(None if count is None else _Meter(count))
    try:
        with hooked:
            yield
    finally:
        _METER.reset(token)


def count_pass(examples: int) -> None:
    """Count a forward pass over so many examples that other processes ran, at least in part."""
    meter = _METER.get()
    if meter is not None and not meter.inside:
        meter.count(examples)


@contextmanager
def twice_differentiable() -> Generator[None]:
    """Run attention inside the block in plain operations, which can be differentiated twice and vmapped."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def examples_in(x: object) -> int:
    """Return the number of examples in a model's input."""
    first = next(iter(cast("Mapping[str, Tensor]", x).values()), None) if isinstance(x, Mapping) else x
    return len(first) if isinstance(first, Tensor) and first.ndim else 0


def _enter(module: nn.Module, args: tuple[Any, ...]) -> None:
    """Count a pass when it ends, if `module` begins one; a hook that runs before every module."""
    if torch.compiler.is_compiling():
        return
    meter = _METER.get()
    if meter is None or meter.inside or next(module.parameters(), None) is None:
        return
    meter.inside = True

    def leave(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: object) -> None:
        meter.inside = False
        hook.remove()
        meter.count(max(map(examples_in, (*args, *kwargs.values())), default=0))

    hook = module.register_forward_hook(leave, with_kwargs=True, always_call=True)


def _outputs(layer: nn.Module) -> int:
    if isinstance(layer, nn.Linear):
        return layer.out_features
    return layer.out_channels if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1) else 0


_IN_PLACE: WeakKeyDictionary[nn.Module, dict[bool, bool]] = WeakKeyDictionary()
"""True for models that change their inputs, by training mode; the first call, on a copy, decides."""


def _call_protected(model: nn.Module, x: Inputs) -> Any:
    """Call the model without changing `x`; only models that change their inputs pay for copies."""
    in_place = _IN_PLACE.setdefault(model, {})
    if in_place.get(model.training, True):
        x = {name: part.clone() for name, part in x.items()} if isinstance(x, Mapping) else x.clone()
    versions = _versions(x)
    if isinstance(x, Tensor):
        output = model(x)
    else:
        by_position = all(name == str(place) for place, name in enumerate(x))
        output = model(*x.values()) if by_position else model(**x)
    in_place[model.training] = in_place.get(model.training, False) or _versions(x) != versions
    return output


def _logits(model: nn.Module, x: Inputs) -> Tensor:
    """Call the model and return the logits in what it returns."""
    output: object = _call_protected(model, x)
    if isinstance(output, Mapping):
        output = cast("Mapping[str, object]", output).get("logits", cast(object, output))
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        raise RegunError(
            f"{type(model).__name__} returned {_kind(output)}, from which no logits can be read. "
            "A model must return a tensor of logits, or an object or mapping with a tensor 'logits'; for any other, "
            "write logits=lambda output: ..., a function from what it returns to the logits, as in output[0]."
        )
    return logits


def _versions(x: Inputs) -> list[int]:
    """Return the count of in-place changes of each tensor (inference tensors have none, and cannot be changed)."""
    parts = x.values() if isinstance(x, Mapping) else (x,)
    return [part._version for part in parts if not part.is_inference()]  # pyright: ignore[reportPrivateUsage]


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return f"a {type(cast(object, value)).__name__} with keys {sorted(map(str, cast('Mapping[Any, Any]', value)))}"
    return f"a value of type {type(value).__name__}"
