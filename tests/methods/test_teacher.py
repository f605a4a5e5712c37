"""ReGUn with a teacher: whose answers are learned, what a teacher may see, what it costs, and shrinking."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from trials import Watched, ce, gradient, plain_net, run

from expect import error
from regun.errors import DivergedError, RegunError, SettingsError
from regun.methods import MethodSpec, Work, auto, get_method, regun
from regun.methods._fresh_weights import fresh_model, shrink_towards
from regun.methods._teacher import answers_of, teacher_recipe, train_teachers
from regun.training.forward import eval_logits
from regun.training.job import Budget, Step
from regun.training.recipes import Recipe, assumed_recipe, shorten
from regun.training.scratch import train_from_scratch
from regun.training.streams import paired
from toys import blobs, job_for, mlp, same_parameters, same_state

FEW = dict(target="teacher", batch_size=8, retain_batch=16, teacher_epochs=8, teacher_batch=16)


def test_a_step_distils_a_given_teacher_s_answers_on_the_forgotten_examples() -> None:
    model, oracle, lr, w, tau = plain_net(), mlp(seed=3).eval(), 0.3, 0.4, 1.7
    job = distilled(model, oracle, w=w, lr=lr, temperature=tau, momentum=0.0, budget=Budget(steps=1))
    step = next(paired(job_for(model, blobs()), 8, 16).run(0, 0))
    target = (oracle(step["forget"].x) / tau).softmax(1).detach()
    answer = (model(step["forget"].x) / tau).log_softmax(1)
    loss = (1 - w) * (target * (target.log() - answer)).sum(1).mean() + w * ce(model, step["retain"])
    found = gradient(loss, model)
    for name, weight in job.model.named_parameters():
        assert torch.allclose(weight, dict(model.named_parameters())[name] - lr * found[name], atol=1e-6)


def distilled(model: nn.Module, oracle: nn.Module, budget: Budget | None = None, **values):
    """A run with a teacher of the user's."""
    method = get_method("regun")
    job = job_for(model, blobs(), teacher=oracle, budget=budget)
    given = dict(target="teacher", source="given", batch_size=8, retain_batch=16)
    method.run(job, method.configure({**given, **values}))
    return job


def test_a_teacher_is_a_fresh_model_trained_on_the_retain_set() -> None:
    recipe = Recipe(epochs=8, batch_size=16, lr=0.05, label_smoothing=0.1, schedule="cosine", nesterov=True)
    config = regun.Config(target="teacher", teacher_share=0.5)
    watched = Watched(blobs())
    job = job_for(mlp(), watched, recipe=recipe)
    (teacher,) = train_teachers(job, config, regun.work(config, 1, 1, None))
    assert watched.seen == watched.trained == set(job.indices("retain"))
    by_hand = job_for(mlp(), blobs())
    twin = job_for(fresh_model(by_hand, "teacher"), blobs(), seed=by_hand.derive("teacher"))
    short = Recipe(epochs=4, batch_size=16, lr=0.05, label_smoothing=0.1, schedule="cosine", nesterov=True)
    train_from_scratch(twin, twin.indices("retain"), short)
    assert same_state(teacher, twin.model)
    assert not any(layer.training for layer in teacher.modules())
    assert not any(p.requires_grad for p in teacher.parameters())
    assert same_state(job.model, mlp())  # the model itself has not moved yet
    assert job.cost.steps == twin.cost.steps


def test_a_teacher_does_not_depend_on_what_the_base_learned() -> None:
    config = regun.Config(**FEW)
    after = regun.work(config, 1, 1, None)
    teachers = [train_teachers(job_for(mlp(seed=s), blobs()), config, after)[0] for s in (0, 1)]
    assert same_state(*teachers)


def test_of_several_teachers_each_is_trained_from_its_own_start_and_the_mean_of_their_answers_is_learned() -> None:
    config = regun.Config(**FEW, teachers=3)
    job = job_for(mlp(), blobs())
    teachers = train_teachers(job, config, regun.work(config, 1, 1, None))
    (alone,) = train_teachers(job_for(mlp(), blobs()), regun.Config(**FEW), regun.work(config, 1, 1, None))
    assert same_state(teachers[0], alone)  # more of them do not change the first
    assert not any(same_state(a, b) for a, b in [teachers[:2], teachers[1:], teachers[::2]])
    step = Step(next(paired(job, 7, 9).run(0, 0)), 0, 1, 0)
    shown = step.forget.indices.numpy()
    expected = sum((eval_logits(t, blobs(), shown) / 2.0).softmax(1) for t in teachers) / 3
    assert torch.allclose(answers_of(teachers, job, 2.0)(step), expected, atol=1e-6)


