"""Out-of-sample models: trained once, stored until the commit, the same for whoever tries again."""

from pathlib import Path

import pytest
import torch
from small_project import ERASE, Memory, data, failed, forget, ids, network, project, receipt_path, weights
from torch import nn

import regun
import regun.artifacts.out_models
from expect import assert_names, error
from regun.deletion import Options, reaudit_receipt, verify_folder
from regun.errors import StoreError

SHORT = {"retrain": {"epochs": 8, "lr": 0.05, "batch_size": 32}}
MEMORY = {"model": Memory(), "rebuild": lambda seed: Memory(0.0, seed)}
QUICKLY = Options(bootstrap=20)


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of the out-of-sample models that were trained."""
    seeds: list[int] = []
    real = regun.artifacts.out_models.train_from_scratch

    def spy(job, *args, **more):
        seeds.append(job.seed)
        return real(job, *args, **more)

    monkeypatch.setattr(regun.artifacts.out_models, "train_from_scratch", spy)
    return seeds


def test_they_are_planned_and_their_cost_is_stated(tmp_path: Path, trainings: list[int]) -> None:
    plans: list[str] = []
    stages: list[str] = []
    request = regun.DeletionRequest.of(ids()[:20])
    given = project(method="finetune,epochs=1", **SHORT)
    options = Options(out_models=3, bootstrap=20)
    show = {"on_plan": lambda plan: plans.append(plan.judging), "on_stage": stages.append}
    done = regun.forget(given, request, tmp_path, options, **show)
    assert_names(plans[0], 3, 2, 10)
    assert len(stages) == 4
    assert len(set(trainings)) == 3
    about = done.receipt["audit"]["out_models"]
    assert (about["kind"], about["models"], about["cost"]["steps"], about["recipe"]["epochs"]) == ("short", 3, 30, 2)
    assert failed(verify_folder(tmp_path)) == []
    assert failed(reaudit_receipt(receipt_path(tmp_path), given)) == []
    path = tmp_path / "requests/0001/out_models.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    assert failed(verify_folder(tmp_path)) == [path.name]


def test_a_second_try_is_judged_by_the_same_models(tmp_path: Path, trainings: list[int]) -> None:
    for seed in (0, 1):
        forget(tmp_path, ids()[:5], Options(accept="forgotten, val_drop<-100", seed=seed, bootstrap=20), **SHORT)
    assert trainings[:2] == trainings[2:]
    one, two = ((tmp_path / f"requests/000{n}/out_models.safetensors").read_bytes() for n in (1, 2))
    assert one == two


class Stopped(BaseException):
    """Stands for a kill: nothing may catch it."""


def stop(*args: object, **more: object) -> None:
    raise Stopped


def test_a_killed_request_keeps_its_models_until_the_commit(
    tmp_path: Path, trainings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = forget(tmp_path / "whole", ids()[:5], QUICKLY, **SHORT).receipt["audit"]["influence"]
    out = tmp_path / "out"
    for place in ("regun.deletion.assess.Assessor.assess", "regun.deletion.folder.append"):
        with monkeypatch.context() as patch:
            patch.setattr(place, stop)
            with pytest.raises(Stopped):
                forget(out, ids()[:5], QUICKLY, **SHORT)
        assert len(trainings) == 4
    stored = sorted((out / ".regun-work/artifacts").rglob("*.safetensors"))
    assert len(stored) == 3
    assert {path.parent.stat().st_mode & 0o777 for path in stored} == {0o700}
    assert forget(out, ids()[:5], QUICKLY, **SHORT).receipt["audit"]["influence"] == whole
    assert len(trainings) == 4
    assert not (out / ".regun-work").exists()


def test_a_damaged_stored_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("regun.deletion.assess.Assessor.assess", stop)
        with pytest.raises(Stopped):
            forget(tmp_path, ids()[:5], QUICKLY, **SHORT)
    damaged = next((tmp_path / ".regun-work/artifacts").rglob("log_probs.safetensors"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    with error(StoreError, damaged):
        forget(tmp_path, ids()[:5], QUICKLY, **SHORT)


def test_other_data_or_another_recipe_need_other_models(
    tmp_path: Path, trainings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regun.deletion.assess.Assessor.assess", stop)
    x, y = data()["test"]
    others = ({"retrain": {**SHORT["retrain"], "lr": 0.04}}, {"test": (x + 1, y)}, {"rebuild": lambda seed: network(3)})
    for changes in ({}, *others, {}):
        with pytest.raises(Stopped):
            forget(tmp_path, ids()[:5], QUICKLY, **{**SHORT, **changes})
    assert len(trainings) == 8


class Scaled(nn.Module):
    """A network that cannot reset all its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = network(), nn.Parameter(torch.ones(1))
        self.inner.load_state_dict(weights())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.inner(x)


def test_a_model_without_fresh_weights_is_inconclusive(tmp_path: Path) -> None:
    done = forget(tmp_path, ids()[:5], QUICKLY, model=Scaled())
    assert done.status == "inconclusive"
    assert_names(done.plan.judging, "'scale'")
    assert_names(done.receipt["audit"]["out_models"]["why"], "'scale'", "rebuild")


def test_retrained_models_are_used_where_there_are_some(tmp_path: Path, trainings: list[int]) -> None:
    given = {**MEMORY, "method": ERASE, "retrained": lambda forgotten: [Memory(0.0, 1), Memory(0.0, 2)]}
    done = forget(tmp_path, ids()[:20], QUICKLY, **given)
    assert (done.receipt["audit"]["out_models"]["kind"], done.status, trainings) == ("retrained", "accepted", [])
    assert failed(reaudit_receipt(receipt_path(tmp_path), project(**given))) == []


def test_none_are_trained_for_a_model_retrained_from_scratch(tmp_path: Path, trainings: list[int]) -> None:
    done = forget(tmp_path, ids()[:5], Options(accept="forgotten", bootstrap=20), method="retrain,epochs=1")
    assert (done.status, trainings) == ("accepted", [])


def test_a_training_that_diverges_is_inconclusive(tmp_path: Path) -> None:
    done = forget(tmp_path, ids()[:5], QUICKLY, retrain={"epochs": 4, "lr": 1e30, "batch_size": 16})
    assert done.status == "inconclusive"
    assert done.receipt["audit"]["out_models"]["models"] == 0
