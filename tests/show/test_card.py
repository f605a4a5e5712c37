"""The model card: what happened, the numbers of the audit, and nothing that names a record."""

import numpy as np
import pytest
from torch import nn

import regun
from regun.evaluate import Evaluation, Signals, describe, evaluate
from regun.runs.unlearning import Outcome
from regun.training.job import Cost


def audited(sure: float) -> Evaluation:
    """An audit of a model that is so much surer of forgotten examples than of unseen ones."""
    draw = np.random.default_rng(0)

    def said(n: int, more: float) -> Signals:
        labels = np.arange(n) % 3
        return Signals.from_logits(draw.normal(size=(n, 3)) + more * np.eye(3)[labels], labels, np.arange(n))

    return evaluate({"retain": said(60, 3), "forget": said(30, sure), "test": said(60, 1)}, bootstrap=20)


@pytest.fixture
def outcome() -> Outcome:
    cost = Cost(steps=1234, forward=5, backward=98765, seconds=61.0)
    return Outcome(nn.Linear(1, 3), "regun", {"lr": 0.1}, cost, [], None, {}, warnings=("too few\nsteps",))


def test_it_says_what_happened_and_what_was_found(outcome: Outcome) -> None:
    after, before = audited(1), audited(6)
    card = regun.model_card(outcome, after, name="Topics", before=before)
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "# Topics: unlearned" in card
    assert "30 training records" in card
    assert "`regun` of regun: 1,234 optimizer steps, 98,765 samples trained on, 1 min 1 s" in card
    for name in ("forget_acc", "test_acc", "smia_auc"):
        row = next(line for line in card.splitlines() if line.startswith(f"| {describe(name).label} "))
        assert f"| {before.numbers[name].value:.1f} | {after.numbers[name].value:.1f} |" in row
    assert all(claim in card for claim in after.claims)


def test_warnings_and_flags_are_told(outcome: Outcome) -> None:
    over = audited(-6)
    assert over.flags
    card = regun.model_card(outcome, over)
    assert "- too few steps" in card
    assert all(flag in card for flag in over.flags)


def test_without_anything_to_warn_of_there_is_no_such_part() -> None:
    plain = Outcome(nn.Linear(1, 3), "finetune", {}, Cost(), [], None, {})
    card = regun.model_card(plain, audited(1))
    assert "Warnings" not in card
    assert "before" not in card.split("| ---")[0]
