"""BatchNorm and random layers of a part of a batch, as in the whole batch."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from regun.parallel.processes import Processes

RANDOM_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    functional.rrelu,
    functional.gumbel_softmax,
    torch.dropout,
    torch.feature_dropout,
    torch.alpha_dropout,
    torch.feature_alpha_dropout,
    torch.bernoulli,
    torch.rand_like,
    torch.randn_like,
    torch.randint_like,
)
"""Functions of a tensor that draw for each of its elements or rows."""
FILLED_AT_RANDOM: tuple[Callable[..., Any], ...] = (
    torch.Tensor.bernoulli_,
    torch.Tensor.normal_,
    torch.Tensor.uniform_,
    torch.Tensor.exponential_,
    torch.Tensor.log_normal_,
    torch.Tensor.cauchy_,
    torch.Tensor.geometric_,
    torch.Tensor.random_,
)
"""Methods that fill a tensor with draws."""
DRAWN: tuple[Callable[..., Any], ...] = (torch.rand, torch.randn)
"""Functions of a shape that return draws."""


class WholeBatchLayers(TorchFunctionMode):
    """Inside, layers work on the rows of this process as they would in a batch of `examples`.

    BatchNorm normalizes by the statistics of the whole batch. A function that draws random numbers for a tensor whose
    first dimension counts the examples (or a multiple of them) draws for the whole batch and uses its own rows. Numbers
    that do not belong to examples are drawn alike in all processes.
    """

    def __init__(self, processes: Processes, examples: int) -> None:
        super().__init__()
        self.processes, self.examples = processes, examples
        self.rows = processes.rows(examples)
        self.own = self.rows.stop - self.rows.start

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.batch_norm:
            return self._batch_norm(*args, **kwargs)
        if func is functional.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        if func in RANDOM_FUNCTIONS and self._per_example(args[0] if args else kwargs["input"]):
            tensor, rest = (args[0], args[1:]) if args else (kwargs.pop("input"), ())
            return self._own_part(func(self._whole(tensor), *rest, **kwargs), len(tensor))
        if func in FILLED_AT_RANDOM and self._per_example(args[0]):
            whole = func(self._whole(args[0]), *args[1:], **kwargs)
            return args[0].copy_(self._own_part(whole, len(args[0])))
        if func in DRAWN:
            return self._drawn(func, args, kwargs)
        return func(*args, **kwargs)

    def _batch_norm(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if not training:
            return functional.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
        return batch_norm(x, running_mean, running_var, weight, bias, momentum, eps, self.processes)

    def _attention(self, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **more: Any) -> Tensor:
        """Attention that drops weights at random sees the whole batch, with zeros in the rows of the others."""
        rate = more.get("dropout_p", rest[1] if len(rest) > 1 else 0.0)
        attention: Callable[..., Tensor] = functional.scaled_dot_product_attention
        if not rate or not self._per_example(query):
            return attention(query, key, value, *rest, **more)
        mask = more.pop("attn_mask", rest[0] if rest else None)
        if mask is not None and mask.ndim == query.ndim and len(mask) == len(query) > 1:
            mask = self._whole(mask)
        whole = (self._whole(tensor) for tensor in (query, key, value))
        return self._own_part(attention(*whole, mask, *rest[1:], **more), len(query))

    def _drawn(self, func: Callable[..., Tensor], size: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        shape = tuple(size[0]) if size and not isinstance(size[0], int) else size
        if not shape or not all(isinstance(n, int) for n in shape) or shape[0] % self.own:
            return func(*size, **kwargs)
        times = shape[0] // self.own
        return self._own_part(func((times * self.examples, *shape[1:]), **kwargs), shape[0])

    def _per_example(self, tensor: object) -> bool:
        return isinstance(tensor, Tensor) and tensor.ndim > 0 and len(tensor) > 0 and len(tensor) % self.own == 0

    def _whole(self, part: Tensor) -> Tensor:
        """Return a tensor for the whole batch with `part` in its rows and zeros elsewhere, in the same layout."""
        times = len(part) // self.own
        before, after = self.rows.start * times, (self.examples - self.rows.stop) * times
        padding = [part.new_zeros((count, *part.shape[1:])) for count in (before, after)]
        return torch.cat([padding[0], part, padding[1]])

    def _own_part(self, whole: Tensor, count: int) -> Tensor:
        start = self.rows.start * (count // self.own)
        return whole[start : start + count]


def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
    processes: Processes,
) -> Tensor:
    """Return x normalized by the mean and variance over the rows of all processes; update the running statistics."""
    out, mean, var, count = cast(
        "tuple[Tensor, Tensor, Tensor, Tensor]", _BatchNorm.apply(x, weight, bias, eps, processes)
    )
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            unbiased = var * (count / (count - 1).clamp(min=1)).to(var.dtype)
            running_mean.mul_(1 - momentum).add_(mean.to(running_mean.dtype), alpha=momentum)
            running_var.mul_(1 - momentum).add_(unbiased.to(running_var.dtype), alpha=momentum)
    return out


class _BatchNorm(torch.autograd.Function):
    """Normalizes by statistics of all processes: y = w (x - m) / sqrt(v + eps) + b."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, processes: Processes
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mean, var, count = _statistics(x, processes)
        ctx.eps, ctx.processes = eps, processes
        ctx.save_for_backward(x, weight, bias, mean, var, count)
        ctx.mark_non_differentiable(mean, var, count)
        ctx.set_materialize_grads(False)
        return functional.batch_norm(x, mean, var, weight, bias, False, 0.0, eps), mean, var, count

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        dy = gradients[0]
        x, weight, bias, mean, var, count = cast("tuple[Any, ...]", ctx.saved_tensors)
        if dy is None:
            return None, None, None, None, None
        if torch.is_grad_enabled():  # to be differentiated again: in plain operations
            inputs = [t for t in (x, weight, bias) if t is not None]
            plain = _plain_batch_norm(x, weight, bias, ctx.eps, ctx.processes)
            found = iter(torch.autograd.grad(plain, inputs, dy, create_graph=True, allow_unused=True))
            return *(None if t is None else next(found) for t in (x, weight, bias)), None, None
        scale = torch.ones_like(mean) if weight is None else weight.to(mean.dtype)
        _, dweight, dbias = torch.ops.aten.native_batch_norm_backward(
            dy, x, scale.to(x.dtype) if weight is None else weight, mean, var, None, None, False, ctx.eps,
            [False, True, True],
        )  # fmt: skip
        sums = ctx.processes.sum([dweight.to(mean.dtype), dbias.to(mean.dtype)])
        factor = (var + ctx.eps).rsqrt()
        slope = -scale * factor * factor * sums[0] / count.to(mean.dtype)
        offset = -scale * factor * sums[1] / count.to(mean.dtype) - slope * mean
        dx = torch.addcmul(_channels(offset, x).to(x.dtype), dy, _channels(scale * factor, x).to(x.dtype))
        dx = dx.addcmul_(x, _channels(slope, x).to(x.dtype))
        return dx, None if weight is None else dweight, None if bias is None else dbias, None, None


