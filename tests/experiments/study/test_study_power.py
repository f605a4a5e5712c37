"""The power of a setup: what is made for it, and what its ratio says."""

import json
from pathlib import Path

import pytest

import mini
from expect import assert_names, error
from regun.cli import main
from regun.errors import SettingsError
from regun.experiments.study.collect import collect
from regun.experiments.study.context import Location
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.parse import read_study
from regun.experiments.study.plan import plan_study
from regun.experiments.study.power import Power, powers, retrained_only


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which the power of the mini study has been made, by the command."""
    folder = tmp_path_factory.mktemp("power")
    (folder / "mini.toml").write_text(mini.MINI)
    assert main(["study", "power", str(folder / "mini.toml"), "--store", str(folder / "store"), "--quiet"]) == 0
    return folder / "store"


def power(base: float, floor: float) -> Power:
    return Power(
        forget="0.1", label="10 %", number="gap_rftp", seed=None, base=base, floor_mean=floor, floor_largest=2 * floor
    )


@pytest.mark.parametrize(
    ("base", "floor", "says"),
    [
        (12.0, 2.0, "methods can be significantly different"),
        (11.9, 2.0, "only large differences"),
        (4.0, 2.0, "only large differences"),
        (3.9, 2.0, "no power"),
        (3.9, 0.0, "no noise floor"),
    ],
)
def test_the_ratio_in_words(base: float, floor: float, says: str) -> None:
    assert says in power(base, floor).meaning


def test_only_base_and_retrained_models_are_made_and_under_the_ids_of_the_study(tmp_path: Path) -> None:
    whole = mini.study(forget=("0.1", "0.2"), seeds=(0, 1), tune={"trials": 2}, relearn=True)
    opened = OpenStudy(whole, Location(str(tmp_path)))
    part = plan_study(retrained_only(whole), opened.data.train.labels, 100)
    assert set(part.counts()) == {"train", "predict", "floor", "evaluate"}
    assert set(part.tasks) < set(opened.plan.tasks)
    assert part.counts()["train"] == 2 * (1 + 2 * (1 + 2))
    assert part.counts()["evaluate"] == 2 * 2 * 2


def test_no_method_runs_not_even_an_unranked_one() -> None:
    study = retrained_only(read_study("resnet18-cifar10-small"))
    assert study.rows == {}


def test_a_study_finds_all_that_its_power_took(store: Path) -> None:
    study = mini.study()
    part = OpenStudy(retrained_only(study), Location(str(store)))
    assert all(task.done(part) for task in part.plan.tasks.values())
    _, ran, _ = mini.run(study, store)
    assert set(part.plan.tasks) <= set(ran.in_store)
    assert not set(part.plan.tasks) & set(ran.made)


def test_the_numbers_are_those_of_the_studys_own_results(store: Path) -> None:
    results = collect(OpenStudy(retrained_only(mini.study()), Location(str(store))))
    block = results.blocks[0]
    whole = next(p for p in powers(results) if p.seed is None and p.number == "gap_rftp")
    assert whole.base == block.row("base").cells["gap_rftp"].mean
    assert whole.floor_mean == block.floors["gap_rftp"].mean
    assert whole.floor_largest == block.floors["gap_rftp"].largest
    assert whole.ratio == pytest.approx(whole.base / whole.floor_mean)


def test_on_the_command_line(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["study", "power", str(store.parent / "mini.toml"), "--store", str(store), "--quiet"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "forget 10 %" in said
    assert_names(said, "base", "Retrain", "ratio")
    assert main([*words, "--json", "--seeds", "0", "--forget", "0.1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["seed"] for row in found["seeds"]] == [0]
    assert found["powers"][0]["number"] == "gap_rftp"
    assert found["failed"] == {}


def test_too_few_references_are_refused_before_anything_is_trained() -> None:
    with error(SettingsError, "study.references", 1, 2):
        retrained_only(mini.study(references=1))
