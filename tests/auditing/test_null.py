"""The null distribution behind the influence left, part by part: p-values by ranks, halves and noise by brute force."""

import math

import numpy as np
import pytest

from regun.auditing import Metric, NoiseFloor, Predictions
from regun.auditing.estimates import PerExample
from regun.auditing.gaps import judge_gaps
from regun.auditing.hardness import HardnessIndex, _noise, _usual_noise
from regun.auditing.influence import Influence, _halves, _judge_effects, influence, two_sided_p


@pytest.mark.parametrize("draws", [39, 40, 199])
def test_p_values_are_valid_and_as_small_as_a_rank_test_allows(draws: int) -> None:
    """An effect that is one more draw has every rank with the same probability: P(p <= a) <= a, for every a."""
    values = np.random.default_rng(0).normal(size=draws + 1)
    p_values = np.array([two_sided_p(values[k], np.delete(values, k)) for k in range(draws + 1)])
    for level in np.linspace(0.01, 1.0, 100):
        assert (p_values <= level + 1e-12).sum() <= level * (draws + 1) + 1e-9
    assert p_values.min() == pytest.approx(2 / (draws + 1))
    assert sorted(p_values)[:4] == pytest.approx(np.array([2, 2, 4, 4]) / (draws + 1))


def test_the_sign_of_an_effect_does_not_change_its_p_value() -> None:
    drawn = np.random.default_rng(1).normal(size=200)
    for effect in (-3.0, -1.0, 0.2, 2.0):
        assert two_sided_p(effect, drawn) == two_sided_p(-effect, -drawn)


@pytest.mark.parametrize("n", [2, 5, 6, 30, 301, 1000])
def test_half_of_the_records_has_the_moments_of_a_sample_without_replacement(n: int) -> None:
    """Var = k (n - k) / (n - 1) Var(parts) for k of n, plus that of k itself where n is odd."""
    parts = np.random.default_rng(n).exponential(1.0, n) / n
    drawn = _halves(parts, np.random.default_rng(0))
    k = n // 2
    variance = k * (n - k) / (n - 1) * parts.var() + (parts.mean() ** 2 / 4 if n % 2 else 0.0)
    assert drawn.mean() == pytest.approx(0.0, abs=4 * math.sqrt(variance / len(drawn)))
    assert drawn.std() == pytest.approx(math.sqrt(variance), rel=0.07)
    assert not _halves(parts[:1], np.random.default_rng(0)).any(), "a single record has no half"


def test_the_noise_of_what_is_usual_is_that_of_the_records_it_was_read_from() -> None:
    """By loops: unseen record j weighs the sum of w_i / width over the forgotten records i in whose window it is."""
    rng = np.random.default_rng(0)
    index = HardnessIndex.of(rng.normal(size=7), rng.normal(size=60))
    models = [index.residuals(rng.normal(size=7), rng.normal(size=60)) for _ in range(2)]
    weights = rng.dirichlet(np.ones(7))
    expected = np.zeros((2, 2))
    for j in range(60):
        windows = [(weight, start) for weight, start in zip(weights, index.windows(30), strict=True)]
        used = sum(weight / 30 for weight, start in windows if start <= j < start + 30)
        for a in range(2):
            for b in range(2):
                expected[a, b] += used**2 * models[a].unseen[j] * models[b].unseen[j]
    assert index.near == 30
    np.testing.assert_allclose(_usual_noise(index, models, weights), expected, rtol=1e-9)


def test_noise_has_the_covariance_it_is_given() -> None:
    covariance = np.array([[2.0, 0.9], [0.9, 0.5]])
    np.testing.assert_allclose(np.cov(_noise(covariance, 200_000, np.random.default_rng(0))), covariance, rtol=0.03)


