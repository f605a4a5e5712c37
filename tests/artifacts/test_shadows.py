"""U-LiRA: shadows repeat the target's run exactly, on forget sets of its size; each candidate takes its turns."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import regun.artifacts.shadows as shadows_module
from expect import error
from regun.artifacts import Store
from regun.artifacts.setup import Setup
from regun.artifacts.shadows import _draws, audit_by_shadows
from regun.artifacts.trainings import Training, train_model
from regun.artifacts.unlearnings import Unlearning, unlearn_model
from regun.data.registry import DataSpec
from regun.errors import AuditError
from regun.forget_spec import ForgetSpec
from regun.methods import get_method
from regun.models import ModelSpec
from regun.splits import make_splits
from regun.training.job import Budget
from regun.training.recipes import Recipe

CPU = torch.device("cpu")
RECIPE = Recipe(epochs=12, lr=0.05, nesterov=True, schedule="cosine", batch_size=64)


def nothing(job) -> None:
    """Forget nothing at all."""


def world(tmp_path, method, values=None, recipe=RECIPE, fraction=0.1, **more):
    torch.set_num_threads(1)
    store = Store(tmp_path / "store")
    setup = Setup(data=DataSpec.read("digits", {}), model=ModelSpec("cnn"), recipe=recipe, pipeline="digits")
    data, kept = setup.load()
    splits = make_splits(data.train.labels, ForgetSpec.random(fraction), kept)
    training = Training(data=data, trained_on=kept.base, model=setup.model, recipe=recipe, seed=0)
    base = train_model(training, store, CPU, about=setup.about())
    found = get_method(method)
    config = found.configure(values or {})
    run = Unlearning(base=base, data=data, splits=splits, method=found, config=config, seed=0, **more)
    return store, data, run, unlearn_model(run, store, CPU, about={})


def test_what_was_not_unlearned_is_found_far_more_than_what_was_retrained(tmp_path) -> None:
    """Over the same shadows' candidates: forgetting nothing stands out, retraining does not."""
    aucs = {}
    for name, method in (("nothing", nothing), ("retrain", "retrain")):
        values = (
            {}
            if name == "nothing"
            else {k: getattr(RECIPE, k) for k in ("epochs", "lr", "nesterov", "schedule", "batch_size")}
        )
        store, data, run, target = world(tmp_path / name, method, values)
        found = audit_by_shadows(target, run, data, store, CPU, shadows=4, bootstrap=100)
        assert (found.members, found.nonmembers) == (len(run.splits.forget), len(run.splits.forget))
        assert found.auc.low is not None
        aucs[name] = found.auc.value
    assert aucs["nothing"] > aucs["retrain"] + 10, aucs  # 30 points apart on every processor tried


def test_shadows_repeat_the_run_of_the_target_exactly(tmp_path, monkeypatch) -> None:
    quick = replace(RECIPE, epochs=1)
    more = {"budget": Budget(steps=3), "keep": "best", "criterion": "val_loss"}
    store, data, run, target = world(tmp_path, "finetune", {"batch_size": 32, "epochs": 2}, quick, 0.05, **more)
    trained, unlearned = [], []
    monkeypatch.setattr(shadows_module, "train_model", lambda t, *a, **k: trained.append(t) or train_model(t, *a, **k))
    monkeypatch.setattr(
        shadows_module, "unlearn_model", lambda u, *a, **k: unlearned.append(u) or unlearn_model(u, *a, **k)
    )
    audit_by_shadows(target, Unlearning.of(target, data, store), data, store, CPU, shadows=4, bootstrap=10)
    assert len(trained) == len(unlearned) == 4
    for training, again in zip(trained, unlearned, strict=True):
        theirs, ours = run.base.inputs, training.inputs(CPU)
        assert {k: ours[k] for k in ours if k not in ("trained_on", "seed")} == {
            k: theirs[k] for k in theirs if k not in ("trained_on", "seed")
        }
        assert (again.method.name, again.config, again.budget) == ("finetune", run.config, run.budget)
        assert (again.keep, again.criterion) == ("best", "val_loss")
        assert len(again.splits.forget) == len(run.splits.forget)
        assert np.array_equal(again.splits.retain, run.splits.retain)
        assert np.array_equal(training.trained_on, again.splits.base)


@pytest.mark.parametrize(("count", "forgotten"), [(20, 10), (11, 8), (9, 7), (40, 20)])
def test_forget_sets_have_the_targets_size_and_every_candidate_is_in_both_worlds(count: int, forgotten: int) -> None:
    out = count - forgotten
    turns = np.array(list(_draws(count, forgotten, 4 * -(-count // out), 0)))
    assert (turns.sum(1) == forgotten).all()
    assert ((~turns).sum(0) >= 4).all()
    assert (turns.sum(0) >= 4).all()
    assert np.ptp(turns.sum(0)) <= 4


def test_too_few_shadow_runs_are_refused_with_how_many_it_takes() -> None:
    with error(AuditError, "4"):
        list(_draws(20, 10, 3, 0))
    with error(AuditError, "10"):
        list(_draws(10, 8, 9, 0))
