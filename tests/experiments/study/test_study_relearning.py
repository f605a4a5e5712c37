"""The relearning check in a study: tasks, columns, the page, and `regun audit --relearn`."""

import json
from pathlib import Path

import pytest

import mini
from regun.cli import main
from regun.cli.study import write_all
from regun.experiments.study.collect import collect, request_details
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.plan import labels_of_size, plan_study
from regun.experiments.study.relearn_curves import RelearnChecks
from regun.experiments.study.summary import unmarked
from regun.experiments.study.tasks import Evaluate

METHODS = ("finetune,epochs=1,batch_size=64", "ssd")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> OpenStudy:
    store = tmp_path_factory.mktemp("relearn") / "store"
    finished, ran, _ = mini.run(mini.study(relearn=True, methods=METHODS), store)
    assert not ran.failed
    return finished


def test_every_model_that_is_judged_or_judges_relearns_once() -> None:
    found = plan_study(mini.study(relearn=True, repeats=2, methods=METHODS), labels_of_size(400), 100)
    assert found.counts()["relearn"] == 2 + 2 + 2 * len(METHODS)  # base, Retrain, two references, the runs
    assert "relearn" not in plan_study(mini.study(), labels_of_size(400)).counts()


def test_a_second_run_makes_nothing(opened: OpenStudy) -> None:
    _, ran, _ = mini.run(opened.study, Path(opened.location.store))
    assert not ran.made


def test_its_numbers_are_columns_with_a_noise_floor(opened: OpenStudy) -> None:
    results = collect(opened)
    assert not results.missing
    for name in ("relearn_forget_acc", "relearn_rmia_auc", "regained_acc", "regained_auc"):
        assert name in results.columns
        assert name in results.blocks[0].floors
        assert name in results.blocks[0].row("finetune").cells
    assert "relearn_smia_auc" not in results.columns
    retrain, ssd = (results.blocks[0].row(name).cells for name in ("retrain", "ssd"))
    assert retrain["regained_acc"].mean == 0
    assert not results.blocks[0].rankings["regained_acc"].order  # who never forgot would lead
    assert unmarked(results.blocks[0], ("regained_acc", "regained_auc")) == {}, "what is not ranked lacks no mark"
    assert {"relearn_forget_acc", "regained_auc"} <= results.rows()[0].keys()
    assert ssd["relearn_forget_acc"].retrain == retrain["relearn_forget_acc"].mean


def test_the_first_point_is_what_the_audit_saw(opened: OpenStudy) -> None:
    curves, checks = request_details(opened, "0.1").relearning.curves, RelearnChecks(opened)
    block = collect(opened).blocks[0]
    tasks = {task.name: task for task in opened.plan.of_type(Evaluate)}
    for name, (steps, forget_acc, auc) in curves.items():
        cells = block.row(name).cells
        points = checks.of(tasks[name]).curve
        assert list(steps) == [point.steps for point in points]
        assert forget_acc[0] == pytest.approx(cells["forget_acc"].mean)
        assert points[0].unseen_acc == pytest.approx(cells["test_acc"].mean)
        assert auc[0] == pytest.approx(cells["rmia_auc"].mean, abs=1e-6)
        assert forget_acc[-1] == pytest.approx(cells["relearn_forget_acc"].mean)


def test_the_page_draws_the_curves_and_explains_the_numbers(opened: OpenStudy, tmp_path: Path) -> None:
    page = write_all(opened, collect(opened), tmp_path)[0].read_text()
    assert "Relearning (first run of seed 0)" in page
    assert "Acc. regained" in page


def test_on_the_command_line(opened: OpenStudy, capsys: pytest.CaptureFixture[str]) -> None:
    key = collect(opened).blocks[0].row("finetune").runs[0].key
    before = len(list((Path(opened.location.store) / "artifacts" / "relearned").iterdir()))
    words = ["audit", key, "--relearn", "--store", opened.location.store, "--quiet", "--threads", "1"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["relearning"]
    cells = collect(opened).blocks[0].row("finetune").cells
    for name in ("relearn_forget_acc", "relearn_rmia_auc", "regained_acc", "regained_auc"):
        assert told["numbers"][name][0] == pytest.approx(cells[name].mean)
    assert len(list((Path(opened.location.store) / "artifacts" / "relearned").iterdir())) == before
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "small steps on retained examples alone" in said
    assert "AUC regained" in said
