"""The examples that judge a search are never those a method may learn from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regun.errors import SplitError
from regun.splits import Request, Splits, make_splits, reserve
from regun.tune.scoring import set_aside


@given(st.integers(60, 400), st.integers(0, 5), st.integers(2, 6))
def test_the_parts_are_disjoint_and_nothing_is_lost(total: int, seed: int, classes: int) -> None:
    labels = np.random.default_rng(seed).integers(0, classes, total)
    splits = make_splits(labels, Request.random(0.1), reserve(labels, seed))
    shown, unseen = set_aside(splits, labels)
    assert not np.intersect1d(shown.heldout, unseen).size
    np.testing.assert_array_equal(np.union1d(shown.heldout, unseen), np.union1d(splits.heldout, splits.val))
    assert abs(len(shown.heldout) - len(splits.heldout) / 2) <= 0.5
    for name in ("retain", "forget", "val"):
        np.testing.assert_array_equal(getattr(shown, name), getattr(splits, name))
    aside = np.setdiff1d(splits.heldout, shown.heldout)
    for k in range(classes):
        assert (
            abs(np.sum(labels[aside] == k) - np.sum(labels[splits.heldout] == k) * len(aside) / len(splits.heldout))
            <= 1
        )


def test_the_half_is_the_same_every_time_and_whatever_is_forgotten() -> None:
    labels = np.arange(300) % 5
    kept = reserve(labels, 0)
    one = set_aside(make_splits(labels, Request.random(0.1), kept), labels)[1]
    other = set_aside(make_splits(labels, Request.of_classes([2]), kept), labels)[1]
    np.testing.assert_array_equal(one, other)


def test_validation_alone_is_enough_and_nothing_is_not() -> None:
    none = np.zeros(0, dtype=np.int64)
    labels = np.arange(30) % 3
    only_val = Splits(np.arange(10), np.arange(10, 20), none, np.arange(20, 30), 30)
    np.testing.assert_array_equal(set_aside(only_val, labels)[1], np.arange(20, 30))
    bare = Splits(np.arange(20), np.arange(20, 30), none, none, 30)
    with pytest.raises(SplitError, match="scored on unseen examples, of which there are 0 .* regun train --val 0.1"):
        set_aside(bare, labels)
