"""How a classifier is called, whoever made it."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from regun.errors import RegunError

Inputs = Tensor | Mapping[str, Tensor]

_METER: ContextVar[Callable[[int], None] | None] = ContextVar("regun: who counts forward passes", default=None)


def logits_of(model: nn.Module, x: Inputs) -> Tensor:
    """Logits (N, K) of `model` on a tensor or a mapping of tensors, from a bare tensor or an output with `.logits`.

    >>> import torch
    >>> logits_of(nn.Linear(4, 3), torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """
    count = _METER.get()
    if count is not None:
        count(_examples_in(x))
    output: object = _call(model, x)
    if isinstance(output, Mapping):
        output = cast("Mapping[str, object]", output).get("logits", cast(object, output))
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        raise RegunError(
            f"{type(model).__name__} returned {_kind(output)}, from which no logits can be read. "
            "A model must return a tensor of logits, or an object or mapping with a tensor 'logits'."
        )
    return logits


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
    """Inside, `count` is told how many examples go through each forward pass, whichever model's; None: nobody is."""
    token = _METER.set(count)
    try:
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


def _examples_in(x: object) -> int:
    first = next(iter(cast("Mapping[str, Tensor]", x).values()), None) if isinstance(x, Mapping) else x
    return len(first) if isinstance(first, Tensor) and first.ndim else 0


def _outputs(layer: nn.Module) -> int:
    if isinstance(layer, nn.Linear):
        return layer.out_features
    return layer.out_channels if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1) else 0


def _call(model: nn.Module, x: object) -> Any:
    if isinstance(x, Tensor):
        return model(x)
    if isinstance(x, Mapping):
        return model(**cast("Mapping[str, Tensor]", x))
    raise RegunError(f"a model's input must be a tensor or a mapping of tensors, not {_kind(x)}.")


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return f"a {type(cast(object, value)).__name__} with keys {sorted(map(str, cast('Mapping[Any, Any]', value)))}"
    return f"a value of type {type(value).__name__}"
