"""Gaussian likelihood attacks on phi, the logit of the true class."""

from __future__ import annotations

import numpy as np

from regun.auditing.predictions import FloatArray
from regun.errors import AuditError

_SIGMA_FLOOR = 1e-6  # shadow models that agree to all digits would divide by zero


def offline_lira(phi: FloatArray, out_phi: FloatArray) -> FloatArray:
    """Return (phi - mu_out) / sigma: mu_out the mean over the OUT models, sigma pooled over all examples.

    phi (n,), out_phi (models, n). The published score is Phi of it, which ranks alike but rounds to 1 and ties.
    With few models a variance for each example is mostly noise, so one is pooled: the mean of their sample variances.
    """
    mean, sigma = _world(phi, out_phi, "OUT", pooled=True)
    return (phi - mean) / sigma


def u_lira(phi: FloatArray, in_phi: FloatArray, out_phi: FloatArray, *, pooled: bool = True) -> FloatArray:
    """Return log N(phi; mu_in, sigma_in) - log N(phi; mu_out, sigma_out) for each example.

    IN: shadow runs that trained on the example and then unlearned it with the same algorithm and settings; OUT: shadow
    runs that never saw it. Both are (runs, n), NaN where a run does not belong to that world for that example.
    `pooled` takes one sigma for all examples in each world; with dozens of runs set it to False.
    """
    mean_in, sigma_in = _world(phi, in_phi, "IN", pooled)
    mean_out, sigma_out = _world(phi, out_phi, "OUT", pooled)
    inside = -np.log(sigma_in) - ((phi - mean_in) / sigma_in) ** 2 / 2
    outside = -np.log(sigma_out) - ((phi - mean_out) / sigma_out) ** 2 / 2
    return inside - outside


def _world(phi: FloatArray, shadows: FloatArray, name: str, pooled: bool) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of phi for each example in one world."""
    if shadows.ndim != 2 or shadows.shape[1:] != phi.shape:
        raise AuditError(f"{name} phi has shape {shadows.shape}; give (models, {len(phi)}), a row for each model.")
    there = ~np.isnan(shadows)
    count = there.sum(axis=0)
    if count.min(initial=0) < 2 and (count < 2).any():
        example = int((count < 2).argmax())
        raise AuditError(
            f"example {example} has {count[example]} {name} models; a spread needs at least 2 for every example."
        )
    mean = np.where(there, shadows, 0.0).sum(axis=0) / count
    squares = np.where(there, shadows - mean, 0.0) ** 2
    variance = squares.sum(axis=0) / (count - 1)
    if pooled:
        variance = np.full_like(variance, squares.sum() / (count - 1).sum())
    return mean, np.maximum(np.sqrt(variance), _SIGMA_FLOOR)
