"""auto: its plan, retraining, what it may look at, distilling no further than due, a user's teacher, the way back."""

import copy
import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as trials
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from trials import Watched, ce, gradient, one_forgotten, plain_net, run

from expect import error
from regun.errors import DivergedError
from regun.methods import _from_scratch as from_scratch
from regun.methods import as_teacher, auto, crossfit, get_method
from regun.methods._baseline_comparison import AccuracyLoss, BaselineComparison
from regun.methods._distill import Distillation, MembershipGap, distill
from regun.methods._fresh_weights import fresh_model, shuffled
from regun.settings import to_json
from regun.splits import Splits
from regun.training.forward import eval_logits
from regun.training.job import Budget, Step
from regun.training.recipes import Recipe, assumed_recipe
from regun.training.scratch import train_from_scratch
from regun.training.streams import in_rounds, paired
from toys import blobs, conv_net, images, job_for, mlp, same_state, splits_of

SHORT = Recipe(epochs=3, batch_size=16, lr=0.05)
LONG = Recipe(epochs=100, batch_size=16, lr=0.05)


def without_heldout(splits: Splits) -> Splits:
    nothing = np.zeros(0, dtype=np.int64)
    return Splits(splits.retain, splits.forget, nothing, nothing, splits.total)


# ------------------------------------------------------------------------------------------------------------ the plan


def test_a_short_retraining_is_done_and_a_long_one_is_not() -> None:
    config = auto.Config(short=1000)
    assert auto.plan_of(config, 10, 100, Recipe(epochs=10)).training == "whole"
    assert auto.plan_of(config, 10, 101, Recipe(epochs=10)).training == "part"
    assert auto.plan_of(auto.Config(short=1000, from_scratch="never"), 10, 100, Recipe(epochs=10)).training == "part"


@pytest.mark.parametrize("share", [0.15, 0.2, 0.5])
@pytest.mark.parametrize(("retain", "epochs"), [(1010, 100), (40_000, 100), (1_000_000, 3)])
@pytest.mark.parametrize("table", [False, True])
def test_a_long_one_costs_at_most_the_share(share: float, retain: int, epochs: int, table: bool) -> None:
    plan = auto.plan_of(auto.Config(share=share), 100, retain, Recipe(epochs=epochs, batch_size=128), table=table)
    assert plan.training == ("table" if table else "part")
    assert (0.5 if share < 0.5 else 0.2) * share < plan.most / plan.retraining <= share
    assert f"{plan.most:,}" in str(plan)
    assert f"retraining takes {epochs * retain:,} samples" in str(plan)


@trials(max_examples=200, deadline=None)
@given(
    forget=st.integers(1, 5000),
    retain=st.integers(1, 10**6),
    table=st.booleans(),
    teacher=st.booleans(),
    never=st.booleans(),
)
def test_without_a_recipe_no_plan_exceeds_the_estimate(forget, retain, table, teacher, never) -> None:
    config = auto.Config(from_scratch="never" if never else "auto")
    plan = auto.plan_of(config, forget, retain, None, table=table, teacher=teacher)
    assert plan.most <= plan.retraining == from_scratch.estimated_samples(retain)
    assert plan.distilling.steps > 0


def test_a_plan_knows_about_a_table() -> None:
    method, config = get_method("auto"), auto.Config()
    long, short = Recipe(epochs=200), Recipe(epochs=10)
    assert method.uses_table(config, 100, 5000, long)
    assert not method.uses_table(config, 100, 5000, short)
    assert method.uses_table(config, 100, 5000, None)
    with_table, without = (method.planned(config, 100, 5000, None, long, table) for table in (True, False))
    update = crossfit.Config(share=min(config.share, crossfit.Config().share))
    assert with_table == crossfit.work(update, 100, 5000, long) != without
    assert get_method("crossfit").uses_table(crossfit.Config(), 100, 5000, short)
    assert not get_method("finetune").uses_table(get_method("finetune").configure({}), 100, 5000, long)


RECIPES = {"none": None, "short": SHORT, "long": LONG, "wild": Recipe(epochs=40, batch_size=16, lr=1e30)}


