"""The score of a trial: never from an example that a method may train on, and one scorer for every kind of model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expect import error
from regun.auditing import Predictions
from regun.errors import NotFiniteError, SplitError
from regun.experiments.search.objectives import gap_score, reference_score, worst
from regun.experiments.search.scoring import TrialScorer, scoring_parts, set_aside, visible_splits
from regun.forget_spec import ForgetSpec
from regun.methods import get_method
from regun.splits import Splits, make_splits, reserve

NONE = np.zeros(0, dtype=np.int64)
LABELS = np.arange(300) % 5
SPLITS = make_splits(LABELS, ForgetSpec.random(0.2), reserve(LABELS, 0))


@given(st.integers(60, 400), st.integers(0, 5), st.integers(2, 6))
def test_the_parts_are_disjoint_and_nothing_is_lost(total: int, seed: int, classes: int) -> None:
    labels = np.random.default_rng(seed).integers(0, classes, total)
    splits = make_splits(labels, ForgetSpec.random(0.1), reserve(labels, seed))
    shown, unseen = set_aside(splits, labels)
    assert not np.intersect1d(shown.heldout, unseen).size
    np.testing.assert_array_equal(np.union1d(shown.heldout, unseen), np.union1d(splits.heldout, splits.val))
    assert abs(len(shown.heldout) - len(splits.heldout) / 2) <= 0.5
    for name in ("retain", "forget", "val"):
        np.testing.assert_array_equal(getattr(shown, name), getattr(splits, name))
    aside = np.setdiff1d(splits.heldout, shown.heldout)
    share = len(aside) / len(splits.heldout)
    for k in range(classes):
        assert abs(np.sum(labels[aside] == k) - np.sum(labels[splits.heldout] == k) * share) <= 1


def test_the_half_is_the_same_every_time_and_whatever_is_forgotten() -> None:
    kept = reserve(LABELS, 0)
    one = set_aside(make_splits(LABELS, ForgetSpec.random(0.1), kept), LABELS)[1]
    other = set_aside(make_splits(LABELS, ForgetSpec.parse("class:2"), kept), LABELS)[1]
    np.testing.assert_array_equal(one, other)


def test_validation_alone_is_enough_and_nothing_is_not() -> None:
    labels = np.arange(30) % 3
    only_val = Splits(np.arange(10), np.arange(10, 20), NONE, np.arange(20, 30), 30)
    np.testing.assert_array_equal(set_aside(only_val, labels)[1], np.arange(20, 30))
    bare = Splits(np.arange(20), np.arange(20, 30), NONE, NONE, 30)
    with error(SplitError, 0, 2, "val=0.1"):
        set_aside(bare, labels)


def test_which_examples_judge() -> None:
    gap, reference = (scoring_parts(objective, SPLITS, LABELS) for objective in ("gap", "reference"))
    assert list(gap) == ["retain", "forget", "val"]
    assert gap["val"] is SPLITS.val
    assert list(reference) == ["forget", "unseen", "retain"]
    np.testing.assert_array_equal(reference["unseen"], set_aside(SPLITS, LABELS)[1])
    without = Splits(NONE, SPLITS.forget, SPLITS.heldout, SPLITS.val, SPLITS.total)
    assert list(scoring_parts("reference", without, LABELS)) == ["forget", "unseen"]


def test_who_sees_held_out_examples() -> None:
    half = set_aside(SPLITS, LABELS)[0]
    own = get_method(lambda job: None)
    for method, expected in (("regun", half), ("finetune", SPLITS), (own, half)):
        found = get_method(method) if isinstance(method, str) else method
        assert visible_splits(found, "gap", SPLITS, LABELS) is SPLITS
        np.testing.assert_array_equal(visible_splits(found, "reference", SPLITS, LABELS).heldout, expected.heldout)


# ------------------------------------------------------------------------------------------------------------- scores


def model(seed: int, asked: list | None = None):
    """A model that answers at random, but always the same about an example."""
    logits = np.random.default_rng(seed).normal(size=(len(LABELS), 5))

    def ask(part) -> Predictions:
        if asked is not None:
            asked.append(len(part))
        return Predictions.from_logits(logits[part], LABELS[part], part)

    return ask


def scorer(objective: str, *others) -> TrialScorer:
    return TrialScorer(objective, scoring_parts(objective, SPLITS, LABELS), others)


def said(ask, objective: str) -> dict[str, Predictions]:
    return {name: ask(part) for name, part in scoring_parts(objective, SPLITS, LABELS).items()}


def test_the_scores_are_those_of_the_objectives() -> None:
    target, *others = (model(k) for k in range(4))
    truth, *references = (said(ask, "gap") for ask in others)
    assert scorer("gap", *others).score(target) == gap_score(said(target, "gap"), truth, references)
    base = said(others[0], "reference")
    assert scorer("reference", others[0]).score(target) == reference_score(said(target, "reference"), base)


@pytest.mark.parametrize("objective", ["gap", "reference"])
def test_what_diverged_is_the_worst_and_nobody_is_asked(objective: str) -> None:
    asked: list[int] = []
    strict = scorer(objective, model(0, asked), model(1, asked), model(2, asked))
    assert strict.score(model(3, asked), "the loss was not finite") == worst(objective, "the loss was not finite")
    assert asked == []
    strict.score(model(3))
    first = len(asked)
    strict.score(model(4))
    assert len(asked) == first == 9  # the others are asked once a part, however many trials there are


@pytest.mark.parametrize("objective", ["gap", "reference"])
def test_answers_that_are_not_finite_are_the_worst_of_a_trial_and_an_error_of_the_others(objective: str) -> None:
    def broken(part) -> Predictions:
        return Predictions.from_logits(np.full((len(part), 5), np.inf), LABELS[part], part)

    found = scorer(objective, model(0), model(1), model(2)).score(broken)
    assert found.score == worst(objective, "").score
    assert found.diverged
    with pytest.raises(NotFiniteError):
        scorer(objective, broken, model(1), model(2)).score(model(3))
