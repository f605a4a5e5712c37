"""Resampling, and intervals that cover the truth as often as they say."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import beta, binom, binomtest

from expect import error
from regun.auditing.attack_results import AttackRun
from regun.auditing.attacks import ATTACKS
from regun.auditing.intervals import (
    Estimate,
    Resampling,
    auc_interval,
    balanced_share,
    bootstrap_contrast,
    bootstrap_mean,
    distance,
    percentile,
    resample,
    rng,
    share,
    share_above_bar,
    significantly_apart,
)
from regun.auditing.roc import Contrast, best_threshold, cross_fitted_hits
from regun.errors import AuditError

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
    monkeypatch.setattr("regun.auditing.intervals._CHUNK", 300)
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
    assert percentile(0.5, np.empty(0)) == Estimate(50.0)


def delong(found: Contrast) -> tuple[float, float]:
    """DeLong's interval, from its definition."""
    psi = (found.members[:, None] > found.nonmembers) + 0.5 * (found.members[:, None] == found.nonmembers)
    variance = psi.mean(axis=1).var(ddof=1) / psi.shape[0] + psi.mean(axis=0).var(ddof=1) / psi.shape[1]
    return 100 * (psi.mean() - 1.96 * variance**0.5), 100 * (psi.mean() + 1.96 * variance**0.5)


def test_shares_have_the_exact_binomial_interval():
    for hits, size in ((0, 450), (450, 450), (1, 2), (3, 10), (40, 300)):
        exact = binomtest(hits, size).proportion_ci(0.95)
        found = share(hits / size, size)
        assert (found.low, found.high) == pytest.approx((100 * exact.low, 100 * exact.high))


def test_a_share_above_an_uncertain_bar_is_at_least_as_unsure_as_a_share():
    narrow, wide = np.full(100, 0.5), np.linspace(0, 1, 100)
    assert share_above_bar(0.5, narrow, 20) == share(0.5, 20)
    assert share_above_bar(0.5, wide, 20).low == pytest.approx(2.5)
    assert share_above_bar(1.0, np.empty(0), 450) == Estimate(100.0)


def test_a_balanced_share_of_one_certain_side_is_half_the_other_s():
    """With a million non-members all judged rightly, the interval is that of the members' share, halved and moved up."""
    members = np.repeat([1.0, 0.0], [7, 5])
    found, half = balanced_share(members, np.ones(1_000_000)), share(7 / 12, 12)
    assert found.value == pytest.approx(50 + half.value / 2)
    assert (found.low, found.high) == pytest.approx((50 + half.low / 2, 50 + half.high / 2), abs=1.5)


def test_the_auc_interval_is_delongs_where_examples_are_many():
    for mu, m, n in ((0.0, 500, 800), (0.5, 800, 500), (1.5, 2000, 3000)):
        found, closed = auc_interval(contrast(mu, m, n, 0)), delong(contrast(mu, m, n, 0))
        drawn = percentile(found.value / 100, bootstrap_contrast(contrast(mu, m, n, 0), 1500, seed=1)[0])
        width = closed[1] - closed[0]
        assert (found.low, found.high) == pytest.approx(closed, abs=0.07 * width)
        assert (found.low, found.high) == pytest.approx((drawn.low, drawn.high), abs=0.1 * width)


