"""ReGUn: its targets against a slow implementation of Algorithm 1, its loss, its references and its variants."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from expect import error
from regun.errors import RegunError
from regun.methods import get_method, regun
from regun.methods._unseen_targets import Pool, aggregate, histogram_picks, nearest, nearest_picks, uniform_picks
from regun.rng import generator
from regun.training.forward import eval_features, eval_logits
from regun.training.job import Budget, Step
from regun.training.streams import paired
from toys import blobs, conv_net, images, job_for, mlp, same_parameters, same_state


def slow_counts(labels: list[int], classes: int, m: int) -> list[int]:
    """Lines 2 and 3 of Algorithm 1 in plain loops: floor the shares, give what is missing to the largest fractions."""
    b = len(labels)
    c = [sum(1 for y in labels if y == k) for k in range(classes)]
    counts = [m * c[k] // b for k in range(classes)]
    while sum(counts) < m:
        fractions = [(m * c[k] % b if counts[k] == m * c[k] // b else -1) for k in range(classes)]
        best = 0
        for k in range(1, classes):
            if (fractions[k], c[k]) > (fractions[best], c[best]):
                best = k
        counts[best] += 1
    return counts


def slow_target(logits: torch.Tensor, pool_labels: list[int], chosen: list[int]) -> list[float]:
    """Line 5: the mean of the softmax outputs, in plain loops over fp64."""
    total = [0.0] * logits.shape[1]
    for j in chosen:
        row = logits[j].double()
        shifted = [float(torch.exp(v - row.max())) for v in row]
        for k, value in enumerate(shifted):
            total[k] += value / sum(shifted) / len(chosen)
    return total


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_target_is_algorithm_1(data) -> None:
    classes = data.draw(st.integers(2, 6))
    labels = data.draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=20))
    pool_labels = data.draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=25))
    m = data.draw(st.one_of(st.none(), st.integers(1, 40)))
    seed = data.draw(st.integers(0, 1000))
    pool = Pool(np.array(pool_labels, dtype=np.int64), classes)
    picks = histogram_picks(pool, torch.tensor(labels), m, "batch", generator(seed), replacement=False)
    chosen = picks.chosen.tolist()
    expected = slow_counts(labels, classes, len(labels) if m is None else m)
    assert len(chosen) == sum(expected)
    start = 0
    for k in range(classes):
        mine = chosen[start : start + expected[k]]
        start += expected[k]
        size = pool_labels.count(k)
        if size == 0:
            continue  # drawn from the whole pool
        assert all(pool_labels[j] == k for j in mine)
        uses = [mine.count(j) for j in range(len(pool_labels)) if pool_labels[j] == k]
        assert max(uses) - min(uses) <= 1  # without replacement while the pool suffices, evenly beyond
    missing = sum(n for k, n in enumerate(expected) if pool_labels.count(k) == 0)
    assert pool.missing == missing
    logits = torch.randn(len(pool_labels), classes, generator=generator(seed, "logits"))
    q = aggregate(picks, lambda rows: logits[rows], "probabilities", 1.0)
    slow = torch.tensor(slow_target(logits, pool_labels, chosen))
    assert torch.allclose(q, slow.float().expand(len(labels), classes), atol=1e-6)
    assert torch.allclose(q.sum(1), torch.ones(len(labels)), atol=1e-5)
    assert (q >= 0).all()


def test_the_expected_target_is_the_histogram_weighted_mean_of_class_means() -> None:
    pool_labels = np.repeat(np.arange(3), [4, 6, 5])
    logits = torch.randn(15, 3, generator=generator(0), dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1, 1, 2])
    pool = Pool(pool_labels, 3)
    for replacement in (False, True):
        total = torch.zeros(3, dtype=torch.float64)
        for n in range(4000):
            picks = histogram_picks(pool, labels, None, "batch", generator(n), replacement=replacement)
            total += aggregate(picks, lambda rows: logits[rows], "probabilities", 1.0)[0].double() / 4000
        means = torch.stack([logits[torch.from_numpy(pool_labels == k)].softmax(1).mean(0) for k in range(3)])
        assert torch.allclose(total, (torch.tensor([2, 3, 1]) / 6).double() @ means, atol=0.01)


def test_the_target_does_not_depend_on_the_order_of_the_batch() -> None:
    pool = Pool(np.arange(30) % 3, 3)
    labels = torch.tensor([0, 1, 1, 2, 0, 1])
    first = histogram_picks(pool, labels, None, "batch", generator(1), replacement=False)
    second = histogram_picks(pool, labels.flip(0), None, "batch", generator(1), replacement=False)
    assert torch.equal(first.chosen, second.chosen)


def test_one_example_and_one_held_out_item_a_class_gives_that_item_s_prediction() -> None:
    pool = Pool(np.array([2, 0, 1]), 3)
    logits = torch.randn(3, 3, generator=generator(0))
    picks = histogram_picks(pool, torch.tensor([1]), None, "batch", generator(5), replacement=False)
    q = aggregate(picks, lambda rows: logits[rows], "probabilities", 1.0)
    assert torch.allclose(q[0], logits[2].softmax(0), atol=1e-6)


def step_of(job, config):
    parts = next(paired(job, config.batch_size, config.retain_batch or config.batch_size).run(0, 0))
    return Step(parts, 0, 1, 0)


def test_the_loss_is_soft_cross_entropy_minus_entropy_and_its_gradient_is_p_minus_q_over_b() -> None:
    q = torch.rand(3, generator=generator(0)).softmax(0).expand(5, 3)
    z = torch.randn(5, 3, generator=generator(1), requires_grad=True)
    log_p = functional.log_softmax(z, 1)
    loss = functional.kl_div(log_p, q, reduction="batchmean")
    soft = -(q * log_p).sum(1).mean() + (q[0] * q[0].log()).sum()
    assert torch.allclose(loss, soft)
    (gradient,) = torch.autograd.grad(loss, z)
    assert torch.allclose(gradient, (z.detach().softmax(1) - q) / 5, atol=1e-7)


def test_a_whole_step_is_the_papers_objective() -> None:
    config = regun.Config(w=0.3, batch_size=16, lr=0.1, momentum=0.0)
    job = job_for(mlp(), blobs(), budget=Budget(steps=1))
    step = step_of(job, config)
    job.model.train()
    q = regun.unseen_target(job, config)(step)
    p = job.logits(step.forget.x).softmax(1)
    kl = (q * (q.log() - p.log())).sum(1).mean()
    value = 0.7 * kl + 0.3 * functional.cross_entropy(job.logits(step.retain.x), step.retain.y)
    gradients = torch.autograd.grad(value, list(job.model.parameters()))
    after = job_for(mlp(), blobs(), budget=Budget(steps=1))
    regun.unlearn(after, config)
    for new, old, gradient in zip(after.model.parameters(), mlp().parameters(), gradients, strict=True):
        assert torch.allclose(new, old - 0.1 * gradient, atol=1e-6)


def test_the_reference_is_the_base_model_in_eval_mode_and_never_moves(monkeypatch) -> None:
    seen = []
    original = regun.frozen_copy
    monkeypatch.setattr(regun, "frozen_copy", lambda m: seen.append(original(m)) or seen[-1])
    job = job_for(conv_net(), images(), budget=Budget(steps=8))
    regun.unlearn(job, regun.Config(batch_size=8, lr=0.1))
    assert len(seen) == 1
    assert same_state(seen[0], conv_net())
    assert not seen[0].training
    assert not same_parameters(job.model, conv_net())


def test_cached_and_uncached_targets_agree_until_the_model_moves() -> None:
    targets = []
    for reference in ("base", "moving"):
        config = regun.Config(source=reference, batch_size=16)
        job = job_for(mlp(), blobs())
        job.model.train()
        targets.append(regun.unseen_target(job, config)(step_of(job, config)))
        assert job.model.training
        assert same_state(job.model, mlp())  # looking left BatchNorm alone
    assert torch.allclose(*targets, atol=1e-6)


def test_a_given_reference_is_used_and_its_absence_named() -> None:
    oracle = mlp(seed=3)
    config = regun.Config(source="given", batch_size=16)
    job = job_for(mlp(), blobs(), teacher=oracle)
    given_target = regun.unseen_target(job, config)(step_of(job, config))
    own = job_for(oracle, blobs())
    assert torch.allclose(
        given_target, regun.unseen_target(own, regun.Config(batch_size=16))(step_of(own, config)), atol=1e-6
    )
    with error(RegunError, "regun.source", "given", "teacher="):
        regun.unlearn(job_for(mlp(), blobs()), config)


def test_granularity_class_and_sample() -> None:
    pool = Pool(np.arange(40) % 4, 4)
    logits = torch.randn(40, 4, generator=generator(0))
    labels = torch.tensor([3, 1, 1, 3, 0, 1])
    by_class = histogram_picks(pool, labels, None, "class", generator(1), replacement=False)
    q = aggregate(by_class, lambda rows: logits[rows], "probabilities", 1.0)
    assert torch.equal(q[0], q[3])
    assert torch.equal(q[1], q[2])
    assert not torch.equal(q[0], q[1])
    chosen = by_class.chosen[by_class.speaks_for == 1]
    assert torch.allclose(q[1], logits[chosen].softmax(1).mean(0), atol=1e-6)
    by_sample = histogram_picks(pool, labels, None, "sample", generator(1), replacement=False)
    q = aggregate(by_sample, lambda rows: logits[rows], "probabilities", 1.0)
    for i in range(6):
        (mine,) = by_sample.chosen[by_sample.speaks_for == i].tolist()
        assert pool.labels[mine] == labels[i]
        assert torch.allclose(q[i], logits[mine].softmax(0), atol=1e-6)
    few = histogram_picks(pool, labels, 2, "class", generator(1), replacement=False)
    assert set(few.speaks_for.tolist()) == {0, 1, 3}  # every class present is spoken for


@pytest.mark.parametrize(("m", "each"), [(None, 1), (2, 1), (13, 2), (18, 3)])
def test_m_draws_are_shared_evenly_among_samples(m: int | None, each: int) -> None:
    pool, labels = Pool(np.arange(40) % 4, 4), torch.tensor([3, 1, 1, 3, 0, 1])
    picks = histogram_picks(pool, labels, m, "sample", generator(1), replacement=False)
    for i, label in enumerate(labels):
        mine = picks.chosen[picks.speaks_for == i].tolist()
        assert [pool.labels[j] for j in mine] == [label] * each


def test_uniform_draws_with_replacement_come_from_the_whole_held_out_set() -> None:
    pool = Pool(np.arange(5), 5)
    picks = uniform_picks(pool, torch.zeros(4, dtype=torch.long), 2000, generator(0), replacement=True)
    assert ((torch.bincount(picks.chosen, minlength=5) - 400).abs() < 90).all()


def test_the_nearest_held_out_example_of_itself_is_itself() -> None:
    job = job_for(conv_net(), images())
    features = eval_features(job.model, job.examples, job.indices("forget"))
    assert torch.equal(nearest(features, features, 1).squeeze(1), torch.arange(len(features)))
    ours = torch.randn(20, 5, generator=generator(0))
    theirs = torch.randn(30, 5, generator=generator(1))
    cosine = functional.cosine_similarity(ours[:, None], theirs[None], dim=2)
    assert torch.equal(nearest(ours, theirs, 4, block=7), cosine.topk(4).indices)
    with error(RegunError, "regun.k", 31, 30):
        nearest(ours, theirs, 31)


def test_nearest_neighbours_speak_for_batch_class_or_sample() -> None:
    neighbours, labels = torch.tensor([[0, 1], [2, 3], [4, 5]]), torch.tensor([1, 0, 1])
    logits = torch.randn(6, 2, generator=generator(0))
    probabilities = logits.softmax(1)
    expected = {
        "batch": [probabilities.mean(0)] * 3,
        "class": [probabilities[[0, 1, 4, 5]].mean(0), probabilities[2:4].mean(0), probabilities[[0, 1, 4, 5]].mean(0)],
        "sample": [probabilities[:2].mean(0), probabilities[2:4].mean(0), probabilities[4:].mean(0)],
    }
    for granularity, rows in expected.items():
        picks = nearest_picks(neighbours, labels, 2, granularity)
        assert torch.allclose(aggregate(picks, lambda r: logits[r], "probabilities", 1.0), torch.stack(rows), atol=1e-6)


def test_mean_of_logits_and_temperature() -> None:
    pool = Pool(np.zeros(4, dtype=np.int64), 1)
    logits = torch.randn(4, 3, generator=generator(0))
    picks = uniform_picks(pool, torch.zeros(4, dtype=torch.long), None, generator(0), replacement=False)
    assert sorted(picks.chosen.tolist()) == [0, 1, 2, 3]
    q = aggregate(picks, lambda rows: logits[rows], "logits", 2.0)
    assert torch.allclose(q[0], (logits.mean(0) / 2).softmax(0), atol=1e-6)
    more = uniform_picks(pool, torch.zeros(10, dtype=torch.long), None, generator(0), replacement=False)
    assert torch.bincount(more.chosen).tolist() in (
        [3, 3, 2, 2],
        [3, 2, 3, 2],
        [2, 3, 3, 2],
        [2, 2, 3, 3],
        [3, 2, 2, 3],
        [2, 3, 2, 3],
    )


@pytest.mark.parametrize("policy", ["paper", "frozen", "reestimate"])
def test_batchnorm_policies(policy: str) -> None:
    job = job_for(conv_net(), images(), budget=Budget(steps=4))
    before = job.model[1].running_mean.clone()
    regun.unlearn(job, regun.Config(batch_size=8, lr=0.0 if policy == "reestimate" else 0.1, batchnorm=policy))
    after = job.model[1].running_mean
    assert torch.equal(before, after) == (policy == "frozen")
    if policy == "reestimate":
        x = job.examples.x[torch.from_numpy(job.indices("retain"))]
        assert torch.allclose(after, job.model[0](x).mean((0, 2, 3)), atol=0.02)
        assert job.model[1].momentum == 0.1


def test_retain_and_forget_batches_have_their_own_sizes() -> None:
    job = job_for(mlp(), blobs())
    get_method("regun").run(job, regun.Config(batch_size=4, retain_batch=20, epochs=2))
    steps = 2 * -(-len(job.indices("forget")) // 4)
    assert job.cost.steps == steps
    retain = sum(20 if n % 4 < 3 else 15 for n in range(steps))  # 75 = 3 x 20 + 15
    assert job.cost.backward == 2 * len(job.indices("forget")) + retain
    assert job.cost.forward == job.cost.backward + len(job.indices("heldout"))


def test_regun_lowers_the_confidence_on_what_is_forgotten() -> None:
    examples = blobs(n=300, seed=3)
    from regun.methods import finetune

    start = job_for(mlp(), examples)
    finetune.unlearn(start, finetune.Config(epochs=20, lr=0.05, batch_size=32))
    job = job_for(start.model, examples)
    before = eval_logits(job.model, examples, job.indices("forget")).softmax(1).max(1).values.mean()
    regun.unlearn(job, regun.Config(w=0.2, batch_size=16, epochs=10, lr=0.05))
    after = eval_logits(job.model, examples, job.indices("forget")).softmax(1).max(1).values.mean()
    assert after < before - 0.05


def test_no_held_out_set_is_refused_with_the_way_out() -> None:
    with error(RegunError, "held-out", "empty"):
        Pool(np.array([], dtype=np.int64), 3)


def test_every_variant_runs() -> None:
    variants = [
        dict(selector="uniform"),
        dict(selector="nearest", k=3, granularity="sample"),
        dict(granularity="class", aggregation="logits", temperature=2.0),
        dict(granularity="sample", m=40),
        dict(source="moving", m=4),
        dict(replacement=True, m=3),
    ]
    for variant in variants:
        job = job_for(conv_net(), images(), budget=Budget(steps=3))
        fitted = regun.unlearn(job, regun.Config(batch_size=8, **variant))
        assert fitted.diverged is None
        assert not same_parameters(job.model, conv_net())
