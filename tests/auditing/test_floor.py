"""The noise floor: retrained models are inside it, a memorising one is not."""

import itertools

import numpy as np
import pytest

from expect import error
from regun.auditing import ATTACKS, NoiseFloor, Predictions, evaluate, noise_floor
from regun.auditing.attacks import Evidence, rmia
from regun.auditing.estimates import PerExample, Ranked, Share
from regun.auditing.intervals import Resampling, share
from regun.auditing.metrics import accuracy, divergence
from regun.auditing.roc import Contrast
from regun.errors import AuditError

K = 4
SIZES = {"retain": 300, "forget": 200, "test": 400, "val": 150}


def model(seed: int, memorised: float = 0.0) -> dict[str, Predictions]:
    """Exchangeable models: shared hardness of examples plus noise of their own; `memorised` raises the forget set."""
    made: dict[str, Predictions] = {}
    for number, (split, size) in enumerate(SIZES.items()):
        shared, own = np.random.default_rng([1000, number]), np.random.default_rng([seed, number])
        labels = shared.integers(0, K, size)
        logits = shared.normal(0, 1, (size, K)) + own.normal(0, 0.8, (size, K))
        logits[np.arange(size), labels] += shared.normal(1.5, 1.5, size)
        logits[np.arange(size), labels] += {"retain": 4.0, "forget": memorised}.get(split, 0.0)
        made[split] = Predictions.from_logits(logits, labels, np.arange(size))
    return made


RETRAINS = [model(seed) for seed in range(5)]
FLOOR = noise_floor(RETRAINS[0], RETRAINS[1:], attacks=["smia", "rmia", "lira"])


def test_every_pair_is_judged_with_the_remaining_models_as_references():
    """Re-derived by hand: neither of the two judged models sits in the denominator."""
    pairs = list(itertools.combinations(range(5), 2))
    for number, (i, j) in enumerate(pairs):
        rest = [RETRAINS[k] for k in range(5) if k not in (i, j)]
        aucs = []
        for judged in (RETRAINS[i], RETRAINS[j]):
            sides = [rmia(Evidence(judged[s], tuple(r[s] for r in rest))) for s in ("forget", "test")]
            aucs.append(100 * float(Contrast.of(sides[0], sides[1]).auc()))
        accuracies = [abs(accuracy(RETRAINS[i][s]) - accuracy(RETRAINS[j][s])) for s in ("retain", "forget", "test")]
        assert FLOOR.values["rmia_auc"][number] == pytest.approx(abs(aucs[0] - aucs[1]))
        assert FLOOR.values["gap_rftp"][number] == pytest.approx((sum(accuracies) + abs(aucs[0] - aucs[1])) / 4)
        assert FLOOR.values["test_div"][number] == pytest.approx(divergence(RETRAINS[i]["test"], RETRAINS[j]["test"]))
    assert FLOOR.models == 5
    assert all(len(values) == len(pairs) for values in FLOOR.values.values())


def test_a_reference_left_in_its_own_denominator_would_shrink_the_floor():
    """Why leave-one-out: with itself among the references, a retrained model's scores are pulled to 0."""
    target, rest = RETRAINS[1]["forget"], [r["forget"] for r in RETRAINS[2:]]
    with_itself, without = rmia(Evidence(target, (target, *rest))), rmia(Evidence(target, tuple(rest)))
    assert with_itself.std() < 0.9 * without.std()


def test_another_retrained_model_is_inside_and_a_memorising_one_is_not():
    memorising = model(98, memorised=3.0)
    rest = {"retrain": RETRAINS[0], "references": RETRAINS[1:], "before": memorising, "bootstrap": 0}
    honest = evaluate(model(99), **rest, attacks=["smia", "rmia", "lira"], floor=FLOOR)
    assert honest.verdict == "passed"
    assert honest.gaps["rmia_auc"].verdict == "passed"
    base = evaluate(memorising, **rest, attacks=["smia", "rmia"])
    assert base.verdict == "failed"
    assert base.gaps["rmia_auc"].verdict == "failed"
    assert base.gaps["test_div"].verdict == "passed"  # it memorised nothing of the test set
    over = evaluate(model(99, memorised=-3.0), **rest, attacks=["rmia"])
    assert over.verdict == "failed"


@pytest.mark.parametrize("models", [4, 5, 8])
def test_false_alarms_of_the_verdict(models: int):
    """One more model of the same kind: beyond the limit in about 5 % of cases at most, whatever the number is."""
    rng = np.random.default_rng(models)
    repeats = 1500
    for width, square in ((1, False), (4, False), (30, True)):  # one number, a gap of four, a divergence
        beyond = 0
        for _ in range(repeats):
            points = rng.normal(size=(models + 1, width))
            far = {
                (i, j): np.abs(points[i] - points[j]) ** (2 if square else 1)
                for i in range(models + 1)
                for j in range(i)
            }
            values = tuple(float(v.mean()) for (i, _), v in far.items() if i < models)
            beyond += float(far[models, 0].mean()) > NoiseFloor(models, {"x": values}).summary("x").limit
        assert beyond / repeats < 0.065


