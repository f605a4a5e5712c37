"""A forward pass in parts: every process runs its rows of the batch, and losses and gradients are those of all rows.

A tensor is either *whole* (equal in all processes, like weights, labels and losses) or a *part* (the rows of this
process). Four functions lead from one kind to the other, and their derivatives lead back:

    operation                    forward         backward
    spread   whole -> part       unchanged       total       (weights, used by every part)
    total    part -> whole       sum over all    spread
    cut      whole -> part       own rows        join        (inputs)
    join     part -> whole       all rows        cut         (logits)

So a loss of joined logits has the gradient of the whole batch in every process, and terms of the weights alone, such
as a penalty, count once. Derivatives of any order are right, since backward is made of the same functions.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import torch
from torch import Tensor, nn

from regun.errors import RegunError
from regun.parallel.layers import whole_batch_layers
from regun.parallel.processes import Processes, alone, current

Inputs = Tensor | Mapping[str, Tensor]

_AVERAGED: ContextVar[bool] = ContextVar("regun: gradients are averaged by the caller's loop", default=False)


@contextmanager
def averaged_gradients() -> Generator[None]:
    """Leave it to the caller's engine (DDP, say) to average gradients over the processes, inside the block."""
    token = _AVERAGED.set(True)
    try:
        yield
    finally:
        _AVERAGED.reset(token)


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, processes: Processes, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.processes = processes
        ctx.set_materialize_grads(False)  # a weight that the loss does not use has no gradient
        ctx.strides = [_dense_strides(t) for t in tensors]
        return tuple(t.detach() for t in tensors)  # which keeps the memory layout; a view may not

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        used = [(g, stride) for g, stride in zip(gradients, ctx.strides, strict=True) if g is not None]
        if torch.is_grad_enabled():  # to be differentiated again
            sums = iter(cast("tuple[Tensor, ...]", _Total.apply(ctx.processes, *(g for g, _ in used))) if used else ())
        else:
            # in the order of memory, which all processes share with the weights: no copy for another layout
            sums = iter(ctx.processes.sum([g for g, _ in used], [stride for _, stride in used]))
        return None, *(None if g is None else next(sums) for g in gradients)


def _dense_strides(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides of a dense tensor like this one, which are its own if it is dense."""
    if tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor.stride()
    return torch.empty_like(tensor, device="meta").stride()


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, processes: Processes, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.processes = processes
        return tuple(processes.sum(tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *cast("tuple[Tensor, ...]", _Spread.apply(ctx.processes, *gradients))


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, processes: Processes, whole: Tensor) -> Tensor:
        ctx.processes, ctx.examples = processes, len(whole)
        return whole[processes.rows(len(whole))].clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, cast(Tensor, _Join.apply(ctx.processes, gradients[0], ctx.examples, 1))


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, processes: Processes, part: Tensor, examples: int, scale: int) -> Tensor:
        ctx.processes, ctx.scale = processes, scale
        return processes.gather_rows(part, examples)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        part = cast(Tensor, _Cut.apply(ctx.processes, gradients[0]))
        return None, part * ctx.scale if ctx.scale > 1 else part, None, None


def sharded(model: nn.Module, x: Inputs, call: Callable[[nn.Module, Inputs], Tensor]) -> Tensor | None:
    """Return `call(model, x)`, an output with one row per example, computed by all processes; None if not shared.

    A batch with less than two examples per process is not shared: every process computes all of it.
    """
    processes = current()
    tensors = list(x.values()) if isinstance(x, Mapping) else [x]
    if processes is None or not tensors or not tensors[0].ndim or any(map(_is_mapped, tensors)):
        return None
    examples = len(tensors[0])
    if examples < 2 * processes.world_size:
        return None

    def own(tensor: Tensor) -> Tensor:
        if not tensor.ndim or len(tensor) != examples:
            return tensor  # the same for all examples
        if tensor.requires_grad and torch.is_grad_enabled():
            return cast(Tensor, _Cut.apply(processes, tensor))
        return tensor[processes.rows(examples)]

    mine = {name: own(part) for name, part in x.items()} if isinstance(x, Mapping) else own(x)
    averaged = _AVERAGED.get()
    with alone(), whole_batch_layers(model, processes, examples):
        part = call(model, mine) if averaged else _with_spread_weights(model, mine, call, processes)
    rows = processes.rows(examples)
    if not part.ndim or len(part) != rows.stop - rows.start:
        raise RegunError(
            f"{type(model).__name__} returned {tuple(part.shape)} for {rows.stop - rows.start} examples; with several "
            f"processes a model must return one row per example."
        )
    return cast(Tensor, _Join.apply(processes, part, examples, processes.world_size if averaged else 1))


def _with_spread_weights(
    model: nn.Module, x: Inputs, call: Callable[[nn.Module, Inputs], Tensor], processes: Processes
) -> Tensor:
    """Call the model with weights whose gradients are summed over all processes.

    As `torch.func.functional_call`, which needs longer to look up the weights by name than to use them.
    """
    places = [
        (module._parameters, name, weight)  # pyright: ignore[reportPrivateUsage]
        for module in model.modules()
        for name, weight in module._parameters.items()  # pyright: ignore[reportPrivateUsage]
        if weight is not None and weight.requires_grad
    ]
    if not places or not torch.is_grad_enabled():
        return call(model, x)
    weights = {id(weight): weight for _, _, weight in places}  # tied weights once
    spread = dict(zip(weights, cast("tuple[Tensor, ...]", _Spread.apply(processes, *weights.values())), strict=True))
    try:
        for parameters, name, weight in places:
            parameters[name] = cast(nn.Parameter, spread[id(weight)])
        return call(model, x)
    finally:
        for parameters, name, weight in places:
            parameters[name] = weight


def _is_mapped(tensor: Tensor) -> bool:
    """Return True inside vmap and other transforms of torch.func, through which processes cannot exchange."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # pyright: ignore
