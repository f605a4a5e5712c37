"""Searches on models of the store: ordinary artifacts, judged without test data, found again, never worse than the start."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import CONTEXT

import regun.experiments.search.stored as stored
from expect import assert_names, error
from regun.artifacts import Artifact, Store
from regun.artifacts.audits import split_predictions
from regun.artifacts.trainings import Training, load_model, train_model
from regun.artifacts.unlearnings import Unlearning, unlearn_model
from regun.auditing import evaluate
from regun.data.examples import Data, Examples
from regun.data.registry import DataSpec, load_data
from regun.errors import AuditError, NotFiniteError, SettingsError
from regun.experiments.search import Search, SearchResult, Space, Trial, search, search_job
from regun.experiments.search.objectives import worst
from regun.forget_spec import ForgetSpec
from regun.hashing import code_digest
from regun.methods import get_method, method_names
from regun.models import ModelSpec
from regun.splits import Splits, make_splits, reserve
from regun.training.job import Budget, Callbacks, Job
from regun.training.recipes import RECIPES

pytest.importorskip("optuna")
CPU = torch.device("cpu")
METHODS = [name for name in method_names() if name != "retrain" and not get_method(name).needs.out_of_fold]


@dataclass(frozen=True)
class Untouchable(Examples):
    """Examples whose labels may be counted, and which raise when anything is fetched."""

    inner: Examples

    @property
    def labels(self):
        return self.inner.labels

    @property
    def num_classes(self):
        return self.inner.num_classes

    @property
    def digest(self):
        return self.inner.digest

    def describe_inputs(self):
        return self.inner.describe_inputs()

    def fetch(self, *args, **more):
        raise AssertionError("test data were fetched")

    def stream(self, *args, **more):
        raise AssertionError("test data were fetched")


@dataclass(frozen=True)
class World:
    """A base model, three retrained ones and the data they come from; `tune` runs a search there."""

    store: Store
    data: Data
    whole_data: Data
    splits: Splits
    base: Artifact
    retrain: Artifact
    references: tuple[Artifact, ...]

    def search(self, name: str = "finetune", *, values=None, budget: int = 4, **more) -> Search:
        method = get_method(name)
        start = method.configure(values or {})
        fixed, splits = tuple(more.pop("fixed", ())), more.pop("splits", self.splits)
        run = Unlearning(
            base=self.base,
            data=self.data,
            splits=splits,
            method=method,
            config=start,
            seed=more.get("seed", 0),
            budget=Budget(steps=budget),
        )
        options = {"trials": 4, "retrain": self.retrain, "references": self.references, **more}
        return Search(run=run, space=Space.of(method, start, "resnet", fixed), fixed=fixed, **options)

    def tune(self, name: str = "finetune", *, store: Store | None = None, **more) -> SearchResult:
        tell = {key: more.pop(key) for key in ("about", "watch", "on_trial") if key in more}
        return search(self.search(name, **more), store or self.store, CPU, **tell)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield build_world(Store(tmp_path_factory.mktemp("store")))
    torch.set_num_threads(threads)


def build_world(store: Store) -> World:
    data = load_data(DataSpec.read("digits", {"limit": 400, "test_limit": 50}), "digits")
    kept = reserve(data.train.labels, 0)
    splits = make_splits(data.train.labels, ForgetSpec.random(0.1), kept)

    def train(indices, seed: int) -> Artifact:
        recipe = replace(RECIPES["digits"], epochs=12)
        training = Training(data=data, trained_on=indices, model=ModelSpec("cnn"), recipe=recipe, seed=seed)
        return train_model(training, store, CPU, about={})

    base = train(kept.base, 0)
    retrain, *references = [train(splits.retain, seed) for seed in (0, 1, 2)]
    untouchable = replace(data, test=Untouchable(data.test))
    return World(store, untouchable, data, splits, base, retrain, tuple(references))


def told(found: SearchResult) -> list:
    """What must be the same whenever a search is run, however often it was interrupted."""
    return [(t.number, t.values, t.score, t.parts, t.model) for t in found.trials]


# -------------------------------------------------------------------------------------------------------- what it finds


@pytest.mark.parametrize(
    ("name", "objective"), [*((name, "gap") for name in METHODS), ("regun", "reference"), ("ssd", "reference")]
)
def test_no_method_ends_worse_than_its_default_and_test_data_are_never_fetched(
    name: str, objective: str, world: World
) -> None:
    found = world.tune(name, objective=objective, trials=3)
    assert found.best_score == min(t.score for t in found.trials) <= found.default_score
    assert found.trials[0].values == {k: getattr(get_method(name).configure({}), k) for k in found.trials[0].values}
    assert set(found.best_values) == set(get_method(name).search.get("resnet", {}))
    assert len(found.trials) == (1 if name in ("auto", "ssd") else 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_twenty_trials_improve_the_validation_gap_or_keep_the_default(name: str, world: World) -> None:
    found = world.tune(name, trials=20, budget=30)
    assert found.best_score < found.default_score or found.best.number == 0
    assert len(found.trials) == world.search(name, trials=20).space.at_most(20)


def test_the_score_of_a_trial_is_the_audits_validation_gap(world: World) -> None:
    found = world.tune("finetune")

    def said(artifact: Artifact):
        return split_predictions(artifact, world.whole_data, world.splits, world.store)

    truth, *others = (said(artifact) for artifact in (world.retrain, *world.references))
    for trial in found.trials:
        model = world.store.load("model", str(trial.model))
        assert model.info["config"]["lr"] == trial.values["lr"]
        audit = evaluate(said(model), truth, others, attacks=["rmia"], bootstrap=0, floor=False)
        assert trial.score == pytest.approx(audit.values()["gap_rfvp"])


def test_the_score_in_memory_is_that_in_the_store(world: World) -> None:
    """One judge: a model of the store, and the same weights in the hands of a user, score the same to the last bit."""
    order = world.search("regun", objective="reference", trials=1)
    (trial,) = search(order, world.store, CPU).trials
    weights = world.store.load("model", str(trial.model)).tensors("weights")

    def load(job: Job, config) -> None:
        job.model.load_state_dict(weights)

    method = replace(get_method("regun"), unlearn=load)
    job = Job(model=load_model(world.base), examples=world.data.train, splits=world.splits, seed=0)
    (own,) = search_job(job, method, order.run.config, trials=1).trials
    for name in ("score", "forgetting", "utility", "parts", "values"):
        assert own[name] == getattr(trial, name), name


def test_trials_are_ordinary_artifacts(world: World) -> None:
    found = world.tune("salun", seed=77, about={"request": "0.1"})
    run = replace(world.search("salun", seed=77).run, config=get_method("salun").configure(found.best_values))
    assert world.store.key("model", run.inputs()) == found.best.model
    model = world.store.load("model", str(found.best.model))
    assert model.info["request"] == "0.1"
    assert (model.info["cost"]["steps"], model.info["cost"]["seconds"]) == (found.best.steps, found.best.seconds)


def test_a_search_is_an_artifact_with_a_key_of_its_own(world: World) -> None:
    found = world.tune("finetune", seed=1)
    assert SearchResult.from_json(world.store.load("tuning", found.key).info["tuned"]) == found
    keys = [
        world.search(name, **more).key()
        for name, more in (
            ("finetune", {}),
            ("regun", {}),
            ("finetune", {"objective": "reference"}),
            ("finetune", {"seed": 5}),
            ("finetune", {"trials": 9}),
            ("finetune", {"references": world.references[:1]}),
            ("finetune", {"fixed": ("batch_size",)}),
        )
    ]
    assert len(set(keys)) == len(keys)
    assert world.search("finetune").key() == keys[0]
    with_none = world.search("finetune", objective="reference", retrain=None, references=())
    assert with_none.key() == keys[2]  # they have no part in it


@pytest.mark.parametrize("module", ["regun.experiments.search.proposals", "regun.experiments.search.scoring"])
def test_the_code_that_decides_the_trials_is_part_of_the_key(
    module: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(*modules: str) -> str:
        return code_digest(*modules) + ("changed" if module in modules else "")

    before = world.search("finetune")
    scored = before.score_inputs(before.trial({}))
    key = before.key()
    monkeypatch.setattr(stored, "code_digest", changed)
    after = world.search("finetune")
    assert after.key() != key
    assert (after.score_inputs(after.trial({})) != scored) == (module == "regun.experiments.search.scoring")


def test_two_searches_of_one_seed_are_equal_in_fresh_stores(world: World, tmp_path: Path) -> None:
    """Not only the settings: the scores of models made twice are equal too."""
    one, two = (
        world.tune("regun", store=Store(tmp_path / name), objective="reference", trials=7) for name in ("a", "b")
    )
    assert told(one) == told(two)


def test_a_step_budget_is_the_same_for_every_method(world: World) -> None:
    found = [world.tune(name, objective="reference") for name in ("finetune", "regun", "scrub")]
    assert {t.steps for tuned in found for t in tuned.trials} == {4}


def test_settings_that_were_given_stay(world: World) -> None:
    given = {"lr": 0.02, "batch_size": 16}
    found = world.tune("regun", values=given, fixed=tuple(given), objective="reference")
    assert set(found.best_values) == {"w"}
    assert found.settings == {"lr": 0.02, "batch_size": 16, "w": found.best_values["w"]}
    assert world.store.load("model", str(found.best.model)).info["config"]["lr"] == 0.02


def test_nothing_to_search_keeps_the_default_and_says_so(world: World) -> None:
    found = world.tune("ssd", objective="reference")
    assert (len(found.trials), found.best_values) == (1, {})
    assert found.note
    assert_names(world.tune("finetune", trials=9).note, 4)


def test_the_front_of_a_search_is_not_dominated(world: World) -> None:
    found = world.tune("regun", objective="reference", trials=9)
    front = found.front
    assert found.best.score == min(t.score for t in front)
    for kept in front:
        beaten = [
            t
            for t in found.trials
            if t.forgetting <= kept.forgetting
            and t.utility <= kept.utility
            and (t.forgetting, t.utility) != (kept.forgetting, kept.utility)
        ]
        assert beaten == []


# ------------------------------------------------------------------------------------------------- running it again


def test_a_finished_search_is_found_whole(world: World) -> None:
    first = world.tune("salun")
    seen: list[Trial] = []
    assert world.tune("salun", on_trial=seen.append) == first
    assert seen == []


def test_finished_trials_are_read_from_the_store_without_any_model(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search is lost, its scores are not: the trials come back at once, and a longer search goes on from them."""
    store = Store(tmp_path)
    first = world.tune("regun", store=store, objective="reference", trials=7)
    store.path("tuning", first.key).rename(tmp_path / "gone")

    def refuse(*args, **more):
        raise AssertionError("a model was run")

    seen: list[Trial] = []
    with monkeypatch.context() as patch:
        for name in ("unlearn_model", "load_model", "predict", "cached_predictions"):
            patch.setattr(stored, name, refuse)
        again = world.tune("regun", store=store, objective="reference", trials=7, on_trial=seen.append)
    assert again == first
    assert tuple(seen) == first.trials
    before = {a.key for a in store.artifacts("model")}
    longer = world.tune("regun", store=store, objective="reference", trials=9)
    assert longer.trials[:7] == first.trials
    assert len({a.key for a in store.artifacts("model")} - before) == 2
    with monkeypatch.context() as patch:
        patch.setattr(stored, "unlearn_model", refuse)
        shorter = world.tune("regun", store=store, objective="reference", trials=3)
    assert shorter.trials == first.trials[:3]


