"""Guard rails: what is said of a damaged, unsure or unchanged model and of too few steps, and what is not."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import regun
from expect import assert_names
from regun.data.tensors import TensorExamples
from regun.guards import FEW_STEPS, SAMPLE, Guard
from regun.methods import get_method
from regun.splits import Splits
from regun.training.job import Budget, Job
from regun.training.recipes import Recipe
from regun.unlearning import log_warnings, unlearn_job
from toys import blobs, job_for, mlp

FINETUNE = get_method("finetune")
SURE = 6.0


class Table(nn.Module):
    """Logits by an example's kind, of which there are four, each its own class; right about all of them at first."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(SURE * torch.eye(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rows[x[:, 0].long()]


def table_job(n: int = 400, **parts) -> Job:
    labels = np.arange(n) % 4
    data = TensorExamples(torch.tensor(labels, dtype=torch.float32)[:, None], labels, 4)
    rows = {"retain": range(40, n), "forget": range(40), "heldout": (), "val": (), **parts}
    splits = Splits(**{name: np.array(list(some), dtype=np.int64) for name, some in rows.items()}, total=n)
    return Job(model=Table(), examples=data, splits=splits, seed=1)


def said(job: Job, change, steps: int = 1000, method=FINETUNE, **settings) -> tuple[str, ...]:
    """The warnings after `change` was done to the rows of the job's model by a run of so many steps."""
    guard = Guard(job)
    with torch.no_grad():
        change(job.model.rows)
    job.cost.add(steps=steps)
    return guard.warnings(method, method.configure(settings))


def one_class_wrong(rows: torch.Tensor) -> None:
    rows[0] = SURE * torch.eye(4)[1]


def harmless(rows: torch.Tensor) -> None:
    rows.mul_(0.9)


def unsure(rows: torch.Tensor) -> None:
    rows.mul_(0.1)


def test_a_healthy_run_is_not_commented() -> None:
    assert said(table_job(heldout=range(300, 400), retain=range(40, 300)), harmless) == ()


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        (dict(heldout=range(300, 400), retain=range(40, 300)), "held-out"),
        (dict(val=range(200, 300), heldout=range(300, 400), retain=range(40, 200)), "validation"),
        (dict(), "retain"),
    ],
)
def test_lost_accuracy_is_said_once_with_before_and_after(parts: dict, word: str) -> None:
    (sentence,) = said(table_job(**parts), one_class_wrong)
    assert_names(sentence, "accuracy", word, "100.0%", "75.0%", "method='auto'")


def test_of_a_model_trained_anew_the_recipe_is_asked_after_and_its_steps_are_its_own() -> None:
    retrain = get_method("retrain")
    job = table_job()
    guard = Guard(job)
    with torch.no_grad():
        one_class_wrong(job.model.rows)
    job.cost.add(steps=2)
    (sentence,) = guard.warnings(retrain, retrain.configure({"epochs": 1, "lr": 0.1}), from_scratch=True)
    assert_names(sentence, "accuracy", "recipe")


def test_without_a_recipe_nobody_is_sent_to_check_one() -> None:
    """`auto` may train from scratch by a recipe of its own: then the user's is missing, not wrong."""
    auto, sentences = get_method("auto"), []
    for recipe in (None, Recipe(epochs=1)):
        job = replace(table_job(), recipe=recipe)
        guard = Guard(job)
        with torch.no_grad():
            one_class_wrong(job.model.rows)
        job.cost.add(steps=2)
        sentences += guard.warnings(auto, auto.configure({}), from_scratch=True)
    guessed, given = sentences
    assert "recipe=" in guessed
    assert "recipe=" not in given


def test_a_forgotten_class_may_be_lost() -> None:
    gone = [i for i in range(400) if i % 4 == 0]
    left = [i for i in range(400) if i % 4]
    job = table_job(forget=gone[:80], heldout=gone[80:] + left[250:], retain=left[:250])
    assert said(job, one_class_wrong) == ()


def test_lost_confidence_is_said_though_every_answer_is_right() -> None:
    (sentence,) = said(table_job(), unsure)
    sure = torch.tensor([SURE, 0, 0, 0]).softmax(0)[0]
    now = torch.tensor([0.1 * SURE, 0, 0, 0]).softmax(0)[0]
    assert_names(sentence, "confidence", "retain", f"{sure:.1%}", f"{now:.1%}")


@pytest.mark.parametrize("change", [one_class_wrong, unsure])
def test_after_auto_nobody_is_sent_to_auto(change) -> None:
    auto = get_method("auto")
    (sentence,) = said(table_job(), change, method=auto)
    assert "method='auto'" not in sentence
    assert "method='retrain'" in sentence


