"""Splits are disjoint, cover everything, have the exact sizes and nest over fractions."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expect import error
from regun.errors import SplitError
from regun.forget_spec import ForgetSpec
from regun.splits import Splits, largest_remainder, make_splits, proportional_order, reserve


def parts_of(splits: Splits) -> list[np.ndarray]:
    return [splits.retain, splits.forget, splits.heldout, splits.val]


@pytest.mark.parametrize(
    ("total", "heldout", "val", "forget"),
    [
        (50_000, 5_000, 4_500, {0.01: 450, 0.1: 4_500, 0.5: 22_500}),
        (100_000, 10_000, 9_000, {0.01: 900, 0.1: 9_000, 0.5: 45_000}),
    ],
)
@pytest.mark.parametrize("stratified", [False, True])
def test_the_papers_sizes(total: int, heldout: int, val: int, forget: dict[float, int], stratified: bool) -> None:
    labels = np.arange(total) % 100
    kept = reserve(labels, 42, stratified=stratified)
    for fraction, size in forget.items():
        request = ForgetSpec.stratified(fraction) if stratified else ForgetSpec.random(fraction)
        splits = make_splits(labels, request, kept)
        assert [len(p) for p in parts_of(splits)] == [total - heldout - val - size, size, heldout, val]


@settings(max_examples=60, deadline=None)
@given(
    total=st.integers(20, 400),
    classes=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    heldout=st.floats(0, 0.4),
    val=st.floats(0, 0.4),
    fractions=st.lists(st.floats(0.06, 0.5), min_size=2, max_size=3),
    stratified=st.booleans(),
    data=st.data(),
)
def test_disjoint_covering_nested(total, classes, seed, heldout, val, fractions, stratified, data) -> None:
    labels = np.array(data.draw(st.lists(st.integers(0, classes - 1), min_size=total, max_size=total)), dtype=np.int64)
    kept = reserve(labels, seed, heldout=heldout, val=val, stratified=stratified)
    again = reserve(labels, seed, heldout=heldout, val=val, stratified=stratified)
    previous: np.ndarray = np.array([], dtype=np.int64)
    for fraction in sorted(fractions):
        request = ForgetSpec.stratified(fraction) if stratified else ForgetSpec.random(fraction)
        splits = make_splits(labels, request, kept)
        assert np.array_equal(np.sort(np.concatenate(parts_of(splits))), np.arange(total))
        assert len(splits.forget) == round(fraction * (total - len(splits.heldout)))
        assert np.isin(previous, splits.forget).all()
        assert np.array_equal(splits.base, kept.base)
        assert splits.digest == make_splits(labels, request, again).digest
        previous = splits.forget


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=300))
def test_every_prefix_of_the_proportional_order_is_within_one_of_the_share(drawn: list[int]) -> None:
    labels = np.array(drawn, dtype=np.int64)
    order = proportional_order(np.arange(len(labels)), labels)
    assert np.array_equal(np.sort(order), np.arange(len(labels)))
    one_hot = np.eye(8)[labels[order]].cumsum(0)
    share = np.arange(1, len(labels) + 1)[:, None] * np.bincount(labels, minlength=8) / len(labels)
    assert np.abs(one_hot - share).max() < 1


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any), st.integers(0, 300))
def test_largest_remainder(weights: list[int], total: int) -> None:
    counts = largest_remainder(np.array(weights), total)
    exact = np.array(weights) * total / sum(weights)
    assert counts.sum() == total
    assert np.abs(counts - exact).max() < 1
    assert (counts[np.array(weights) == 0] == 0).all()


def test_largest_remainder_breaks_ties_by_weight_then_position() -> None:
    assert largest_remainder(np.array([1, 1, 2]), 2).tolist() == [1, 0, 1]
    assert largest_remainder(np.array([1, 3]), 2).tolist() == [0, 2]  # exact shares 0.5 and 1.5: the larger weight wins


def test_largest_remainder_is_exact_where_floats_are_not() -> None:
    # shares 1.6, 5.6 and 0.8: the second place goes to the larger of two weights whose fractions tie at 0.6
    assert largest_remainder(np.array([2, 7, 1]), 8).tolist() == [1, 6, 1]


def test_the_first_shuffle_is_pythons_own() -> None:
    order = list(range(1000))
    random.Random(42).shuffle(order)
    kept = reserve(np.zeros(1000, dtype=np.int64), 42)
    assert kept.heldout.tolist() == sorted(order[:100])
    assert kept.val.tolist() == sorted(order[100:190])


def test_the_stratified_forget_set_has_every_class_s_share() -> None:
    labels = np.arange(50_000) % 100
    splits = make_splits(labels, ForgetSpec.stratified(0.01), reserve(labels, 1))
    counts = np.bincount(labels[splits.forget], minlength=100)
    assert counts.sum() == 450
    assert set(counts) <= {3, 4, 5, 6}


def test_by_class_and_by_class_fraction_and_by_ids() -> None:
    labels = np.arange(1000) % 10
    kept = reserve(labels, 3)
    whole = make_splits(labels, ForgetSpec.parse("class:3/5"), kept)
    assert set(labels[whole.forget]) == {3, 5}
    assert not np.isin(labels[whole.retain], [3, 5]).any()
    half = make_splits(labels, ForgetSpec.parse("class:3=0.5"), kept)
    assert len(half.forget) == round((labels[kept.pool] == 3).sum() / 2)
    ids = kept.base[:7]
    assert make_splits(labels, ForgetSpec.of_ids(ids), kept).forget.tolist() == ids.tolist()
    assert whole.digest != half.digest


LABELS = np.arange(100) % 5
KEPT = reserve(LABELS, 0)


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (ForgetSpec.random(0.0), "fraction 0.0 0 1"),
        (ForgetSpec.random(0.004), "0.004 90 0.011"),
        (ForgetSpec.random(0.95), "0.95 retain 0.900"),
        (ForgetSpec.parse("class:9"), "class 9 0 1 2 3 4"),
        (ForgetSpec("class", "class:", classes=()), "class forget"),
        (ForgetSpec.parse("class:0/1/2/3/4"), "class retain"),
        (ForgetSpec.parse("class:1=1.5"), "class 1 1.5"),
        (ForgetSpec.parse("class:1=0.01"), "class 1 0.01"),
        (ForgetSpec.of_ids([]), "ids empty"),
        (ForgetSpec.of_ids([1, 100]), "ids 100 0 99"),
        (ForgetSpec.of_ids([int(KEPT.pool[0])] * 2), "ids 1"),
        (ForgetSpec.of_ids([int(KEPT.heldout[0])]), "ids held-out"),
        (ForgetSpec.of_ids([int(KEPT.val[0])]), "ids validation"),
        (ForgetSpec.of_ids(KEPT.pool), "ids retain"),
    ],
)
def test_bad_requests_are_named(request_: ForgetSpec, names: str) -> None:
    with error(SplitError, *names.split()):
        make_splits(LABELS, request_, KEPT)


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        (dict(retain=[0, 1], forget=[1], heldout=[2], val=[3]), "forget retain 1"),
        (dict(retain=[0, 1], forget=[], heldout=[2], val=[3]), "forget empty"),
        (dict(retain=[0, 1], forget=[7], heldout=[2], val=[3]), "forget 7 0 3"),
        (dict(retain=[0, 0], forget=[1], heldout=[2], val=[3]), "retain 1"),
    ],
)
def test_splits_refuse_what_cannot_be(parts: dict[str, list[int]], names: str) -> None:
    arrays = {name: np.array(part, dtype=np.int64) for name, part in parts.items()}
    with error(SplitError, *names.split()):
        Splits(**arrays, total=4)


def test_fractions_that_do_not_fit() -> None:
    with error(SplitError, "heldout", 1.2):
        reserve(LABELS, 0, heldout=1.2)
    with error(SplitError, 100, 50):
        make_splits(LABELS[:50], ForgetSpec.random(0.1), KEPT)
    with error(SplitError, "heldout", 0.8, "val", 0.1, 2):
        reserve(LABELS[:2], 0, heldout=0.8, val=0.1)