def test_summary():
    summary = NoiseFloor(3, {"x": (1.0, 2.0, 3.0)}).summary("x")
    assert (summary.mean, summary.largest) == (2.0, 3.0)
    assert summary.limit == pytest.approx(2 + 4.302653 * 1 * (4 / 3) ** 0.5)
    assert NoiseFloor(3, {"x": (2.0, 2.0, 2.0)}).summary("x").limit == 2.0
    with error(AuditError, "'y'", "x"):
        NoiseFloor(3, {"x": (1.0,)}).summary("y")


def test_json_round_trip():
    assert NoiseFloor.from_json(FLOOR.to_json()) == FLOOR


def test_attacks_that_lack_references_in_a_pair_have_no_floor():
    small = noise_floor(RETRAINS[0], RETRAINS[1:3])  # leaves one reference for each pair
    assert "rmia_auc" in small.values
    assert "lira_auc" not in small.values
    found = evaluate(model(9), RETRAINS[0], RETRAINS[1:3], bootstrap=0)
    assert found.gaps["lira_auc"].verdict is None
    assert found.gaps["rmia_auc"].verdict is not None


def test_attacks_of_ones_own_have_a_floor():
    def gap_to_mean(evidence: Evidence) -> np.ndarray:
        return evidence.target.true_logit - np.mean([r.true_logit for r in evidence.references], axis=0)

    own = noise_floor(RETRAINS[0], RETRAINS[1:], attacks=[gap_to_mean, ATTACKS["lira"]])
    np.testing.assert_allclose(own.values["gap_to_mean_auc"], own.values["lira_auc"])


def test_too_few_models_are_refused():
    with error(AuditError, "Retrain", "references", "2", "1"):
        noise_floor(RETRAINS[0], RETRAINS[1:2])


def test_many_examples_say_more_than_few_models():
    """Two models that differ by their examples alone: the limit is the normal's, not that of Student with two models.

    One chance of 5 % over `looks` is left; shifts that go beyond the examples count with Student's quantile.
    """
    pairs = (1.0, 1.0, 1.0)
    plain = NoiseFloor(3, {"x": pairs}, {"x": 1.0})
    assert plain.summary("x").limit == pytest.approx(1.959964)
    assert plain.summary("x", comparisons=5).limit == pytest.approx(2.575829)
    shifted = NoiseFloor(3, {"x": (2.0, 2.0, 2.0)}, {"x": 1.0})
    assert shifted.summary("x").limit == pytest.approx((1.959964**2 + 3 * 4.302653**2) ** 0.5)
    assert NoiseFloor(3, {"x": (0.1, 0.1, 5.0)}, {"x": 1e-9}).summary("x").limit >= 5.0  # never below the largest seen


def test_the_noise_of_examples_is_that_of_fresh_examples():
    """Accuracy and AUC of the same two models on many fresh draws of examples: their difference spreads as told."""
    rng = np.random.default_rng(0)
    told: dict[str, list[float]] = {"acc": [], "auc": []}
    seen: dict[str, list[float]] = {"acc": [], "auc": []}
    for _ in range(300):
        hard = rng.normal(0.5, 1.0, 200)
        ours, theirs = (hard + rng.normal(0, 1, 200) for _ in range(2))
        one, two = (Share((v > 0).astype(float)) for v in (ours, theirs))
        first, second = (Ranked(v[:80], v[80:]) for v in (ours, theirs))
        for name, a, b in (("acc", one, two), ("auc", first, second)):
            told[name].append(a.noise(b) or 0.0)
            seen[name].append(a.value - b.value)
    for name in told:
        assert np.std(seen[name]) == pytest.approx(np.mean(told[name]), rel=0.15), name
    assert one.noise(first) is None


def test_the_noise_of_examples_is_the_root_mean_square_over_pairs():
    squares = []
    for one, other in itertools.combinations(RETRAINS, 2):
        hits = [(model["forget"].predicted == model["forget"].labels).astype(float) for model in (one, other)]
        squares.append(10_000 * ((hits[0] - hits[1]).var() / 200 + 1 / 200**2))
    assert FLOOR.examples["forget_acc"] == pytest.approx(np.mean(squares) ** 0.5)
    assert len(set(squares)) > 1


def test_the_interval_of_a_share_is_that_of_its_number_of_examples():
    number = Share(np.repeat([1.0, 0.0], [30, 10])).number("acc", np.empty(0), Resampling(level=0.9))
    assert number == share(0.75, 40, 0.9)


def test_the_interval_of_a_mean_shares_the_draws_of_its_split_and_has_its_own_otherwise():
    values, drawn = np.arange(100.0), np.full(50, 7.0)
    shared = PerExample(values, of="forget").number("entropy", drawn, Resampling(50))
    assert (shared.low, shared.high) == (7.0, 7.0)
    own = PerExample(values).number("entropy", drawn, Resampling(50))
    assert own.low < own.value < own.high
    assert own.value == shared.value == 49.5


def test_models_that_agree_on_every_example_may_still_differ_on_the_next():
    same = Share(np.ones(1000))
    assert same.noise(same) == pytest.approx(0.1)  # one example in a thousand
