"""RUM: how the forget set is split, that the parts are plain runs one after the other, and whom it may show what."""

import numpy as np
import pytest
import torch
from torch import nn
from trials import Watched, plain_net, run

from expect import error
from regun.errors import RegunError, SettingsError
from regun.methods import MethodSpec, get_method, rum
from regun.splits import Splits
from regun.training.job import Budget
from toys import blobs, conv_net, images, job_for, mlp, same_state

QUICK = dict(epochs=2, batch_size=8, lr=0.05)


def label_probabilities(model: nn.Module, job) -> list[float]:
    """p(y|x) of each forgotten example, one at a time."""
    examples, rows = blobs(), job.indices("forget")
    return [float(model(examples.x[i : i + 1]).softmax(1)[0, examples.labels[i]].detach()) for i in rows]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_the_least_confident_examples_are_hard(share: float) -> None:
    job = job_for(plain_net(), blobs())
    easy, hard = rum.split(job, rum.Config(share=share))
    sure = dict(zip(job.indices("forget").tolist(), label_probabilities(plain_net(), job), strict=True))
    assert sorted([*easy, *hard]) == job.indices("forget").tolist()
    assert len(hard) == round(share * len(sure))
    if len(easy) and len(hard):
        assert max(sure[i] for i in hard) <= min(sure[i] for i in easy)


def test_with_a_reference_hard_is_what_only_the_base_knows() -> None:
    base, reference = plain_net(0), plain_net(1)
    job = job_for(base, blobs(), teacher=reference)
    easy, hard = rum.split(job, rum.Config(score="reference"))
    gain = {
        i: ours - theirs
        for i, ours, theirs in zip(
            job.indices("forget").tolist(),
            label_probabilities(base, job),
            label_probabilities(reference, job),
            strict=True,
        )
    }
    assert min(gain[i] for i in hard) >= max(gain[i] for i in easy)
    with error(RegunError, "rum.score", "reference", "teacher=", "confidence"):
        rum.split(job_for(base, blobs()), rum.Config(score="reference"))


def test_confidences_that_round_to_1_or_0_still_have_an_order() -> None:
    sharp = nn.Linear(6, 3)
    with torch.no_grad():
        sharp.weight.copy_(40 * torch.eye(3, 6))
        sharp.bias.zero_()
    score = rum.memorisation(job_for(sharp, blobs()), "confidence")
    assert len(score.unique()) == len(score)


@pytest.mark.parametrize("text", ["neggrad_plus", "salun", "regun@wide_retain", "finetune;weight_decay=0.01"])
def test_one_method_on_both_parts_is_that_method_twice(text: str) -> None:
    both, fitted = run("rum", mlp(), easy=text, hard=text, share=0.4, **QUICK)
    by_hand = job_for(mlp(), blobs())
    spec = MethodSpec.parse(text.replace(";", ","))
    method, own = spec.method, spec.configure()
    own = method.configure({**method.describe(own)["config"], **QUICK})
    parts = rum.split(by_hand, rum.Config(share=0.4))
    for name, rows in zip(("easy", "hard"), parts, strict=True):
        usual = by_hand.splits
        splits = Splits(usual.retain, rows, usual.heldout, usual.val, usual.total)
        job = job_for(by_hand.model, blobs(), splits, seed=by_hand.derive(name), cost=by_hand.cost)
        method.run(job, own)
        by_hand.model.load_state_dict(job.model.state_dict())
    assert same_state(both.model, by_hand.model)
    assert both.cost.steps == by_hand.cost.steps
    assert fitted.notes["easy"]["method"] == fitted.notes["hard"]["method"] == method.name
    assert fitted.notes["easy"]["examples"] + fitted.notes["hard"]["examples"] == len(both.indices("forget"))


def test_the_order_and_the_parts_matter() -> None:
    ends = [
        run("rum", mlp(), easy=a, hard=b, **QUICK)[0].model for a, b in (("finetune", "salun"), ("salun", "finetune"))
    ]
    assert not same_state(*ends)


def test_none_leaves_a_part_alone_and_nothing_still_to_be_forgotten_is_trained_on() -> None:
    passes = "neggrad_plus;epoch=retain"
    for easy, hard in ((passes, "none"), ("none", passes)):
        watched = Watched(blobs())
        job, fitted = run("rum", mlp(), watched, easy=easy, hard=hard, share=0.3, **QUICK)
        parts = dict(zip(("easy", "hard"), rum.split(job_for(mlp(), blobs()), rum.Config(share=0.3)), strict=True))
        (ran,) = fitted.notes
        assert watched.trained == set(job.indices("retain")) | set(parts[ran])
    with error(SettingsError, "rum.easy", "rum.hard"):
        rum.Config(easy="none", hard="none")