@pytest.mark.parametrize("budget", [None, Budget(steps=12), Budget(samples=500)])
def test_what_several_teachers_take_is_planned_counted_and_within_a_budget(budget: Budget | None) -> None:
    config = regun.Config(**FEW, epochs=3, teachers=2)
    job, fitted = run("regun", mlp(), budget=budget, epochs=3, teachers=2, **FEW)
    retain, forget = len(job.indices("retain")), len(job.indices("forget"))
    if budget is None:
        assert fitted.notes["teacher"] == {"steps": 2 * 2 * -(-retain // 16), "backward": 2 * 2 * retain}
        assert job.cost.steps == regun.work(config, forget, retain, None).steps
        return
    each = fitted.notes["teacher"]["steps"] / 2
    assert each < job.cost.steps - each  # something is left for the second, and for the model itself
    assert job.cost.steps == budget.steps or abs(job.cost.backward - (budget.samples or 0)) < 3 * (8 + 16)


def test_answers_are_those_to_each_example_as_it_is_whatever_the_order() -> None:
    job = job_for(plain_net(), blobs())
    oracle = mlp(seed=3).eval()
    answers = answers_of([oracle], job, 2.0)
    for number, parts in enumerate(paired(job, 7, 9).run(1, 0)):
        step = Step(parts, 1, 2, number)
        expected = (eval_logits(oracle, blobs(), step.forget.indices.numpy()) / 2.0).softmax(1)
        assert torch.allclose(answers(step), expected, atol=1e-6)


def test_a_run_with_a_teacher_looks_at_no_held_out_example_and_counts_the_teacher() -> None:
    watched = Watched(blobs())
    epochs = []
    job, fitted = run("regun", mlp(), watched, epochs=3, on_epoch=lambda e, m: epochs.append(m), **FEW)
    assert not watched.seen & set(job.indices("heldout"))
    assert watched.seen == set(job.indices("base"))
    retain, forget = len(job.indices("retain")), len(job.indices("forget"))
    ours = 3 * -(-forget // 8)
    assert fitted.notes["teacher"] == {"steps": 2 * -(-retain // 16), "backward": 2 * retain}
    assert job.cost.steps == ours + fitted.notes["teacher"]["steps"]
    assert job.cost.forward == job.cost.backward + forget  # the answers, once
    assert len(epochs) == 3  # nobody watched the teacher
    assert all(model is job.model for model in epochs)


@pytest.mark.parametrize("budget", [Budget(steps=12), Budget(samples=500)])
def test_a_budget_is_shared_with_the_teacher(budget: Budget) -> None:
    job, fitted = run("regun", mlp(), budget=budget, epochs=3, **FEW)
    assert 0 < fitted.notes["teacher"]["steps"] < job.cost.steps
    if budget.steps:
        assert job.cost.steps == budget.steps
    else:
        assert abs(job.cost.backward - budget.samples) < 2 * (8 + 16)  # to within the steps that end its two parts


def test_with_w_1_no_teacher_is_trained_and_regun_is_finetune() -> None:
    job, fitted = run("regun", mlp(), w=1.0, lr=0.05, target="teacher", batch_size=16, budget=Budget(steps=5))
    plain, _ = run("finetune", mlp(), lr=0.05, batch_size=16, budget=Budget(steps=5))
    assert same_parameters(job.model, plain.model)
    assert fitted.notes == {}


def test_a_teacher_has_the_base_s_recipe_in_short_with_what_the_settings_say() -> None:
    usual = Recipe(epochs=100, nesterov=True, warmup_epochs=50, milestones=(50, 100))
    assert teacher_recipe(usual, regun.Config(target="teacher", teacher_share=0.25), 90) == shorten(usual, 0.25)
    own = regun.Config(teacher_epochs=3, teacher_share=0.01, teacher_lr=0.3, teacher_optimizer="adamw", teacher_batch=5)
    short = teacher_recipe(usual, own, 90)
    assert (short.epochs, short.lr, short.optimizer, short.batch_size) == (1, 0.3, "adamw", 5)
    assert short.warmup_epochs == 0


@pytest.mark.parametrize("retain", [20, 90, 5000])
def test_without_a_recipe_auto_and_regun_train_their_teachers_alike(retain: int) -> None:
    plan = auto.plan_of(auto.Config(short=0), 10, retain, None)
    share = plan.recipe.epochs / assumed_recipe(retain).epochs
    assert plan.training == "part"
    assert teacher_recipe(None, regun.Config(target="teacher", teacher_share=share), retain) == plan.recipe


def test_a_teacher_that_diverges_is_an_error() -> None:
    with error(DivergedError, "teacher_lr"):
        run("regun", nn.Linear(6, 3), teacher_lr=1e37, teacher_optimizer="sgd", **FEW)


def test_shrinking_comes_before_the_first_step_and_after_the_reference_was_asked() -> None:
    model = mlp()
    job, _ = run("regun", model, shrink=0.5, epochs=0, **FEW)
    expected = copy.deepcopy(model)
    shrink_towards(expected, fresh_model(job_for(model, blobs()), "shrink"), 0.5)
    assert same_parameters(job.model, expected)
    assert not same_parameters(job.model, model)
    seen = []
    original = regun.shrink_towards
    regun.shrink_towards = lambda *a: seen.append("shrunk") or original(*a)
    try:
        copied = regun.frozen_copy
        regun.frozen_copy = lambda m: seen.append(same_parameters(m, model)) or copied(m)
        run("regun", model, shrink=0.5, batch_size=8, budget=Budget(steps=2))
    finally:
        regun.shrink_towards, regun.frozen_copy = original, copied
    assert seen == [True, "shrunk"]  # the reference is the base as it was


def test_a_start_shrunk_all_the_way_knows_nothing_of_the_base() -> None:
    oracle = mlp(seed=9).eval()
    assert same_state(*(distilled(plain_net(seed), oracle, shrink=1.0, epochs=2).model for seed in (0, 1)))


def test_presets_and_needs() -> None:
    method, config = get_method("regun"), MethodSpec.parse("regun@teacher").configure()
    assert (config.batch_size, config.retain_batch, config.w, config.lr) == (16, 64, 0.5, 0.05)
    assert (config.schedule, config.nesterov, config.weight_decay, config.teacher_share) == ("cosine", True, 5e-4, 0.25)
    assert config.shrink == 0
    assert MethodSpec.parse("regun@teacher_shrink").configure().shrink == 0.5
    assert not method.needs_of(config).heldout
    assert method.needs_of(config).fresh_model
    assert method.needs_of(regun.Config()).heldout
    assert not method.needs_of(regun.Config()).fresh_model
    assert not method.needs_of(regun.Config(target="teacher", source="given")).fresh_model
    assert method.needs_of(regun.Config(shrink=0.1)).fresh_model


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        (dict(selector="uniform"), ("regun.selector", "uniform")),
        (dict(granularity="class"), ("regun.granularity", "class")),
        (dict(m=3), ("regun.m", 3)),
        (dict(source="moving"), ("regun.source", "moving", "base", "given")),
        (dict(source="given", teachers=2), ("regun.teachers", 2)),
        (dict(teacher_optimizer="lion"), ("regun.teacher_optimizer", "lion", "sgd", "adamw")),
    ],
)
def test_settings_that_say_nothing_to_a_teacher(wrong, names: tuple[object, ...]) -> None:
    with error(SettingsError, *names):
        regun.Config(target="teacher", **wrong)


def test_a_given_teacher_that_is_not_there() -> None:
    method = get_method("regun")
    with error(RegunError, "regun.source", "given", "teacher="):
        method.run(job_for(mlp(), blobs()), method.configure(dict(target="teacher", source="given")))


def test_the_teacher_s_answers_lower_the_divergence_to_it() -> None:
    """Distilling alone (w = 0), full batches, a small rate: the first steps go downhill."""
    oracle, model = plain_net(5), plain_net(0)
    job = distilled(model, oracle, Budget(steps=3), w=0.0, lr=1e-3, momentum=0.0, batch_size=64)
    x = blobs().x[torch.from_numpy(job.indices("forget"))]

    def far(net: nn.Module) -> float:
        return float(functional.kl_div(net(x).log_softmax(1), oracle(x).softmax(1), reduction="batchmean").detach())

    assert far(job.model) < far(model)


def test_a_plan_counts_a_teacher_by_the_recipe_of_the_base() -> None:
    """A quarter of 16 epochs over 200 examples in batches of 64: 4 times 4 steps before the distillation."""
    method = get_method("regun")
    alone = method.planned(method.configure({}, "wide_retain"), 32, 200)
    config = method.configure({}, "teacher")
    assert alone is not None
    planned = method.planned(config, 32, 200, recipe=Recipe(epochs=16, batch_size=64))
    assert planned == alone + Work(16, 800)
    usual = method.planned(config, 32, 200)  # as if no recipe came: a quarter of 40
    assert usual == alone + Work(80, 2000)  # in batches of 25, an eighth of the set
