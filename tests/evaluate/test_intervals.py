"""Resampling, and intervals that cover the truth as often as they say."""

from statistics import NormalDist

import numpy as np
import pytest

from regun.errors import AuditError
from regun.evaluate.intervals import (
    Number,
    Resampling,
    bootstrap_contrast,
    bootstrap_mean,
    delong,
    distance,
    percentile,
    proportion,
    resample,
    rng,
    told_apart,
)
from regun.evaluate.leakage import Trial, result
from regun.evaluate.membership import ATTACKS
from regun.evaluate.roc import Contrast, best_threshold, cross_fitted_hits

normal = NormalDist()


def contrast(mu: float, m: int, n: int, seed: int) -> Contrast:
    generator = np.random.default_rng(seed)
    return Contrast.of(generator.normal(mu, 1, m), generator.normal(0, 1, n))


def test_resamples_draw_the_right_number_and_depend_on_seed_and_name_only():
    chunks = list(resample({"forget": 30, "test": 50}, 600, seed=1))
    for name, size in (("forget", 30), ("test", 50)):
        weights = np.concatenate([chunk[name] for chunk in chunks], axis=1)
        assert weights.shape == (size, 600)
        assert (weights.sum(axis=0) == size).all()
        assert weights.mean(axis=1) == pytest.approx(1, abs=0.2)
    alone = next(resample({"forget": 30}, 600, seed=1))["forget"]
    np.testing.assert_array_equal(alone, chunks[0]["forget"])
    other = next(resample({"forget": 30}, 600, seed=2))["forget"]
    assert not np.array_equal(alone, other)


def test_chunks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch):
    whole = bootstrap_contrast(contrast(1, 20, 30, 0), 300, seed=3)
    monkeypatch.setattr("regun.evaluate.intervals._CHUNK", 300)
    np.testing.assert_array_equal(bootstrap_contrast(contrast(1, 20, 30, 0), 300, seed=3), whole)


def test_bootstrap_of_a_mean_has_the_right_centre_and_spread():
    for values in (
        np.random.default_rng(0).exponential(2.0, 500),
        np.repeat([0.0, 1.0], [300, 100]),
        np.random.default_rng(1).exponential(2.0, 30_000),
    ):
        drawn = bootstrap_mean(values, 4000, np.random.default_rng(5))
        error = values.std() / np.sqrt(len(values))
        assert drawn.mean() == pytest.approx(values.mean(), abs=5 * error / np.sqrt(4000))
        assert drawn.std() == pytest.approx(error, rel=0.06)


def test_percentile_is_the_central_part_and_scales():
    number = percentile(0.5, np.linspace(0, 1, 1001), level=0.9)
    assert (number.value, number.low, number.high) == pytest.approx((50, 5, 95))
    assert percentile(0.5, np.empty(0)) == Number(50.0)


def test_proportions_at_the_edge_get_the_exact_bound():
    all_right = proportion(1.0, np.ones(100), 450)
    assert all_right.low == pytest.approx(100 * 0.025 ** (1 / 450))
    assert all_right.high == 100
    none = proportion(0.0, np.zeros(100), 450)
    assert (none.low, none.high) == pytest.approx((0, 100 * (1 - 0.025 ** (1 / 450))))
    assert proportion(1.0, np.empty(0), 450) == Number(100.0)


def test_delong_and_bootstrap_agree():
    for mu, m, n in ((0.0, 500, 800), (0.5, 800, 500), (1.5, 2000, 3000)):
        closed = delong(contrast(mu, m, n, 0))
        drawn = percentile(closed.value / 100, bootstrap_contrast(contrast(mu, m, n, 0), 1500, seed=1)[0])
        assert closed.low is not None
        assert closed.high is not None
        width = closed.high - closed.low
        assert drawn.low == pytest.approx(closed.low, abs=0.08 * width)
        assert drawn.high == pytest.approx(closed.high, abs=0.08 * width)


