"""What every method promises, on every kind of model: same seed same weights, base untouched, finite, eyes on its data."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regun.data.digits import load_digits
from regun.data.examples import Examples
from regun.data.registry import get_pipeline
from regun.data.tensors import TensorExamples
from regun.forget_spec import ForgetSpec
from regun.methods import amun, get_method, method_names
from regun.methods._contract import Method
from regun.methods._fresh_weights import reset
from regun.models import ModelSpec, build_model
from regun.splits import Splits, make_splits, reserve
from regun.training.job import Budget, Job, private_copy
from regun.unlearning import unlearn_job

DIGITS = load_digits(get_pipeline("digits", "digits")).train
SPLITS = make_splits(DIGITS.labels, ForgetSpec.random(0.05), reserve(DIGITS.labels, 0, heldout=0.1, val=0.1))
DEVICE = torch.device("cpu")
FEW = {"batch_size": 16, "lr": 1e-3}
SMALL = {
    "amun": {**FEW, "steps": 5, "epsilon": 0.5, "rounds": 4, "failures": "keep"},
    "ssd": {"alpha": 0.9, "micro_batch": 32},
    "lur": {**FEW, "prune_batches": 1},
    "retrain": {**FEW, "epochs": 10},
}


class Mapped(nn.Module):
    """Hugging Face style: keyword inputs, an output object with `.logits`."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = build_model(ModelSpec("cnn", {"width": 4}), 10, (1, 8, 8), 0)

    def forward(self, pixel_values: Tensor, scale: Tensor) -> "Mapped.Output":
        return Mapped.Output(self.inner(pixel_values) * scale.unsqueeze(1))

    class Output:
        def __init__(self, logits: Tensor) -> None:
            self.logits = logits


def mapped_digits() -> TensorExamples:
    x = DIGITS.fetch(np.arange(len(DIGITS))).x
    return TensorExamples({"pixel_values": x, "scale": torch.ones(len(x), dtype=torch.long)}, DIGITS.labels, 10)


MODELS = {
    "cnn": lambda: (build_model(ModelSpec("cnn", {"width": 4}), 10, (1, 8, 8), 0), DIGITS),
    "resnet18": lambda: (build_model(ModelSpec("resnet18", {"width": 4}), 10, (1, 8, 8), 0), DIGITS),
    "swin": lambda: (build_model(ModelSpec("swin-nano", {"embed_dim": 8}), 10, (1, 8, 8), 0), DIGITS),
    "mapping": lambda: (Mapped(), mapped_digits()),
}


class Watched:
    """Examples that remember which indices were fetched."""

    def __init__(self, examples) -> None:
        self.examples, self.seen = examples, set()

    def __getattr__(self, name: str):
        return getattr(self.examples, name)

    def __len__(self) -> int:
        return len(self.examples)

    def fetch(self, indices, **more):
        self.seen.update(np.asarray(indices).tolist())
        return self.examples.fetch(indices, **more)

    def pixels(self, indices, device="cpu"):
        self.seen.update(np.asarray(indices).tolist())
        return self.examples.pixels(indices, device)

    def stream(self, plan, **more):
        for indices in plan:
            self.seen.update(np.asarray(indices).tolist())
        return self.examples.stream(plan, **more)


