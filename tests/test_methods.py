"""Properties of the methods: limits, equalities between methods, exact masks, balls and counts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from expect import error
from regun.errors import RegunError
from regun.methods import (
    MethodSpec,
    amun,
    finetune,
    get_method,
    l1_sparse,
    lur,
    method_names,
    neggrad,
    neggrad_plus,
    regun,
    retrain,
    salun,
    scrub,
    ssd,
)
from regun.methods._adversarial import AscentSettings, View, find
from regun.rng import generator
from regun.splits import Splits
from regun.training.fit import fit
from regun.training.gradients import fisher_by_batch, fisher_by_example, summed_gradient, top_mask
from regun.training.job import Budget
from regun.training.recipes import RECIPES, Recipe
from regun.training.streams import one_pass, paired
from toys import blobs, conv_net, images, job_for, mlp, same_parameters, same_state, splits_of

BUDGET = Budget(steps=6)
SAME = dict(batch_size=16, lr=0.05)


def trained(model: nn.Module, examples, epochs: int = 30) -> nn.Module:
    """A model that knows its training data."""
    job = job_for(model, examples)
    stream = one_pass(job, "train", job.indices("base"), 16)
    fit(
        job,
        stream,
        lambda s: functional.cross_entropy(job.logits(s.train.x), s.train.y),
        Recipe(epochs=epochs, lr=0.05),
    )
    return job.model.eval()


def run(method, config, *, model=None, examples=None, budget=BUDGET, **more):
    job = job_for(
        model if model is not None else mlp(), examples if examples is not None else blobs(), budget=budget, **more
    )
    outcome = method.unlearn(job, config)
    return job, outcome


# ---- limits in which one method is another ----------------------------------------------------------------------

FINETUNED = {
    "regun, w = 1": (regun, regun.Config(w=1.0, **SAME)),
    "neggrad_plus, w = 1": (neggrad_plus, neggrad_plus.Config(w=1.0, **SAME)),
    "l1_sparse, gamma = 0": (l1_sparse, l1_sparse.Config(gamma=0.0, **SAME)),
    "salun, w = 1, keep = 1": (salun, salun.Config(w=1.0, keep=1.0, **SAME)),
    "scrub without its divergences": (
        scrub,
        scrub.Config(alpha=0.0, gamma=1.0, forget_epochs=0, schedule="constant", **SAME),
    ),
}


@pytest.mark.parametrize("name", FINETUNED)
@pytest.mark.parametrize("model", [mlp(), nn.Sequential(mlp(), nn.Dropout(0.2))], ids=["plain", "dropout"])
def test_limits_that_are_finetune(name: str, model: nn.Module) -> None:
    method, config = FINETUNED[name]
    plain, _ = run(finetune, finetune.Config(**SAME), model=model)
    limit, _ = run(method, config, model=model)
    assert same_parameters(plain.model, limit.model)
    assert limit.cost.backward == plain.cost.backward or method is salun  # SalUn also measured its saliency


def test_neggrad_plus_with_w_0_is_neggrad() -> None:
    ascent, _ = run(neggrad, neggrad.Config(**SAME))
    limit, _ = run(neggrad_plus, neggrad_plus.Config(w=0.0, **SAME))
    assert same_parameters(ascent.model, limit.model)


def test_neggrad_steps_against_finetune_on_the_same_batch_and_raises_the_loss() -> None:
    model, examples = trained(mlp(), blobs(), epochs=3), blobs()
    job = job_for(model, examples)
    batch = next(one_pass(job, "forget", job.indices("forget"), 32).run(0, 0))["forget"]
    job.model.train()
    before = functional.cross_entropy(job.logits(batch.x), batch.y)
    gradients = torch.autograd.grad(before, list(job.model.parameters()))
    up, _ = run(neggrad, neggrad.Config(batch_size=32, lr=1e-2), model=model, examples=examples, budget=Budget(steps=1))
    for parameter, start, gradient in zip(up.model.parameters(), model.parameters(), gradients, strict=True):
        assert torch.allclose(parameter, start + 1e-2 * gradient, atol=1e-7)
    up.model.train()
    assert functional.cross_entropy(up.logits(batch.x), batch.y) > before


def test_the_gradient_of_neggrad_plus_is_linear_in_w() -> None:
    def change(w: float) -> torch.Tensor:
        job, _ = run(
            neggrad_plus, neggrad_plus.Config(w=w, batch_size=16, lr=1.0, momentum=0.0), budget=Budget(steps=1)
        )
        start = mlp()
        return torch.cat([(p - q).flatten() for p, q in zip(job.model.parameters(), start.parameters(), strict=True)])

    assert torch.allclose(change(0.5), (change(0.2) + change(0.8)) / 2, atol=1e-6)


def test_neggrad_plus_sequential_ascends_first_and_then_repairs() -> None:
    config = neggrad_plus.Config(mode="sequential", ascent_epochs=1, epochs=2, w=0.5, lr=0.01, batch_size=16)
    job, outcome = run(neggrad_plus, config, budget=None)
    assert outcome.epochs[0].loss < 0 < outcome.epochs[1].loss
    assert job.cost.backward == len(job.indices("forget")) + len(job.indices("retain"))


def test_learning_rate_0_moves_buffers_only() -> None:
    job, _ = run(finetune, finetune.Config(lr=0.0, batch_size=16))
    assert same_parameters(job.model, mlp())
    assert not same_state(job.model, mlp())


# ---- l1-sparse -----------------------------------------------------------------------------------------------------


def test_the_penalty_schedules() -> None:
    def strengths(penalty: str) -> list[float]:
        return [l1_sparse.strength_at(l1_sparse.Config(gamma=1.0, penalty=penalty), e, 10) for e in range(10)]

    assert strengths("decay")[0] == pytest.approx(1.8)
    assert strengths("decay")[-1] == 0
    assert np.mean(strengths("decay")) == pytest.approx(0.9)
    assert strengths("original") == pytest.approx([1 - e / 10 for e in range(10)])
    assert strengths("constant") == [1.0] * 10
    assert strengths("growing")[-1] == 2.0


def test_a_stronger_penalty_gives_smaller_weights() -> None:
    sums = [
        sum(
            float(p.detach().abs().sum())
            for p in run(l1_sparse, l1_sparse.Config(gamma=g, **SAME))[0].model.parameters()
        )
        for g in (0.0, 1e-2, 1e-1)
    ]
    assert sums[0] > sums[1] > sums[2]


def test_the_code_s_subset_is_fixed_and_of_the_forget_set_s_size() -> None:
    job = job_for(mlp(), blobs())
    chosen = finetune.retained(job, True)
    assert len(chosen) == len(job.indices("forget"))
    assert np.isin(chosen, job.indices("retain")).all()
    assert np.array_equal(chosen, finetune.retained(job, True))


# ---- SSD -----------------------------------------------------------------------------------------------------------


def test_ssd_with_infinite_alpha_changes_nothing() -> None:
    job, outcome = run(ssd, ssd.Config(alpha=float("inf")))
    assert same_state(job.model, mlp())
    assert outcome.notes["selected"] == 0


def test_ssd_shrinks_selected_weights_and_keeps_signs_and_the_rest() -> None:
    model = trained(mlp(), blobs())
    job, outcome = run(ssd, ssd.Config(alpha=1.0, dampening=0.5), model=model)
    reference = job_for(model, blobs())
    everything = fisher_by_example(reference, reference.indices("base"))
    forgotten = fisher_by_example(reference, reference.indices("forget"))
    count = 0
    for name, after in job.model.named_parameters():
        before = dict(model.named_parameters())[name]
        chosen = forgotten[name] > everything[name]
        count += int(chosen.sum())
        assert torch.equal(after[~chosen], before[~chosen])
        expected = before[chosen] * (0.5 * everything[name] / forgotten[name])[chosen].float()
        assert torch.allclose(after[chosen], expected, rtol=1e-5)
        assert (after[chosen].abs() <= 0.5 * before[chosen].abs()).all()
        assert (after * before >= 0).all()
    assert count == outcome.notes["selected"] > 0


def test_ssd_with_dampening_0_zeroes_what_it_selects() -> None:
    model = trained(mlp(), blobs())
    job, outcome = run(ssd, ssd.Config(alpha=1.0, dampening=0.0), model=model)
    zeros = sum(int((p == 0).sum()) for p in job.model.parameters())
    assert zeros == outcome.notes["selected"] > 0


def test_ssd_selects_nothing_when_everything_is_forgotten_and_never_enlarges_a_weight() -> None:
    model, examples = trained(mlp(), blobs()), blobs()
    usual = splits_of(examples)
    nothing = np.zeros(0, dtype=np.int64)
    everything = Splits(nothing, usual.base, usual.heldout, usual.val, usual.total)
    whole = job_for(model, examples, everything)
    assert ssd.unlearn(whole, ssd.Config(alpha=1.0)).notes["selected"] == 0
    assert same_state(whole.model, model)
    capped, outcome = run(ssd, ssd.Config(alpha=1.0, dampening=1e9), model=model)  # lambda > alpha: the cap at 1 acts
    assert outcome.notes["selected"] > 0
    assert same_state(capped.model, model)


@pytest.mark.parametrize("make", [lambda: (mlp(), blobs()), lambda: (conv_net(), images())], ids=["mlp", "conv"])
def test_fisher_by_example_is_the_loop_over_examples_whatever_the_micro_batch(make) -> None:
    model, examples = make()
    job = job_for(model, examples)
    indices = job.indices("forget")
    expected = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in job.model.named_parameters()}
    job.model.eval()
    for i in indices:
        batch = examples.fetch(np.array([i]))
        loss = functional.cross_entropy(job.logits(batch.x), batch.y)
        for (name, _), g in zip(
            job.model.named_parameters(), torch.autograd.grad(loss, list(job.model.parameters())), strict=True
        ):
            expected[name] += g.double() ** 2 / len(indices)
    for micro in (1, 5, 64):
        found = fisher_by_example(job, indices, micro_batch=micro)
        for name in expected:
            assert torch.allclose(found[name], expected[name], rtol=1e-4, atol=1e-12)
    assert not torch.allclose(
        fisher_by_batch(job, indices, batch_size=2)["0.weight"],
        fisher_by_batch(job, indices, batch_size=16)["0.weight"],
    )


# ---- SalUn ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [dict(), dict(weight_decay=0.1, nesterov=True), dict(optimizer="adamw", weight_decay=0.1)]
)
def test_salun_leaves_masked_weights_bit_identical(more) -> None:
    model = trained(mlp(), blobs(), epochs=3)
    job, outcome = run(salun, salun.Config(**SAME, **more), model=model)
    reference = job_for(model, blobs())
    gradient = summed_gradient(reference, reference.indices("forget"), batch_size=16)
    mask = top_mask({n: g.abs() for n, g in gradient.items()}, 0.5)
    start = dict(model.named_parameters())
    for name, parameter in job.model.named_parameters():
        assert torch.equal(parameter[~mask[name]], start[name][~mask[name]])
        assert not torch.equal(parameter[mask[name]], start[name][mask[name]])
    assert outcome.notes["density"] == pytest.approx(0.5, abs=0.01)


def test_salun_keep_1_is_random_labels_and_keep_0_moves_buffers_only() -> None:
    free, _ = run(salun, salun.Config(keep=1.0, **SAME))
    job = job_for(mlp(), blobs(), budget=BUDGET)

    def loss(step):
        labels = salun.random_labels(
            step.forget.y, 3, generator(job.seed, "labels", step.epoch, step.number), wrong=True
        )
        wrong = functional.cross_entropy(job.logits(step.forget.x), labels)
        return 0.5 * wrong + 0.5 * functional.cross_entropy(job.logits(step.retain.x), step.retain.y)

    fit(job, paired(job, 16, 16, epoch="shorter"), loss, salun.Config(**SAME))
    assert same_parameters(free.model, job.model)
    held, _ = run(salun, salun.Config(keep=0.0, **SAME))
    assert same_parameters(held.model, mlp())
    assert not same_state(held.model, mlp())


def test_salun_with_w_1_is_finetune_under_its_mask() -> None:
    model = trained(mlp(), blobs(), epochs=3)
    masked, _ = run(salun, salun.Config(w=1.0, **SAME), model=model)
    job = job_for(model, blobs(), budget=BUDGET)
    gradient = summed_gradient(job, job.indices("forget"), batch_size=16)
    mask = top_mask({n: g.abs() for n, g in gradient.items()}, 0.5)
    job = job_for(model, blobs(), budget=BUDGET)
    stream = one_pass(job, "retain", job.indices("retain"), 16)
    fit(
        job,
        stream,
        lambda s: functional.cross_entropy(job.logits(s.retain.x), s.retain.y),
        salun.Config(**SAME),
        mask=mask,
    )
    assert same_parameters(masked.model, job.model)


def test_random_labels_are_wrong_and_uniform() -> None:
    y = torch.arange(4).repeat(3000)
    drawn = salun.random_labels(y, 4, torch.Generator().manual_seed(0), wrong=True)
    assert torch.equal(drawn, salun.random_labels(y, 4, torch.Generator().manual_seed(0), wrong=True))
    assert (drawn != y).all()
    for k in range(4):
        counts = torch.bincount(drawn[y == k], minlength=4)
        assert ((counts[torch.arange(4) != k] - 1000).abs() < 150).all()
    assert (
        salun.random_labels(y, 4, torch.Generator().manual_seed(0), wrong=False) == y
    ).float().mean() == pytest.approx(0.25, abs=0.03)


def test_top_mask_is_exact_at_ties_and_independent_of_scale() -> None:
    values = {"a": torch.tensor([3.0, 1.0, 1.0]), "b": torch.tensor([[1.0, 0.0]])}
    assert [m.tolist() for m in top_mask(values, 0.4).values()] == [[True, True, False], [[False, False]]]
    assert sum(int(m.sum()) for m in top_mask({"a": torch.zeros(10)}, 0.5).values()) == 5  # all tied
    assert not any(m.any() for m in top_mask(values, 0.0).values())
    noise = {"x": torch.randn(5000, generator=torch.Generator().manual_seed(0)).abs()}
    assert torch.equal(top_mask(noise, 0.5)["x"], top_mask({"x": 7 * noise["x"]}, 0.5)["x"])
    assert torch.equal(top_mask(noise, 0.3)["x"], noise["x"] >= noise["x"].sort().values[3500])
    with error(RegunError, 1.5, 0, 1):
        top_mask(values, 1.5)


def test_top_mask_beyond_the_limit_of_torch_quantile() -> None:
    many = {"x": torch.rand(2**24 + 10, generator=torch.Generator().manual_seed(0))}
    assert int(top_mask(many, 0.5)["x"].sum()) == (2**24 + 10) // 2


# ---- AMUN ----------------------------------------------------------------------------------------------------------


def linear_view(low: bool = False) -> tuple[View, torch.Tensor, nn.Module]:
    model = trained(conv_net(), images(), epochs=30)
    x = images().x[:30]
    box = (torch.full_like(x[:1], -0.5), torch.full_like(x[:1], 3.0)) if low else (None, None)
    x = x.clamp(-0.5, 3.0) if low else x
    y = model(x).argmax(1)
    return View(x, lambda z, rows: model(z), *box), y, model


@pytest.mark.parametrize("freeze", [True, False])
@pytest.mark.parametrize("box", [True, False])
def test_adversarial_examples_fool_the_model_inside_ball_and_box(freeze: bool, box: bool) -> None:
    view, y, model = linear_view(box)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    found = find(view, y, AscentSettings(0.05, 20, 0.1, 10, freeze=freeze, restart=not freeze))
    ok = ~found.failed
    assert ok.any()
    assert (model(found.x[ok]).argmax(1) == found.labels[ok]).all()
    assert (found.labels[ok] != y[ok]).all()
    distance = (found.x - view.x).flatten(1).norm(dim=1)
    assert (distance <= found.epsilon * (1 + 1e-5)).all()
    assert ((found.epsilon / 0.05).log2() % 1 == 0).all()
    if box:
        assert (found.x >= -0.5).all()
        assert (found.x <= 3.0).all()
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


@pytest.mark.parametrize("freeze", [True, False])
def test_already_misclassified_examples_come_back_unchanged_and_resisting_ones_fail(freeze: bool) -> None:
    view, y, model = linear_view()
    wrong = (y + 1) % 3
    found = find(view, wrong, AscentSettings(0.05, 5, 0.1, 2, freeze=freeze))
    assert torch.equal(found.x, view.x)
    assert torch.equal(found.labels, y)
    assert found.samples == len(y)
    stubborn = View(view.x, lambda z, rows: functional.one_hot(y[rows], 3).float() + 0 * z.sum())
    resisting = find(stubborn, y, AscentSettings(0.05, 3, 0.1, 2, freeze=freeze))
    assert resisting.failed.all()
    assert resisting.samples == 2 * (3 + 1) * len(y)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_the_length_of_a_step_of_the_attack_does_not_depend_on_the_size_of_the_gradient(scale: float) -> None:
    """Of two classes the scale of the logits changes the size of the gradient, and not its direction."""
    generator = torch.Generator().manual_seed(0)
    x, direction = torch.randn(10, 6, generator=generator), torch.randn(6, generator=generator)

    def view(scale: float) -> View:
        return View(x, lambda z, rows: scale * torch.stack([z @ direction, -(z @ direction)], dim=1))

    y = view(1.0).logits(x, torch.arange(10)).argmax(1)
    attack = AscentSettings(0.1, 4, 0.3, 1)
    one, other = (find(view(size), y, attack) for size in (1.0, scale))
    torch.testing.assert_close(one.x, other.x)
    assert torch.equal(one.failed, other.failed)


def test_amun_hands_its_settings_to_the_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    attacks = list[AscentSettings]()

    def recorded(view: View, y: torch.Tensor, attack: AscentSettings):
        attacks.append(attack)
        return find(view, y, attack)

    monkeypatch.setattr(amun, "find", recorded)
    config = amun.Config(epochs=1, batch_size=16, epsilon=0.5, steps=7, step=0.2, rounds=6, freeze=False, restart=True)
    run(amun, config, model=trained(conv_net(), images()), examples=images(), budget=None)
    assert set(attacks) == {AscentSettings(0.5, 7, 0.2, 6, freeze=False, restart=True)}


def test_freezing_stops_at_the_first_point_that_fools() -> None:
    view, y, _ = linear_view()
    early = find(view, y, AscentSettings(5.0, 50, 0.02, 1, freeze=True))
    late = find(view, y, AscentSettings(5.0, 50, 0.02, 1, freeze=False))
    both = ~early.failed & ~late.failed
    near, far = ((a.x - view.x).flatten(1).norm(dim=1)[both] for a in (early, late))
    assert (near <= far + 1e-6).all()
    assert early.samples < late.samples


@pytest.mark.parametrize(
    ("train_on", "parts"), [("adv+forget+retain", 3), ("adv+forget", 2), ("adv+retain", 2), ("adv", 1)]
)
def test_amun_trains_on_the_set_it_names(train_on: str, parts: int) -> None:
    model, examples = trained(conv_net(), images()), images()
    config = amun.Config(train_on=train_on, epochs=1, batch_size=16, steps=10, epsilon=0.5)
    job, outcome = run(amun, config, model=model, examples=examples, budget=None)
    sizes = {
        "adv": outcome.notes["adversarial"],
        "forget": len(job.indices("forget")),
        "retain": len(job.indices("retain")),
    }
    expected = sum(sizes[p] for p in train_on.split("+"))
    assert outcome.epochs[0].images_per_second * outcome.epochs[0].seconds == pytest.approx(expected)
    assert outcome.notes["adversarial"] + outcome.notes["failed"] == sizes["forget"]


def test_amun_on_retain_with_no_adversarial_examples_is_finetune(monkeypatch) -> None:
    examples = images()
    monkeypatch.setattr(amun, "adversarial_set", lambda job, config: (examples.x[:0], np.zeros(0, dtype=np.int64), 0))
    empty, _ = run(amun, amun.Config(train_on="adv+retain", **SAME), model=conv_net(), examples=examples)
    plain, _ = run(finetune, finetune.Config(**SAME), model=conv_net(), examples=examples)
    assert same_state(empty.model, plain.model)


def test_weighted_amun_pairs_adversarial_and_retain_batches() -> None:
    config = amun.Config(train_on="weighted", w=0.3, epochs=2, batch_size=8, steps=10, epsilon=0.5)
    job, outcome = run(amun, config, model=trained(conv_net(), images()), examples=images(), budget=None)
    assert len(outcome.epochs) == 2
    assert job.cost.steps == 2 * -(-outcome.notes["adversarial"] // 8)


def test_amun_refuses_token_inputs() -> None:
    from regun.data.tensors import TensorExamples

    tokens = TensorExamples({"input_ids": torch.randint(0, 9, (40, 5))}, np.arange(40) % 2, 2)
    with error(RegunError, "AMUN"):
        run(amun, amun.Config(), model=nn.Embedding(9, 2), examples=tokens)


# ---- LUR -----------------------------------------------------------------------------------------------------------


def test_lur_without_look_ahead_and_pruning_is_neggrad_plus() -> None:
    ahead, _ = run(lur, lur.Config(alpha=0.0, sparsity=1.0, w=0.9, **SAME))
    plain, _ = run(neggrad_plus, neggrad_plus.Config(w=0.9, **SAME))
    for ours, theirs in zip(ahead.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_the_look_ahead_gradient_on_a_quadratic() -> None:
    """L_r = |a - t|^2/2, L_f = |a' - s|^2/2 with a' = a - alpha (a - t): d/da = w(a-t) - (1-w)(1-alpha)(a'-s)."""
    a = torch.tensor([1.5, -0.5], requires_grad=True)
    t, s, alpha, w = torch.tensor([0.2, 0.1]), torch.tensor([-1.0, 2.0]), 0.3, 0.6
    retain = (a - t).square().sum() / 2
    (g,) = torch.autograd.grad(retain, a, create_graph=True)
    ahead = a - alpha * g
    (found,) = torch.autograd.grad(w * retain - (1 - w) * (ahead - s).square().sum() / 2, a)
    assert torch.allclose(found, w * (a - t) - (1 - w) * (1 - alpha) * (ahead - s))


def test_lur_s_step_is_the_second_order_gradient_by_finite_differences() -> None:
    examples = blobs()
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    examples = type(examples)(examples.x.double(), examples.labels, 3)
    config = lur.Config(alpha=0.5, sparsity=1.0, w=0.4, batch_size=16, lr=1.0, momentum=0.0)
    job, _ = run(lur, config, model=model, examples=examples, budget=Budget(steps=1))
    moved = dict(job.model.named_parameters())["0.weight"] - dict(model.named_parameters())["0.weight"]
    fresh = job_for(model, examples)
    step = next(paired(fresh, 16, 16, epoch="shorter").run(0, 0))

    def objective() -> float:
        ce = lambda m, b: functional.cross_entropy(m(b.x), b.y)  # noqa: E731
        gradients = torch.autograd.grad(ce(fresh.model, step["retain"]), list(fresh.model.parameters()))
        ahead = {n: p - 0.5 * g for (n, p), g in zip(fresh.model.named_parameters(), gradients, strict=True)}
        logits = torch.func.functional_call(fresh.model, ahead, (step["forget"].x,))
        forget = functional.cross_entropy(logits, step["forget"].y)
        return float((0.4 * ce(fresh.model, step["retain"]) - 0.6 * forget).detach())

    weight = dict(fresh.model.named_parameters())["0.weight"]

    def objective_at(place: tuple[int, int], shift: float) -> float:
        with torch.no_grad():
            weight[place] += shift
        value = objective()
        with torch.no_grad():
            weight[place] -= shift
        return value

    for place in ((0, 0), (2, 3)):
        slope = (objective_at(place, 1e-5) - objective_at(place, -1e-5)) / 2e-5
        assert float(-moved.detach()[place]) == pytest.approx(slope, rel=1e-3, abs=1e-6)


def test_lur_redraws_the_most_salient_eligible_weights_only() -> None:
    model = trained(conv_net(), images())
    job = job_for(model, images())
    redrawn = lur.reinitialise(job, lur.Config(sparsity=0.9))
    sizes = sum(p.numel() for p in lur.eligible(model, ("*",)).values())
    assert redrawn == round(0.1 * sizes)
    norms = {n for n, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)}
    changed = {n for n, p in job.model.named_parameters() if not torch.equal(p, dict(model.named_parameters())[n])}
    assert changed
    assert not any(n.rsplit(".", 1)[0] in norms for n in changed)
    same, _ = run(lur, lur.Config(sparsity=1.0, lr=0.0), model=model, examples=images())
    assert same_parameters(same.model, model)


