"""What a receipt claims follows from what happened: retrained, certified where a bound holds, otherwise empirical."""

from types import SimpleNamespace

import pytest

from regun.requests.receipt import _kind, claim_of
from regun.training.job import Cost


def outcome(method: str, **notes) -> SimpleNamespace:
    return SimpleNamespace(method=method, notes=notes, cost=Cost(steps=12))


@pytest.mark.parametrize(
    ("made", "claim"),
    [
        (outcome("retrain"), "retrained"),
        (outcome("none"), "none"),
        (outcome("regun"), "empirical"),
        (outcome("noisy_finetune", certificate={"epsilon": 0.5, "delta": 1e-5, "holds": True}), "certified"),
        (outcome("noisy_finetune", certificate={"epsilon": 0.5, "delta": 1e-5, "holds": False}), "empirical"),
        (outcome("noisy_finetune", certificate="yes"), "empirical"),
    ],
)
def test_a_claim_is_certified_only_where_a_bound_holds(made, claim: str) -> None:
    assert claim_of(made) == claim
    assert ("epsilon 0.5" in _kind(made)) == (claim == "certified")
    assert ("approximate" in _kind(made)) == (claim == "empirical")
