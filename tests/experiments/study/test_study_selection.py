"""Requests that models answer, in a study and on the command line: the same ids everywhere, resolved once."""

import json
from pathlib import Path

import numpy as np
import pytest

import mini
from expect import assert_names
from regun.cli import main
from regun.experiments.study.collect import collect
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.plan import labels_of_size, plan_study

ASKED = ("hard:0.1", "like:17,30", "cluster:1/4")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> OpenStudy:
    store = tmp_path_factory.mktemp("asked") / "store"
    finished, ran, _ = mini.run(mini.study(forget=ASKED, methods=("ssd",)), store)
    assert not ran.failed
    return finished


def test_the_plan_asks_before_it_leaves_out_and_asks_once_a_split() -> None:
    study = mini.study(forget=("0.1", *ASKED, "easy:0.1"), seeds=(0, 1), split_seed=0)
    found = plan_study(study, labels_of_size(400), 100)
    assert found.counts()["select"] == 4
    early = [task for task in found.tasks.values() if task.id.startswith("train early")]
    assert len(early) == 4  # hard and easy share them, and so do the seeds
    retrain = found.tasks["train without hard:0.1, split 0, seed 1"]
    assert retrain.needs == (found.tasks["select hard:0.1, split 0"],)
    assert set(found.tasks["select hard:0.1, split 0"].needs) == set(early)
    assert found.tasks["select like:17,30, split 0"].needs == (found.tasks["train base, split 0, seed 0"],)
    assert found.tasks["train without 0.1, split 0, seed 1"].needs == ()
    moving = plan_study(mini.study(forget=("hard:0.1",), seeds=(0, 1)), labels_of_size(400))
    assert moving.counts()["select"] == 2


def test_a_second_run_finds_everything_and_sizes_are_those_found(opened: OpenStudy) -> None:
    _, ran, _ = mini.run(opened.study, Path(opened.location.store))
    assert not ran.made
    results = collect(opened)
    assert not results.missing
    for block in results.blocks:
        splits = opened.plan.tasks[f"evaluate ssd, {block.forget}, seed 0"].splits(opened)
        assert block.sizes["forget"] == len(splits.forget)
        assert block.row("ssd").judged == 1
    assert results.blocks[1].sizes["forget"] == 30


def test_retrained_models_never_saw_the_examples(opened: OpenStudy) -> None:
    for forget in ASKED:
        trained = (
            mini.artifact(opened, f"train without {forget}, split 0, seed 0").tensors("trained_on")["indices"].numpy()
        )
        forgotten = opened.plan.tasks[f"evaluate ssd, {forget}, seed 0"].splits(opened).forget
        assert not np.intersect1d(trained, forgotten).size


def test_the_command_line_means_the_same_examples(opened: OpenStudy, capsys: pytest.CaptureFixture[str]) -> None:
    def regun(*words: str) -> dict:
        assert main([*words, "--store", opened.location.store, "--quiet", "--json", "--threads", "1"]) == 0
        return json.loads(capsys.readouterr().out)

    setup = ["--data", "digits,limit=400,test_limit=100", "--model", "cnn,width=4", "--recipe", "digits,epochs=3"]
    base = mini.artifact(opened, "train base, split 0, seed 0").key
    for forget in ASKED:
        again = regun("train", *setup, "--without", forget, "--seed", "1001")
        assert again["in_store"], forget  # the study's own first reference
        assert again["key"] == mini.artifact(opened, f"train without {forget}, split 0, seed 1001").key
        made = regun("unlearn", "--base", base, "--forget", forget, "--method", "ssd")
        assert made["key"] == mini.artifact(opened, f"unlearn ssd, {forget}, seed 0").key
        audited = regun("audit", base, "--forget", forget, "--bootstrap", "20")
        assert audited["models"]["retrain"] == mini.artifact(opened, f"train without {forget}, split 0, seed 0").key


def test_a_base_that_was_made_to_answer_is_a_base_like_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first command of a store leaves out what a model must answer; the base it made serves the next."""

    def regun(*words: str) -> dict:
        assert main([*words, "--store", str(tmp_path), "--quiet", "--json", "--threads", "1"]) == 0
        return json.loads(capsys.readouterr().out)

    setup = ["--data", "digits,limit=400,test_limit=100", "--model", "cnn,width=4", "--recipe", "digits,epochs=3"]
    regun("train", *setup, "--without", "like:17,30")
    base = regun("train", *setup)
    assert base["in_store"]
    assert regun("unlearn", "--base", base["key"], "--forget", "like:17,30", "--method", "ssd")["forgotten"] == 30


def test_a_base_from_a_file_gives_features_but_no_early_training(
    opened: OpenStudy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from regun.artifacts import write_weights

    file = tmp_path / "base.safetensors"
    write_weights(file, mini.artifact(opened, "train base, split 0, seed 0").tensors("weights"))
    setup = ["--data", "digits,limit=400,test_limit=100", "--model", "cnn,width=4"]
    words = ["unlearn", "--base", str(file), *setup, "--method", "ssd", "--store", str(tmp_path / "s"), "--quiet"]
    assert main([*words, "--forget", "like:17,30", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["forgotten"] == 30
    assert main([*words, "--forget", "hard:0.1"]) == 2
    assert_names(capsys.readouterr().err, "hard", "ids:FILE")