def test_lur_on_names_that_match_nothing_is_an_error() -> None:
    with error(RegunError, "lur.layers"):
        run(lur, lur.Config(layers=("layer4.*",)))


# ---- SCRUB, Retrain ------------------------------------------------------------------------------------------------


def test_scrub_begins_with_forget_passes_and_its_first_ascent_hardly_moves() -> None:
    model = trained(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), blobs())
    config = scrub.Config(epochs=4, lr=0.1, batch_size=16)
    job, _ = run(scrub, config, model=model, budget=None)
    forget, retain = len(job.indices("forget")), len(job.indices("retain"))
    assert job.cost.backward == 2 * forget + 4 * retain
    assert job.cost.forward == 2 * job.cost.backward  # the teacher sees the same
    first, _ = run(scrub, config, model=model, budget=Budget(steps=1))
    assert all(
        torch.allclose(p, q, atol=1e-5) for p, q in zip(first.model.parameters(), model.parameters(), strict=True)
    )


def test_scrub_s_teacher_never_moves(monkeypatch) -> None:
    teachers = []
    original = scrub.frozen_copy
    monkeypatch.setattr(scrub, "frozen_copy", lambda m: teachers.append(original(m)) or teachers[-1])
    model = trained(conv_net(), images(), epochs=2)
    job, _ = run(scrub, scrub.Config(lr=0.1, batch_size=16), model=model, examples=images())
    assert len(teachers) == 1
    assert same_state(teachers[0], model)
    assert not any(m.training for m in teachers[0].modules())
    assert not same_parameters(job.model, model)