def _statistics(x: Tensor, processes: Processes) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, biased variance and number of values per channel over all processes, from those of each."""
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    mean, var = torch.batch_norm_update_stats(x, None, None, 0.0)
    own = torch.full_like(mean, x.numel() // x.shape[1], dtype=torch.float64)
    each = torch.stack([mean.double(), var.double(), own])
    means, variances, counts = processes.gather_rows(each.unsqueeze(0), processes.world).unbind(1)
    count = counts.sum(0)
    whole = (counts * means).sum(0) / count
    spread = (counts * (variances + (means - whole).square())).sum(0) / count
    return whole.to(mean.dtype), spread.to(mean.dtype), count


class _SumOfAll(torch.autograd.Function):
    """The sum over all processes of a part, used by every part; its derivative is the same sum of the gradients."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        return processes.sum([part])[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return cast(Tensor, _SumOfAll.apply(gradients[0], ctx.processes)), None


def _plain_batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, processes: Processes
) -> Tensor:
    """Return the same as `_BatchNorm` in operations that can be differentiated any number of times."""
    over = [d for d in range(x.ndim) if d != 1]
    count = processes.sum([torch.tensor(float(x.numel() // x.shape[1]), device=x.device)])[0]
    mean = cast(Tensor, _SumOfAll.apply(x.sum(over), processes)) / count
    centred = x - _channels(mean, x)
    var = cast(Tensor, _SumOfAll.apply(centred.square().sum(over), processes)) / count
    out = centred * _channels((var + eps).rsqrt(), x)
    out = out if weight is None else out * _channels(weight, x)
    return out if bias is None else out + _channels(bias, x)


def _channels(values: Tensor, like: Tensor) -> Tensor:
    return values.view(1, -1, *([1] * (like.ndim - 2)))
