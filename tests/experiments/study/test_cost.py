"""Prepared tables in studies, the two costs, and the cost figure."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from expect import error
from mini import artifact, evaluations, run, study, threads
from regun.artifacts.out_of_fold import CrossFitting, cross_fit, out_of_fold_probabilities
from regun.errors import SettingsError, StoreError
from regun.experiments.report.cost_figure import cost_figure
from regun.experiments.report.files import study_files
from regun.experiments.study.api import open_study
from regun.experiments.study.collect import collect
from regun.experiments.study.cost import cost_panels
from regun.experiments.study.plan import labels_of_size, plan_study
from regun.experiments.study.tasks import CrossFit, Unlearn

METHODS = ("finetune,epochs=1,batch_size=64", "crossfit,steps=10,repair=0.4", "retrain,epochs=1", "retrain,epochs=2")
CPU = torch.device("cpu")


def costs_study(**changes):
    return study(**({"methods": METHODS, "seeds": (0, 1), "split_seed": 0, "forget": ("0.1", "0.2")} | changes))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory):
    store = tmp_path_factory.mktemp("costs")
    opened, ran, _ = run(costs_study(), store)
    assert not ran.failed
    return store, opened


def test_one_table_per_split_serves_its_requests_and_seeds() -> None:
    counts = plan_study(costs_study(), labels_of_size(400)).counts()
    assert (counts["fold"], counts["table"], counts["unlearn"]) == (4, 1, 16)
    moving = plan_study(costs_study(split_seed=None), labels_of_size(400)).counts()
    assert (moving["fold"], moving["table"]) == (8, 2)
    assert "table" not in plan_study(costs_study(methods=METHODS[:1]), labels_of_size(400)).counts()


def test_auto_gets_a_table_only_where_its_plan_uses_it() -> None:
    for text, tables in (("auto", 0), ("auto,short=0", 1)):
        plan = plan_study(costs_study(methods=(text,)), labels_of_size(400))
        assert plan.counts().get("table", 0) == tables
        assert all((task.table is not None) == bool(tables) for task in plan.of_type(Unlearn))


def test_no_prediction_comes_from_a_model_that_saw_the_record(finished) -> None:
    _, opened = finished
    (task,) = opened.plan.of_type(CrossFit)
    table = task.artifact(opened).tensors("table")
    place = dict(zip(table["rows"].tolist(), table["folds"][0].tolist(), strict=True))
    assert sorted(place) == sorted(opened.reserve(0).base.tolist())
    for fold in task.folds:
        part = fold.artifact(opened).tensors("predictions")
        out, trained_on = set(part["rows"].tolist()), set(part["trained_on"].tolist())
        assert out == {row for row, number in place.items() if number == fold.number}
        assert out.isdisjoint(trained_on)
        assert out | trained_on == set(place)


def test_probabilities_follow_the_order_of_the_forget_set(finished) -> None:
    _, opened = finished
    (task,) = opened.plan.of_type(CrossFit)
    table = task.artifact(opened)
    rows = opened.plan.of_type(Unlearn)[0].splits(opened).forget
    found = out_of_fold_probabilities(table, rows)
    assert torch.allclose(found.sum(dim=1), torch.ones(len(rows)))
    assert torch.equal(out_of_fold_probabilities(table, rows[::-1].copy()), found.flip(0))
    with pytest.raises(StoreError):
        out_of_fold_probabilities(table, opened.reserve(0).heldout[:1])


def test_only_runs_with_a_table_name_one(finished) -> None:
    _, opened = finished
    (task,) = opened.plan.of_type(CrossFit)
    table = task.artifact(opened)
    with_table = artifact(opened, "unlearn crossfit, 0.1, seed 1")
    assert with_table.inputs["out_of_fold"] == table.info["digest"]
    assert with_table.info["out_of_fold"] == table.key
    assert "out_of_fold" not in artifact(opened, "unlearn finetune, 0.1, seed 1").inputs


def test_more_repeats_reuse_the_folds(finished) -> None:
    _, opened = finished
    (task,) = opened.plan.of_type(CrossFit)
    fitting, once = opened.cross_fitting(0), task.artifact(opened)
    twice = cross_fit(replace(fitting, repeats=2), opened.store, CPU)
    assert torch.equal(twice.tensors("table")["log_probs"][0], once.tensors("table")["log_probs"][0])
    assert not torch.equal(twice.tensors("table")["folds"][0], twice.tensors("table")["folds"][1])
    assert len(opened.store.artifacts("fold")) == 8


def test_a_table_depends_on_its_training_set(finished) -> None:
    _, opened = finished
    fitting = opened.cross_fitting(0)
    other = CrossFitting(training=replace(fitting.training, trained_on=fitting.rows[1:]))
    assert fitting.inputs(CPU) != other.inputs(CPU)
    assert fitting.inputs(CPU) == opened.cross_fitting(0).inputs(CPU)


def test_a_run_resumed_with_some_folds_done_ends_equal(finished, tmp_path: Path) -> None:
    store, _ = finished
    opened, _, _ = run(costs_study(methods=METHODS[:1]), tmp_path)
    tasks = plan_study(costs_study(), opened.data.train.labels).of_type(CrossFit)
    with threads(1):
        for fold in tasks[0].folds[:2]:
            fold.make(opened, lambda event: None)
    _, ran, _ = run(costs_study(), tmp_path)
    assert len([task for task in ran.made if task.startswith("fold")]) == 2
    assert evaluations(tmp_path) == evaluations(store)


def test_costs_by_hand(finished) -> None:
    """288 retained and 36 forgotten examples, 3 epochs; a fold trains one epoch on three quarters of 324."""
    store, opened = finished
    results = collect(opened)
    rows = results.rows()
    assert list(rows[0])[-2:] == ["request_share", "once_share"]
    shares = {
        r["method"]: (r["request_share"], r["once_share"]) for r in rows if (r["forget"], r["seed"]) == ("0.1", 0)
    }
    retraining = 3 * 288
    # six steps of 32 retained examples with 32 and 4 forgotten ones in turn, then four of 64 retained ones
    crossfit = 100 * (3 * 36 + 6 * 32 + 4 * 64) / retraining
    table = 100 * 4 * (324 - 81) / retraining
    assert shares["retrain"] == (100, None)
    assert shares["base"] == (None, None)
    assert shares["finetune"] == (pytest.approx(100 * 288 / retraining), None)
    assert shares["crossfit"] == (pytest.approx(crossfit), pytest.approx(table))
    planned = opened.plan
    assert planned.request_share("crossfit", "0.1") == pytest.approx(100 * 10 * 64 / retraining)
    assert planned.once_share("crossfit", "0.1") == pytest.approx(table)
    assert planned.once_share("finetune", "0.1") is None
    assert planned.request_share("retrain,epochs=2", "0.1") == pytest.approx(100 * 2 / 3)


def test_a_study_sets_for_how_many_epochs_the_models_of_its_table_are_trained(finished, tmp_path: Path) -> None:
    _, quarter = finished
    opened = open_study(costs_study(table_share=1.0), store=tmp_path)
    plans = [one.plan.once_share("crossfit", "0.1") for one in (opened, quarter)]
    assert plans == [pytest.approx(100 * 3 * 4 * (324 - 81) / (3 * 288)), pytest.approx(100 * 4 * (324 - 81) / 864)]
    assert [one.cross_fitting(0).short.recipe.epochs for one in (opened, quarter)] == [3, 1]
    assert ["prepared table" in collect(one).about for one in (opened, quarter)] == [True, False]
    with error(SettingsError, "study.table_share", 1.5):
        costs_study(table_share=1.5)


def test_the_figure_has_a_point_per_method_and_the_band(finished) -> None:
    _, opened = finished
    results = collect(opened)
    block, second = results.blocks
    (panel,) = cost_panels(results, block)
    assert cost_panels(results, second)
    assert [point.title for point in panel.methods] == ["Finetune", "Cross-fitted references"]
    assert [round(point.share) for point in panel.shortened] == [33, 67]
    assert panel.band == (0.0, block.floors["gap_rftp"].largest)
    assert panel.retrain.value == block.floors["gap_rftp"].mean
    (axes,) = cost_figure([panel]).axes
    labels = axes.get_legend_handles_labels()[1]
    assert [text.split(" (")[0] for text in labels] == [
        *("noise floor", "Base", "Retraining cut short", "Retrain", "Finetune", "Cross-fitted references")
    ]
    assert axes.get_xscale() == "log"
    assert np.isclose(panel.methods[0].share, 100 / 3)
    files = study_files(results, [], [], [])
    assert {"cost-10.png", "cost-20.svg"} <= files.keys()
    assert b"request_share" in files["rows.csv"]


def _toml() -> str:
    from mini import MINI

    start = MINI.partition("methods =")[0].replace("[0.1]", "[0.1, 0.2]").replace("seeds = [0]", "seeds = [0, 1]")
    return f"{start}\nsplit_seed = 0\nmethods = {list(METHODS)}\n"
