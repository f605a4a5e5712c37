"""What weights matter for which examples."""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from regun.data.examples import Batch
from regun.errors import RegunError
from regun.models.forward import allow_single_example, count_pass, counting, logits_of, twice_differentiable
from regun.parallel import Processes, alone, current
from regun.training.forward import eval_plan, in_eval_mode
from regun.training.job import Job
from regun.types import Indices, Inputs

Named = dict[str, Tensor]


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def summed_gradient(job: Job, indices: Indices, *, batch_size: int = 128, absolute: bool = False) -> Named:
    """Return the summed gradient of the examples' cross-entropy, eval mode; `absolute` sums each batch's |sum|."""
    parameters = trainable(job.model)
    total = {name: torch.zeros_like(p) for name, p in parameters.items()}

    def gradient_of(batch: Batch) -> Named:
        loss = functional.cross_entropy(job.logits(batch.x), batch.y, reduction="sum")
        return dict(zip(parameters, _gradients(loss, parameters), strict=True))

    with in_eval_mode(job.model):
        for gradient in _each_batch(job, indices, batch_size, gradient_of):
            for name, into in total.items():
                into += gradient[name].to(into).abs() if absolute else gradient[name].to(into)
    return total


def _each_batch(job: Job, indices: Indices, size: int, function: Callable[[Batch], Named]) -> Iterator[Named]:
    """Yield what the function returns for each batch, in order; several processes take the batches in turn.

    Sums of the results are those of one process, bit by bit: what is chosen by their size must not differ.
    """
    plan, processes = eval_plan(indices, size), current()
    if processes is None:
        for batch in job.examples.stream(plan, device=job.device):
            yield function(batch)
            job.cost.add(backward=len(batch))
        return

    def own() -> Iterator[Named]:
        for batch in job.examples.stream(plan[processes.rank :: processes.world_size], device=job.device):
            with alone(), counting(None):
                result = function(batch)
            yield result

    for result, batch in zip(processes.in_turn(own(), len(plan)), plan, strict=True):
        yield result
        count_pass(len(batch))
        job.cost.add(backward=len(batch))


def fisher_by_example(job: Job, indices: Indices, *, micro_batch: int = 16) -> Named:
    """Return the diagonal Fisher: the mean of squared per-example gradients (fp64), whatever the batch size.

    F_i = 1/n sum_x (d log p(y|x) / d theta_i)^2, eval mode. `micro_batch` bounds the memory. A model that cannot be
    mapped over examples, since it looks at its numbers to decide what to do, is asked about one after the other.
    """
    processes = current()
    # plain layout: mapped pooling has no fast path for channels_last
    parameters = {name: p.detach().contiguous() for name, p in trainable(job.model).items()}
    rest = {n: p.detach() for n, p in job.model.named_parameters() if n not in parameters} | dict(
        job.model.named_buffers()
    )

    def loss(weights: Named, x: Inputs, y: Tensor) -> Tensor:
        one = {k: v.unsqueeze(0) for k, v in x.items()} if isinstance(x, Mapping) else x.unsqueeze(0)
        return functional.cross_entropy(_call(job.model, weights | rest, one).float(), y.unsqueeze(0))

    def one_by_one(weights: Named, x: Inputs, y: Tensor) -> Named:
        rows = [{k: v[i] for k, v in x.items()} if isinstance(x, Mapping) else x[i] for i in range(len(y))]
        per_example: list[Named] = [grad(loss)(weights, row, label) for row, label in zip(rows, y, strict=True)]
        return {name: torch.stack([one[name] for one in per_example]) for name in weights}

    each: Callable[..., Named] = vmap(grad(loss), in_dims=(None, 0, 0), randomness="error")
    total = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in parameters.items()}
    # a mapped pass looks like one of one example, so passes are counted here
    with in_eval_mode(job.model), twice_differentiable(), counting(None), alone():
        for batch in _own_batches(job, indices, micro_batch, processes):
            x, y = _at_least_two(batch)
            try:
                per_example = each(parameters, x, y)
            except RuntimeError:
                each = one_by_one
                per_example = each(parameters, x, y)
            for name, gradient in per_example.items():
                total[name] += gradient[: len(batch)].square().sum(0)
    job.cost.add(forward=len(indices), backward=len(indices))
    return {name: value / len(indices) for name, value in _summed(total, processes).items()}


