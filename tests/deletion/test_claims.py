"""What a receipt claims follows from what happened: retrained, certified where a bound holds, otherwise empirical."""

from types import SimpleNamespace

import pytest
from torch import nn

from regun.deletion.attempt import Change
from regun.deletion.letter import _kind, claim_of, done_to_it
from regun.training.job import Cost

MOVED = Change(weights=1000, moved=400, relative=0.031, steps=12, answers=2.0)


def outcome(method: str, config: dict | None = None, **notes) -> SimpleNamespace:
    anew = method == "retrain" and not config
    made = {"model": nn.Linear(2, 2), "cost": Cost(steps=12), "diverged": None}
    return SimpleNamespace(method=method, notes=notes, from_scratch=anew, **made)


@pytest.mark.parametrize(
    ("made", "claim"),
    [
        (outcome("retrain"), "retrained"),
        (outcome("retrain", {"layers": "last:1"}), "empirical"),
        (outcome("none"), "none"),
        (outcome("regun"), "empirical"),
        (outcome("noisy_finetune", certificate={"epsilon": 0.5, "delta": 1e-5, "holds": True}), "certified"),
        (outcome("noisy_finetune", certificate={"epsilon": 0.5, "delta": 1e-5, "holds": False}), "empirical"),
        (outcome("noisy_finetune", certificate="yes"), "empirical"),
    ],
)
def test_a_claim_is_certified_only_where_a_bound_holds(made, claim: str) -> None:
    assert claim_of(made) == claim
    assert ("epsilon 0.5" in _kind(made, MOVED)) == (claim == "certified")
    assert ("approximate" in _kind(made, MOVED)) == (claim == "empirical")


@pytest.mark.parametrize("made", [outcome("regun"), outcome("retrain"), outcome("finetune")])
def test_what_was_done_is_told_from_what_happened(made) -> None:
    anew = "trained from fresh weights on the retained records, 12 steps"
    moved = "12 steps; 40 % of the weights moved, by 3.1 % of their size"
    assert done_to_it(made, MOVED) == (anew if made.from_scratch else moved)
    for still in (
        Change(weights=9, moved=0, relative=0.0, steps=12, answers=0.0),
        Change(weights=9, moved=0, relative=1e-9, steps=12, answers=1.0),
        Change(weights=9, moved=9, relative=1.0, steps=12, answers=1e-6),
    ):
        assert "the model was not changed" in done_to_it(made, still)
        assert _kind(made, still).startswith("Nothing was unlearned: the model was not changed")
        (refused,) = still.refusals()
        assert refused.answer == "failed"
    assert MOVED.refusals() == ()
    made.diverged = "the loss was not finite"
    assert done_to_it(made, None) == "the run broke off: the loss was not finite"