def test_answers_that_are_no_numbers_are_said() -> None:
    found = said(table_job(), lambda rows: rows.fill_(torch.nan))
    assert any("finite" in sentence and "lr" in sentence for sentence in found)


@pytest.mark.parametrize(
    ("change", "name"), [(lambda rows: None, "no"), (lambda rows: rows[0, 0].add_(5e-7), "float32")]
)
def test_weights_that_do_not_change_give_a_warning(change, name: str) -> None:
    (sentence,) = said(table_job(), change)
    assert_names(sentence, name, "changed", "lr")


@pytest.mark.parametrize(
    ("steps", "method", "warned"),
    [
        (0, "finetune", True),
        (FEW_STEPS - 1, "finetune", True),
        (FEW_STEPS, "finetune", False),
        (2, "neggrad", False),
        (0, "ssd", False),
    ],
)
def test_methods_with_a_retain_set_need_steps(steps: int, method: str, warned: bool) -> None:
    found = said(table_job(), harmless, steps, get_method(method))
    assert len(found) == warned
    if warned:
        assert_names(found[0], "Finetune", steps, FEW_STEPS)


def test_the_look_costs_nothing_sees_no_more_than_it_says_and_changes_nothing() -> None:
    job = table_job(n=6 * SAMPLE)
    guard = Guard(job)
    assert [len(rows) for rows in guard.rows.values()] == [SAMPLE]
    assert guard.warnings(FINETUNE, FINETUNE.configure({}))  # nothing was done
    assert (job.cost.forward, job.cost.steps) == (0, 0)
    assert torch.equal(job.model.rows, SURE * torch.eye(4))


def test_every_run_is_guarded_and_a_method_may_have_its_own_word(caplog) -> None:
    def talks(job):
        from regun.training.fit import Fitted

        return Fitted(notes={"warnings": ["my own word"], "kept": 1})

    method = get_method(talks)
    config = method.configure({})
    with caplog.at_level(logging.WARNING, "regun"):
        outcome = unlearn_job(job_for(mlp(), blobs()), method, config)
        assert not caplog.messages  # whoever keeps the outcome logs its warnings
        log_warnings(outcome.warnings)
    assert outcome.warnings[0] == "my own word"
    assert_names(outcome.warnings[1], "weight", "changed")
    assert outcome.notes == {"kept": 1}
    assert caplog.messages == list(outcome.warnings)
    assert unlearn_job(job_for(mlp(), blobs()), method, config, guard=False).warnings == ("my own word",)


def test_the_guard_does_not_change_the_run() -> None:
    config = FINETUNE.configure({"batch_size": 16})
    runs = [
        unlearn_job(job_for(mlp(), blobs(), budget=Budget(steps=5)), FINETUNE, config, guard=guard)
        for guard in (True, False)
    ]
    first, second = (run.model.state_dict() for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert vars(runs[0].cost) | {"seconds": 0} == vars(runs[1].cost) | {"seconds": 0}


def test_a_user_s_run_is_guarded_and_says_so_in_the_log(caplog) -> None:
    data = blobs()
    x, y = data.fetch(np.arange(120)).x, torch.from_numpy(data.labels)
    sets = {"forget": (x[:20], y[:20]), "retain": (x[20:90], y[20:90]), "heldout": (x[90:], y[90:])}
    with caplog.at_level(logging.INFO, "regun"):
        outcome = regun.unlearn(mlp(), **sets, method="finetune", run=regun.RunOptions(budget=Budget(steps=3)))
    assert any("3 steps" in sentence for sentence in outcome.warnings)
    assert any("Finetune: epoch 1 of" in message for message in caplog.messages)


def test_progress_is_shown_when_asked_for(capsys) -> None:
    data = blobs()
    x, y = data.fetch(np.arange(120)).x, torch.from_numpy(data.labels)
    sets = {"forget": (x[:20], y[:20]), "retain": (x[20:90], y[20:90])}
    for progress in (False, True):
        regun.unlearn(mlp(), **sets, method="finetune", settings={"epochs": 2}, run=regun.RunOptions(progress=progress))
        shown = capsys.readouterr().err
        assert ("Finetune: epoch 2/2" in shown) == progress


@pytest.mark.parametrize(("lr", "lost"), [(1e-12, True), (0.1, False)])
def test_changes_that_half_precision_cannot_hold_are_said(lr: float, lost: bool) -> None:
    data = blobs()
    x, y = data.fetch(np.arange(120)).x.bfloat16(), torch.from_numpy(data.labels)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).bfloat16()
    sets = {"forget": (x[:20], y[:20]), "retain": (x[20:90], y[20:90])}
    outcome = regun.unlearn(model, **sets, method="finetune", settings={"lr": lr, "epochs": 1})
    assert any("every change is lost in torch.bfloat16" in sentence for sentence in outcome.warnings) == lost
