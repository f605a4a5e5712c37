"""Recipes: torch's mathematics, other people's settings, shortened in scale, and the one assumed where none is known."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from expect import error
from regun.errors import SettingsError
from regun.methods import crossfit, get_method
from regun.rng import ADDED, rng_key
from regun.settings import to_json
from regun.training.recipe_sources import recipe_from_torch, recipe_from_training_arguments
from regun.training.recipes import RECIPES, Recipe, as_recipe, assumed_recipe, build_optimizer, shorten
from regun.training.scratch import train_from_scratch
from regun.training.streams import one_pass
from toys import blobs, job_for

EPOCHS, BATCH = 3, 16


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def torch_loop(make_optimizer, make_scheduler, every: str, *, clip: float | None = None, smoothing: float = 0.0):
    """Return weights of a plain loop on the batches that regun's loop sees, with the scheduler's usual place."""
    model = net()
    job = job_for(net(), blobs())
    stream = one_pass(job, "retain", job.indices("retain"), BATCH)
    optimizer = make_optimizer(model)
    scheduler = make_scheduler(optimizer, stream.steps(0)) if make_scheduler else None
    source = recipe_from_torch(
        optimizer, scheduler, epochs=EPOCHS, batch_size=BATCH, steps_per_epoch=stream.steps(0), clip_norm=clip,
        label_smoothing=smoothing,
    )  # fmt: skip
    for epoch in range(EPOCHS):
        for parts in stream.run(epoch, 0):
            optimizer.zero_grad()
            batch = parts["retain"]
            functional.cross_entropy(model(batch.x), batch.y, label_smoothing=smoothing).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if scheduler is not None and every == "batch":
                scheduler.step()
        if scheduler is not None and every == "epoch":
            scheduler.step()
    return model, source


def warm(name: str, warmup: int):
    """The schedules of `transformers.get_..._schedule_with_warmup`."""
    import transformers

    def make(optimizer, steps: int):
        make = getattr(transformers, f"get_{name}_schedule_with_warmup")
        more = {} if name == "constant" else {"num_training_steps": EPOCHS * steps}
        return make(optimizer, num_warmup_steps=warmup, **more)

    return make


SCHEDULERS = torch.optim.lr_scheduler
SGD = lambda m: torch.optim.SGD(m.parameters(), lr=0.3, momentum=0.9, nesterov=True, weight_decay=1e-3)  # noqa: E731
ADAM = lambda m: torch.optim.Adam(m.parameters(), lr=0.02, betas=(0.8, 0.99), weight_decay=0.1)  # noqa: E731
ADAMW = lambda m: torch.optim.AdamW(m.parameters(), lr=0.02)  # noqa: E731


@pytest.mark.parametrize(
    ("optimizer", "scheduler", "every", "more"),
    [
        (SGD, None, "", {}),
        (ADAM, None, "", {"smoothing": 0.1}),
        (ADAMW, None, "", {"clip": 0.05}),
        (ADAMW, warm("linear", 4), "batch", {"clip": 0.5, "smoothing": 0.2}),
        (SGD, warm("cosine", 5), "batch", {}),
        (ADAMW, warm("constant", 3), "batch", {}),
        (SGD, lambda o, n: SCHEDULERS.CosineAnnealingLR(o, EPOCHS, eta_min=0.01), "epoch", {}),
        (SGD, lambda o, n: SCHEDULERS.CosineAnnealingLR(o, EPOCHS * n), "batch", {}),
        (SGD, lambda o, n: SCHEDULERS.StepLR(o, 1, gamma=0.5), "epoch", {}),
        (ADAM, lambda o, n: SCHEDULERS.MultiStepLR(o, [1, 2], gamma=0.3), "epoch", {}),
        (ADAM, lambda o, n: SCHEDULERS.ExponentialLR(o, 0.7), "epoch", {}),
    ],
)
def test_the_loop_trains_as_a_plain_torch_loop_does(optimizer, scheduler, every: str, more: dict) -> None:
    if isinstance(getattr(scheduler, "__closure__", None), tuple):
        pytest.importorskip("transformers")
    theirs, recipe = torch_loop(optimizer, scheduler, every, **more)
    job = job_for(net(), blobs())
    train_from_scratch(job, job.indices("retain"), recipe)
    for one, other in zip(job.model.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    assert not torch.allclose(next(iter(theirs.parameters())), next(iter(net().parameters())))


def test_weight_decay_that_is_left_out_is_torch_s() -> None:
    for name, kind in (("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)):
        wanted = kind(net().parameters(), lr=0.1).defaults["weight_decay"]
        for made in (
            Recipe(optimizer=name),
            as_recipe({"epochs": 3, "lr": 0.1, "optimizer": name}),
            get_method("retrain").configure({"epochs": 3, "lr": 0.1, "optimizer": name}),
        ):
            assert made.weight_decay == wanted
            assert build_optimizer(net(), made).param_groups[0]["weight_decay"] == wanted
    assert Recipe(optimizer="adamw", weight_decay=0.0).weight_decay == 0.0
    assert get_method("finetune").configure({"optimizer": "adamw"}).weight_decay == 0.0, "methods are as published"


def arguments(**changes) -> SimpleNamespace:
    """What a Trainer has by default, apart from `changes`."""
    plain = {
        "num_train_epochs": 3.0, "max_steps": -1, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1,
        "n_gpu": 0, "learning_rate": 5e-5, "weight_decay": 0.0, "adam_beta1": 0.9, "adam_beta2": 0.999,
        "adam_epsilon": 1e-8, "max_grad_norm": 1.0, "lr_scheduler_type": "linear", "warmup_steps": 0, "fp16": False,
        "optim": "adamw_torch_fused", "label_smoothing_factor": 0.0, "bf16": False,
    }  # fmt: skip
    return SimpleNamespace(**(plain | changes))


def test_a_trainer_s_arguments() -> None:
    made = recipe_from_training_arguments(arguments())
    assert (made.epochs, made.batch_size, made.optimizer, made.lr, made.schedule) == (3, 8, "adamw", 5e-5, "linear")
    assert (made.weight_decay, made.decay, made.clip_norm, made.warmup_ratio) == (0.0, "weights", 1.0, 0.0)
    more = {"gradient_accumulation_steps": 4, "warmup_steps": 25, "label_smoothing_factor": 0.1, "max_grad_norm": 0.0}
    made = recipe_from_training_arguments(arguments(**more), examples=320)
    assert (made.batch_size, made.label_smoothing, made.clip_norm) == (32, 0.1, None)
    assert made.warmup_ratio == pytest.approx(25 / 30)
    assert recipe_from_training_arguments(arguments(warmup_ratio=0.1)).warmup_ratio == 0.1
    assert recipe_from_training_arguments(arguments(warmup_steps=0.1)).warmup_ratio == 0.1
    assert recipe_from_training_arguments(arguments(max_steps=80), examples=320).epochs == 2


def test_the_real_arguments_of_a_trainer(tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    args = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, label_smoothing_factor=0.1)
    assert recipe_from_training_arguments(args) == replace(
        recipe_from_training_arguments(arguments()), label_smoothing=0.1
    )


def test_what_a_recipe_cannot_have_is_listed() -> None:
    faults = {"optim": "adafactor", "lr_scheduler_type": "polynomial", "adam_epsilon": 1e-6, "num_train_epochs": 2.5}
    with error(SettingsError, "adafactor", "polynomial", "1e-06", "2.5", "train="):
        recipe_from_training_arguments(arguments(**faults))
    with error(SettingsError, "warmup_steps", "examples="):
        recipe_from_training_arguments(arguments(warmup_steps=10))
    with error(SettingsError, "dict", "TrainingArguments"):
        recipe_from_training_arguments({})
    give = partial(recipe_from_torch, epochs=3, batch_size=8)
    with error(SettingsError, "RMSprop", "AdamW", "train="):
        give(torch.optim.RMSprop(net().parameters()))
    with error(SettingsError, "amsgrad"):
        give(torch.optim.Adam(net().parameters(), amsgrad=True))
    optimizer = SGD(net())
    with error(SettingsError, "T_max", "7", "steps_per_epoch"):
        give(optimizer, SCHEDULERS.CosineAnnealingLR(optimizer, 7))
    with error(SettingsError, "ReduceLROnPlateau", "MultiStepLR"):
        give(optimizer, SCHEDULERS.ReduceLROnPlateau(optimizer))
    with error(SettingsError, "lr"):
        give(torch.optim.SGD([{"params": [p], "lr": 0.1 * k} for k, p in enumerate(net().parameters())], lr=1.0))


@pytest.mark.parametrize(
    "changes",
    [{"warmup_ratio": 1.0}, {"warmup_ratio": 0.1, "warmup_epochs": 1}, {"warmup_ratio": 0.1, "schedule": "onecycle"}],
)
def test_one_warm_up(changes: dict) -> None:
    with error(SettingsError, "warmup_ratio"):
        Recipe(epochs=5, **changes)


def test_new_settings_at_their_defaults_leave_seeds_as_they_were() -> None:
    recipe = to_json(RECIPES["swin-small"])
    old = {name: value for name, value in recipe.items() if name not in ADDED}
    later = recipe | to_json(crossfit.Config())
    assert {name: later[name] for name in ADDED} == ADDED
    assert rng_key({"recipe": recipe}) == rng_key({"recipe": old})
    assert rng_key({"recipe": recipe | {"clip_norm": 1.0}}) != rng_key({"recipe": old})


@pytest.mark.parametrize("share", [0.01, 0.125, 0.25, 0.6, 1.0])
@pytest.mark.parametrize("name", RECIPES)
def test_a_short_recipe_is_the_whole_one_in_scale(name: str, share: float) -> None:
    whole = RECIPES[name]
    short = shorten(whole, share)
    assert short.epochs == max(1, round(share * whole.epochs))
    assert abs(short.warmup_epochs - short.epochs / whole.epochs * whole.warmup_epochs) <= 1
    assert short.warmup_epochs < short.epochs
    times = {"epochs": whole.epochs, "warmup_epochs": whole.warmup_epochs, "milestones": whole.milestones}
    assert replace(short, **times) == whole, "only times change"
    assert shorten(whole, 1.0) == whole


def test_milestones_and_the_ends_of_the_range() -> None:
    stepped = Recipe(epochs=100, schedule="steps", milestones=(50, 75))
    assert shorten(stepped, 0.2).milestones == (10, 15)
    assert shorten(stepped, 0.01, at_least=4).epochs == 4
    assert shorten(Recipe(epochs=2), 0.5, at_least=4).epochs == 2, "never longer than the whole"
    assert shorten(Recipe(epochs=0), 0.5).epochs == 0
    assert shorten(Recipe(epochs=3, warmup_epochs=2), 0.3).warmup_epochs == 0


def test_the_assumed_recipe_has_smaller_batches_for_small_sets() -> None:
    assert [assumed_recipe(n).batch_size for n in (1, 64, 80, 512, 10**6)] == [8, 8, 10, 64, 64]