WAYS = itertools.product(
    RECIPES,
    ["", "teacher", "table"],
    [True, False],  # held-out examples
    [None, None, Budget(steps=30), Budget(samples=900)],
    [{}, {"short": 0}, {"from_scratch": "never", "share": 0.5}, {"short": 0, "lr": 0.01}],
    [True, False],  # the teacher is as good as the base
)


@pytest.mark.parametrize(("recipe", "source", "heldout", "budget", "settings", "as_good"), list(WAYS)[::7])
def test_no_branch_takes_more_than_planned(recipe, source, heldout, budget, settings, as_good, monkeypatch) -> None:
    """Counted samples stay within the plan, whichever way a run goes; it says which, and why."""
    monkeypatch.setattr(auto._Run, "as_good", lambda run: as_good)
    monkeypatch.setattr(from_scratch, "LEAST_SAMPLES", 3000)  # quick
    splits = splits_of(blobs()) if heldout else without_heldout(splits_of(blobs()))
    job = job_for(plain_net(), blobs(), splits, budget=budget, recipe=RECIPES[recipe])
    if source == "teacher":
        job = replace(job, teacher=as_teacher(plain_net(3), 3))
    if source == "table":
        job = replace(job, out_of_fold=torch.full((len(job.indices("forget")), 3), 1 / 3))
    method = get_method("auto")
    try:
        fitted = method.run(job, method.configure(settings))
    except DivergedError:
        assert recipe == "wild"
        return
    price = fitted.notes["price"]
    assert 0 < job.cost.backward <= price["planned"]
    assert price["branch"] in ("retrained", "distilled", "cross-fitted", "base")
    assert price["reason"]
    if recipe == "none":
        assert price["estimated"]
        assert budget or price["planned"] <= price["retraining"]


# ------------------------------------------------------------------------------------------------------- from scratch


def test_a_short_retraining_is_the_recipe_s_from_fresh_weights() -> None:
    job, fitted = run("auto", mlp(), recipe=SHORT)
    by_hand = job_for(mlp(), blobs())
    twin = job_for(fresh_model(by_hand, "teacher"), blobs(), seed=by_hand.derive("teacher"))
    train_from_scratch(twin, twin.indices("retain"), SHORT)
    assert same_state(job.model, twin.model)
    assert fitted.notes["from_scratch"] is True
    assert fitted.notes["trained_by"] == to_json(SHORT)
    assert job.cost.steps == twin.cost.steps
    assert job.cost.backward == SHORT.epochs * len(job.indices("retain"))


@pytest.mark.parametrize("recipe", [None, SHORT])
def test_a_model_trained_anew_has_seen_no_forgotten_example(recipe: Recipe | None) -> None:
    watched = Watched(blobs())
    job, fitted = run("auto", mlp(), watched, recipe=recipe, short=400_000)
    if fitted.notes.get("from_scratch"):
        assert not watched.seen & set(job.indices("forget"))
        assert fitted.notes["trained_by"]["epochs"] > 0, "what was really run"
    assert watched.trained - set(job.indices("forget")) == set(job.indices("retain"))


def test_what_comes_out_anew_does_not_depend_on_what_the_base_remembers() -> None:
    made = [run("auto", mlp(seed=s), recipe=SHORT)[0].model for s in (0, 1)]
    assert same_state(*made)


@pytest.mark.parametrize("samples", [5, 40, 89, 90, 300, 10**6])
def test_a_training_for_some_samples_takes_at_most_these(samples: int) -> None:
    job = job_for(mlp(), blobs())
    retain, recipe = len(job.indices("retain")), Recipe(epochs=6, batch_size=16, schedule="cosine")
    from_scratch.train_for(job, recipe, samples)
    planned = from_scratch.training_work(recipe, retain, samples)
    assert job.cost.backward <= planned.samples <= max(16, samples)
    assert job.cost.backward >= min(samples, 6 * retain) // 2 - 16


def test_the_learning_rate_is_the_one_that_learns_fastest(monkeypatch) -> None:
    losses = dict(zip(from_scratch.RATES, [float("inf"), 0.9, 0.4, 0.7], strict=True))
    monkeypatch.setattr(from_scratch, "_trial_loss", lambda job, model, recipe, steps: losses[recipe.lr])
    assert (
        from_scratch.find_rate(job_for(mlp(), blobs()), mlp(), assumed_recipe(90), from_scratch.RATES, 9).lr
        == from_scratch.RATES[2]
    )


