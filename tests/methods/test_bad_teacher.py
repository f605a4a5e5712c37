"""The bad teacher: who answers for whom, that teachers stand still, its step and its limits."""

import copy

import numpy as np
import torch
from trials import Watched, gradient, plain_net, run

from regun.methods import bad_teacher
from regun.methods._fresh_weights import fresh_model
from regun.training.job import Budget
from regun.training.streams import one_pass
from toys import blobs, conv_net, images, job_for, mlp, same_state


def test_a_step_learns_from_the_random_net_on_forget_and_from_the_base_on_retain() -> None:
    model, lr, tau = plain_net(), 0.4, 2.0
    source = job_for(model, blobs())
    bad = fresh_model(source, "bad teacher")
    settings = dict(batch_size=200, retain_share=1.0, temperature=tau)  # one batch of everything
    batch = next(one_pass(source, "both", source.indices("base"), 200).run(0, 0))["both"]
    forgotten = np.isin(batch.indices.numpy(), source.indices("forget"))
    assert 0 < forgotten.sum() < len(forgotten)
    loss = 0.0
    for row, unwanted in enumerate(forgotten):
        teacher = bad if unwanted else copy.deepcopy(model)
        target = (teacher(batch.x[row : row + 1]) / tau).softmax(1).detach()
        answer = (model(batch.x[row : row + 1]) / tau).log_softmax(1)
        loss = loss + (target * (target.log() - answer)).sum() / len(forgotten)
    found = gradient(loss, model)
    job, _ = run("bad_teacher", model, lr=lr, optimizer="sgd", momentum=0.0, budget=Budget(steps=1), **settings)
    for name, weight in job.model.named_parameters():
        assert torch.allclose(weight, dict(model.named_parameters())[name] - lr * found[name], atol=1e-6)


def test_a_bad_teacher_that_is_the_base_teaches_nothing(monkeypatch) -> None:
    monkeypatch.setattr(bad_teacher, "fresh_model", lambda job, *purpose: copy.deepcopy(job.model))
    model = plain_net()
    job, _ = run("bad_teacher", model, lr=0.1, optimizer="sgd", epochs=3, batch_size=16)
    for name, weight in job.model.named_parameters():
        assert torch.allclose(weight, dict(model.named_parameters())[name], atol=1e-5)


def test_only_its_share_of_the_retain_set_is_looked_at() -> None:
    for share in (0.0, 0.3, 1.0):
        watched = Watched(blobs())
        job, _ = run("bad_teacher", mlp(), watched, retain_share=share, epochs=3, batch_size=16)
        forget, retain = set(job.indices("forget")), set(job.indices("retain"))
        assert forget <= watched.seen <= forget | retain
        assert len(watched.seen & retain) == round(share * len(retain))


def test_neither_teacher_moves(monkeypatch) -> None:
    teachers = []
    original = bad_teacher.frozen_copy
    monkeypatch.setattr(
        bad_teacher, "frozen_copy", lambda m: teachers.append((copy.deepcopy(m), original(m))) or teachers[-1][1]
    )
    job, _ = run("bad_teacher", conv_net(), images(), lr=0.1, batch_size=16, budget=Budget(steps=6))
    assert len(teachers) == 2
    for start, teacher in teachers:
        assert same_state(start, teacher)
        assert not any(layer.training for layer in teacher.modules())
    assert same_state(teachers[0][0], conv_net())
    assert not same_state(job.model, conv_net())


def test_the_random_net_does_not_depend_on_what_the_base_learned() -> None:
    assert same_state(*(fresh_model(job_for(mlp(seed=s), blobs()), "bad teacher") for s in (0, 1)))
    built = fresh_model(job_for(mlp(), blobs(), rebuild=lambda seed: mlp(seed=seed % 1000)), "bad teacher")
    assert not same_state(built, mlp())