def test_a_part_without_examples_is_skipped() -> None:
    alone, fitted = run("rum", mlp(), easy="salun", hard="neggrad_plus", share=0.0, **QUICK)
    assert list(fitted.notes) == ["easy"]
    assert fitted.notes["easy"]["examples"] == len(alone.indices("forget"))


def test_work_is_the_sum_and_needs_are_joined() -> None:
    config = rum.Config(easy="salun", hard="regun@teacher;w=0.7", share=0.25, epochs=2)
    assert config.method("hard")[1].w == 0.7
    salun, teacher = (config.method(part) for part in ("easy", "hard"))
    expected = salun[0].planned(salun[1], 30, 200) + teacher[0].planned(teacher[1], 10, 200)
    assert rum.work(config, 40, 200, None) == expected
    method = get_method("rum")
    assert not method.needs_of(config).heldout
    assert method.needs_of(config).fresh_model
    assert method.needs_of(rum.Config()).heldout
    assert not method.needs_of(rum.Config(easy="neggrad", hard="none")).retain
    assert method.needs_of(rum.Config(easy="none", hard="auto")).uses_heldout, "held-out data cannot judge the result"
    assert not method.needs_of(rum.Config(easy="neggrad", hard="finetune")).uses_heldout


@pytest.mark.parametrize("steps", [2, 3, 9, 40])
def test_a_budget_is_shared_and_both_parts_run(steps: int) -> None:
    job, fitted = run("rum", mlp(), easy="finetune", hard="neggrad_plus", batch_size=8, budget=Budget(steps=steps))
    assert job.cost.steps == steps
    assert set(fitted.notes) == {"easy", "hard"}
    assert len(fitted.epochs) >= 2


def test_only_the_last_part_s_epochs_can_be_chosen_from() -> None:
    seen = []
    run("rum", mlp(), easy="finetune", hard="neggrad_plus", on_epoch=lambda epoch, model: seen.append(epoch), **QUICK)
    assert [epoch.number for epoch in seen] == [1, 2]
    seen.clear()
    run("rum", mlp(), easy="finetune", hard="none", on_epoch=lambda epoch, model: seen.append(epoch), **QUICK)
    assert [epoch.number for epoch in seen] == [1, 2]


def test_a_part_that_diverges_ends_the_run() -> None:
    values = dict(easy="neggrad;lr=1e37;epochs=50", hard="finetune", share=0.5)
    job, fitted = run("rum", nn.Linear(6, 3), **values)
    assert fitted.diverged.startswith("easy (neggrad): ")
    assert list(fitted.notes) == ["easy"]
    assert all(torch.isfinite(p).all() for p in job.model.parameters())


def test_settings_of_both_are_given_where_a_method_has_them() -> None:
    config = rum.Config(easy="ssd", hard="finetune", epochs=3, lr=0.5, batch_size=7)
    assert config.method("easy")[1].batch_size == 7
    assert (config.method("hard")[1].epochs, config.method("hard")[1].lr) == (3, 0.5)
    assert rum.Config(easy="salun", family="swin").method("easy")[1].optimizer == "adamw"
    run("rum", conv_net(), images(), easy="ssd", hard="finetune", epochs=1)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (dict(easy="rum"), ("rum.easy", "rum")),
        (dict(hard="rum@swin;share=0.1"), ("rum.hard", "rum@swin;share=0.1")),
        (dict(easy="regum"), ("regum", "regun")),
        (dict(hard="regun;ww=1"), ("regun", "ww")),
        (dict(share=2.0), ("rum.share", 2.0, 1)),
    ],
)
def test_bad_settings(values, names: tuple[object, ...]) -> None:
    with error(RegunError, *names):
        rum.Config(**values)


def test_the_code_of_what_it_runs_is_part_of_its_name() -> None:
    method = get_method("rum")

    def code(**values) -> str:
        return method.describe(rum.Config(**values))["code"]

    assert code(easy="finetune") != code(easy="salun")
    assert code(easy="finetune", share=0.1) == code(easy="finetune", share=0.9)
    assert len(code()) == 64
    assert np.unique([code(), code(hard="neggrad")]).size == 2