def test_rates_are_tried_on_copies_of_the_same_weights_and_counted() -> None:
    job, start = job_for(mlp(), blobs()), mlp(seed=2)
    recipe = from_scratch.find_rate(job, start, Recipe(batch_size=16, optimizer="adamw"), from_scratch.RATES, 7)
    assert recipe.lr in from_scratch.RATES
    assert job.cost.steps == 7 * len(from_scratch.RATES)
    assert job.cost.backward <= 16 * job.cost.steps
    assert same_state(job.model, mlp())
    assert same_state(start, mlp(seed=2))


def test_shuffled_weights_are_the_same_numbers_in_other_places_and_frozen_ones_stay() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.Parameter(torch.randn(40))
            self.frozen = nn.Linear(6, 5).requires_grad_(False)
            self.head = nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.frozen(x)) * self.own.sum()

    model = Own()
    made, again = shuffled(model, 3), shuffled(model, 3)
    assert same_state(made, again)
    assert not torch.equal(made.own, model.own)
    assert torch.equal(made.own.sort().values, model.own.sort().values)
    assert torch.equal(made.frozen.weight, model.frozen.weight)
    assert not torch.equal(made.head.weight.sort().values, model.head.weight.sort().values)  # drawn


def test_a_model_that_cannot_be_made_afresh_is_still_served_but_not_called_retrained() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.scale = plain_net(), nn.Parameter(torch.full((3,), 1.5))

        def forward(self, x):
            return self.net(x) * self.scale

    job, fitted = run("auto", Scaled(), recipe=SHORT)
    assert "from_scratch" not in fitted.notes
    assert not same_state(job.model, Scaled())


def test_frozen_parts_stay(monkeypatch) -> None:
    for settings in ({}, {"from_scratch": "never", "steps": 20}):
        model = mlp()
        model[0].requires_grad_(False)
        job, _ = run("auto", model, recipe=SHORT, **settings)
        assert torch.equal(job.model[0].weight, model[0].weight)
        assert not torch.equal(job.model[3].weight, model[3].weight)


# ---------------------------------------------------------------------------------------------------------- judging


def test_lost_accuracy_is_paired() -> None:
    job = job_for(mlp(), blobs())
    comparison = BaselineComparison(job, job.model)
    assert comparison.loss(job.model) == AccuracyLoss(0.0, 0.0)
    assert comparison.fitted(job.model)
    assert not comparison.collapsed(comparison.loss(job.model))
    other = mlp(seed=4)
    lost = comparison.loss(other)
    labels = torch.from_numpy(job.examples.labels_at(comparison.unseen))
    base, new = (
        (eval_logits(m, job.examples, comparison.unseen).argmax(1) == labels).double() for m in (job.model, other)
    )
    change = base - new
    assert lost.share == pytest.approx(float(change.mean()))
    assert lost.error == pytest.approx(float(change.std(correction=0)) / len(change) ** 0.5)


@pytest.mark.parametrize(
    ("share", "error", "good"), [(0.015, 0.001, True), (0.024, 0.017, False), (0.024, 0.03, True), (-0.01, 0.0, True)]
)
def test_a_model_trained_anew_is_the_answer_only_if_it_looks_as_good(share: float, error: float, good: bool) -> None:
    """Up to two points, or what held-out examples cannot tell; otherwise the base is distilled too, and the better kept."""
    run = SimpleNamespace(_whole=False, fitted=True, lost=AccuracyLoss(share, error))
    assert auto._Run.as_good(run) is good


def test_classes_that_are_not_retained_are_not_asked() -> None:
    data = blobs()
    splits = splits_of(data)
    gone = data.labels[splits.retain] == 1
    splits = Splits(
        splits.retain[~gone], np.sort(np.r_[splits.forget, splits.retain[gone]]), splits.heldout, splits.val, 120
    )
    comparison = BaselineComparison(job_for(mlp(), data, splits), mlp())
    assert set(data.labels[comparison.unseen]) == {0, 2}


# --------------------------------------------------------------------------------------------------------- distilling


