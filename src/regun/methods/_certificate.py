"""What noisy steps on the retain set prove about the weights they started from.

Two runs x <- c x - lr u_t(x) + N(0, noise^2 I), with c = 1 - lr decay and |u_t| <= C, that start anywhere in a ball of
radius R and share their batches, are after T steps within Renyi divergence alpha rho of each other, for every order
alpha > 1 and in both directions, with

    rho = B^2 / (2 noise^2 S),   B = 2 R c^T + 2 lr C sum_{k<T} c^k,   S = sum_{k<T} c^(2k)

Proof, by shifted divergences (Feldman, Mironov, Talwar, Thakurta 2018, Theorem 22): a step takes two points at most
c |x - y| + 2 lr C apart, and its noise buys a shift a_t back for alpha a_t^2 / (2 noise^2). All that must be bought is
sum_t c^(T-t) a_t = B; the cheapest way is a_t proportional to c^(T-t), which never buys more than there is. This is the
argument of Koloskova et al. 2025 for gradient clipping, without the rounding of their theorem to noise^2 = 9 (R + lr C
T)^2 log(1/delta) / (epsilon^2 T) for decay = 0. It is tight: constant gradients at opposite ends of the ball attain it.
Nothing is asked of the loss, neither convexity nor smoothness.
"""

import math
from collections.abc import Sequence
from typing import Any

from torch import nn

ASSUMED = (
    "the weights began inside a ball whose radius was fixed without looking at this model",
    "every trainable weight got Gaussian noise at every noisy step of plain SGD at a constant rate",
    "only the last weights are shown: no earlier epoch was looked at, kept or chosen from",
    "the seed is random and secret: whoever has it can take the noise away again",
    "frozen weights, and buffers other than BatchNorm's, never depended on the forgotten examples",
    "numbers drawn in floating point are Gaussian enough",
)


def divergence_rate(*, steps: int, lr: float, weight_decay: float, radius: float, clip: float, noise: float) -> float:
    """Return rho: after these steps the Renyi divergence of any order alpha is at most alpha rho."""
    shrink = 1 - lr * weight_decay
    powers = [shrink**k for k in range(steps)]
    apart = 2 * radius * shrink**steps + 2 * lr * clip * math.fsum(powers)
    return apart**2 / (2 * noise**2 * math.fsum(p * p for p in powers))


def epsilon_of(rho: float, delta: float) -> float:
    """Return the least epsilon over all orders (Mironov 2017, Proposition 3): rho + 2 sqrt(rho log(1/delta))."""
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def without_noise(model: nn.Module, norms: Sequence[nn.Module]) -> bool:
    """Return True if the model has frozen weights, or buffers of numbers besides those of `norms`."""
    covered = {id(buffer) for layer in norms for buffer in layer.buffers()}
    loose = (b for b in model.buffers() if b.is_floating_point() and id(b) not in covered)
    return any(not p.requires_grad for p in model.parameters()) or any(True for _ in loose)


def certificate(epsilon: float | None, delta: float, steps: int, missing: list[str]) -> dict[str, Any]:
    """Return the bound as JSON; it `holds` where nothing is `missing`."""
    return {
        "epsilon": epsilon,
        "delta": delta,
        "holds": epsilon is not None and not missing,
        "missing": missing,
        "assumptions": list(ASSUMED),
        "steps": steps,
    }
