"""Plans: the paper's counts and steps, each need once, in an order that works."""

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from mini import study
from regun.data.registry import DATA_SETS, DataSpec, load_data
from regun.experiments.study.parse import parse_study, read_study
from regun.experiments.study.plan import StudyPlan, labels_of_size, plan_study
from regun.experiments.study.spec import Study
from regun.experiments.study.tasks import Predict, Tune, Unlearn
from regun.settings import parse_spec

PAPER = ("resnet18-cifar10", "resnet18-cifar100", "swin-t-tiny-imagenet", "resnet18-tiny-imagenet")


def planned(found: Study) -> StudyPlan:
    train, test = DATA_SETS[parse_spec(found.data)[0]].sizes
    return plan_study(found, labels_of_size(train), test)


@cache
def paper_plan(name: str) -> StudyPlan:
    return planned(read_study(name))


def steps(found: StudyPlan, name: str, seed: int = 0) -> list[int]:
    tasks = [t for t in found.tasks.values() if t.kind == "unlearn" and (t.row.name, t.seed) == (name, seed)]
    return [t.work.steps for t in tasks]


@pytest.mark.parametrize("name", PAPER)
def test_a_setup_of_the_paper_takes_64_trainings(name: str) -> None:
    """A base, three retrained models and twelve references for each of three seeds and the one to tune on."""
    found = paper_plan(name)
    methods = len(found.study.compared)
    counts = found.counts()
    assert counts["train"] == 4 * (1 + 3 * (1 + 4))
    assert planned(replace(found.study, tune={})).counts()["train"] == 3 * (1 + 3 * (1 + 4))
    assert counts["unlearn"] == 9 * methods
    assert counts["floor"] == 9
    assert (counts["fold"], counts["table"]) == (4 * 4, 4)
    assert counts["evaluate"] == 9 * (methods + 2)
    assert counts["predict"] == 9 * (methods + 6)


@pytest.mark.parametrize(
    ("name", "regun", "finetune"),
    [
        ("resnet18-cifar10", [40, 360, 1760], [3130, 2820, 1410]),
        ("resnet18-cifar100", [40, 360, 1760], [3130, 2820, 1410]),
        ("swin-t-tiny-imagenet", [160, 1420, 7040], [12520, 11260, 5640]),
        ("resnet18-tiny-imagenet", [80, 710, 3520], [6260, 5630, 2820]),
    ],
)
def test_the_papers_steps(name: str, regun: list[int], finetune: list[int]) -> None:
    """ReGUn: ten (twenty) passes over the forget set in batches of 128; Finetune: over the full retain set."""
    found = paper_plan(name)
    assert steps(found, "regun") == regun
    assert steps(found, "finetune") == finetune
    assert steps(found, "ssd") == [0, 0, 0]


def test_the_papers_split_sizes() -> None:
    found = paper_plan("resnet18-cifar10").sizes
    assert [found[f]["forget"] for f in ("0.01", "0.1", "0.5")] == [450, 4500, 22500]
    assert [found[f]["retain"] for f in ("0.01", "0.1", "0.5")] == [40050, 36000, 18000]
    assert found["0.1"] == {"retain": 36000, "forget": 4500, "heldout": 5000, "val": 4500}


def test_one_split_for_all_seeds_shares_the_references() -> None:
    """12 references once, and a base and three retrained models a seed: 28 trainings instead of 64."""
    found = planned(replace(read_study("resnet18-cifar10"), split_seed=0))
    assert found.counts()["train"] == 12 + 4 * (1 + 3)


def test_needs_come_first_and_exist() -> None:
    found = paper_plan("resnet18-cifar10")
    seen: set[str] = set()
    for task in found.tasks.values():
        assert {need.id for need in task.needs} <= seen, task.id
        seen.add(task.id)
    assert Counter(task.id for task in found.tasks.values()).most_common(1)[0][1] == 1


def test_an_evaluation_needs_the_answers_of_all_it_compares() -> None:
    found = plan_study(study(), labels_of_size(400), 100)
    task = found.tasks["evaluate regun, 0.1, seed 0"]
    models = {need.model.id for need in task.needs if isinstance(need, Predict)}
    assert models == {task.model.id, "train base, split 0, seed 0", *(model.id for model in task.retrained)}
    assert [need.kind for need in task.needs].count("floor") == 1
    assert task.model.id == "unlearn regun, 0.1, seed 0"
    assert task.retrained[0].id == "train without 0.1, split 0, seed 0"
    assert len(task.retrained) == 3


def test_few_references_make_no_noise_floor() -> None:
    found = plan_study(study(references=1), labels_of_size(400))
    assert "floor" not in found.counts()
    assert plan_study(study(references=0), labels_of_size(400)).counts()["train"] == 2


def test_a_budget_is_planned_for_every_method_that_steps() -> None:
    found = plan_study(study(budget="steps=7"), labels_of_size(400))
    assert [steps(found, name) for name in ("regun", "finetune", "ssd")] == [[7], [7], [0]]


def test_tuning_happens_once_a_request_on_a_seed_of_its_own() -> None:
    found = plan_study(study(seeds=(3, 1), forget=("0.1", "0.2"), tune={"trials": 5}), labels_of_size(400))
    tasks = [t for t in found.tasks.values() if t.kind == "tune"]
    assert sorted(t.id for t in tasks) == sorted(
        f"tune {m}, {f}" for m in ("regun", "finetune") for f in ("0.1", "0.2")
    )
    assert {t.seed for t in tasks} == {100}
    waiting = found.tasks["unlearn regun, 0.1, seed 1"]
    assert found.tasks["tune regun, 0.1"] in waiting.needs
    assert ids_needed(found, "unlearn ssd, 0.1, seed 1") == ["train base, split 1, seed 1"]
    assert len([need for need in ids_needed(found, "tune regun, 0.1") if "without" in need]) == 3
    free = plan_study(study(tune={"trials": 5, "objective": "reference"}), labels_of_size(400))
    assert ids_needed(free, "tune regun, 0.1") == ["train base, split 100, seed 100"]


def ids_needed(found: StudyPlan, task_id: str) -> list[str]:
    return [need.id for need in found.tasks[task_id].needs]


def test_full_sizes_are_those_of_the_data() -> None:
    data = load_data(DataSpec("digits"), "digits")
    assert DATA_SETS["digits"].sizes == (len(data.train.labels), len(data.test.labels))


def test_repeats_multiply_unlearning_only() -> None:
    once = plan_study(study(tune={"trials": 2}), labels_of_size(400)).counts()
    thrice = plan_study(study(tune={"trials": 2}, repeats=3), labels_of_size(400)).counts()
    assert thrice["unlearn"] == 3 * once["unlearn"]
    assert {kind: thrice[kind] for kind in ("train", "tune", "floor")} == {
        kind: once[kind] for kind in ("train", "tune", "floor")
    }


def test_untuned_methods_are_not_searched() -> None:
    """They run with the settings of the study; the others wait for their search."""
    text = 'methods = ["regun", "finetune"]\nunranked = ["scrub"]\ntune = { trials = 2 }\nuntuned = ["finetune"]'
    found = planned(parse_study(text, "s.toml", Path.cwd()))
    assert {task.row.name for task in found.of_type(Tune)} == {"regun", "scrub"}
    assert {task.row.name: task.tune is None for task in found.of_type(Unlearn)} == {
        "regun": False,
        "finetune": True,
        "scrub": False,
    }