def fisher_by_batch(job: Job, indices: Indices, *, batch_size: int = 128) -> Named:
    """Return the original SSD's estimate: the mean of squared batch-mean gradients; depends on the batch size."""
    parameters, processes = trainable(job.model), current()
    total = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in parameters.items()}
    with in_eval_mode(job.model), alone(), counting(None):
        for batch in _own_batches(job, indices, batch_size, processes):
            loss = functional.cross_entropy(job.logits(batch.x), batch.y)
            for into, gradient in zip(total.values(), _gradients(loss, parameters), strict=True):
                into += gradient.double().square()
    job.cost.add(forward=len(indices), backward=len(indices))
    batches = len(eval_plan(indices, batch_size))
    return {name: value / batches for name, value in _summed(total, processes).items()}


def _own_batches(job: Job, indices: Indices, size: int, processes: Processes | None) -> Iterator[Batch]:
    """Yield the evaluation view of the batches that this process takes: all of them if it works alone."""
    plan = eval_plan(indices, size)
    own = plan if processes is None else plan[processes.rank :: processes.world_size]
    return job.examples.stream(own, device=job.device)


def _summed(total: Named, processes: Processes | None) -> Named:
    """Return the sums over all processes."""
    if processes is None:
        return total
    return dict(zip(total, processes.sum(list(total.values())), strict=True))


def top_mask(values: Mapping[str, Tensor], keep: float) -> dict[str, Tensor]:
    """Return True for exactly round(keep * n) of all n entries: the largest; ties go to the earlier entry.

    The threshold is an exact order statistic at any size (no sampling, no 2^24 limit).
    """
    if not 0 <= keep <= 1:
        raise RegunError(f"the share of weights to keep is {keep}; give a number from 0 to 1.")
    flat = torch.cat([v.detach().reshape(-1) for v in values.values()])
    count = round(keep * flat.numel())
    chosen = torch.zeros(flat.shape, dtype=torch.bool, device=flat.device)
    if count:
        threshold = flat.kthvalue(flat.numel() - count + 1).values
        chosen = flat > threshold
        ties = (flat == threshold).nonzero().squeeze(1)
        chosen[ties[: count - int(chosen.sum())]] = True
    mask: dict[str, Tensor] = {}
    start = 0
    for name, value in values.items():
        mask[name] = chosen[start : start + value.numel()].reshape(value.shape)
        start += value.numel()
    return mask


def _gradients(loss: Tensor, parameters: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """Return the gradient by each parameter; zeros for one that the loss does not depend on."""
    return torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)


def _call(model: nn.Module, state: Named, x: Inputs) -> Tensor:
    """Return logits of `model` with other weights, for tensors and mappings alike."""
    return functional_call(_Logits(model), {f"model.{n}": t for n, t in state.items()}, (x,))


def logits_with(model: nn.Module, weights: Mapping[str, Tensor], x: Inputs) -> Tensor:
    """Return logits of `model` as if its parameters were `weights`; buffers are the model's own."""
    with allow_single_example(model, x):
        return _call(model, dict(weights), x)


def _at_least_two(batch: Batch) -> tuple[Inputs, Tensor]:
    """Return the batch in plain layout; a lone example twice, since mapped pooling takes a slow path for one."""
    copies = 2 if len(batch) == 1 else 1

    def plain(tensor: Tensor) -> Tensor:
        return torch.cat([tensor] * copies).contiguous()

    x = {k: plain(v) for k, v in batch.x.items()} if isinstance(batch.x, Mapping) else plain(batch.x)
    return x, plain(batch.y)


class _Logits(nn.Module):
    """Makes any classifier a module from inputs to logits, so that functional_call reaches it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Inputs) -> Tensor:
        return logits_of(self.model, x)
