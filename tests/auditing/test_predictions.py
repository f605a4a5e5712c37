"""Signals: fp64 log-softmax that survives any logits, checks with clear texts, per-example values."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp

from expect import error
from regun.auditing.predictions import LOG_FLOOR, Predictions, log_sum_exp, row_blocks
from regun.errors import AuditError


def random_signals(n: int = 50, k: int = 5, scale: float = 3.0, seed: int = 0) -> Predictions:
    rng = np.random.default_rng(seed)
    return Predictions.from_logits(rng.normal(0, scale, (n, k)), rng.integers(0, k, n), np.arange(n))


def test_log_softmax_equals_scipy():
    logits = np.random.default_rng(0).normal(0, 30, (700, 100))
    predictions = Predictions.from_logits(logits, np.zeros(700, int), np.arange(700))
    np.testing.assert_allclose(predictions.log_probs, log_softmax(logits, axis=1), rtol=1e-13, atol=1e-13)


@given(st.floats(-1e6, 1e6), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_a_constant_added_to_all_logits_changes_nothing(shift: float, seed: int):
    logits = np.random.default_rng(seed).normal(0, 3, (6, 4))
    labels = np.array([0, 1, 2, 3, 0, 1])
    plain, shifted = (Predictions.from_logits(logits + c, labels, np.arange(6)) for c in (0.0, shift))
    np.testing.assert_allclose(shifted.log_probs, plain.log_probs, atol=1e-8)
    np.testing.assert_allclose(shifted.true_logit, plain.true_logit, atol=1e-8)


def test_extreme_logits_give_the_right_values():
    inf = np.inf
    logits = [[1e4, 0, 0], [-1e4, 0, 0], [7.0, 7.0, 7.0], [-inf, 0.0, 0.0], [0.0, -inf, -inf], [1e4, 1e4, -1e4]]
    predictions = Predictions.from_logits(logits, [0] * 6, range(6))
    expected = [0.0, -1e4 - math.log(2), -math.log(3), -inf, 0.0, -math.log(2)]
    np.testing.assert_allclose(predictions.true_log_prob, expected)
    np.testing.assert_allclose(
        predictions.true_logit, [1e4 - math.log(2), -1e4 - math.log(2), -math.log(2), LOG_FLOOR, -LOG_FLOOR, 0.0]
    )
    np.testing.assert_allclose(
        predictions.entropy, [0, math.log(2), math.log(3), math.log(2), 0, math.log(2)], atol=1e-12
    )
    assert predictions.predicted.tolist() == [0, 1, 0, 1, 0, 0]


def test_fp64_keeps_apart_what_fp32_ties():
    """Even where fp64 confidences round to 1, the log-probabilities keep their order and all their digits."""
    predictions = Predictions.from_logits([[20.0, 0.0], [40.0, 0.0], [41.0, 0.0], [700.0, 0.0]], [0] * 4, range(4))
    np.testing.assert_allclose(predictions.true_log_prob, -np.log1p(np.exp([-20.0, -40.0, -41.0, -700.0])), rtol=1e-14)
    assert (np.diff(predictions.true_log_prob) > 0).all()
    assert len(set(np.exp(predictions.true_log_prob).astype(np.float32))) == 1
    np.testing.assert_allclose(predictions.true_logit, [20, 40, 41, 700])


def test_true_logit_is_the_logit_of_the_confidence():
    predictions = random_signals()
    p = np.exp(predictions.true_log_prob)
    np.testing.assert_allclose(predictions.true_logit, np.log(p / (1 - p)), rtol=1e-9)


def test_log_sum_exp_equals_scipy_also_for_zeros():
    values = np.array([[0.0, -np.inf, 3.0], [-np.inf, -np.inf, -np.inf], [1e4, 1e4, -5.0]])
    np.testing.assert_allclose(log_sum_exp(values, axis=1), logsumexp(values, axis=1))


def test_row_blocks_cover_every_row_once():
    values = np.empty((1000, 100))
    rows = np.concatenate([np.arange(1000)[block] for block in row_blocks(values)])
    assert rows.tolist() == list(range(1000))
    assert len(list(row_blocks(values))) > 1


def test_join_lays_splits_end_to_end():
    first, second = random_signals(seed=1), random_signals(n=7, seed=2)
    joined = Predictions.join([first, second])
    assert len(joined) == 57
    np.testing.assert_array_equal(joined.true_log_prob[50:], second.true_log_prob)


def test_arrays_are_read_only_and_the_callers_are_not():
    logs = np.log(np.full((2, 2), 0.5))
    predictions = Predictions(logs, np.array([0, 1]), np.array([0, 1]))
    with pytest.raises(ValueError, match="read-only"):
        predictions.log_probs[0, 0] = 0.0
    logs[0, 0] = 0.0


@pytest.mark.parametrize(
    ("logits", "labels", "indices", "names"),
    [
        ([[0.0, 1.0], [np.nan, 1.0]], [0, 0], [0, 1], ["NaN", 1]),
        ([[0.0, 1.0], [np.inf, 1.0]], [0, 0], [0, 1], ["+inf", 1]),
        ([[-np.inf, -np.inf]], [0], [0], ["-inf", 0]),
        ([[0.0, 1.0]], [2], [0], [2, 0, "0..1"]),
        ([[0.0, 1.0]], [-1], [0], [-1, 0]),
        ([[0.0, 1.0]], [0, 1], [0], ["labels", "(2,)"]),
        ([[0.0, 1.0]], [0], [0, 1], ["indices", "(2,)"]),
        ([[0.0]], [0], [0], ["K", 2]),
        (np.empty((0, 3)), [], [], ["n", 1]),
        ([0.0, 1.0], [0, 1], [0, 1], ["log_probs", "(2,)"]),
        ([[0.0, 1.0]], [0.5], [0], ["labels", "float64"]),
    ],
)
def test_refusals(logits: object, labels: object, indices: object, names: list[object]):
    with error(AuditError, *names):
        Predictions.from_logits(logits, labels, indices)  # type: ignore[arg-type]


def test_logits_in_place_of_log_probabilities_are_refused():
    with error(AuditError, "1", "Predictions.from_logits"):
        Predictions(np.array([[math.log(0.5)] * 2, [1.0, 2.0]]), np.array([0, 1]), np.array([0, 1]))
    with error(AuditError, "NaN", "0"):
        Predictions(np.array([[np.nan, 0.0]]), np.array([0]), np.array([0]))
