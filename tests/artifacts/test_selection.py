"""Requests that models answer: what they read, what they pick where the truth is known, and that it stays picked."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from expect import error
from regun.artifacts import Store
from regun.artifacts.audits import cached_predictions
from regun.artifacts.ranking import by_features, by_hardness, clusters, hardness
from regun.artifacts.selection import FIRST_EARLY, early_trainings, resolve
from regun.artifacts.trainings import Training, train_model
from regun.data.arrays import ArrayExamples
from regun.data.examples import Data
from regun.data.registry import DataSpec, load_data
from regun.errors import SplitError
from regun.forget_spec import ForgetSpec
from regun.models import ModelSpec
from regun.splits import Reserve, make_splits, reserve
from regun.training.recipes import RECIPES

CPU = torch.device("cpu")


def noisy_labels(share: float, seed: int) -> tuple[Data, np.ndarray]:
    """Digits of which a known share has a wrong label: a model can only know those by heart."""
    data = load_data(DataSpec.read("digits", {"limit": "700"}), "digits")
    assert isinstance(data.train, ArrayExamples)
    rng = np.random.default_rng(seed)
    wrong = rng.random(len(data.train.labels)) < share
    shift = rng.integers(1, 10, len(wrong))
    labels = np.where(wrong, (data.train.labels + shift) % 10, data.train.labels)
    return replace(data, train=replace(data.train, labels=labels)), wrong


def training(data: Data, kept: Reserve, epochs: int = 40) -> Training:
    return Training(
        data=data,
        trained_on=kept.base,
        model=ModelSpec("cnn", {}),
        recipe=replace(RECIPES["digits"], epochs=epochs),
        seed=0,
    )


def test_hard_examples_are_treated_more_differently_with_and_without_them_than_random_or_easy_ones(
    tmp_path: Path,
) -> None:
    data, wrong = noisy_labels(0.1, seed=0)
    kept, store = reserve(data.train.labels, 0), Store(tmp_path)
    base = training(data, kept)
    whole = train_model(base, store, CPU, about={})
    differences, mislabelled = {}, {}
    for asked in (ForgetSpec.parse("hard:0.1"), ForgetSpec.random(0.1), ForgetSpec.parse("easy:0.1")):
        name = asked.kind
        splits = make_splits(data.train.labels, resolve(asked, base, data, kept, store, CPU, about={}), kept)
        without = train_model(replace(base, trained_on=splits.retain, seed=9), store, CPU, about={})
        said = [np.exp(cached_predictions(m, data.train, splits.forget, store).true_log_prob) for m in (whole, without)]
        differences[name] = float((said[0] - said[1]).mean())
        mislabelled[name] = float(wrong[splits.forget].mean())
        assert len(splits.forget) == round(0.1 * (len(kept.val) + len(kept.pool)))
    assert differences["hard"] > differences["random"] + 0.2
    assert differences["hard"] > differences["easy"] + 0.3
    assert mislabelled["hard"] > 0.3  # one in ten at random
    assert mislabelled["easy"] < 0.05


def test_a_request_is_resolved_once_and_the_same_in_every_store(tmp_path: Path) -> None:
    data, _ = noisy_labels(0.0, seed=0)
    kept = reserve(data.train.labels, 3)
    base = replace(training(data, kept, epochs=3), seed=3)
    stores = [Store(tmp_path / "a"), Store(tmp_path / "b")]
    train_model(replace(base, trained_on=kept.base[50:], seed=77), stores[1], CPU, about={})  # one has more models
    for text in ("hard:0.05", "like:17,20", "cluster:1/4", "subclass:3/1/2"):
        asked = ForgetSpec.parse(text)
        ids = [resolve(asked, base, data, kept, store, CPU, about={}) for store in stores]
        assert ids[0] == ids[1]
        assert ids[0].kind == "ids"
        before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "a" / "artifacts" / "model").iterdir()}
        assert resolve(asked, base, data, kept, stores[0], CPU, about={}) == ids[0]
        assert before == {
            path.name: path.stat().st_mtime_ns for path in (tmp_path / "a" / "artifacts" / "model").iterdir()
        }
        make_splits(data.train.labels, ids[0], kept)  # only training examples, and not all of them


def test_hardness_is_the_mean_loss_and_ties_go_by_id() -> None:
    scores = hardness([np.array([-1.0, -3.0, -np.inf]), np.array([-2.0, -1.0, 0.0])])
    assert scores[:2] == pytest.approx([1.5, 2.0])
    assert np.isfinite(scores).all()
    kept = Reserve(np.array([0]), np.array([1]), np.array([5, 2, 4, 3]))
    hard = by_hardness(ForgetSpec.parse("hard:0.4"), np.array([1.0, 7.0, 7.0, 0.0]), kept)
    assert hard.tolist() == [3, 4]
    assert by_hardness(ForgetSpec.parse("easy:0.4"), np.array([1.0, 7.0, 7.0, 0.0]), kept).tolist() == [5, 2]
    with error(SplitError, "hard:0.9", "4"):
        by_hardness(ForgetSpec.parse("hard:0.9"), np.zeros(4), kept)


def test_the_examples_like_one_are_those_of_the_smallest_angle() -> None:
    angles = np.deg2rad([0, 10, 90, 12, 180, 5])
    features = np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.array([[1, 9, 1, 4, 2, 3]]).T
    kept = Reserve(np.array([5]), np.array([], dtype=np.int64), np.array([0, 1, 2, 3, 4]))
    labels = np.zeros(6, dtype=np.int64)
    assert by_features(ForgetSpec.parse("like:0,2"), features, labels, kept).tolist() == [0, 1]
    held_out = by_features(ForgetSpec.parse("like:5,2"), features, labels, kept)
    assert sorted(held_out.tolist()) == [0, 1]
    with error(SplitError, "6", "0", "5"):
        by_features(ForgetSpec.parse("like:6,1"), features, labels, kept)
    with error(SplitError, "5"):
        by_features(ForgetSpec.parse("like:0,5"), features, labels, kept)


def test_clusters_are_found_where_there_are_some_whatever_the_order() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [60, 40, 20])
    points = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])[truth] + 0.3 * rng.standard_normal((120, 2))
    for order in (np.arange(120), rng.permutation(120)):
        found = clusters(points[order], 3)
        for group in range(3):
            assert len(set(truth[order][found == group])) == 1
    assert len(np.unique(clusters(np.zeros((5, 2)), 3))) >= 1  # nothing to tell apart is no endless loop


def test_clusters_are_numbered_from_the_largest_and_those_of_a_class_stay_in_it() -> None:
    rng = np.random.default_rng(1)
    truth = np.repeat([0, 1, 2], [60, 40, 20])
    directions = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    features = directions[truth] + 0.05 * rng.standard_normal((120, 3))
    labels = (np.arange(120) % 2).astype(np.int64)
    nothing = np.array([], dtype=np.int64)
    kept = Reserve(nothing, nothing, np.arange(120))
    for part, size in ((1, 60), (2, 40), (3, 20)):
        assert len(by_features(ForgetSpec.parse(f"cluster:{part}/3"), features, labels, kept)) == size
    inside = by_features(ForgetSpec.parse("subclass:1/1/3"), features, labels, kept)
    assert set(labels[inside]) == {1}
    assert len(inside) == 30
    with error(SplitError, "clusters"):
        by_features(ForgetSpec.parse("cluster:1/1"), features, labels, kept)
    with error(SplitError, "3", "7"):
        by_features(ForgetSpec.parse("subclass:7/1/3"), features, labels, kept)


def test_early_training_is_an_eighth_and_at_least_three_epochs() -> None:
    data, _ = noisy_labels(0.0, seed=0)
    for epochs, short in ((40, 5), (10, 3), (2, 2)):
        base = training(data, reserve(data.train.labels, 0), epochs)
        assert [(one.seed, one.recipe.epochs) for one in early_trainings(base)] == [
            (FIRST_EARLY + k, short) for k in range(4)
        ]
