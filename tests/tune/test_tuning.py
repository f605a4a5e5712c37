"""Tuning on models of the store: ordinary artefacts, judged without test data, found again, never worse than the start."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import regun.tune.tuning as tuning_module
from regun.data.catalogue import DataSpec, load_data
from regun.data.examples import Examples
from regun.errors import AuditError, RegunError, SettingsError
from regun.evaluate import evaluate
from regun.methods import get_method, method_names
from regun.models import ModelSpec
from regun.runs.audit import Models, split_signals
from regun.runs.training import Training, Unlearning, train_model, unlearn_model
from regun.splits import Request, make_splits, reserve
from regun.store import Artefact, Store
from regun.training.job import Budget
from regun.training.recipes import RECIPES
from regun.tune import Space, Tuned, Tuning, check_oracle, tune_method
from regun.tune.objectives import worst

pytest.importorskip("optuna")
CPU = torch.device("cpu")
METHODS = [name for name in method_names() if name != "retrain"]


@dataclass(frozen=True)
class Untouchable:
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
    data: object
    splits: object
    base: Artefact
    models: Models

    def tune(self, name: str = "finetune", *, values=None, **more) -> Tuned:
        method = get_method(name)
        start = method.configure(values or {})
        options = {"trials": 4, "budget": Budget(steps=4), **more}
        where = (self.base, self.data, self.splits)
        models = options.pop("models", self.models)
        return tune_method(*where, method, start, models, options.pop("store", self.store), CPU, **options)

    def tuning(self, name: str, objective: str = "reference", **more) -> Tuning:
        method = get_method(name)
        start = method.configure({})
        run = Unlearning(self.base, self.data, self.splits, method, start, 0, Budget(steps=4))
        return Tuning(run, Space.of(method, start, "resnet"), objective, 4, models=self.models, **more)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    store = Store(tmp_path_factory.mktemp("store"))
    data = load_data(DataSpec.read("digits", {"limit": 400, "test_limit": 50}), "digits")
    kept = reserve(data.train.labels, 0)
    splits = make_splits(data.train.labels, Request.random(0.1), kept)

    def train(indices, seed: int) -> Artefact:
        training = Training(data, indices, ModelSpec("cnn"), replace(RECIPES["digits"], epochs=12), seed)
        return train_model(training, store, CPU, about={})

    base = train(kept.base, 0)
    retrain, *references = [train(splits.retain, seed) for seed in (0, 1, 2)]
    yield World(
        store, replace(data, test=Untouchable(data.test)), splits, base, Models(base, retrain, tuple(references))
    )
    torch.set_num_threads(threads)


# -------------------------------------------------------------------------------------------------------- what it finds


@pytest.mark.parametrize("objective", ["gap", "reference"])
@pytest.mark.parametrize("name", METHODS)
def test_no_method_ends_worse_than_its_default_and_test_data_are_never_fetched(
    name: str, objective: str, world: World
) -> None:
    found = world.tune(name, objective=objective, trials=3)
    assert found.best_score == min(t.score for t in found.trials) <= found.default_score
    assert found.trials[0].values == {k: getattr(get_method(name).configure({}), k) for k in found.trials[0].values}
    assert set(found.best_values) == set(get_method(name).search["resnet"])
    assert len(found.trials) == (1 if name == "ssd" else 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_twenty_trials_improve_the_validation_gap_or_keep_the_default(name: str, world: World) -> None:
    found = world.tune(name, trials=20, budget=Budget(steps=30))
    assert found.best_score < found.default_score or found.best.number == 0
    assert len(found.trials) == min(20, Space.of(get_method(name), get_method(name).configure({}), "resnet").size or 20)


def test_the_score_of_a_trial_is_the_audits_validation_gap(world: World) -> None:
    found = world.tune("finetune")
    judge = {k: split_signals(a, replace(world.data, test=world.data.test.inner), world.splits, world.store)
             for k, a in (("retrain", world.models.retrain), *enumerate(world.models.references))}  # fmt: skip
    for trial in found.trials:
        model = world.store.load("model", trial.judged.model)
        assert model.info["config"]["lr"] == trial.values["lr"]
        signals = split_signals(model, replace(world.data, test=world.data.test.inner), world.splits, world.store)
        audit = evaluate(signals, judge["retrain"], [judge[0], judge[1]], attacks=["rmia"], bootstrap=0, floor=False)
        assert trial.score == pytest.approx(audit.values()["gap_rfvp"])


def test_trials_are_ordinary_artefacts_and_the_second_search_makes_nothing(world: World, tmp_path: Path) -> None:
    first = world.tune("salun")
    run = Unlearning(world.base, world.data, world.splits, get_method("salun"), get_method("salun").configure(first.best_values), 0, Budget(steps=4))  # fmt: skip
    assert world.store.key("model", run.inputs()) == first.best.judged.model
    before = {a.key for a in world.store.artefacts()}
    told: list = []
    again = world.tune("salun", on_trial=told.append)
    assert (again, told) == (first, [])
    for path in (world.store.root / "tuning").glob("*.sqlite"):
        path.unlink()
    world.store.path("tuning", first.key).rename(tmp_path / "gone")  # the search is lost, its models are not
    repeated = world.tune("salun", on_trial=told.append)
    assert repeated == first
    assert len(told) == 4
    assert {a.key for a in world.store.artefacts()} == before


def test_a_search_is_an_artefact_with_a_key_of_its_own(world: World) -> None:
    found = world.tune("finetune", seed=1)
    stored = world.store.load("tuning", found.key)
    assert Tuned.from_json(stored.info["tuned"]) == found
    keys = {
        world.tuning(name, objective, **more).key()
        for name, objective, more in (
            ("finetune", "gap", {}),
            ("regun", "gap", {}),
            ("finetune", "reference", {}),
            ("finetune", "gap", {"seed": 5}),
            ("finetune", "gap", {"pareto": True}),
        )
    }
    assert len(keys) == 5
    longer = replace(world.tuning("finetune", "gap"), trials=9)
    assert longer.key() != world.tuning("finetune", "gap").key()
    assert longer.inputs() == world.tuning("finetune", "gap").inputs()  # the same trials, only more of them


def test_two_searches_of_one_seed_are_equal_in_fresh_stores(world: World, tmp_path: Path) -> None:
    """Not only the settings: the scores of models made twice are equal too."""
    found = []
    for name in ("a", "b"):
        tuned = world.tune("regun", store=Store(tmp_path / name), objective="reference", trials=7)
        found.append([(t.values, t.score, t.judged.parts, t.judged.model) for t in tuned.trials])
    assert found[0] == found[1]


def test_a_step_budget_is_the_same_for_every_method(world: World) -> None:
    steps = {
        t.judged.steps
        for name in ("finetune", "regun", "scrub")
        for t in world.tune(name, objective="reference").trials
    }
    assert steps == {4}


def test_settings_that_were_given_stay(world: World) -> None:
    found = world.tune(
        "regun", values={"lr": 0.02, "batch_size": 16}, fixed=("lr", "batch_size"), objective="reference"
    )
    assert set(found.best_values) == {"w"}
    assert found.settings == {"lr": 0.02, "batch_size": 16, "w": found.best_values["w"]}
    assert world.store.load("model", found.best.judged.model).info["config"]["lr"] == 0.02


def test_nothing_to_search_keeps_the_default_and_says_so(world: World) -> None:
    found = world.tune("ssd", objective="reference")
    assert (len(found.trials), found.best_values) == (1, {})
    assert (
        found.note == "nothing to search: the method names no ranges for this family of models, so the default is kept"
    )
    assert world.tune("finetune", trials=9).note == "all 4 combinations were tried"


def test_the_front_of_a_pareto_search_is_not_dominated(world: World) -> None:
    found = world.tune("regun", objective="reference", pareto=True, trials=9)
    front = found.front
    assert found.best.score == min(t.score for t in front)
    for kept in front:
        beaten = [
            t
            for t in found.trials
            if t.judged.forgetting <= kept.judged.forgetting
            and t.judged.utility <= kept.judged.utility
            and (t.judged.forgetting, t.judged.utility) != (kept.judged.forgetting, kept.judged.utility)
        ]
        assert beaten == []


# ----------------------------------------------------------------------------------------------- what must not happen


def test_the_examples_that_judge_are_not_those_regun_learns_from(world: World) -> None:
    tuning = world.tuning("regun")
    run = tuning.trial({"w": 0.3})
    assert run.config.w == 0.3
    assert not np.intersect1d(run.splits.heldout, tuning.scored_on).size
    assert len(run.splits.heldout) == len(world.splits.heldout) // 2
    assert set(world.splits.val) <= set(tuning.scored_on)
    assert world.tuning("finetune").trial({}).splits is world.splits  # it never looks at held-out examples
    assert world.tuning("regun", "gap").trial({}).splits is world.splits


def test_a_users_own_method_does_not_see_them_either(world: World) -> None:
    seen: list[np.ndarray] = []

    def curious(job) -> None:
        seen.append(job.indices("heldout"))

    method = get_method(curious)
    run = Unlearning(world.base, world.data, world.splits, method, method.configure({}), 0)
    tuning = Tuning(run, Space({}, {}), "reference", 1)
    unlearn_model(tuning.trial({}), world.store, CPU, about={})
    assert not np.intersect1d(seen[0], tuning.scored_on).size


@pytest.mark.parametrize("objective", ["gap", "reference"])
def test_a_diverged_trial_counts_as_the_worst(objective: str, world: World) -> None:
    values = {"lr": 1e37, "batch_size": 8}
    found = world.tune("neggrad", values=values, objective=objective, trials=5, budget=Budget(steps=9))
    start, *others = found.trials
    assert start.judged.diverged
    assert start.score == worst(objective).score
    assert not any(t.judged.diverged for t in others)
    assert all(t.score < start.score for t in others)
    assert found.best.number != 0


def test_a_model_whose_answers_are_not_finite_counts_as_the_worst(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning_module, "eval_logits", lambda m, e, part, d: torch.full((len(part), 10), float("inf")))
    found = world.tune("finetune", objective="reference", trials=2, seed=77)
    assert {t.score for t in found.trials} == {worst("reference").score}
    assert found.trials[0].judged.diverged == "the model's answers are not finite"


def test_an_interrupted_search_keeps_its_finished_trials(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = tuning_module.unlearn_model

    def counting(run, *args, **more):
        if len(made) == 2:
            made.append("stopped")
            raise KeyboardInterrupt
        made.append(str(run.config.lr))
        return real(run, *args, **more)

    monkeypatch.setattr(tuning_module, "unlearn_model", counting)
    with pytest.raises(KeyboardInterrupt):
        world.tune("finetune", seed=5)
    found = world.tune("finetune", seed=5)
    assert len(found.trials) == 4
    assert len(made) == 2 + 1 + 2


def test_the_oracle_is_asked_for(world: World) -> None:
    for models in (None, Models(world.base), Models(world.base, world.models.retrain)):
        with pytest.raises(AuditError, match="the objective gap needs the retrained model and at least one reference"):
            world.tune("finetune", models=models)
    with pytest.raises(AuditError, match="was trained on .* forgotten examples"):
        world.tune("finetune", models=Models(world.base, world.models.retrain, (world.base,)))
    without = replace(world.splits, val=np.zeros(0, dtype=np.int64))
    with pytest.raises(AuditError, match="measured on validation examples and the split has none"):
        check_oracle(world.models, without)
    assert world.tune("finetune", models=None, objective="reference").objective == "reference"


def test_bad_orders(world: World) -> None:
    with pytest.raises(SettingsError, match="unknown objective 'best'"):
        world.tune("finetune", objective="best")
    with pytest.raises(SettingsError, match="a search has 0 trials"):
        world.tune("finetune", trials=0)


def test_without_optuna_the_way_out_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RegunError, match="a search needs Optuna, which is not installed: pip install 'regun.tune.'"):
        world.tune("finetune", seed=99)