def test_intervals_cover_the_truth_at_the_stated_rate():
    """200 repeats of members N(1, 1) and non-members N(0, 1); all but 3 standard errors below 95 % (binomial)."""
    mu, m, n, repeats = 1.0, 400, 1000, 200
    truth = {
        "auc": normal.cdf(mu / 2**0.5),
        "delong": normal.cdf(mu / 2**0.5),
        "tpr1": normal.cdf(mu - normal.inv_cdf(0.99)),
    }
    covered = dict.fromkeys([*truth, "bacc", "advantage"], 0)
    for seed in range(repeats):
        generator = np.random.default_rng([seed, 1])
        members, nonmembers = generator.normal(mu, 1, m), generator.normal(0, 1, n)
        halves = np.random.default_rng(seed)
        first = [halves.permutation(size) % 2 == 0 for size in (m, n)]
        trial = Trial(ATTACKS["smia"], "test", Contrast.of(members, nonmembers),
                      *cross_fitted_hits(members, nonmembers, np.random.default_rng(seed)))  # fmt: skip
        found = result(trial, bootstrap_contrast(trial.contrast, 300, seed), None, seed)
        # what the two chosen thresholds are really worth, which is a little less than the best one
        chosen = [best_threshold(members[first[0] == f], nonmembers[first[1] == f]) for f in (True, False)]
        worth = np.mean([(normal.cdf(mu - t) + normal.cdf(t)) / 2 for t in chosen])
        for name, value in {**truth, "bacc": worth, "advantage": 2 * normal.cdf(mu / 2) - 1}.items():
            number: Number = getattr(found, name)
            assert number.low is not None
            assert number.high is not None
            covered[name] += number.low <= 100 * value <= number.high
    least = 0.95 * repeats - 3 * (0.95 * 0.05 * repeats) ** 0.5
    assert all(covered[name] >= least for name in ("auc", "delong", "tpr1", "bacc")), covered
    assert covered["advantage"] >= 0.85 * repeats, covered  # a largest difference is harder; the docs say so


def test_distance_intervals_reach_0_exactly_when_the_sets_cannot_be_told_apart():
    reached = 0
    for seed in range(60):
        same = contrast(0.0, 200, 300, seed)
        value = float(same.statistics()[3, 0])
        number = distance(value, bootstrap_contrast(same, 100, seed)[3], told_apart(value, 200, 300))
        reached += number.low == 0
    assert reached >= 52  # 95 % of 60, less 3 standard errors
    apart = contrast(1.0, 200, 300, 0)
    value = float(apart.statistics()[3, 0])
    number = distance(value, bootstrap_contrast(apart, 100, 0)[3], told_apart(value, 200, 300))
    assert number.low is not None
    assert number.low > 0


def test_distance_interval_takes_back_the_shift_of_resampling():
    same = contrast(0.0, 300, 300, 2)
    value, drawn = float(same.statistics()[3, 0]), bootstrap_contrast(same, 400, 0)[3]
    assert drawn.mean() > value  # resampling adds noise to a largest difference
    number = distance(value, drawn, told_apart=False)
    assert number.high is not None
    assert number.high < 100 * np.quantile(drawn, 0.975)
    assert number.high >= number.value


def test_generators_depend_on_seed_and_names():
    assert rng(0, "a").integers(10**9) == rng(0, "a").integers(10**9)
    assert rng(0, "a").integers(10**9) != rng(0, "b").integers(10**9)


def test_refusals():
    with pytest.raises(AuditError, match="-1 resamples at level 0.95"):
        Resampling(-1)
    with pytest.raises(AuditError, match="level between 0 and 1"):
        Resampling(10, 0, 95.0)
    with pytest.raises(AuditError, match="DeLong's interval needs at least two"):
        delong(Contrast.of(np.array([1.0]), np.array([0.0, 2.0])))
