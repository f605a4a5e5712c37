"""Where numbers stream: JSON lines always, each tracker when asked for; clear errors for what is not there."""

import json
import warnings
from pathlib import Path

import pytest

from expect import error
from mini import study
from regun.errors import RegunError, SettingsError
from regun.experiments.study import tracking
from regun.experiments.study.collect import stored_evaluation
from regun.experiments.study.context import Location
from regun.experiments.study.events import event_from_json
from regun.experiments.study.executors import InProcess
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.scheduler import execute
from regun.experiments.study.tracking import Tracking, open_trackers


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> OpenStudy:
    return OpenStudy(
        study(methods=("finetune,epochs=2,batch_size=64",)), Location(str(tmp_path_factory.mktemp("store")))
    )


@pytest.fixture(scope="module")
def out(opened: OpenStudy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    found = Tracking(opened, folder)
    execute(opened, InProcess(opened), found)
    found.close()
    return folder


def rows(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_every_epoch_and_every_result_is_a_line(opened: OpenStudy, out: Path) -> None:
    found = rows(out)
    epochs = [row for row in found if row["event"] == "epoch" and row["task"] == "unlearn finetune, 0.1, seed 0"]
    assert [row["number"] for row in epochs] == [1, 2]
    assert all(row["loss"] > 0 for row in epochs)
    done = next(row for row in found if row["event"] == "finished" and row["task"] == "evaluate finetune, 0.1, seed 0")
    assert done["metrics"] == stored_evaluation(opened, opened.plan.tasks[done["task"]]).values()
    assert not [row for row in found if row["event"] == "step"]
    assert all(row["time"] > 0 for row in found)


def test_a_second_run_adds_to_the_file(opened: OpenStudy, out: Path) -> None:
    before = rows(out)
    again = Tracking(opened, out)
    execute(opened, InProcess(opened), again)
    again.close()
    assert rows(out)[: len(before)] == before
    assert [row["event"] for row in rows(out)[len(before) :]] == ["planned", "ended"]


def replay(opened: OpenStudy, out: Path, folder: Path, name: str) -> None:
    """What a tracker receives from the events of a real run."""
    found = Tracking(opened, folder, open_trackers([name], "mini", folder))
    for row in rows(out):
        if row["event"] in ("epoch", "finished"):
            found(event_from_json({k: v for k, v in row.items() if k not in ("time", "metrics")}))
    found.close()


def test_tensorboard(opened: OpenStudy, out: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        replay(opened, out, tmp_path, "tensorboard")
        events = EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
        losses = events.Scalars("unlearn finetune, 0.1, seed 0/loss")
        final = events.Scalars("evaluate finetune, 0.1, seed 0/gap_rftp")
    assert [point.step for point in losses] == [1, 2]
    expected = stored_evaluation(opened, opened.plan.tasks["evaluate finetune, 0.1, seed 0"]).values()["gap_rftp"]
    assert final[0].value == pytest.approx(expected, rel=1e-5)


def test_mlflow(opened: OpenStudy, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        replay(opened, out, tmp_path, "mlflow")
        client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
        (run,) = client.search_runs([client.get_experiment_by_name("mini").experiment_id])
        history = client.get_metric_history(run.info.run_id, "unlearn finetune_ 0.1_ seed 0/loss")
    assert run.info.status == "FINISHED"
    assert [point.step for point in history] == [1, 2]
    assert "evaluate finetune_ 0.1_ seed 0/gap_rftp" in run.data.metrics


def test_wandb_offline_needs_no_account(
    opened: OpenStudy, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        replay(opened, out, tmp_path, "wandb")
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_unknown_and_missing_trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with error(SettingsError, "notebook", "tensorboard"):
        open_trackers(["notebook"], "mini", tmp_path)

    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(tracking, "import_module", absent)
    with error(RegunError, "wandb"):
        open_trackers(["wandb"], "mini", tmp_path)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with error(RegunError, blocked / "out"):
        Tracking(None, blocked / "out")