def test_bounds_hold_draws_and_halves_and_each_end_has_its_own_error_rate() -> None:
    """Normal draws: effects +- 1.96 sigma; the share +- 1.645 sqrt(sigma^2 + tau^2) over the effect before."""
    rng = np.random.default_rng(0)
    drawn, left = rng.normal(size=(2, 200_000)) * [[0.5], [0.2]], rng.normal(0, 0.3, 200_000)
    part = _judge_effects("test", 77, np.array([4.0, 0.4]), drawn, left, comparisons=3)
    assert (part.against, part.unseen, part.verdict) == ("test", 77, "forgotten")
    assert (part.before.low, part.before.high) == pytest.approx((4 - 0.98, 4 + 0.98), abs=0.01)
    assert (part.after.low, part.after.high) == pytest.approx((0.4 - 0.392, 0.4 + 0.392), abs=0.01)
    reach = 100 * 1.645 * math.hypot(0.2, 0.3) / 4
    assert (part.share.value, part.share.low, part.share.high) == pytest.approx((10, 10 - reach, 10 + reach), abs=0.1)


@pytest.mark.parametrize(
    ("effects", "verdict"),
    [
        ((4.0, 0.05), "forgotten"),
        ((4.0, 1.2), "remembered"),
        ((4.0, -1.2), "over-forgotten"),
        ((0.5, 0.05), "inconclusive"),  # the model before shows no influence
        ((-4.0, 0.05), "inconclusive"),  # nor does one that is less sure of the records
        ((1.8, 0.05), "inconclusive"),  # half of the influence may be left
    ],
)
def test_a_verdict_takes_power_before_and_bounds_after(effects: tuple[float, float], verdict: str) -> None:
    draws = np.random.default_rng(0).normal(size=(2, 2000)) * [[0.4], [0.3]]
    left = np.random.default_rng(1).normal(0, 0.5, 2000)
    assert _judge_effects("test", 50, np.array(effects), draws, left, comparisons=2).verdict == verdict


def test_more_comparisons_ask_for_smaller_p_values() -> None:
    draws = np.random.default_rng(0).normal(size=(2, 2000))
    effects = np.array([9.0, 2.15])  # p is about 0.03
    found = [_judge_effects("test", 50, effects, draws, np.zeros(2000), k).verdict for k in (1, 2, 4)]
    assert found == ["remembered", "forgotten", "forgotten"]


def certain(probabilities: list[float], start: int) -> Predictions:
    """Two classes, true label 0."""
    p = np.array(probabilities)
    return Predictions(np.log(np.stack([p, 1 - p], axis=1)), np.zeros(len(p), int), start + np.arange(len(p)))


def test_a_confidence_is_halved_where_at_most_45_percent_of_it_is_left() -> None:
    unseen = {"test": certain([0.5] * 30, 100)}
    before = {"forget": certain([0.8, 0.8, 0.8, 0.2, 0.99], 0), **unseen}
    after = {"forget": certain([0.355, 0.365, 0.9, 0.05, 0.4], 0), **unseen}
    assert influence(after, before, [before]).halved == 3


@pytest.mark.parametrize(("before", "verdict"), [(4.0, "passed"), (0.2, "inconclusive")])
def test_the_influence_is_one_more_comparison_of_a_gap_and_gives_it_power(before: float, verdict: str) -> None:
    """A part between the limits of one and of two comparisons fails without the influence, and not with it."""
    draws = np.random.default_rng(0).normal(size=(2, 2000))
    part = _judge_effects("test", 50, np.array([before, 0.1]), draws, np.zeros(2000), comparisons=1)
    left = Influence(part.verdict, part.share, 5, 1, 3, (part,), "")
    floor, far = NoiseFloor(3, {"a": (1.0, 2.0, 3.0), "gap": (1.0, 2.0, 3.0)}), {"a": 8.0, "gap": 8.0}
    assert floor.summary("a", 1).limit < 8 < floor.summary("a", 2).limit
    gap = {"gap": Metric("gap", terms=("a",))}
    assert judge_gaps(far, far, floor, gap)["gap"].verdict == "failed"
    assert judge_gaps(far, far, floor, gap, influence=left)["gap"].verdict == verdict


def test_the_noise_of_a_mean_is_in_its_unit() -> None:
    one, other = np.random.default_rng(0).normal(size=(2, 50))
    expected = (one - other).std() / math.sqrt(50)
    assert PerExample(one).noise(PerExample(other)) == pytest.approx(expected)
    assert PerExample(one, 100.0).noise(PerExample(other, 100.0)) == pytest.approx(100 * expected)
