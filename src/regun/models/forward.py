"""How a classifier is called, whoever made it."""

from collections.abc import Callable, Generator, Iterable, Mapping
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
from regun.types import Inputs


@dataclass
class _Meter:
    """Who is told of forward passes, and whether one is under way: what runs inside of it is part of it."""

    count: Callable[[int], None]
    inside: bool = False


_METER: ContextVar[_Meter | None] = ContextVar("regun: who counts forward passes", default=None)


def logits_of(model: nn.Module, x: Inputs) -> Tensor:
    """Logits (N, K) of `model` on a tensor or a mapping of tensors, from a bare tensor or an output with `.logits`.

    A mapping goes by name; one whose names are 0, 1, ... goes by position. The inputs are never changed: a model that
    works on them in place gets a copy.

    >>> import torch
    >>> logits_of(nn.Linear(4, 3), torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """
    if not isinstance(x, Tensor | Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RegunError(f"a model's input must be a tensor or a mapping of tensors, not {_kind(x)}.")
    with _one_pass(x):  # a compiled model is counted here, since no hook runs in it
        try:
            output: object = _call_protected(model, x)
        except SystemExit as fault:
            raise RegunError(
                f"{type(model).__name__} called sys.exit({fault.code!r}) in its forward; raise an error instead."
            ) from fault
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


def batchnorms(model: nn.Module) -> list[_BatchNorm]:
    """The layers that keep running statistics."""
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]


@contextmanager
def bearing_one(model: nn.Module, x: Inputs) -> Generator[None]:
    """Inside, a batch of one example is normalised by the running statistics: by itself it has no variance."""
    layers = [layer for layer in batchnorms(model) if layer.training] if examples_in(x) == 1 else []
    for layer in layers:
        layer.eval()
    try:
        yield
    finally:
        for layer in layers:
            layer.train()


def features_of(model: nn.Module, x: Inputs) -> Tensor:
    """Input (N, D) of the final linear layer: the last nn.Linear or 1x1 nn.Conv2d run that has one output a class.

    A layer that is applied at many positions gives its input averaged over them. Mode and gradients are the caller's.
    """
    seen: dict[int, tuple[nn.Module, Tensor]] = {}
    hooks = [layer.register_forward_pre_hook(_Recorder(seen)) for layer in model.modules() if _outputs(layer)]
    try:
        logits = logits_of(model, x)
    finally:
        for hook in hooks:
            hook.remove()
    num_classes = logits.shape[-1]
    if num_classes not in seen:
        raise RegunError(
            f"{type(model).__name__} has no final linear layer: no nn.Linear or 1x1 nn.Conv2d with {num_classes} "
            f"outputs ran in its forward (outputs that did run: {sorted(seen) or 'none'}). "
            "Features can only be read from a model that ends in such a layer."
        )
    layer, inputs = seen[num_classes]
    positions = (2, 3) if isinstance(layer, nn.Conv2d) else tuple(range(1, inputs.ndim - 1))
    return inputs.mean(dim=positions) if positions else inputs


@contextmanager
def counting(count: Callable[[int], None] | None) -> Generator[None]:
    """Inside, `count` is told how many examples go through each forward pass; None: nobody is.

    A pass is a call, from outside of any other, of a module that has parameters: whoever's module, however called.
    """
    hooked = register_module_forward_pre_hook(_enter) if count is not None and _METER.get() is None else nullcontext()
    token = _METER.set(None if count is None else _Meter(count))
    try:
        with hooked:
            yield
    finally:
        _METER.reset(token)


@contextmanager
def twice_differentiable() -> Generator[None]:
    """Inside, attention runs in plain operations, which can be differentiated twice and mapped over examples."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


class _Recorder:
    """Forward pre-hook that keeps the latest input for each number of outputs."""

    def __init__(self, seen: dict[int, tuple[nn.Module, Tensor]]) -> None:
        self.seen = seen

    def __call__(self, layer: nn.Module, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor):
            self.seen[_outputs(layer)] = (layer, args[0])


def examples_in(x: object) -> int:
    """How many examples a model's input holds."""
    first = next(iter(cast("Mapping[str, Tensor]", x).values()), None) if isinstance(x, Mapping) else x
    return len(first) if isinstance(first, Tensor) and first.ndim else 0


@contextmanager
def _one_pass(*inputs: object) -> Generator[None]:
    """A forward pass that is counted once, whatever runs inside."""
    meter = _METER.get()
    if meter is None or meter.inside:
        yield
        return
    meter.count(max(map(examples_in, inputs), default=0))
    meter.inside = True
    try:
        yield
    finally:
        meter.inside = False


def _enter(module: nn.Module, args: tuple[Any, ...]) -> None:
    """Before any module runs: if it begins a pass, count it when it ends."""
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
"""Whether a model changes its inputs, by its training mode; noticed in its first call, which gets a copy."""


def _call_protected(model: nn.Module, x: Inputs) -> Any:
    """Call the model so that `x` stays as it is; only models that change their inputs pay for copies."""
    in_place = _IN_PLACE.setdefault(model, {})
    if in_place.get(model.training, True):
        x = {name: part.clone() for name, part in x.items()} if isinstance(x, Mapping) else x.clone()
    versions = _versions(x)
    output = _call(model, x)
    in_place[model.training] = in_place.get(model.training, False) or _versions(x) != versions
    return output


def _versions(x: Inputs) -> list[int]:
    """PyTorch's count of in-place changes of each tensor (inference tensors have none, and cannot be changed)."""
    parts = x.values() if isinstance(x, Mapping) else (x,)
    return [part._version for part in parts if not part.is_inference()]  # pyright: ignore[reportPrivateUsage]


def _call(model: nn.Module, x: Inputs) -> Any:
    if isinstance(x, Tensor):
        return model(x)
    return model(*x.values()) if _by_position(x) else model(**x)


def _by_position(names: Iterable[str]) -> bool:
    return all(name == str(place) for place, name in enumerate(names))


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return f"a {type(cast(object, value)).__name__} with keys {sorted(map(str, cast('Mapping[Any, Any]', value)))}"
    return f"a value of type {type(value).__name__}"
