"""Accuracy, entropy, divergence, gaps and spread against sklearn, scipy and hand-computed values."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy as scipy_entropy
from sklearn.metrics import accuracy_score

from expect import error
from regun.auditing.metrics import GAPS, accuracy, divergence, divergences, entropy, gap, spread
from regun.auditing.predictions import Predictions
from regun.errors import AuditError


def random_signals(n: int = 60, k: int = 6, seed: int = 0, scale: float = 3.0, labels: int = 0) -> Predictions:
    rng = np.random.default_rng(seed)
    return Predictions.from_logits(
        rng.normal(0, scale, (n, k)), np.random.default_rng(labels).integers(0, k, n), np.arange(n)
    )


def slow_divergence(p: list[float], q: list[float]) -> float:
    """Plain loops, each term as the definition has it."""
    total = 0.0
    for a, b in zip(p, q, strict=True):
        middle = (a + b) / 2
        total += (a * math.log(a / middle) if a > 0 else 0.0) / 2
        total += (b * math.log(b / middle) if b > 0 else 0.0) / 2
    return total


def test_accuracy_equals_sklearn():
    predictions = random_signals()
    assert accuracy(predictions) == pytest.approx(100 * accuracy_score(predictions.labels, predictions.predicted))


def test_entropy_equals_scipy():
    predictions = random_signals(scale=8)
    assert entropy(predictions) == pytest.approx(float(scipy_entropy(np.exp(predictions.log_probs), axis=1).mean()))


def test_divergence_equals_scipy_and_the_definition():
    ours, theirs = random_signals(seed=1), random_signals(seed=2)
    p, q = np.exp(ours.log_probs), np.exp(theirs.log_probs)
    np.testing.assert_allclose(divergences(ours, theirs), jensenshannon(p, q, axis=1) ** 2, atol=1e-13)
    slow = [slow_divergence(list(a), list(b)) for a, b in zip(p, q, strict=True)]
    np.testing.assert_allclose(divergences(ours, theirs), slow, atol=1e-14)
    assert divergence(ours, theirs) == pytest.approx(100 * statistics.fmean(slow))


def test_divergence_from_logaddexp_is_the_same():
    ours, theirs = random_signals(seed=1, scale=200), random_signals(seed=2, scale=200)
    middle = np.logaddexp(ours.log_probs, theirs.log_probs) - math.log(2)
    terms = np.exp(ours.log_probs) * (ours.log_probs - middle) + np.exp(theirs.log_probs) * (theirs.log_probs - middle)
    np.testing.assert_allclose(divergences(ours, theirs), terms.sum(axis=1) / 2, atol=1e-14)


def test_divergence_never_nan_and_between_0_and_its_ceiling():
    inf = np.inf
    rows = [[0.0, -inf, -inf], [-inf, 0.0, 0.0], [1e4, 0, 0], [0, 1e4, 0], [3.0, 3.0, 3.0]]
    pairs = [(a, b) for a in rows for b in rows]
    ours = Predictions.from_logits([a for a, _ in pairs], [0] * 25, range(25))
    theirs = Predictions.from_logits([b for _, b in pairs], [0] * 25, range(25))
    found = divergences(ours, theirs).reshape(5, 5)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, found.T, atol=1e-15)
    np.testing.assert_allclose(np.diag(found), 0, atol=1e-15)
    assert found[0, 1] == pytest.approx(math.log(2))  # nothing in common: 69.31 on the reported scale
    assert (found >= 0).all()
    assert (found <= math.log(2)).all()


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 500))
@settings(max_examples=40, deadline=None)
def test_divergence_is_symmetric_and_zero_only_for_equals(seed: int, scale: float):
    ours, theirs = random_signals(seed=seed, scale=scale), random_signals(seed=seed + 1, scale=scale)
    np.testing.assert_allclose(divergences(ours, theirs), divergences(theirs, ours), atol=1e-15)
    np.testing.assert_allclose(divergences(ours, ours), 0, atol=1e-14)
    assert (divergences(ours, ours) >= 0).all()
    assert divergence(ours, theirs) > 0


def test_gaps_are_means_of_absolute_differences():
    ours = {"retain_acc": 99.0, "forget_acc": 92.0, "test_acc": 90.0, "rmia_auc": 52.0}
    retrain = {"retain_acc": 100.0, "forget_acc": 90.0, "test_acc": 93.0, "rmia_auc": 50.0}
    assert gap(ours, retrain, GAPS["gap_rftp"]) == (1 + 2 + 3 + 2) / 4
    assert gap(ours, retrain, GAPS["gap_tp"]) == (3 + 2) / 2
    with error(AuditError, "val_acc", "rmia_auc_val"):
        gap(ours, retrain, GAPS["gap_vp"])


def test_the_gap_over_seeds_is_the_mean_of_gaps_not_the_gap_of_means():
    ours, retrain = [{"test_acc": 91.0}, {"test_acc": 89.0}], [{"test_acc": 90.0}, {"test_acc": 90.0}]
    assert spread([gap(a, b, ["test_acc"]) for a, b in zip(ours, retrain, strict=True)])[0] == 1.0


def test_spread_is_the_sample_deviation():
    values = [1.0, 2.5, 4.0, 3.0]
    assert spread(values) == pytest.approx((statistics.fmean(values), statistics.stdev(values)))
    assert spread([2.0]) == (2.0, None)
    with error(AuditError, "seed"):
        spread([])


def test_models_on_other_examples_are_refused():
    ours, other_labels, fewer = random_signals(), random_signals(labels=1), random_signals(n=59)
    with error(AuditError, "labels", "row"):
        divergences(ours, other_labels)
    with error(AuditError, "ids", "60", "59"):
        divergences(ours, fewer)
    with error(AuditError, "6", "4", "classes"):
        divergences(ours, random_signals(k=4))