def search_or_die(home: Path, place: Path, kill_in: int, order: dict, out: Path) -> None:
    torch.set_num_threads(1)
    world, ended = build_world(Store(home)), []

    def epoch(number, model) -> None:
        if len(ended) == kill_in:
            os.kill(os.getpid(), signal.SIGKILL)

    found = search(world.search(**order), Store(place), CPU, watch=Callbacks(on_epoch=epoch), on_trial=ended.append)
    out.write_text(json.dumps(told(found)))


def start(world: World, place: Path, kill_in: int, out: Path, **order):
    """A process that searches in the store at `place`, and is killed in the middle of trial `kill_in`."""
    process = CONTEXT.Process(target=search_or_die, args=(world.store.root, place, kill_in, order, out))
    process.start()
    return process


def created(store: Store) -> dict[str, str]:
    return {a.key: a.manifest["created"] for a in store.artifacts("model", "score")}


def test_a_search_killed_in_the_middle_of_a_trial_goes_on_as_if_it_had_not_been(world: World, tmp_path: Path) -> None:
    """Killed twice, during a spread and during an estimated trial; nothing finished is made again."""
    order = {"name": "l1_sparse", "objective": "reference", "trials": 8}
    store = Store(tmp_path / "killed")
    kept: dict[str, str] = {}
    for kill_in in (2, 6):
        process = start(world, store.root, kill_in, tmp_path / "out", **order)
        process.join(200)
        assert process.exitcode == -signal.SIGKILL
        now = created(store)
        assert len(now) == 2 * kill_in  # a model and a score of every finished trial
        assert kept.items() <= now.items()
        kept = now
    found = world.tune(store=store, **order)
    assert kept.items() <= created(store).items()
    assert len(created(store)) == 2 * 8
    assert told(found) == told(world.tune(store=Store(tmp_path / "whole"), **order))
    assert store.verify().problems == []