@pytest.mark.parametrize("each", [1, 4, 7])
def test_rounds_have_the_batches_of_passes_in_their_order(each: int) -> None:
    job = job_for(mlp(), blobs())
    plain, cut = paired(job, 8, 16), in_rounds(paired(job, 8, 16), each)
    by_pass = itertools.islice((b for k in itertools.count() for b in plain.run(k, 0)), 28)
    by_round = itertools.islice((b for k in itertools.count() for b in cut.run(k, 0)), 28)
    for one, other in zip(by_pass, by_round, strict=True):
        assert all(torch.equal(one[part].indices, other[part].indices) for part in ("forget", "retain"))
    late = next(iter(cut.run(2, each - 1)))
    want = list(itertools.islice((b for k in itertools.count() for b in plain.run(k, 0)), 3 * each))[-1]
    assert torch.equal(late["retain"].indices, want["retain"].indices)


@pytest.mark.parametrize("few", [False, True])
def test_a_step_weighs_every_forgotten_example_the_same_however_few_there_are(few: bool) -> None:
    model, oracle, lr, w, b = plain_net(), plain_net(3), 0.3, 0.4, 8
    splits = one_forgotten(splits_of(blobs())) if few else splits_of(blobs())
    job = job_for(model, blobs(), splits)
    target = lambda step: oracle(step.forget.x).softmax(1).detach()  # noqa: E731
    how = Distillation(1, b, 16, w, Recipe(lr=lr, momentum=0.0))
    gap = MembershipGap(job, BaselineComparison(job, model), oracle)
    step = Step(next(paired(job, b, 16).run(0, 0)), 0, 1, 0)
    answer, wanted = model(step.forget.x).log_softmax(1), target(step)
    loss = (1 - w) * (wanted * (wanted.log() - answer)).sum() / b + w * ce(model, step.retain)
    found = gradient(loss, model)
    distill(job, how, target, gap)
    for name, weight in job.model.named_parameters():
        assert torch.allclose(weight, dict(model.named_parameters())[name] - lr * found[name], atol=1e-6)


class Says(nn.Module):
    """Gives the label, which is the example's first number, probability `seen` where the second is 1, else `unseen`."""

    def __init__(self, seen: float, unseen: float) -> None:
        super().__init__()
        self.seen, self.unseen, self.any = seen, unseen, nn.Parameter(torch.zeros(1))

    def forward(self, x):
        p = torch.where(x[:, 1] == 1, self.seen, self.unseen)[:, None]
        hot = functional.one_hot(x[:, 0].long(), 3)
        return (hot * p + (1 - hot) * (1 - p) / 2).log() + 0 * self.any


def known_job(forget: int = 20):
    """Examples that `Says` can read: 60 retained, some forgotten, 30 held out."""
    from regun.data.tensors import TensorExamples

    n = 90 + forget
    labels = np.arange(n) % 3
    seen = np.arange(n) >= 90
    x = torch.tensor(np.stack([labels, seen], 1), dtype=torch.float32)
    cuts = [np.arange(60), np.arange(90, n), np.arange(60, 90), np.zeros(0, dtype=np.int64)]
    return job_for(Says(0.9, 0.5), TensorExamples(x, labels, 3), Splits(*cuts, n))


@pytest.mark.parametrize(
    ("seen", "unseen", "more"), [(0.9, 0.5, 0.5), (0.4, 0.5, 0.0), (0.3, 0.5, -0.1), (0.8, 0.9, 0.0)]
)
def test_what_is_known_too_well_is_measured_against_unseen_examples_and_the_teacher(seen, unseen, more) -> None:
    """The teacher knows the forgotten examples a tenth less than unseen ones: so should a model that never saw them."""
    job = known_job()
    teacher = Says(0.3, 0.4)
    gap = MembershipGap(job, BaselineComparison(job, job.model), teacher)
    assert gap.measure(Says(seen, unseen)) == pytest.approx(more, abs=1e-5)
    assert gap.open == (gap.measure(Says(seen, unseen)) > 0)


def test_without_held_out_examples_every_round_forgets() -> None:
    job = job_for(mlp(), blobs(), without_heldout(splits_of(blobs())))
    gap = MembershipGap(job, BaselineComparison(job, job.model), plain_net(2))
    gap.measure(plain_net(3))
    assert gap.open