@pytest.mark.parametrize("method", [finetune, l1_sparse, retrain])
def test_methods_of_the_retain_set_never_load_a_forgotten_example(method) -> None:
    examples, seen = blobs(), set()

    class Watching(type(examples)):
        def fetch(self, indices, **more):
            seen.update(np.asarray(indices).tolist())
            return super().fetch(indices, **more)

    watching = Watching(examples.x, examples.labels, 3)
    job, _ = run(method, method.Config(**SAME), examples=watching)
    assert seen
    assert seen <= set(job.indices("retain"))


def test_retrain_forgets_the_old_weights_altogether() -> None:
    config = retrain.Config(epochs=2, batch_size=16, lr=0.05)
    results = [run(retrain, config, model=trained(mlp(seed=s), blobs()), budget=None)[0].model for s in (0, 1)]
    assert same_parameters(*results)
    rebuilt, _ = run(retrain, config, model=mlp(), budget=None, rebuild=lambda seed: mlp(seed=9))
    assert not same_parameters(rebuilt.model, results[0])


def test_retrain_refuses_a_layer_that_cannot_be_redrawn() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(6))
            self.head = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.scale * x)

    with error(RegunError, 1, "scale", "rebuild"):
        run(retrain, retrain.Config(), model=Odd())


class Extra(nn.Linear):
    """A layer that draws anew what it has inherited, and not its own."""

    def __init__(self, own: str) -> None:
        super().__init__(6, 3)
        if own == "parameter":
            self.own = nn.Parameter(torch.ones(3))
        else:
            self.register_buffer("own", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.own * super().forward(x)


@pytest.mark.parametrize("own", ["parameter", "buffer"])
def test_retrain_keeps_no_trained_value_that_a_layer_adds_to_its_parent(own: str) -> None:
    with error(RegunError, 1, "own", "rebuild"):
        run(retrain, retrain.Config(), model=Extra(own))


def test_retrain_resets_running_statistics() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model(torch.randn(9, 6))
    fresh = retrain.reset(model, 0)
    assert torch.equal(fresh[1].running_mean, torch.zeros(4))
    assert not torch.equal(model[1].running_mean, torch.zeros(4))
    assert not any(tensor.isnan().any() for tensor in fresh.state_dict().values())


# ---- divergence, budgets, catalogue --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [neggrad, neggrad_plus, lur])
def test_unbounded_ascent_ends_as_diverged_with_finite_weights(method) -> None:
    more = dict(sparsity=1.0) if method is lur else {}
    config = method.Config(lr=1e37, epochs=50, batch_size=16, **({"w": 0.1} if method is not neggrad else {}), **more)
    job, outcome = run(method, config, model=nn.Linear(6, 3), budget=None)
    assert outcome.diverged
    assert "not finite" in outcome.diverged
    assert all(torch.isfinite(t).all() for t in job.model.state_dict().values())


@pytest.mark.parametrize("name", [n for n in method_names() if n != "ssd"])
def test_an_equal_budget_is_equal_for_every_iterative_method(name: str) -> None:
    method = get_method(name)
    for budget in (Budget(steps=5), Budget(steps=40)):
        job = job_for(trained(conv_net(), images(), epochs=3), images(), budget=budget)
        shape = (len(job.indices("forget")), job.examples.num_classes)
        job = replace(job, out_of_fold=torch.full(shape, 1 / shape[1]) if method.needs.out_of_fold else None)
        recipe = {"epochs": 1} if name == "retrain" else {}
        method.unlearn(job, method.configure({"batch_size": 16, "lr": 1e-4, **recipe}))
        assert job.cost.steps == budget.steps


def test_methods_are_found_by_name_file_and_function(tmp_path) -> None:
    known = "amun auto bad_teacher crossfit ct fanchuan finetune l1_sparse lur msg neggrad neggrad_plus noisy_finetune regun retrain"
    assert method_names() == [*known.split(), "rum", "salun", "scrub", "sfron", "ssd", "uam"]
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom regun.settings import check, setting\nfrom regun.training.fit import Fitted\n"
        "@dataclass(frozen=True)\nclass Config:\n    shrink: float = setting(0.5, 'factor', low=0)\n"
        "    def __post_init__(self): check(self, 'mine')\n"
        "def unlearn(job, config):\n    for p in job.model.parameters(): p.data.mul_(config.shrink)\n    return Fitted()\n"
        "def bare(job):\n    'Do nothing.'\n"
    )
    spec = MethodSpec.parse("mine.py,shrink=0.25", tmp_path)
    mine, config = spec.method, spec.configure()
    assert mine.name == spec.location == f"{tmp_path / 'mine.py'}"
    assert spec.label == "mine.py"
    job = job_for(mlp(), blobs())
    mine.unlearn(job, config)
    assert torch.equal(job.model[0].weight, mlp()[0].weight * 0.25)
    assert mine.describe(config)["config"] == {"shrink": 0.25}
    assert len(mine.describe(config)["code"]) == 64
    bare = get_method(f"{tmp_path / 'mine.py'}:bare")
    assert bare.unlearn(job, bare.configure({})) is None
    assert get_method(lambda job: None).title == "<lambda>"


