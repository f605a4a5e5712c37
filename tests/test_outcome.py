"""What `print(outcome)` shows: what was done, why, at which cost next to a retraining, and warnings."""

from dataclasses import replace

import pytest
from torch import nn

from regun.training.job import Cost
from regun.unlearning import Outcome

PRICE = {"retraining": 40_000, "branch": "distilled", "reason": "retraining is long"}
COST = Cost(steps=300, forward=9000, backward=8000, seconds=12.3456789)
SETTINGS = {"lr": 0.1, "w": 0.5}
PLAIN = Outcome(nn.Linear(1, 3), "auto", SETTINGS, COST, [], None, {"price": PRICE}, warnings=("too <few> steps",))


def test_it_says_what_was_done_why_and_at_which_price() -> None:
    text = str(PLAIN)
    for part in ("auto", "teacher", "retraining is long", "8,000 samples", "300 steps", "12 s", "20%", "40,000"):
        assert part in text
    assert "about 1 min 2 s" in text  # what a retraining would take at this speed
    assert "lr=0.1 w=0.5" in text
    assert "- too <few> steps" in text
    assert len(text.splitlines()) <= 12
    assert "12.3456" not in text


def test_a_representation_is_one_line() -> None:
    assert "\n" not in repr(PLAIN)
    assert len(repr(PLAIN)) < 160
    assert "Linear" not in repr(PLAIN)


def test_the_page_of_a_notebook_is_safe() -> None:
    page = PLAIN._repr_html_()
    assert "<few>" not in page
    assert "too &lt;few&gt; steps" in page
    assert page.count("<table>") == 1


@pytest.mark.parametrize("branch", ["retrained", "distilled", "cross-fitted", "base", None])
def test_every_branch_has_words(branch: str | None) -> None:
    outcome = replace(PLAIN, notes={"price": {**PRICE, "branch": branch}})
    assert str(outcome).startswith("auto: ")
    assert ("unchanged" in str(outcome)) == (branch == "base")


def test_without_a_known_retraining_there_is_no_share() -> None:
    assert "%" not in str(replace(PLAIN, notes={}, warnings=()))


def test_a_run_that_diverged_says_so_first() -> None:
    first, *_ = str(replace(PLAIN, diverged="the loss is nan")).splitlines()
    assert "DIVERGED" in first
    assert "the loss is nan" in first
