"""The two scores: closed forms, limits, and what chance is allowed to do."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from expect import error
from regun.auditing import Predictions, evaluate
from regun.errors import AuditError, SettingsError
from regun.experiments.search.objectives import beyond, check_objective, gap_score, ks_bar, reference_score, worst


def signals(confidence: np.ndarray, labels: np.ndarray | None = None, first: int = 0) -> Predictions:
    """Two classes, `confidence` in the label."""
    labels = np.zeros(len(confidence), dtype=np.int64) if labels is None else labels
    probs = np.stack([confidence, 1 - confidence], axis=1)
    rows = np.where(labels[:, None] == 0, probs, probs[:, ::-1])
    return Predictions(np.log(rows), labels, first + np.arange(len(labels)))


def drawn(seed: int, n: int, low: float = 0.05, high: float = 0.95) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, n)


def score(forget, unseen, before=None, **more):
    target = {"forget": signals(forget), "unseen": signals(unseen), **{k: signals(v[0]) for k, v in more.items()}}
    start = {"unseen": signals(unseen if before is None else before), **{k: signals(v[1]) for k, v in more.items()}}
    return reference_score(target, start)


def test_its_parts_are_those_of_sklearn_and_scipy() -> None:
    forget, unseen = drawn(0, 80, 0.4, 0.99), drawn(1, 120)
    parts = score(forget, unseen).parts
    truth = roc_auc_score([1] * 80 + [0] * 120, np.concatenate([forget, unseen]))
    assert parts["auc"] == pytest.approx(100 * truth)
    assert parts["ks"] == pytest.approx(100 * stats.ks_2samp(forget, unseen).statistic)
    critical = math.sqrt(-math.log(0.025) / 2) * math.sqrt(1 / 80 + 1 / 120)
    assert parts["ks_beyond"] == pytest.approx(parts["ks"] - 100 * critical)


def test_the_bar_of_the_distance_is_that_of_the_published_test() -> None:
    distance = ks_bar(400, 300)
    assert stats.kstwobign.sf(distance * math.sqrt(400 * 300 / 700)) == pytest.approx(0.05, abs=5e-3)


def test_what_looks_unseen_and_loses_nothing_scores_0_almost_always() -> None:
    scores = [score(drawn(2 * k, 100), drawn(2 * k + 1, 100)).score for k in range(200)]
    assert np.mean([s == 0 for s in scores]) > 0.88
    assert np.median(scores) == 0


def test_remembering_and_over_forgetting_both_cost() -> None:
    unseen = drawn(0, 200, 0.3, 0.7)
    remembered, forgotten = score(drawn(1, 200, 0.7, 0.99), unseen), score(drawn(1, 200, 0.01, 0.3), unseen)
    assert remembered.parts["auc"] == 100
    assert forgotten.parts["auc"] == 0
    assert remembered.score == pytest.approx(forgotten.score)
    assert remembered.parts["ks_beyond"] == pytest.approx(100 - 100 * ks_bar(200, 200))
    assert 45 < remembered.parts["auc_beyond"] <= 50  # less what chance allows even here
    assert remembered.forgetting == pytest.approx(remembered.parts["auc_beyond"] + remembered.parts["ks_beyond"])
    assert remembered.score < worst("reference", "").score


def test_the_distance_sees_what_the_auc_averages_away() -> None:
    half = np.concatenate([drawn(0, 100, 0.01, 0.1), drawn(1, 100, 0.9, 0.99)])
    found = score(half, drawn(2, 200, 0.3, 0.7))
    assert found.parts["auc_beyond"] == 0
    assert found.parts["ks_beyond"] > 30


def test_only_drops_of_accuracy_count() -> None:
    low, high = np.full(50, 0.1), np.full(50, 0.9)
    mixed = np.concatenate([high[:40], low[:10]])
    same = drawn(0, 50)
    assert score(same, mixed, before=high).parts["unseen_lost"] == pytest.approx(20)
    assert score(same, high, before=mixed).parts["unseen_lost"] == 0
    assert score(same, high, before=high, retain=(mixed, high)).utility == pytest.approx(20)


def test_the_score_is_its_parts() -> None:
    found = score(
        drawn(0, 90, 0.5, 0.99), drawn(1, 60), before=np.full(60, 0.9), retain=(drawn(3, 30), np.full(30, 0.9))
    )
    names = ("auc_beyond", "ks_beyond", "unseen_lost", "retain_lost")
    assert found.score == pytest.approx(sum(found.parts[name] for name in names))
    assert found.score == pytest.approx(found.forgetting + found.utility)


def test_a_forgotten_class_is_compared_with_its_own_kind_and_may_be_lost() -> None:
    """A model retrained without class 1 knows none of it, seen or not: nothing to complain about."""
    zeros, ones = np.zeros(60, dtype=np.int64), np.ones(60, dtype=np.int64)
    labels = np.concatenate([zeros, ones])
    knows, ignorant = drawn(0, 60, 0.8, 0.99), drawn(1, 60, 0.01, 0.2)
    target = {
        "forget": signals(drawn(2, 60, 0.01, 0.2), ones),
        "unseen": signals(np.concatenate([knows, ignorant]), labels),
        "retain": signals(knows, zeros),
    }
    before = {"unseen": signals(np.full(120, 0.9), labels), "retain": signals(knows, zeros)}
    assert reference_score(target, before).score == 0
    mixed = {**target, "forget": signals(drawn(2, 120, 0.01, 0.2), labels)}
    assert reference_score(mixed, before).score > 30


def test_too_few_examples_are_refused() -> None:
    with error(AuditError, 1, 30, 2):
        score(drawn(0, 1), drawn(1, 30))


def test_distance_of_an_interval_to_its_target() -> None:
    assert beyond(60, None, None) == 10
    assert beyond(49, 48, 50) == 0
    assert beyond(30, 25, 35) == 15


def test_the_gap_is_the_audits_own() -> None:
    rng = np.random.default_rng(0)
    sizes = {"retain": 60, "forget": 40, "val": 50}

    def model(shift: float) -> dict[str, Predictions]:
        return {
            name: Predictions.from_logits(
                rng.normal(size=(n, 3)) + shift * np.eye(3)[np.arange(n) % 3], np.arange(n) % 3, np.arange(n)
            )
            for name, n in sizes.items()
        }

    target, retrain, references = model(2.0), model(1.0), [model(1.0), model(1.1)]
    found = gap_score(target, retrain, references)
    expected = evaluate(target, retrain, references, attacks=["rmia"], bootstrap=0, floor=False).values()["gap_rfvp"]
    assert found.score == pytest.approx(expected)
    assert found.score == pytest.approx((found.forgetting + found.utility) / 2)
    assert set(found.parts) == {"retain_acc", "forget_acc", "val_acc", "rmia_auc_val"}
    assert gap_score(retrain, retrain, references).score == 0
    assert found.score < worst("gap", "").score


def test_unknown_objectives() -> None:
    with error(SettingsError, "'gaps'", "gap", "reference"):
        check_objective("gaps")
