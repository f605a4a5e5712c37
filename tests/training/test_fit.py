"""The loop: closed forms of one step, schedules, masks, divergence, resuming, and no trace in the caller's generators."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from expect import assert_names, error
from regun.errors import RegunError, SettingsError
from regun.settings import bind
from regun.training.fit import fit
from regun.training.job import Budget, Step
from regun.training.recipes import RECIPES, Recipe, build_optimizer, resolve_precision
from regun.training.snapshots import Snapshot
from regun.training.streams import one_pass, paired
from toys import blobs, conv_net, images, job_for, mlp, same_parameters, same_state


def cross_entropy(job):
    return lambda step: functional.cross_entropy(job.logits(step.retain.x), step.retain.y)


def finetune(job, recipe=None, **more):
    return finetune_by(job, cross_entropy(job), recipe, **more)


def finetune_by(job, loss, recipe=None, **more):
    return fit(job, one_pass(job, "retain", job.indices("retain"), 16), loss, recipe or Recipe(epochs=3), **more)


def test_one_step_of_sgd_is_the_formula() -> None:
    examples = blobs()
    job = job_for(nn.Linear(6, 3), examples)
    start = {n: p.detach().clone() for n, p in job.model.named_parameters()}
    batch = next(one_pass(job, "retain", job.indices("retain"), 16).run(0, 0))["retain"]
    functional.cross_entropy(job.logits(batch.x), batch.y).backward()
    expected = {n: start[n] - 0.1 * (p.grad + 0.01 * start[n]) for n, p in job.model.named_parameters()}
    job.model.zero_grad()
    job = job_for(job.model, examples, budget=Budget(steps=1))
    finetune(job, Recipe(lr=0.1, weight_decay=0.01))
    for name, parameter in job.model.named_parameters():
        assert torch.allclose(parameter, expected[name], atol=1e-7)


def sgd_by_hand(weights: np.ndarray, gradients: list[np.ndarray], nesterov: bool) -> np.ndarray:
    """v <- m v + (g + d theta); theta <- theta - lr v, or with Nesterov theta - lr (g + d theta + m v)."""
    velocity = np.zeros_like(weights)
    for gradient in gradients:
        slope = gradient + 0.2 * weights
        velocity = 0.7 * velocity + slope
        weights = weights - 0.1 * (slope + 0.7 * velocity if nesterov else velocity)
    return weights


def adamw_by_hand(weights: np.ndarray, gradients: list[np.ndarray]) -> np.ndarray:
    """theta <- (1 - lr d) theta - lr m^ / (sqrt(v^) + 1e-8), with moments corrected for their start at 0."""
    first = second = np.zeros_like(weights)
    for step, gradient in enumerate(gradients, 1):
        first, second = 0.6 * first + 0.4 * gradient, 0.8 * second + 0.2 * gradient**2
        size = np.sqrt(second / (1 - 0.8**step)) + 1e-8
        weights = (1 - 0.1 * 0.2) * weights - 0.1 * first / (1 - 0.6**step) / size
    return weights


@pytest.mark.parametrize("rule", ["sgd", "nesterov", "adamw"])
def test_every_setting_of_an_update_rule_counts(rule: str) -> None:
    draw = np.random.default_rng(0)
    start, gradients = draw.normal(size=(2, 3)), list(draw.normal(size=(4, 2, 3)))
    optimizer = "adamw" if rule == "adamw" else "sgd"
    settings = dict(lr=0.1, momentum=0.7, beta1=0.6, beta2=0.8, weight_decay=0.2, nesterov=rule == "nesterov")
    model = nn.Linear(3, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(start))
    steps = build_optimizer(model, Recipe(optimizer=optimizer, **settings))
    for gradient in gradients:
        model.weight.grad = torch.from_numpy(gradient)
        steps.step()
    by_hand = adamw_by_hand(start, gradients) if rule == "adamw" else sgd_by_hand(start, gradients, rule == "nesterov")
    assert np.allclose(model.weight.detach().numpy(), by_hand, atol=1e-12)


def test_dropout_differs_from_step_to_step_and_from_seed_to_seed() -> None:
    def masks(seed: int) -> list[tuple[bool, ...]]:
        job, dropped = job_for(nn.Linear(6, 3), blobs(), seed=seed), []

        def loss(step: Step) -> torch.Tensor:
            dropped.append(tuple((functional.dropout(torch.ones(64)) == 0).tolist()))
            return cross_entropy(job)(step)

        finetune_by(job, loss, Recipe(epochs=2))
        return dropped

    first, again, other = masks(5), masks(5), masks(6)
    assert len(set(first)) == len(first) == 10
    assert first == again
    assert not set(first) & set(other)


def test_an_epoch_reports_the_mean_of_its_losses_and_its_rate() -> None:
    job, losses = job_for(mlp(), blobs()), []

    def loss(step: Step) -> torch.Tensor:
        value = cross_entropy(job)(step)
        losses.append(float(value.detach()))
        return value

    fitted = finetune_by(job, loss, Recipe(epochs=2, lr=0.1, schedule="steps", milestones=(1,)))
    assert [e.number for e in fitted.epochs] == [1, 2]
    assert [e.loss for e in fitted.epochs] == pytest.approx([np.mean(losses[:5]), np.mean(losses[5:])])
    assert [e.lr for e in fitted.epochs] == pytest.approx([0.1, 0.01])
    assert [e.seconds * e.images_per_second for e in fitted.epochs] == pytest.approx([75, 75])


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    examples, model = images(), nn.Sequential(conv_net(), nn.Dropout(0.5))
    runs = [job_for(model, examples, seed=s) for s in (5, 5, 6)]
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    for job in runs:
        finetune(job)
    assert torch.equal(before, torch.random.get_rng_state())
    assert same_state(runs[0].model, runs[1].model)
    assert not same_state(runs[0].model, runs[2].model)


def test_cost_counts_steps_and_samples_read() -> None:
    job = job_for(mlp(), blobs())
    stream = paired(job, 8, 16)
    fit(job, stream, cross_entropy(job), Recipe(epochs=2))  # reads the retain part only
    assert job.cost.steps == 2 * math.ceil(len(job.indices("forget")) / 8)
    assert job.cost.backward == job.cost.forward == 75 + 16  # six batches: a pass of 75, and one of the next
    assert job.cost.seconds > 0


@pytest.mark.parametrize("budget", [Budget(steps=7), Budget(samples=100)])
def test_a_budget_overrides_the_epochs(budget: Budget) -> None:
    job = job_for(mlp(), blobs(), budget=budget)
    finetune(job, Recipe(epochs=1))
    assert job.cost.steps == 7 if budget.steps else 100 <= job.cost.backward < 116


def test_a_budget_that_is_used_up_exactly_ends_the_run() -> None:
    job = job_for(mlp(), blobs(), budget=Budget(samples=32))
    finetune(job)
    assert (job.cost.steps, job.cost.backward) == (2, 32)


def test_a_budget_must_be_one_positive_number() -> None:
    for bad in ({}, {"steps": 0}, {"steps": 1, "samples": 1}):
        with error(RegunError, "steps=N", "samples=N"):
            Budget(**bad)


class Memory:
    """A checkpoint that keeps its snapshots, and asks for one after every step."""

    def __init__(self, saved: Snapshot | None = None) -> None:
        self.saved, self.all = saved, []

    def due(self) -> bool:
        return True

    def load(self) -> Snapshot | None:
        return self.saved

    def save(self, snapshot: Snapshot) -> None:
        self.all.append(snapshot)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_run_resumed_from_any_step_ends_with_the_same_weights(optimizer: str) -> None:
    examples, model = images(), nn.Sequential(conv_net(), nn.Dropout(0.3))
    recipe = Recipe(epochs=3, lr=0.01, optimizer=optimizer, schedule="onecycle", weight_decay=0.01)
    memory = Memory()
    whole = job_for(model, examples)
    done = finetune(whole, recipe, checkpoint=memory)
    assert len(memory.all) == whole.cost.steps - 1
    for snapshot in memory.all:
        again = job_for(model, examples)
        redone = finetune(again, recipe, checkpoint=Memory(snapshot))
        assert same_state(whole.model, again.model)
        assert again.cost.steps == whole.cost.steps
        assert [e.loss for e in redone.epochs] == [e.loss for e in done.epochs]


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(epochs=2, lr=0.1, weight_decay=0.1),
        Recipe(epochs=2, lr=0.1, weight_decay=0.1, nesterov=True),
        Recipe(epochs=2, lr=0.01, optimizer="adamw", weight_decay=0.1),
    ],
)
def test_masked_weights_keep_their_exact_bits(recipe: Recipe) -> None:
    job = job_for(mlp(), blobs())
    start = {n: p.detach().clone() for n, p in job.model.named_parameters()}
    mask = {n: torch.arange(p.numel()).reshape(p.shape) % 2 == 0 for n, p in job.model.named_parameters()}
    finetune(job, recipe, mask=mask)
    for name, parameter in job.model.named_parameters():
        assert torch.equal(parameter[~mask[name]], start[name][~mask[name]])
    assert any(not torch.equal(p[mask[n]], start[n][mask[n]]) for n, p in job.model.named_parameters())


def test_an_all_true_mask_changes_nothing_and_a_missing_one_is_refused() -> None:
    plain, masked = job_for(mlp(), blobs()), job_for(mlp(), blobs())
    finetune(plain)
    finetune(masked, mask={n: torch.ones_like(p, dtype=torch.bool) for n, p in masked.model.named_parameters()})
    assert same_parameters(plain.model, masked.model)
    with error(SettingsError, "mask"):
        finetune(job_for(mlp(), blobs()), mask={})


@pytest.mark.parametrize("fault", ["loss", "gradient"])
def test_a_step_that_diverges_leaves_weights_and_buffers_as_they_were(fault: str) -> None:
    job = job_for(conv_net(), images())
    before: dict[str, torch.Tensor] = {}

    def loss(step: Step) -> torch.Tensor:
        if job.cost.steps < 2:
            return cross_entropy(job)(step)
        before.update({name: value.clone() for name, value in job.model.state_dict().items()})
        good = cross_entropy(job)(step)  # moves the running statistics of BatchNorm
        return good * math.inf if fault == "loss" else good + (good - good).sqrt()  # 0, with an infinite slope

    fitted = finetune_by(job, loss)
    assert fitted.diverged is not None
    assert fault in fitted.diverged
    assert any(name.endswith("running_mean") for name in before)
    for name, value in job.model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_divergence_stops_with_finite_weights_and_buffers() -> None:
    job = job_for(mlp(), blobs())
    stream = one_pass(job, "forget", job.indices("forget"), 16)

    def ascent(step: Step) -> torch.Tensor:
        value = -functional.cross_entropy(job.logits(step.forget.x), step.forget.y)
        return value if step.epoch < 1 else value * float("inf")

    fitted = fit(job, stream, ascent, Recipe(epochs=50, lr=0.1))
    assert fitted.diverged is not None
    assert_names(fitted.diverged, "loss", "2", "1")
    assert all(torch.isfinite(t).all() for t in job.model.state_dict().values())


def test_weights_that_overflow_go_back_to_the_epoch_s_start() -> None:
    job = job_for(nn.Linear(6, 3), blobs())
    start = {n: p.detach().clone() for n, p in job.model.named_parameters()}
    stream = one_pass(job, "retain", job.indices("retain"), 16)
    fitted = fit(job, stream, cross_entropy(job), Recipe(epochs=2, lr=3e38, momentum=0))
    assert fitted.diverged
    assert all(torch.equal(p, start[n]) for n, p in job.model.named_parameters())


def test_schedules() -> None:
    cosine = Recipe(epochs=10, lr=1.0, schedule="cosine")
    assert [cosine.lr_at(e, 0, 10) for e in (0, 5)] == pytest.approx([1.0, 0.5])
    warm = Recipe(epochs=20, lr=1.0, schedule="cosine", warmup_epochs=10, warmup_lr=0.1)
    assert [warm.lr_at(e, 0, 20) for e in (0, 9, 10, 15)] == pytest.approx([0.19, 1.0, 1.0, 0.5])
    assert Recipe(lr=0.3).lr_at(7, 0.5, 10) == 0.3
    steps = Recipe(lr=1.0, schedule="steps", milestones=(3, 5))
    assert [steps.lr_at(e, 0, 10) for e in (2, 3, 5)] == pytest.approx([1.0, 0.1, 0.01])


def test_one_cycle_is_torch_s() -> None:
    recipe = Recipe(epochs=5, lr=0.4, schedule="onecycle", momentum=0.0)
    optimizer = build_optimizer(nn.Linear(1, 1), recipe)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.4, total_steps=501, cycle_momentum=False, final_div_factor=4000
    )
    rates = []
    for _ in range(500):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    ours = [recipe.lr_at(n // 100, n % 100 / 100, 5) for n in range(500)]
    assert np.allclose(ours, rates, atol=2e-3)


def test_the_papers_recipes() -> None:
    resnet, swin = RECIPES["resnet18"], RECIPES["swin-t"]
    assert (resnet.epochs, resnet.lr, resnet.batch_size, resnet.weight_decay, resnet.nesterov) == (
        100,
        0.1,
        128,
        5e-4,
        True,
    )
    assert (swin.epochs, swin.lr, swin.optimizer, swin.weight_decay, swin.label_smoothing) == (
        200,
        3e-4,
        "adamw",
        0.05,
        0.1,
    )
    assert swin.lr_at(0, 0, 200) == pytest.approx(1e-6 + (3e-4 - 1e-6) / 10)


def test_decay_leaves_out_biases_and_norms() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(2, 2), nn.LayerNorm(2)
            self.relative_position_bias_table = nn.Parameter(torch.zeros(3))

    optimizer = build_optimizer(Net(), Recipe(optimizer="adamw", weight_decay=0.05, decay="weights"))
    decayed, spared = optimizer.param_groups
    assert (decayed["weight_decay"], len(decayed["params"])) == (0.05, 2)  # weight matrix and position table
    assert (spared["weight_decay"], len(spared["params"])) == (0.0, 3)


def test_every_fault_of_a_recipe_is_reported_at_once() -> None:
    values = {"lr": "fast", "epochs": "2.5", "momentum": "2", "optimiser": "sgd", "schedule": "polynomial"}
    with pytest.raises(SettingsError) as caught:
        bind(Recipe, values, "recipe")
    text = str(caught.value)
    for part in (
        "recipe.lr is 'fast'; give a number",
        "recipe.epochs is '2.5'; give a whole number",
        "Did you mean 'optimizer'?",
    ):
        assert part in text
    with pytest.raises(SettingsError) as caught:
        bind(Recipe, {"momentum": "2", "schedule": "polynomial", "warmup_epochs": -1}, "recipe")
    assert len(caught.value.problems) == 3
    with error(SettingsError, "nesterov", "sgd", "momentum"):
        Recipe(nesterov=True, optimizer="adamw")
    with error(SettingsError, "warmup_epochs", "epochs"):
        Recipe(epochs=5, warmup_epochs=5)


def test_precision_auto_is_fp32_on_cpu() -> None:
    assert resolve_precision("auto", torch.device("cpu")) == "fp32"
    assert resolve_precision("bf16", torch.device("cpu")) == "bf16"


def test_a_step_refuses_a_part_its_stream_does_not_give() -> None:
    job = job_for(mlp(), blobs())
    with error(RegunError, "forget", "retain"):
        fit(job, one_pass(job, "retain", job.indices("retain"), 16), lambda s: s.forget.x.sum(), Recipe())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
def test_a_compiled_model_trains_like_a_plain_one() -> None:
    plain, compiled = job_for(conv_net(), images()), job_for(conv_net(), images())
    finetune(plain, Recipe(epochs=2, lr=0.05))
    finetune(compiled, Recipe(epochs=2, lr=0.05, compile=True))
    for ours, theirs in zip(plain.model.state_dict().values(), compiled.model.state_dict().values(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4)
