"""A run rebuilt from its artifact is the run that made it; whatever a method draws follows from its seed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from expect import error
from regun.artifacts import Store
from regun.artifacts.setup import Setup
from regun.artifacts.trainings import Training, find_retrained, train_model
from regun.artifacts.unlearnings import Unlearning, unlearn_model
from regun.data.registry import DataSpec
from regun.errors import RegunError, StoreError
from regun.forget_spec import ForgetSpec
from regun.methods import get_method
from regun.models import ModelSpec
from regun.models.forward import logits_of
from regun.predict import predict
from regun.splits import make_splits
from regun.training.fit import Fitted, fit
from regun.training.job import Budget, frozen_copy
from regun.training.recipes import RECIPES, Recipe, Updates
from regun.training.streams import paired
from regun.unlearning import CRITERIA, unlearn_job
from toys import blobs, job_for, mlp, same_state

CPU = torch.device("cpu")
RECIPE = replace(RECIPES["digits"], epochs=2)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("runs") / "store")
    setup = Setup(
        data=DataSpec.read("digits", {"limit": 300}),
        model=ModelSpec("cnn", {"width": 4}),
        recipe=RECIPE,
        pipeline="digits",
    )
    data, kept = setup.load()
    splits = make_splits(data.train.labels, ForgetSpec.random(0.1), kept)
    training = Training(
        data=data, trained_on=kept.base, model=setup.model, recipe=RECIPE, seed=3, budget=Budget(steps=4)
    )
    base = train_model(training, store, CPU, about=setup.about())
    again = replace(training, trained_on=splits.retain)
    retrained = train_model(again, store, CPU, about=setup.about())
    return store, setup, data, splits, training, base, retrained


def test_a_training_comes_back_whole(world) -> None:
    store, setup, data, splits, training, base, retrained = world
    assert Training.of(base, data).inputs(CPU) == training.inputs(CPU) == base.inputs
    other = Training.of(base, data, trained_on=splits.retain, seed=9)
    assert (other.seed, other.budget, other.recipe.epochs) == (9, Budget(steps=4), 2)
    assert np.array_equal(other.trained_on, splits.retain)
    assert Setup.of(base) == replace(setup, recipe=replace(RECIPE, precision="fp32"))
    assert find_retrained(store, base, splits.retain) == [retrained]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"budget": Budget(steps=3)},
        {"budget": Budget(samples=99)},
        {"keep": "best", "criterion": "val_loss"},
        "reference",
    ],
)
def test_an_unlearning_comes_back_whole(world, more) -> None:
    store, _, data, splits, _, base, retrained = world
    method = get_method("regun")
    given = {"teacher": retrained} if more == "reference" else dict(more)
    values = {"epochs": 1, "batch_size": 16, **({"source": "given"} if more == "reference" else {})}
    run = Unlearning(
        base=base, data=data, splits=splits, method=method, config=method.configure(values), seed=5, **given
    )
    made = unlearn_model(run, store, CPU, about={})
    back = Unlearning.of(made, data, store)
    assert back.inputs() == run.inputs() == made.inputs
    assert (back.budget, back.keep, back.config) == (run.budget, run.keep, run.config)
    assert unlearn_model(back, store, CPU, about={}).key == made.key


@pytest.mark.parametrize("spec", ["{file}", "{file};lr=1", "{file}@x;lr=1", "{file}:unlearn;lr=1"])
def test_code_that_a_setting_of_a_stored_run_names_is_not_run(world, tmp_path, spec: str) -> None:
    store, _, data, *_, base, _ = world
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    method = {"name": "rum", "config": {"hard": spec.format(file=tmp_path / "theirs.py")}, "code": ""}
    hostile = replace(base, manifest={**base.manifest, "inputs": {**base.inputs, "method": method}})
    with error(RegunError, "--method", tmp_path / "theirs.py"):
        Unlearning.of(hostile, data, store)
    assert not (tmp_path / "ran").exists()


def test_what_is_no_such_run_is_refused(world) -> None:
    store, _, data, splits, _, base, _ = world
    with error(StoreError, base.key[:12], "unlearned"):
        Unlearning.of(base, data, store)
    method = get_method("ssd")
    run = Unlearning(base=base, data=data, splits=splits, method=method, config=method.configure({}), seed=0)
    unlearned = unlearn_model(run, store, CPU, about={})
    with error(StoreError, unlearned.key[:12], "training"):
        Training.of(unlearned, data)


def test_retraining_sees_the_data_as_the_base_did_and_unlearning_without_strong_augmentation() -> None:
    setup = Setup(
        data=DataSpec.read("cifar10", {"root": "."}),
        model=ModelSpec("swin-nano"),
        recipe=Recipe(),
        pipeline="swin-small",
    )
    from regun.data.arrays import ArrayExamples
    from regun.data.examples import Data
    from regun.data.registry import get_pipeline

    images = np.zeros((4, 32, 32, 3), np.uint8)
    train = ArrayExamples(images, np.arange(4), 10, get_pipeline("swin-small", "cifar10"))
    data = Data("cifar10", train, train, (3, 32, 32))
    assert setup.data_for(get_method("retrain"), data).train.pipeline.name == "swin-small"
    assert setup.data_for(get_method("regun"), data).train.pipeline.name == "resnet"
    chosen = replace(setup, unlearn_pipeline="none")
    assert chosen.data_for(get_method("regun"), data).train.pipeline.name == "none"


def fresh_teacher(job) -> Fitted:
    """Draws numbers before and after the loop, as a freshly initialised teacher does."""
    teacher = nn.Linear(6, 3)
    noise = torch.rand(3)

    def loss(step):
        with torch.no_grad():
            target = logits_of(teacher, step.forget.x).softmax(1)
        return nn.functional.cross_entropy(job.logits(step.forget.x), target)

    fitted = fit(job, paired(job, 8, 8), loss, Updates(epochs=1))
    with torch.no_grad():
        job.model[-1].bias += noise + float(np.random.rand())  # noqa: NPY002
    return fitted


def test_what_a_method_draws_outside_the_loop_follows_from_the_seed() -> None:
    states = []
    for disturb in (1, 2, 3):
        torch.manual_seed(disturb)
        before = torch.random.get_rng_state()
        job = job_for(mlp(), blobs(), seed=5)
        states.append(
            unlearn_job(job, get_method(fresh_teacher), None or get_method(fresh_teacher).configure({})).model
        )
        assert torch.equal(torch.random.get_rng_state(), before)
    assert same_state(states[0], states[1])
    assert same_state(states[1], states[2])
    other = unlearn_job(
        job_for(mlp(), blobs(), seed=6), get_method(fresh_teacher), get_method(fresh_teacher).configure({})
    )
    assert not same_state(states[0], other.model)


def test_every_forward_pass_counts_a_teachers_too() -> None:
    job = job_for(mlp(), blobs())
    outcome = unlearn_job(job, get_method(fresh_teacher), get_method(fresh_teacher).configure({}))
    forgotten = len(job.indices("forget"))
    assert outcome.cost.backward == forgotten
    assert outcome.cost.forward == 2 * forgotten  # the model's pass and the teacher's

    def asks_first(job) -> None:
        logits_of(frozen_copy(job.model), job.examples.fetch(job.indices("retain")).x)

    job = job_for(mlp(), blobs())
    asked = unlearn_job(job, get_method(asks_first), get_method(asks_first).configure({}))
    assert (asked.cost.forward, asked.cost.backward) == (len(job.indices("retain")), 0)


def test_a_model_called_directly_costs_what_was_read() -> None:
    def direct(job) -> Fitted:
        return fit(job, paired(job, 8, 8), lambda s: job.model(s.retain.x).square().mean(), Updates(epochs=1))

    job = job_for(mlp(), blobs())
    outcome = unlearn_job(job, get_method(direct), get_method(direct).configure({}))
    assert outcome.cost.forward == outcome.cost.backward > 0


def test_watching_validation_is_no_cost_of_the_method() -> None:
    method = get_method("finetune")
    config = method.configure({"epochs": 2, "batch_size": 32})
    costs = [unlearn_job(job_for(mlp(), blobs()), method, config, keep=keep).cost for keep in ("last", "best")]
    assert costs[0].forward == costs[1].forward == costs[1].backward


def test_rewinding_keeps_the_epoch_whose_forget_error_is_nearest_to_the_unseen_one() -> None:
    said = {
        "forget": (torch.eye(3)[[0, 0, 1, 1]], torch.tensor([0, 1, 1, 0])),  # half wrong
        "val": (torch.eye(3)[[0, 0, 2, 2]], torch.tensor([0, 1, 2, 0])),  # of classes 0 and 1: two of three wrong
    }
    assert CRITERIA["unseen_error"](lambda part: said[part]) == pytest.approx(-(2 / 3 - 1 / 2))
    none = {**said, "val": (torch.eye(3)[[2]], torch.tensor([2]))}
    with error(RegunError, "forgotten", "classes"):
        CRITERIA["unseen_error"](lambda part: none[part])
    method = get_method("neggrad")
    job = job_for(mlp(), blobs())
    config = method.configure({"epochs": 4, "batch_size": 8, "lr": 0.05})
    outcome = unlearn_job(job, method, config, keep="best", criterion="unseen_error")
    scores = [epoch["unseen_error"] for epoch in outcome.watched]
    assert len(scores) == 4
    found = {part: predict(outcome.model, job.examples, getattr(job.splits, part)) for part in ("forget", "val")}
    wrong = [(s.predicted != s.labels)[np.isin(s.labels, found["forget"].labels)].mean() for s in found.values()]
    assert -abs(wrong[0] - wrong[1]) == pytest.approx(max(scores))