def test_a_spec_is_parsed_once_and_written_back() -> None:
    spec = MethodSpec.parse(" regun@teacher , w = 0.25,lr=0.1")
    assert (spec.name, spec.preset, dict(spec.settings)) == ("regun", "teacher", {"w": "0.25", "lr": "0.1"})
    assert MethodSpec.parse(spec.text) == spec == MethodSpec.parse(spec)
    config = spec.configure(under={"w": 0.75, "epochs": 3})
    assert (config.w, config.epochs, config.target) == (0.25, 3, "teacher"), "text over tuned over preset"
    assert MethodSpec.parse("regun").configure("swin").optimizer == "adamw", "the family's preset"
    assert MethodSpec.parse("regun@teacher").configure("swin").optimizer == "sgd", "the preset that is named"
    assert MethodSpec.parse("retrain,lr=0.3").configure(recipe=RECIPES["digits"]).lr == 0.3
    assert MethodSpec.parse("retrain").configure(recipe=RECIPES["digits"]).epochs == RECIPES["digits"].epochs
    function = MethodSpec.parse(test_a_spec_is_parsed_once_and_written_back)
    assert function.settings == {}
    assert function.title == "test_a_spec_is_parsed_once_and_written_back"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("regum", ("regum", "regun")),
        ("regun@wide", ("regun", "wide", "wide_retain")),
        ("regun,w=2,retain_bach=3", ("retain_bach", "retain_batch", "regun.w")),
        ("regun,selector=uniform,granularity=class", ("regun.granularity", "class", "uniform", "batch")),
        ("regun,selector=nearest,m=3", ("regun.m", 3, "k")),
        ("regun,m=10000000", ("regun.m", 10000)),
        ("ssd,alpha=-1", ("ssd.alpha", -1.0, 0)),
        ("neggrad_plus,mode=sequential,ascent_epochs=99", ("ascent_epochs", 99, 10)),
        ("regun,w", ("name,key=value,key=value",)),
        ("nowhere.py", ("nowhere.py",)),
        ("no.such.module:f", ("no.such.module",)),
        ("regun.errors:nothing", ("regun.errors", "nothing")),
    ],
)
def test_bad_methods_and_settings(text: str, names: tuple[object, ...]) -> None:
    with error(RegunError, *names):
        MethodSpec.parse(text).configure()


def test_every_field_of_every_config_is_explained_and_every_preset_and_search_name_fits() -> None:
    import dataclasses

    for name in method_names():
        method = get_method(name)
        fields = {f.name: f for f in dataclasses.fields(method.config)}
        assert all(f.metadata["help"] for f in fields.values())
        assert {"resnet", "swin"} <= set(method.search)
        for space in method.search.values():
            assert set(space) <= set(fields)
        for preset in method.presets:
            config = method.configure({}, preset)
            assert method.configure(method.describe(config)["config"]) == config  # settings survive JSON
        assert "Paper" in method.about or name in ("retrain", "auto", "crossfit")