def test_two_processes_that_run_the_same_search_make_everything_once(world: World, tmp_path: Path) -> None:
    orders = [{"name": "l1_sparse", "objective": "reference", "trials": n} for n in (3, 4)]  # one goes on for longer
    outs = [tmp_path / "shorter", tmp_path / "longer"]
    workers = [start(world, tmp_path / "shared", 99, out, **order) for out, order in zip(outs, orders, strict=True)]
    for worker in workers:
        worker.join(200)
    assert [worker.exitcode for worker in workers] == [0, 0]
    shorter, longer = (json.loads(out.read_text()) for out in outs)
    assert shorter == longer[:3]
    store = Store(tmp_path / "shared")
    assert len(created(store)) == 2 * 4
    assert store.verify().problems == []


@pytest.mark.parametrize("at", [0, 2])
def test_an_interrupted_search_keeps_its_finished_trials(
    at: int, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    store = Store(tmp_path)

    def counting(run, *args, **more):
        if len(made) == at:
            made.append("stopped")
            raise KeyboardInterrupt
        made.append(str(run.config.lr))
        return unlearn_model(run, *args, **more)

    monkeypatch.setattr(stored, "unlearn_model", counting)
    with pytest.raises(KeyboardInterrupt):
        world.tune("finetune", store=store)
    found = world.tune("finetune", store=store)
    assert len(found.trials) == 4
    assert len(made) == 4 + 1


# ----------------------------------------------------------------------------------------------- what must not happen


def test_the_examples_that_judge_are_not_those_regun_learns_from(world: World) -> None:
    order = world.search("regun", objective="reference")
    run = order.trial({"w": 0.3})
    assert run.config.w == 0.3
    assert not np.intersect1d(run.splits.heldout, order.scoring_parts["unseen"]).size
    assert len(run.splits.heldout) == len(world.splits.heldout) // 2
    assert set(world.splits.val) <= set(order.scoring_parts["unseen"])
    assert world.search("finetune", objective="reference").trial({}).splits is world.splits
    assert world.search("regun", objective="gap").trial({}).splits is world.splits


def test_a_users_own_method_does_not_see_them_either(world: World) -> None:
    seen: list[np.ndarray] = []

    def curious(job) -> None:
        seen.append(job.indices("heldout"))

    method = get_method(curious)
    run = replace(world.search("regun").run, method=method, config=method.configure({}))
    order = Search(run=run, space=Space({}, {}), objective="reference", trials=1)
    unlearn_model(order.trial({}), world.store, CPU, about={})
    assert not np.intersect1d(seen[0], order.scoring_parts["unseen"]).size


@pytest.mark.parametrize("objective", ["gap", "reference"])
def test_a_diverged_trial_counts_as_the_worst(objective: str, world: World) -> None:
    values = {"lr": 1e37, "batch_size": 8}
    found = world.tune("neggrad", values=values, objective=objective, trials=5, budget=9)
    first, *others = found.trials
    assert first.diverged
    assert first.score == worst(objective, "").score
    assert all(t.score < first.score for t in others if not t.diverged)
    assert found.best.score <= first.score


def test_a_model_whose_answers_are_not_finite_counts_as_the_worst(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_):
        raise NotFiniteError("the model's output holds NaN in row 0")

    monkeypatch.setattr(stored, "predict", broken)
    found = world.tune("finetune", store=Store(tmp_path), objective="reference", trials=2)
    assert {t.score for t in found.trials} == {worst("reference", "").score}
    assert found.trials[0].diverged == "the model's output holds NaN in row 0"
    again = world.tune("finetune", store=Store(tmp_path), objective="reference", trials=2)
    assert again == found


def test_the_oracle_is_asked_for(world: World) -> None:
    for retrain, references in ((None, ()), (None, world.references), (world.retrain, ())):
        with error(AuditError, "gap", "reference"):
            world.search("finetune", retrain=retrain, references=references)
    with error(AuditError, world.base.key[:12]):
        world.search("finetune", references=(world.base,))
    without = replace(world.splits, val=np.zeros(0, dtype=np.int64))
    with error(AuditError, "gap", "val=0.1"):
        world.search("finetune", splits=without)
    found = world.tune("finetune", retrain=None, references=(), objective="reference")
    assert found.objective == "reference"


def test_bad_orders(world: World) -> None:
    with error(SettingsError, "'best'", "gap", "reference"):
        world.search("finetune", objective="best")
    with error(SettingsError, 0, 1):
        world.search("finetune", trials=0)
