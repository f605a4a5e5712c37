"""Gaussian attacks on phi against scipy's normal density and in the limits where the answer is known."""

import numpy as np
import pytest
from scipy.stats import norm

from expect import error
from regun.auditing.lira import offline_lira, u_lira
from regun.auditing.roc import Contrast
from regun.errors import AuditError


def test_u_lira_equals_scipys_likelihood_ratio():
    rng = np.random.default_rng(0)
    phi, inside, outside = rng.normal(1, 1, 30), rng.normal(2, 1.5, (12, 30)), rng.normal(0, 1, (9, 30))
    found = u_lira(phi, inside, outside, pooled=False)
    for i in range(30):
        high = norm.logpdf(phi[i], inside[:, i].mean(), inside[:, i].std(ddof=1))
        low = norm.logpdf(phi[i], outside[:, i].mean(), outside[:, i].std(ddof=1))
        assert found[i] == pytest.approx(high - low)
    pooled = u_lira(phi, inside, outside)
    sigmas = [np.sqrt(w.var(axis=0, ddof=1).mean()) for w in (inside, outside)]
    expected = norm.logpdf(phi, inside.mean(axis=0), sigmas[0]) - norm.logpdf(phi, outside.mean(axis=0), sigmas[1])
    np.testing.assert_allclose(pooled, expected)


def test_identical_worlds_score_0():
    rng = np.random.default_rng(1)
    world = rng.normal(size=(6, 20))
    for pooled in (True, False):
        np.testing.assert_array_equal(u_lira(rng.normal(size=20), world, world, pooled=pooled), 0)


def test_runs_that_do_not_belong_to_a_world_are_left_out():
    rng = np.random.default_rng(2)
    phi, inside, outside = rng.normal(size=8), rng.normal(1, 1, (5, 8)), rng.normal(size=(5, 8))
    padded = np.vstack([inside, np.full((2, 8), np.nan)])
    np.testing.assert_allclose(u_lira(phi, padded, outside), u_lira(phi, inside, outside))
    np.testing.assert_allclose(
        offline_lira(phi, np.vstack([outside, np.full((1, 8), np.nan)])), offline_lira(phi, outside)
    )


def test_exchangeable_examples_give_an_auc_of_50():
    rng = np.random.default_rng(3)
    n = 4000
    hardness = rng.normal(0, 3, n)
    phi, shadows = hardness + rng.normal(size=n), hardness + rng.normal(size=(4, n))
    contrast = Contrast.of(offline_lira(phi, shadows)[: n // 2], offline_lira(phi, shadows)[n // 2 :])
    assert contrast.auc() == pytest.approx(0.5, abs=0.03)


def test_u_lira_is_the_strongest_ranking_where_examples_differ_in_hardness():
    """Per-example worlds see what a global threshold on phi cannot."""
    rng = np.random.default_rng(4)
    n, hardness = 2000, rng.normal(0, 5, 2000)
    member = np.arange(n) < n // 2
    worlds = [hardness + shift + rng.normal(size=(16, n)) for shift in (1.5, 0.0)]
    phi = hardness + 1.5 * member + rng.normal(size=n)
    aucs = [float(Contrast.of(s[member], s[~member]).auc()) for s in (phi, u_lira(phi, worlds[0], worlds[1]))]
    assert aucs[0] < 0.62
    assert aucs[1] == pytest.approx(norm.cdf(1.5 / np.sqrt(2)), abs=0.04)


def test_models_that_agree_to_all_digits_do_not_divide_by_zero():
    same = np.ones((3, 4))
    assert np.isfinite(offline_lira(np.zeros(4), same)).all()
    assert np.isfinite(u_lira(np.zeros(4), same, same + 1)).all()


def test_refusals():
    phi = np.zeros(3)
    with error(AuditError, "0", "1", "OUT", "2"):
        offline_lira(phi, np.zeros((1, 3)))
    ragged = np.array([[0.0, 1.0, np.nan], [0.0, 1.0, 2.0]])
    with error(AuditError, "2", "1", "IN"):
        u_lira(phi, ragged, np.zeros((2, 3)))
    with error(AuditError, "OUT", "phi"):
        offline_lira(phi, np.zeros((2, 4)))
