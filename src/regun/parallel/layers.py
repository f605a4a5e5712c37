"""BatchNorm and random layers of a part of a batch, as in the whole batch."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from regun.parallel.processes import Processes


@contextmanager
def whole_batch_layers(model: nn.Module, processes: Processes, examples: int) -> Generator[None]:
    """Let layers inside work on the rows of this process as they would in a batch of `examples`.

    BatchNorm normalizes by the statistics of the whole batch, and random numbers are drawn for the whole batch. Models
    that draw none, as their first pass shows, are spared the second: it looks at every operation.
    """
    draws, training = _DRAWS.setdefault(model, {}), model.training
    before = torch.get_rng_state()
    random = RandomNumbers(processes, examples) if draws.get(training, True) else nullcontext()
    with BatchNorms(processes), random:
        yield
    if training not in draws:  # what an accelerator draws does not show in this generator
        draws[training] = any(p.device.type != "cpu" for p in model.parameters())
    draws[training] |= not torch.equal(before, torch.get_rng_state())


_DRAWS: WeakKeyDictionary[nn.Module, dict[bool, bool]] = WeakKeyDictionary()
"""True for models that draw random numbers in their forward pass, by training mode."""


class BatchNorms(TorchFunctionMode):
    """Inside, BatchNorm in training normalizes by the statistics of the rows of all processes."""

    def __init__(self, processes: Processes) -> None:
        super().__init__()
        self.processes = processes

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is functional.batch_norm:
            return self._batch_norm(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _batch_norm(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if not training or self.processes.world_size == 1:
            return functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
        return batch_norm(input, running_mean, running_var, weight, bias, momentum, eps, self.processes)


class RandomNumbers(TorchDispatchMode):
    """Inside, operations that draw for each example draw for the whole batch and use the rows of this process.

    The dimension of the examples is the first that has their number, or else the first of all if that is a multiple of
    it (several rows per example). Draws of other shapes do not belong to examples and are alike in all processes.
    """

    def __init__(self, processes: Processes, examples: int) -> None:
        super().__init__()
        rows = processes.rows(examples)
        self.examples, self.start, self.own = examples, rows.start, rows.stop - rows.start

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or not args:
            return func(*args, **kwargs)
        place = next((n for n, arg in enumerate(args) if isinstance(arg, Tensor | list)), None)
        if place is None:
            return func(*args, **kwargs)
        shape = args[place] if isinstance(args[place], list) else args[place].shape
        where = self._examples_in(shape)
        if where is None:
            return func(*args, **kwargs)
        whole = func(*(self._whole(arg, shape, where) for arg in args), **kwargs)
        if isinstance(whole, tuple):
            return tuple(self._own_rows(each, shape, where) for each in cast("tuple[Tensor, ...]", whole))
        own = self._own_rows(whole, shape, where)
        return args[0].copy_(own) if func.overloadpacket.__name__.endswith("_") else own

    def _examples_in(self, shape: Sequence[int]) -> int | None:
        """Return the dimension that counts the examples, or None."""
        if self.own in shape:
            return list(shape).index(self.own)
        return 0 if shape and shape[0] and shape[0] % self.own == 0 else None

    def _whole(self, arg: Any, shape: Sequence[int], where: int) -> Any:
        """Return a tensor or a shape for the whole batch; a tensor has zeros in the rows of other processes.

        It has the memory layout of the part: numbers are drawn in the order of memory.
        """
        size = [n * self.examples // self.own if d == where else n for d, n in enumerate(shape)]
        if isinstance(arg, list) and arg == list(shape):
            return size
        if not isinstance(arg, Tensor) or arg.shape != torch.Size(shape):
            return cast(object, arg)
        order = sorted(range(arg.ndim), key=lambda d: -arg.stride(d))
        whole = arg.new_zeros([size[d] for d in order]).permute([order.index(d) for d in range(arg.ndim)])
        self._own_rows(whole, shape, where).copy_(arg)
        return whole

    def _own_rows(self, whole: Tensor, shape: Sequence[int], where: int) -> Tensor:
        return whole.narrow(where, self.start * (shape[where] // self.own), shape[where])


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
    out, mean, unbiased = cast("tuple[Tensor, Tensor, Tensor]", _BatchNorm.apply(x, weight, bias, eps, processes))
    if running_mean is not None and running_var is not None:
        # `data`: as in torch's own kernel, the change does not count against passes that are not differentiated yet
        running_mean.data.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.data.lerp_(unbiased.to(running_var.dtype), momentum)
    return out


class _BatchNorm(torch.autograd.Function):
    """Normalizes by statistics of all processes: y = w (x - m) / sqrt(v + eps) + b."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, processes: Processes
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean, var, unbiased, count = _statistics(x, processes)
        ctx.eps, ctx.processes = eps, processes
        ctx.save_for_backward(x, weight, bias, mean, var, count)
        ctx.mark_non_differentiable(mean, unbiased)
        ctx.set_materialize_grads(False)
        return functional.batch_norm(x, mean, var, weight, bias, False, 0.0, eps), mean, unbiased

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
        _, dweight, dbias = torch.ops.aten.native_batch_norm_backward.default(
            dy, x, torch.ones_like(mean, dtype=x.dtype) if weight is None else weight, mean, var, None, None, False,
            ctx.eps, [False, True, True],
        )  # fmt: skip
        by_weight, by_bias = ctx.processes.stack(torch.stack([dweight, dbias])).sum(0, dtype=mean.dtype).div_(count)
        factor = (var + ctx.eps).rsqrt_()
        scale = factor if weight is None else factor * weight
        slope = (factor * by_weight).mul_(scale)
        offset = (slope * mean).addcmul_(scale, by_bias, value=-1)
        dx = torch.addcmul(_channels(offset, x), dy, _channels(scale, x)).addcmul_(x, _channels(slope, x), value=-1)
        return dx, None if weight is None else dweight, None if bias is None else dbias, None, None


def _statistics(x: Tensor, processes: Processes) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return mean, biased and unbiased variance per channel and number of values over all, from those of each process.

    Every layer waits for this, so it is written in few operations: small ones cost as much as their call.
    """
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    mean, var = torch.batch_norm_update_stats(x, None, None, 0.0)
    channels = len(mean)
    each = processes.stack(torch.cat([mean, var, mean.new_full((1,), x.numel() // channels)])).double()
    means, variances, counts = torch.split(each, [channels, channels, 1], 1)
    count = counts.sum()
    shares = (counts / count).t()
    whole = shares @ means
    apart = means - whole
    spread = shares @ variances.addcmul_(apart, apart)
    unbiased = torch.addcdiv(spread, spread, count - 1)
    found = torch.cat([whole, spread, unbiased]).to(mean.dtype)
    return found[0], found[1], found[2], count.to(mean.dtype)


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
    return values.to(like.dtype).view(1, -1, *([1] * (like.ndim - 2)))
