"""AUC, TPR at low FPR, advantage and distances against sklearn, scipy and brute force; also under weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp, wasserstein_distance
from sklearn.metrics import roc_auc_score
from sklearn.metrics import roc_curve as sklearn_roc

from expect import error
from regun.auditing.roc import (
    FPR_TARGETS,
    Contrast,
    best_threshold,
    cross_fitted_hits,
    roc_curve,
    running_totals,
)
from regun.errors import AuditError

scores = st.lists(st.integers(-4, 4).map(float), min_size=2, max_size=40).map(np.array)  # many ties


def brute_tpr(members: np.ndarray, nonmembers: np.ndarray, target: float) -> float:
    best = 0.0
    for threshold in [*members, *nonmembers, np.inf]:
        if (nonmembers >= threshold).mean() <= target:
            best = max(best, float((members >= threshold).mean()))
    return best


def test_statistics_equal_sklearn_scipy_and_brute_force():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        members, nonmembers = rng.normal(0.7, 1, 150), rng.normal(0, 1, 400)
        if seed % 2:  # ties
            members, nonmembers = members.round(1), nonmembers.round(1)
        auc, tpr1, tpr01, advantage = Contrast.of(members, nonmembers).statistics()[:, 0]
        truth = np.r_[np.ones(150), np.zeros(400)]
        assert auc == pytest.approx(roc_auc_score(truth, np.r_[members, nonmembers]), abs=1e-12)
        assert tpr1 == pytest.approx(brute_tpr(members, nonmembers, 0.01), abs=1e-12)
        assert tpr01 == pytest.approx(brute_tpr(members, nonmembers, 0.001), abs=1e-12)
        assert advantage == pytest.approx(ks_2samp(members, nonmembers, method="asymp").statistic, abs=1e-12)


@given(scores, scores)
@settings(max_examples=150, deadline=None)
def test_ties_are_handled_as_sklearn_does(members: np.ndarray, nonmembers: np.ndarray):
    contrast = Contrast.of(members, nonmembers)
    truth = np.r_[np.ones(len(members)), np.zeros(len(nonmembers))]
    auc, tpr1, _, advantage = contrast.statistics()[:, 0]
    assert auc == pytest.approx(roc_auc_score(truth, np.r_[members, nonmembers]), abs=1e-12)
    assert tpr1 == pytest.approx(brute_tpr(members, nonmembers, 0.01), abs=1e-12)
    fpr, tpr, _ = sklearn_roc(truth, np.r_[members, nonmembers], drop_intermediate=False)
    assert advantage == pytest.approx(np.abs(tpr - fpr).max(), abs=1e-12)
    ours = roc_curve(contrast)
    np.testing.assert_allclose(ours[0], fpr, atol=1e-12)
    np.testing.assert_allclose(ours[1], tpr, atol=1e-12)
    assert contrast.advantage()[0] == advantage
    assert contrast.wasserstein()[0] == pytest.approx(wasserstein_distance(members, nonmembers), abs=1e-12)


@given(scores, scores, st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_weights_mean_repeated_examples(members: np.ndarray, nonmembers: np.ndarray, seed: int):
    """A column of weights gives the statistics of the resample that those weights describe."""
    rng = np.random.default_rng(seed)
    weights = [
        rng.multinomial(len(s), np.full(len(s), 1 / len(s)), 3).T.astype(np.uint8) for s in (members, nonmembers)
    ]
    contrast = Contrast.of(members, nonmembers)
    found, moved = contrast.statistics(*weights), contrast.wasserstein(*weights)
    np.testing.assert_array_equal(contrast.advantage(*weights), found[3])
    for column in range(3):
        drawn = [np.repeat(s, w[:, column]) for s, w in zip((members, nonmembers), weights, strict=True)]
        plain = Contrast.of(drawn[0], drawn[1])
        np.testing.assert_allclose(found[:, column], plain.statistics()[:, 0], atol=1e-12)
        np.testing.assert_allclose(moved[column], plain.wasserstein()[0], atol=1e-12)


@given(scores, scores)
@settings(max_examples=60, deadline=None)
def test_invariances(members: np.ndarray, nonmembers: np.ndarray):
    plain = Contrast.of(members, nonmembers).statistics()[:, 0]
    mapped = Contrast.of(np.arctan(members) * 3 - 1, np.arctan(nonmembers) * 3 - 1).statistics()[:, 0]
    np.testing.assert_allclose(mapped, plain, atol=1e-12)  # any increasing map
    negated = Contrast.of(-members, -nonmembers).statistics()[:, 0]
    assert negated[0] == pytest.approx(1 - plain[0], abs=1e-12)
    assert negated[3] == pytest.approx(plain[3], abs=1e-12)  # the advantage does not care for direction
    assert Contrast.of(members, members).auc() == pytest.approx(0.5)


def test_infinite_scores_are_ranked():
    assert Contrast.of(np.array([-np.inf, 3.0]), np.array([-np.inf, 2.0])).auc() == (0.5 + 2) / 4


def test_tpr_is_conservative_where_the_target_cannot_be_resolved():
    members, nonmembers = np.array([3.0, 1.0]), np.array([2.0, 0.0, -1.0])
    assert FPR_TARGETS == (0.01, 0.001)
    assert Contrast.of(members, nonmembers).statistics()[1:3, 0].tolist() == [0.5, 0.5]  # at an FPR of exactly 0


def test_large_sets_do_not_overflow():
    rng = np.random.default_rng(0)
    members, nonmembers = rng.normal(4, 1, 50_000), rng.normal(0, 1, 50_000)  # m * n * KS > 2^31
    contrast = Contrast.of(members, nonmembers)
    assert contrast.auc() == pytest.approx(
        roc_auc_score(np.r_[np.ones(50_000), np.zeros(50_000)], np.r_[members, nonmembers])
    )
    assert contrast.advantage()[0] == pytest.approx(ks_2samp(members, nonmembers, method="asymp").statistic)
    assert contrast.wasserstein()[0] == pytest.approx(wasserstein_distance(members, nonmembers))


@pytest.mark.parametrize("n", [1, 2, 3, 10, 99, 100, 101])
def test_running_totals_equal_cumsum(n: int):
    weights = np.random.default_rng(n).integers(0, 5, (n, 7)).astype(np.uint8)
    expected = np.vstack([np.zeros((1, 7)), weights.cumsum(axis=0, dtype=np.int64)])
    np.testing.assert_array_equal(running_totals(weights), expected)


def test_wins_follow_their_definition():
    rng = np.random.default_rng(0)
    members, nonmembers = rng.normal(0.5, 1, 40).round(1), rng.normal(0, 1, 60).round(1)
    psi = (members[:, None] > nonmembers) + 0.5 * (members[:, None] == nonmembers)
    contrast = Contrast.of(members, nonmembers)
    beats, beaten, ties = contrast.wins()
    np.testing.assert_array_equal(beats, psi.sum(axis=1)[contrast.member_order])
    np.testing.assert_array_equal(beaten, psi.sum(axis=0)[contrast.nonmember_order])
    assert ties == (psi == 0.5).sum()


def test_thinned_curve_keeps_the_ends_and_lies_on_the_full_one():
    rng = np.random.default_rng(0)
    contrast = Contrast.of(rng.normal(1, 1, 3000), rng.normal(0, 1, 5000))
    full, thin = roc_curve(contrast), roc_curve(contrast, 100)
    assert len(thin[0]) <= 102
    assert (thin[0][0], thin[1][0], thin[0][-1], thin[1][-1]) == (0, 0, 1, 1)
    assert set(zip(*thin, strict=True)) <= set(zip(*full, strict=True))
    assert abs(np.trapezoid(thin[1], thin[0]) - contrast.auc()) < 0.01 if hasattr(np, "trapezoid") else True


def test_best_threshold_has_the_largest_youden_index():
    rng = np.random.default_rng(0)
    members, nonmembers = rng.normal(1, 1, 60).round(1), rng.normal(0, 1, 80).round(1)
    youden = [(members >= t).mean() - (nonmembers >= t).mean() for t in members]
    chosen = best_threshold(members, nonmembers)
    assert (members >= chosen).mean() - (nonmembers >= chosen).mean() == pytest.approx(max(youden))
    assert best_threshold(np.array([0.0, 1.0]), np.array([2.0, 3.0])) == np.inf


def test_cross_fitting_takes_the_optimism_out():
    """On scores that say nothing, a threshold picked on the judged scores looks good on average; this one does not."""
    fitted, picked = [], []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        members, nonmembers = rng.normal(size=40), rng.normal(size=120)
        hits = cross_fitted_hits(members, nonmembers, rng)
        fitted.append((hits[0].mean() + hits[1].mean()) / 2)
        picked.append(
            (
                1
                + (members >= best_threshold(members, nonmembers)).mean()
                - (nonmembers >= best_threshold(members, nonmembers)).mean()
            )
            / 2
        )
    assert abs(np.mean(fitted) - 0.5) < 3 * np.std(fitted) / np.sqrt(300)
    assert np.mean(picked) > 0.55


def test_cross_fitted_hits_follow_their_definition():
    members, nonmembers = np.random.default_rng(1).normal(1, 1, 31), np.random.default_rng(2).normal(0, 1, 52)
    hits = cross_fitted_hits(members, nonmembers, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    in_first = [rng.permutation(31) % 2 == 0, rng.permutation(52) % 2 == 0]
    for fold in (True, False):
        threshold = best_threshold(members[in_first[0] == fold], nonmembers[in_first[1] == fold])
        other = [mask != fold for mask in in_first]
        np.testing.assert_array_equal(hits[0][other[0]], members[other[0]] >= threshold)
        np.testing.assert_array_equal(hits[1][other[1]], nonmembers[other[1]] < threshold)


def test_bad_scores_are_refused():
    some = np.array([1.0, 2.0])
    with error(AuditError, "members", "(0,)"):
        Contrast.of(np.array([]), some)
    with error(AuditError, "non-members"):
        Contrast.of(some, np.array([]))
    with error(AuditError, "1", "non-members", "NaN"):
        Contrast.of(some, np.array([0.0, np.nan]))
    with error(AuditError, "two"):
        cross_fitted_hits(some[:1], some, np.random.default_rng(0))