def test_a_model_that_knows_too_little_is_not_shown_the_forgotten_examples() -> None:
    """All rounds but the first leave them out where they are already known less than unseen ones."""
    job = known_job()
    gap = MembershipGap(
        job, BaselineComparison(job, job.model), Says(0.9, 0.1)
    )  # known less than this teacher does, by far
    gap.open = False
    forgotten: list[Step] = []
    how = Distillation(40, 4, 8, 0.5, Recipe(lr=0.1))
    distill(job, how, lambda step: forgotten.append(step), gap)
    assert not forgotten
    assert job.cost.backward <= 40 * 8  # retain examples alone


def test_distilling_without_weight_on_retain_ends_at_the_teacher_s_answers() -> None:
    job = job_for(plain_net(), blobs(), without_heldout(splits_of(blobs())))
    oracle = plain_net(3)
    forget = job.indices("forget")
    wanted = eval_logits(oracle, job.examples, forget).softmax(1)
    before = float((eval_logits(job.model, job.examples, forget).softmax(1) - wanted).abs().mean())
    how = Distillation(400, 16, 16, 0.0, Recipe(optimizer="adamw", lr=0.02))
    target = lambda step: oracle(step.forget.x).softmax(1).detach()  # noqa: E731
    distill(job, how, target, MembershipGap(job, BaselineComparison(job, job.model), oracle))
    after = float((eval_logits(job.model, job.examples, forget).softmax(1) - wanted).abs().mean())
    assert after < before / 5


def test_a_long_retraining_is_shortened_counted_and_distilled() -> None:
    epochs = []
    config = dict(short=0, share=0.2, steps=20, from_scratch="never", lr=0.02)
    job, fitted = run("auto", mlp(), recipe=LONG, on_epoch=lambda e, m: epochs.append(e), **config)
    plan = auto.plan_of(auto.Config(**config), len(job.indices("forget")), len(job.indices("retain")), LONG)
    assert plan.training == "part"
    assert job.cost.steps == plan.teacher.steps + 20
    assert len(epochs) == 10  # of the model; nobody watched the teacher
    assert fitted.notes["plan"] == str(plan)
    assert fitted.notes["price"]["branch"] in ("distilled", "base")


def test_shrinking_all_the_way_forgets_the_base() -> None:
    config = dict(short=0, steps=20, from_scratch="never", shrink=1.0)
    made = []
    for seed in (0, 1):
        base = plain_net(seed)
        job, fitted = run("auto", base, recipe=LONG, splits=without_heldout(splits_of(blobs())), **config)
        made.append((job.model, fitted.notes["price"]["branch"]))
    assert made[0][1] == made[1][1] == "base" or same_state(made[0][0], made[1][0])


# ------------------------------------------------------------------------------------------------------ the way back


def test_what_cannot_be_repaired_is_given_back_as_it_was_with_a_word(monkeypatch) -> None:
    monkeypatch.setattr(BaselineComparison, "collapsed", lambda comparison, lost: True)
    job, fitted = run("auto", mlp(), recipe=LONG, short=0, steps=20, from_scratch="never")
    assert same_state(job.model, mlp())
    assert fitted.notes["price"]["branch"] == "base"
    assert "Retrain it" in fitted.notes["warnings"][0]


@pytest.mark.parametrize("budget", [Budget(steps=30), Budget(samples=900)])
def test_a_budget_is_kept(budget: Budget) -> None:
    for recipe in (None, SHORT, LONG):
        job, _ = run("auto", mlp(), recipe=recipe, budget=budget)
        assert 0 < job.cost.steps <= (budget.steps or 10**9)
        assert job.cost.backward <= (budget.samples or 10**9) + 2 * 80  # to within the steps that end its two parts


@pytest.mark.parametrize("settings", [{}, {"from_scratch": "never", "steps": 20}])
@pytest.mark.parametrize("heldout", [True, False])
@pytest.mark.parametrize("few", [True, False])
def test_requests_of_any_size_and_models_with_batchnorm(settings: dict, heldout: bool, few: bool) -> None:
    splits = splits_of(images())
    splits = one_forgotten(splits) if few else splits
    splits = splits if heldout else without_heldout(splits)
    job, fitted = run("auto", conv_net(), images(), splits=splits, recipe=SHORT, **settings)
    assert fitted.diverged is None
    assert all(torch.isfinite(v).all() for v in job.model.state_dict().values())


