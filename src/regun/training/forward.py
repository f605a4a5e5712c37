"""Passes over examples that change nothing."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from regun.data.examples import Examples
from regun.models.forward import count_pass, counting, features_of, logits_of
from regun.parallel import alone, current
from regun.training.job import copied
from regun.types import Indices, Inputs

BATCH = 256
M = TypeVar("M", bound=nn.Module)


def eval_logits(model: nn.Module, examples: Examples, indices: Indices, device: torch.device | str = "cpu") -> Tensor:
    """Return logits (n, K), float32 on the CPU, in the order of `indices`; long passes fold BatchNorm away."""
    return torch.cat(list(logit_batches(model, examples, indices, device)))


def logit_batches(
    model: nn.Module, examples: Examples, indices: Indices, device: torch.device | str = "cpu"
) -> Generator[Tensor]:
    """Yield logits per batch, for more than memory holds; close it to restore the model's mode."""
    with in_eval_mode(model):
        if len(indices) > 2 * BATCH:
            x = examples.fetch(indices[:2], device=device).x
            with counting(None), torch.no_grad(), alone():
                model = folded(model, x)
        yield from _over(examples, indices, device, lambda x: logits_of(model, x))


def eval_features(model: nn.Module, examples: Examples, indices: Indices, device: torch.device | str = "cpu") -> Tensor:
    """Return inputs of the final linear layer (n, d), float32 on the CPU, in the order of `indices`."""
    with in_eval_mode(model):
        return torch.cat(list(_over(examples, indices, device, lambda x: features_of(model, x))))


def eval_plan(indices: Indices, size: int = BATCH) -> list[Indices]:
    """Return the batches of one pass over `indices`."""
    return np.split(indices, range(size, len(indices), size))


@contextmanager
def in_eval_mode(model: nn.Module) -> Generator[None]:
    """Switch to eval mode inside the block; restore every module's mode after it."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def folded(model: nn.Module, x: Inputs) -> nn.Module:
    """Return a copy of an eval-mode model whose BatchNorms are folded into the convolutions that feed them.

    Which convolution feeds which BatchNorm is seen by running `x`. The model itself comes back where there is nothing
    to fold, or where the copy answers differently (a convolution whose output is used twice, say).
    """
    modules = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
    names = {module: name for name, module in modules}
    pairs = [(names[conv], names[norm]) for conv, norm in _feeds(model, x)]
    if not pairs:
        return model
    twin = copied(model)
    for conv, norm in pairs:
        fused = fuse_conv_bn_eval(
            _as(nn.Conv2d, twin.get_submodule(conv)), _as(nn.BatchNorm2d, twin.get_submodule(norm))
        )
        twin.set_submodule(conv, fused)
        twin.set_submodule(norm, nn.Identity())
    with torch.no_grad():
        same = torch.allclose(logits_of(twin, x), logits_of(model, x), rtol=1e-4, atol=1e-4)
    return twin if same else model


def _feeds(model: nn.Module, x: Inputs) -> list[tuple[nn.Module, nn.Module]]:
    """Return convolutions that ran once, each with the BatchNorm that took its output."""
    made: list[tuple[Tensor, nn.Module]] = []
    pairs: list[tuple[nn.Module, nn.Module]] = []

    def after(conv: nn.Module, _: object, output: Tensor) -> None:
        made.append((output, conv))

    def before(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        pairs.extend((conv, norm) for output, conv in made if output is inputs[0])

    hooks = [m.register_forward_hook(after) for m in model.modules() if isinstance(m, nn.Conv2d)]
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d) and m.track_running_stats]
    hooks += [m.register_forward_pre_hook(before) for m in norms]
    try:
        with torch.no_grad():
            logits_of(model, x)
    finally:
        for hook in hooks:
            hook.remove()
    runs = [conv for _, conv in made]
    return [(conv, norm) for conv, norm in pairs if runs.count(conv) == 1]


def _as(kind: type[M], module: nn.Module) -> M:
    assert isinstance(module, kind)
    return module


def _over(
    examples: Examples, indices: Indices, device: torch.device | str, function: Callable[[Inputs], Tensor]
) -> Iterator[Tensor]:
    """Yield what the function returns for each batch, on the CPU; several processes take the batches in turn.

    Batches are those of one process, so the numbers are too, bit by bit.
    """

    plan, processes = eval_plan(indices), current()
    if processes is None:
        for batch in examples.stream(plan, device=device):
            with torch.no_grad():  # not around the `yield`: it would hold for whoever takes the batches
                answer = function(batch.x).float().cpu()
            yield answer
        return

    def own_answers() -> Iterator[dict[str, Tensor]]:
        for batch in examples.stream(plan[processes.rank :: processes.world_size], device=device):
            with torch.no_grad(), alone(), counting(None):
                answer = function(batch.x).float().cpu()
            yield {"": answer}

    for answer, batch in zip(processes.in_turn(own_answers(), len(plan)), plan, strict=True):
        count_pass(len(batch))
        yield answer[""]