def table_for(method: Method, examples: Examples, splits: Splits) -> torch.Tensor | None:
    """Even out-of-fold predictions, for a method that needs some."""
    shape = (len(splits.forget), examples.num_classes)
    return torch.full(shape, 1 / shape[1]) if method.needs.out_of_fold else None


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", method_names())
def test_contract(name: str, kind: str) -> None:
    model, examples = MODELS[kind]()
    method = get_method(name)
    config = method.configure(SMALL.get(name, FEW))
    base = copy.deepcopy(model.state_dict())
    results = []
    before = torch.random.get_rng_state()
    for _ in range(2):
        watched = Watched(examples)
        job = Job(
            model=private_copy(model, DEVICE),
            examples=watched,
            splits=SPLITS,
            seed=7,
            device=DEVICE,
            budget=Budget(steps=3),
            rebuild=lambda s: reset(MODELS[kind]()[0], s),
            out_of_fold=table_for(method, examples, SPLITS),
        )
        outcome = unlearn_job(job, method, config, guard=False)
        results.append(outcome.model.state_dict())
        allowed = set(SPLITS.base) | (set(SPLITS.heldout) if method.needs.uses_heldout else set())
        allowed -= set() if method.needs.retain else set(SPLITS.retain)
        assert watched.seen <= allowed  # never validation; held-out and retain only if the method says so
        assert watched.seen
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(model.state_dict()[k], v) for k, v in base.items())
    assert all(torch.isfinite(v).all() for v in results[0].values())
    assert all(torch.equal(a, b) for a, b in zip(results[0].values(), results[1].values(), strict=True))
    assert any(not torch.equal(results[0][k], v) for k, v in base.items())
    assert outcome.diverged is None
    assert outcome.cost.forward > 0
    assert outcome.cost.steps == (0 if name == "ssd" else 3) or (name == "auto" and outcome.cost.steps < 3)


def test_keep_best_returns_the_best_epoch_on_validation_and_watches_nothing_else() -> None:
    model, examples = MODELS["cnn"]()
    method = get_method("finetune")
    config = method.configure({"epochs": 4, "lr": 0.05, "batch_size": 64})
    watched = Watched(examples)
    job = Job(model=private_copy(model, DEVICE), examples=watched, splits=SPLITS, seed=7)
    outcome = unlearn_job(job, method, config, keep="best", criterion="val_loss", guard=False)
    scores = [h["val_loss"] for h in outcome.watched]
    assert len(scores) == 4
    from regun.training.forward import eval_logits
    from regun.unlearning import CRITERIA

    kept = CRITERIA["val_loss"](
        lambda _: (eval_logits(outcome.model, examples, SPLITS.val), torch.from_numpy(examples.labels[SPLITS.val]))
    )
    assert kept == pytest.approx(max(scores))
    assert watched.seen == set(SPLITS.retain) | set(SPLITS.val)


@pytest.mark.parametrize("fraction", [0.05, 0.6])
@pytest.mark.parametrize("name", method_names())
def test_the_planned_work_is_the_work_done(name: str, fraction: float) -> None:
    """Steps to the last one; samples too, but for an attack, whose length nobody knows."""
    splits = make_splits(DIGITS.labels, ForgetSpec.random(fraction), reserve(DIGITS.labels, 0))
    method = get_method(name)
    few = {k: v for k, v in {"epochs": 2, "batch_size": 100, "ascent_epochs": 1}.items() if k in vars(method.config())}
    config = method.configure({**SMALL.get(name, {}), **few}, None)
    table = table_for(method, DIGITS, splits)
    job = Job(model=private_copy(MODELS["cnn"]()[0], DEVICE), examples=DIGITS, splits=splits, seed=1, out_of_fold=table)
    cost = unlearn_job(job, method, config).cost
    planned = method.planned(config, len(splits.forget), len(splits.retain))
    assert planned is not None
    if name == "auto":  # says what it takes at most
        assert planned.steps >= cost.steps
        assert planned.samples >= cost.backward
        return
    assert planned.steps == cost.steps
    if name == "amun":  # between an attack that is over at the first look and one that takes every round
        attacked = len(splits.forget) * config.steps
        trained = planned.samples - attacked * min(config.rounds, amun.ROUNDS)
        assert trained <= cost.backward <= trained + attacked * config.rounds * (1 + 1 / config.steps)
    else:
        assert planned.samples == pytest.approx(cost.backward, rel=0.1)


def test_a_budget_replaces_the_planned_steps() -> None:
    method = get_method("regun")
    config = method.configure({}, None)
    own = method.planned(config, 4500, 36000)
    assert own is not None
    assert (own.steps, own.samples) == (360, 10 * 4500 + round(360 * 36000 / 282))
    budgeted = method.planned(config, 4500, 36000, Budget(steps=90))
    assert budgeted is not None
    assert budgeted.steps == 90
    assert get_method("ssd").planned(get_method("ssd").configure({}, None), 10, 90, Budget(steps=90)).steps == 0
    assert get_method(lambda job: None).planned(None, 10, 90) is None