def test_a_teacher_that_diverges_is_begun_again_at_a_lower_rate() -> None:
    wild = Recipe(epochs=3, batch_size=16, lr=1e30)
    job, fitted = run("auto", plain_net(), recipe=wild, seed=2, short=10**6)
    assert all(torch.isfinite(v).all() for v in job.model.state_dict().values())


# ------------------------------------------------------------------------------------------------- a user's teacher


def test_a_given_teacher_is_asked_and_never_the_answer() -> None:
    asked: list[int] = []
    oracle = plain_net(3)

    def teacher(x):
        asked.append(len(x))
        return oracle(x)

    watched = Watched(blobs())
    job, fitted = run("auto", mlp(), watched, teacher=as_teacher(teacher, 3), recipe=SHORT, steps=20, lr=0.02)
    assert sum(asked) >= len(job.indices("forget"))
    assert job.cost.steps == 20  # nothing was trained beside it
    assert "from_scratch" not in fitted.notes


def test_logits_probabilities_and_arrays_say_the_same() -> None:
    x = torch.randn(5, 6)
    net = plain_net(3)
    for ask in (net, lambda x: net(x), lambda x: net(x).softmax(1), lambda x: net(x).softmax(1).detach().numpy()):
        told = as_teacher(ask, 3)
        assert torch.allclose(told(x).softmax(1), net(x).softmax(1), atol=1e-6)
        assert not told(x).requires_grad
    sure = as_teacher(lambda x: np.eye(3)[[0, 1, 2, 0, 1]], 3)(x)
    assert bool(sure.isfinite().all())
    assert torch.allclose(sure.softmax(1), torch.eye(3)[[0, 1, 2, 0, 1]], atol=1e-6)


def test_a_teacher_takes_mappings_and_several_inputs() -> None:
    mapping = {"a": torch.ones(4, 2), "b": torch.zeros(4, 2)}
    seen = []
    told = as_teacher(lambda x: seen.append(x) or torch.zeros(4, 3), 3)
    told(**mapping)
    told(mapping["a"], mapping["b"])
    assert set(seen[0]) == {"a", "b"}
    assert list(seen[1]) == ["0", "1"]


def test_a_function_is_not_copied_and_a_module_is() -> None:
    class Locked:
        def __call__(self, x):
            return torch.zeros(len(x), 3)

        def __deepcopy__(self, memo):
            raise TypeError("cannot be copied")

    assert copy.deepcopy(as_teacher(Locked(), 3))(torch.zeros(2, 6)).shape == (2, 3)
    net = plain_net()
    assert copy.deepcopy(as_teacher(net, 3)).model is not net


@pytest.mark.parametrize(
    ("teacher", "names"),
    [
        (lambda x: torch.zeros(len(x), 2), ("4", "2", "3")),
        (lambda x: torch.full((len(x), 3), torch.nan), ("finite", "3")),
        (lambda x: 1 / 0, ("ZeroDivisionError",)),
        ("a text", ("str",)),
    ],
)
def test_a_teacher_that_cannot_answer_is_named(teacher, names: tuple[str, ...]) -> None:
    from regun.errors import RegunError

    with error(RegunError, "teacher", *names):
        as_teacher(teacher, 3)(torch.zeros(4, 6))


def test_an_estimator_is_told_what_to_give() -> None:
    from sklearn.linear_model import LogisticRegression

    from regun.errors import RegunError

    with error(RegunError, "teacher=model.predict_proba"):
        as_teacher(LogisticRegression(), 3)
    data = blobs()
    fitted = LogisticRegression().fit(data.x.numpy(), data.labels)
    told = as_teacher(fitted.predict_proba, 3)(data.x)
    assert torch.allclose(told.softmax(1), torch.from_numpy(fitted.predict_proba(data.x.numpy())).float(), atol=1e-5)


def test_auto_is_the_default_everywhere() -> None:
    import inspect

    import regun
    from regun.cli import build_parser

    assert inspect.signature(regun.unlearn).parameters["method"].default == "auto"
    assert build_parser().parse_args(["unlearn", "--base", "x", "--forget", "0.1"]).method == "auto"
    assert regun.Project.__dataclass_fields__["method"].default == "auto"
    assert get_method("auto").title == "Auto"
