"""The model card: what happened, the numbers of the audit, and nothing that names a record."""

import numpy as np
import pytest
from torch import nn

import regun
from regun.auditing import Evaluation, Predictions, describe, evaluate
from regun.training.job import Cost
from regun.unlearning import Outcome


def said(sure: float, seed: int = 0) -> dict[str, Predictions]:
    """What a model says that is so much surer of forgotten examples than of unseen ones."""
    draw = np.random.default_rng(seed)

    def split(n: int, more: float) -> Predictions:
        labels = np.arange(n) % 3
        return Predictions.from_logits(draw.normal(size=(n, 3)) + more * np.eye(3)[labels], labels, np.arange(n))

    return {"retain": split(60, 3), "forget": split(30, sure), "test": split(60, 1)}


def audited(sure: float) -> Evaluation:
    return evaluate(said(sure), bootstrap=20)


@pytest.fixture
def outcome() -> Outcome:
    cost = Cost(steps=1234, forward=5, backward=98765, seconds=61.0)
    return Outcome(nn.Linear(1, 3), "regun", {"lr": 0.1}, cost, [], None, {}, warnings=("too few\nsteps",))


def test_it_says_what_happened_and_what_was_found(outcome: Outcome) -> None:
    after, before = audited(1), audited(6)
    card = regun.model_card(outcome, after, name="Topics", before=before)
    assert card.startswith("---\ntags:\n- machine-unlearning\n")
    assert "# Topics: unlearned" in card
    assert "30 training records" in card
    assert "`regun` of regun: 1,234 optimizer steps, 98,765 samples trained on, 1 min 1 s" in card
    for name in ("forget_acc", "test_acc", "smia_auc"):
        assert row(card, name)[1:3] == [f"{one.numbers[name].value:.1f}" for one in (before, after)]
    assert all(limit in card for limit in after.limits)


@pytest.mark.parametrize(("sure", "answer"), [(6.0, "Failed"), (1.0, "Passed")])
def test_the_answer_and_the_model_before_are_in_it_by_one_audit(outcome: Outcome, sure: float, answer: str) -> None:
    retrained = [said(1, seed) for seed in (2, 3, 4)]
    found = evaluate(said(sure), retrained[0], retrained[1:], before=said(8, 5), bootstrap=0)
    card = regun.model_card(outcome, found)
    assert f"**{answer}.** {found.summary}" in card
    assert all(f"- {part.verdict}: {part.text}\n" in card for part in found.judgement.parts)
    assert card.index(found.summary) < card.index("| number")
    assert row(card, "smia_auc")[1] == f"{found.before['smia_auc'].value:.1f}"
    assert row(card, "gap_rftp")[1] == f"{found.gaps['gap_rftp'].before:.1f}"


def test_the_library_is_named_if_it_is_given(outcome: Outcome) -> None:
    card = regun.model_card(outcome, audited(1), library_name="timm")
    assert card.startswith("---\nlibrary_name: timm\ntags:\n")
    assert "library_name" not in regun.model_card(outcome, audited(1))


def test_warnings_and_flags_are_told(outcome: Outcome) -> None:
    over = audited(-6)
    assert over.warnings
    card = regun.model_card(outcome, over)
    assert "- too few steps" in card
    assert all(flag in card for flag in over.warnings)


def test_without_anything_to_warn_of_there_is_no_such_part() -> None:
    plain = Outcome(nn.Linear(1, 3), "finetune", {}, Cost(), [], None, {})
    card = regun.model_card(plain, audited(1))
    assert "Warnings" not in card
    assert "before" not in next(line for line in card.splitlines() if line.startswith("| number"))


def row(card: str, name: str) -> list[str]:
    """The cells of a number's row."""
    line = next(line for line in card.splitlines() if line.startswith(f"| {describe(name).label} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("from_scratch", [True, False])
def test_it_says_how_to_repeat_the_training(from_scratch: bool) -> None:
    notes = {"price": {"retraining": 1000, "branch": "distilled", "reason": "long"}}
    if from_scratch:
        notes |= {"trained_by": {"optimizer": "adamw", "lr": 0.003, "epochs": 3.6}}
    made = Outcome(
        nn.Linear(1, 3), "auto", {"share": 0.2}, Cost(backward=300), [], None, notes, from_scratch=from_scratch
    )
    part = regun.model_card(made, audited(1)).partition("## How it was made")[2].partition("##")[0]
    for text in ("optimizer=adamw", "lr=0.003", "epochs=3.6", "retrained from scratch"):
        assert (text in part) == from_scratch
    assert ("share=0.2" in part) == ("30%" in part) == (not from_scratch)
