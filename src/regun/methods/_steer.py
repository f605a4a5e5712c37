"""Steps along a direction of one's own choice, through the one loop that changes weights."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def gradients(loss: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradient of `loss` by each parameter; zeros where it does not depend on one."""
    return list(torch.autograd.grad(loss, parameters, materialize_grads=True))


def steered(value: Tensor, parameters: Iterable[Tensor], directions: Iterable[Tensor]) -> Tensor:
    """Return a loss with this value whose gradient by the parameters is exactly `directions`.

    L = value + <theta - sg(theta), g>, where sg stops the gradient: the second term is 0 and its gradient is g.

    >>> theta = torch.ones(2, requires_grad=True)
    >>> loss = steered(torch.tensor(7.0), [theta], [torch.tensor([3.0, 4.0])])
    >>> float(loss.detach()), torch.autograd.grad(loss, theta)[0].tolist()
    (7.0, [3.0, 4.0])
    """
    terms = [((p - p.detach()) * g.to(p)).sum() for p, g in zip(parameters, directions, strict=True)]
    return value.detach() + torch.stack([t.float() for t in terms]).sum()


def norm_of(tensors: Iterable[Tensor]) -> Tensor:
    """Return the Euclidean norm of all of them together."""
    return torch.stack([t.detach().float().square().sum() for t in tensors]).sum().sqrt()


def clipped(tensors: Sequence[Tensor], bound: float) -> list[Tensor]:
    """Return the tensors, scaled down together so that their common norm is at most `bound`."""
    scale = (bound / norm_of(tensors).clamp(min=1e-30)).clamp(max=1)
    return [t * scale.to(t) for t in tensors]