def test_the_auc_interval_has_the_mean_and_variance_of_random_weights():
    """By simulation of its definition: weights from Dirichlet distributions, 3/4 of an example at the worst place."""
    rng = np.random.default_rng(0)
    for m, n, digits in ((3, 40, 1), (12, 12, 1), (40, 5, 1), (3, 3, -1)):  # in the last, all tie
        members, nonmembers = rng.normal(0.7, 1, m).round(digits), rng.normal(0, 1, n).round(digits)
        psi = (members[:, None] > nonmembers) + 0.5 * (members[:, None] == nonmembers)
        found = auc_interval(Contrast.of(members, nonmembers))
        assert found.value == pytest.approx(100 * psi.mean())
        for won, end in ((psi, found.low), (1 - psi, 100 - found.high)):
            d, w = (rng.dirichlet([1.0] * size + [0.75], 60_000)[:, :-1] for size in (m, n))
            weighted = np.einsum("bi,ij,bj->b", d, won, w, optimize=True)
            mean, both = weighted.mean(), weighted.mean() * (1 - weighted.mean()) / weighted.var() - 1
            assert end == pytest.approx(100 * beta.ppf(0.025, mean * both, (1 - mean) * both), abs=0.5)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.lists(st.integers(-3, 3), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_the_auc_interval_holds_the_auc_and_turns_with_the_scores(members: list[int], nonmembers: list[int]):
    sides = [np.array(side, dtype=float) for side in (members, nonmembers)]
    found, turned = auc_interval(Contrast.of(*sides)), auc_interval(Contrast.of(-sides[0], -sides[1]))
    swapped = auc_interval(Contrast.of(sides[1], sides[0]))
    assert 0 <= found.low <= found.value <= found.high <= 100
    assert (turned.low, turned.high) == pytest.approx((100 - found.high, 100 - found.low), abs=1e-9)
    assert (swapped.low, swapped.high) == pytest.approx((100 - found.high, 100 - found.low), abs=1e-9)
    wider = auc_interval(Contrast.of(*sides), level=0.99)
    assert wider.low <= found.low
    assert wider.high >= found.high


WORLDS = {
    "unseen": lambda rng, size: rng.normal(0.0, 1.0, size),
    "shifted": lambda rng, size: rng.normal(0.47, 1.0, size),
    "memorised": lambda rng, size: rng.normal(2.0, 1.0, size),
    "wide": lambda rng, size: rng.normal(0.0, 3.0, size),
    "some memorised": lambda rng, size: np.where(
        rng.random(size) < 0.8, rng.normal(2.5, 0.3, size), rng.normal(-1.0, 1.0, size)
    ),
}
"""Scores of members; those of non-members are standard normal, so the true AUC is the mean of their normal ranks."""


@pytest.mark.parametrize("world", WORLDS)
def test_the_auc_interval_keeps_its_level_however_few_there_are(world: str):
    """500 repeats for each size; in truth the coverage is 95 to 100 %, and the bootstrap's 35 to 93."""
    draw = WORLDS[world]
    truth = 100 * float(ndtr(draw(np.random.default_rng(0), 400_000)).mean())
    sizes = [(m, 200) for m in (2, 3, 5, 8, 12, 30)] + [(200, n) for n in (2, 3, 5, 8, 12, 30)] + [(3, 3), (8, 8)]
    for m, n in sizes:
        rng, covered = np.random.default_rng([m, n]), 0
        for _ in range(500):
            found = auc_interval(Contrast.of(draw(rng, m), rng.normal(0, 1, n)))
            covered += found.low <= truth <= found.high
        assert covered >= 0.93 * 500, (m, n, covered)


@pytest.mark.parametrize("side", ["member", "nonmember"])
def test_the_auc_interval_of_a_single_example_is_a_rank_test(side: str):
    """For every size and every rank: 50 is outside exactly where 2 (k + 1) / (n + 1) < 5 %, k the nearer rank."""
    for size in range(1, 121):
        others = np.arange(size, dtype=float)
        held = 0
        for rank in range(size + 1):
            one = np.array([rank - 0.5])
            found = auc_interval(Contrast.of(*((one, others) if side == "member" else (others, one))))
            left_out = not found.low <= 50 <= found.high
            assert left_out == (40 * (min(rank, size - rank) + 1) < size + 1), (size, rank)
            assert found.value == pytest.approx(100 * (rank if side == "member" else size - rank) / size)
            held += not left_out
        assert held >= 0.95 * (size + 1)  # the coverage: all ranks are equally likely


@pytest.mark.parametrize("side", ["member", "nonmember"])
@pytest.mark.parametrize("levels", [None, 2, 5, 40], ids=["no ties", "2 values", "5 values", "40 values"])
def test_a_single_example_covers_50_at_every_size_from_1_to_60(side: str, levels: int | None):
    """5,000 draws per size from one distribution, with and without ties: 50 is held in 95 % of them or more."""
    generator = np.random.default_rng(0)
    for size in range(1, 61):
        shape = (5_000, size + 1)
        scores = generator.random(shape) if levels is None else generator.integers(0, levels, shape)
        below, upto = ((scores[:, 1:] < scores[:, :1]).sum(axis=1), (scores[:, 1:] <= scores[:, :1]).sum(axis=1))
        places, counts = np.unique(np.stack([below, upto], axis=1), axis=0, return_counts=True)
        covered = 0
        for (lower, not_higher), count in zip(places, counts, strict=True):
            others = np.repeat([-1.0, 0.0, 1.0], [lower, not_higher - lower, size - not_higher])
            one = np.zeros(1)
            found = auc_interval(Contrast.of(*((one, others) if side == "member" else (others, one))))
            covered += count * (found.low <= 50 <= found.high)
        assert covered >= 0.95 * 5_000 - 4 * (0.95 * 0.05 * 5_000) ** 0.5, (size, covered)


@pytest.mark.parametrize("members", [2, 3, 5, 8, 12, 30])
def test_the_worst_case_of_the_auc_interval(members: int):
    """Members that beat all or none of very many unseen ones: coverage is exactly that of a binomial, for every truth."""
    unseen = np.zeros(3000)
    ends = []
    for above in range(members + 1):
        found = auc_interval(Contrast.of(np.repeat([1.0, -1.0], [above, members - above]), unseen))
        ends.append((found.low / 100, found.high / 100))
    low, high = np.array(ends).T[:, :, None]
    truth = np.linspace(0.005, 0.995, 991)
    held = binom.pmf(np.arange(members + 1)[:, None], members, truth) * ((low <= truth) & (truth <= high))
    assert held.sum(axis=0).min() > 0.93


def test_the_percentile_bootstrap_does_not():
    """Why: with 3 members it covers the truth in about 3 of 4 cases."""
    rng, covered = np.random.default_rng(0), 0
    for seed in range(200):
        drawn = bootstrap_contrast(Contrast.of(rng.normal(size=3), rng.normal(size=100)), 200, seed)[0]
        covered += np.quantile(drawn, 0.025) <= 0.5 <= np.quantile(drawn, 0.975)
    assert covered < 0.85 * 200


def test_intervals_cover_the_truth_at_the_stated_rate():
    """200 repeats of members N(1, 1) and non-members N(0, 1); all but 3 standard errors below 95 % (binomial)."""
    mu, m, n, repeats = 1.0, 400, 1000, 200
    truth = {
        "auc": normal.cdf(mu / 2**0.5),
        "tpr1": normal.cdf(mu - normal.inv_cdf(0.99)),
    }
    covered = dict.fromkeys([*truth, "bacc", "advantage"], 0)
    for seed in range(repeats):
        generator = np.random.default_rng([seed, 1])
        members, nonmembers = generator.normal(mu, 1, m), generator.normal(0, 1, n)
        halves = np.random.default_rng(seed)
        first = [halves.permutation(size) % 2 == 0 for size in (m, n)]
        hits = cross_fitted_hits(members, nonmembers, np.random.default_rng(seed))
        run = AttackRun(ATTACKS["smia"], "test", Contrast.of(members, nonmembers), hits)
        found = run.result(bootstrap_contrast(run.contrast, 300, seed), None, Resampling(300, seed))
        # what the two chosen thresholds are really worth, which is a little less than the best one
        chosen = [best_threshold(members[first[0] == f], nonmembers[first[1] == f]) for f in (True, False)]
        worth = np.mean([(normal.cdf(mu - t) + normal.cdf(t)) / 2 for t in chosen])
        for name, value in {**truth, "bacc": worth, "advantage": 2 * normal.cdf(mu / 2) - 1}.items():
            number: Estimate = getattr(found, name)
            assert number.low is not None
            assert number.high is not None
            covered[name] += number.low <= 100 * value <= number.high
    least = 0.95 * repeats - 3 * (0.95 * 0.05 * repeats) ** 0.5
    assert all(covered[name] >= least for name in ("auc", "tpr1", "bacc")), covered
    assert covered["advantage"] >= 0.85 * repeats, covered  # a largest difference is harder; the docs say so


def test_distance_intervals_reach_0_exactly_when_the_sets_cannot_be_told_apart():
    reached = 0
    for seed in range(60):
        same = contrast(0.0, 200, 300, seed)
        value = float(same.statistics()[3, 0])
        number = distance(value, bootstrap_contrast(same, 100, seed)[3], significantly_apart(value, 200, 300))
        reached += number.low == 0
    assert reached >= 52  # 95 % of 60, less 3 standard errors
    apart = contrast(1.0, 200, 300, 0)
    value = float(apart.statistics()[3, 0])
    number = distance(value, bootstrap_contrast(apart, 100, 0)[3], significantly_apart(value, 200, 300))
    assert number.low is not None
    assert number.low > 0


def test_a_distance_without_resamples_is_in_percent_and_has_no_interval():
    number = distance(0.125, np.empty(0), significantly_apart=True)
    assert (number.value, number.low, number.high) == (12.5, None, None)


def test_distance_interval_takes_back_the_shift_of_resampling():
    same = contrast(0.0, 300, 300, 2)
    value, drawn = float(same.statistics()[3, 0]), bootstrap_contrast(same, 400, 0)[3]
    assert drawn.mean() > value  # resampling adds noise to a largest difference
    number = distance(value, drawn, significantly_apart=False)
    assert number.high is not None
    assert number.high < 100 * np.quantile(drawn, 0.975)
    assert number.high >= number.value


def test_generators_depend_on_seed_and_names():
    assert rng(0, "a").integers(10**9) == rng(0, "a").integers(10**9)
    assert rng(0, "a").integers(10**9) != rng(0, "b").integers(10**9)


def test_refusals():
    with error(AuditError, "-1", "0.95"):
        Resampling(-1)
    with error(AuditError, "95.0", "0", "1"):
        Resampling(10, 0, 95.0)
