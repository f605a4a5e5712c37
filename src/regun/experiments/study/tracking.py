"""Where the numbers of a running study go: a file of JSON lines always, experiment trackers when asked for."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from regun.errors import RegunError, SettingsError, unknown
from regun.experiments.study.collect import evaluation_of
from regun.experiments.study.context import StudyContext
from regun.experiments.study.tasks import Judge


class Tracker(Protocol):
    """Takes named numbers of a group (a task) at a step."""

    def scalars(self, group: str, values: Mapping[str, float], step: int) -> None: ...
    def close(self) -> None: ...


class Tracking:
    """A listener of a study: every event but single steps as a JSON line, learning curves and results to trackers."""

    def __init__(self, ctx: StudyContext, out: Path, trackers: Sequence[Tracker] = ()) -> None:
        self.ctx, self.trackers = ctx, trackers
        try:
            out.mkdir(parents=True, exist_ok=True)
            self.file = (out / "metrics.jsonl").open("a", encoding="utf-8")
        except OSError as fault:
            raise RegunError(
                f"cannot write to {out}: {fault.strerror or fault}. Name a folder you may write."
            ) from None

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "step":
            return
        task = self.ctx.plan.tasks.get(event.get("task", ""))
        row = {"time": time.time(), **event, **({"label": task.label} if task else {})}
        if isinstance(task, Judge) and event["event"] == "finished":
            found = evaluation_of(self.ctx, task)[1]
            row["metrics"] = found.values() if found else {}
            self._log(task.label, row["metrics"], 0)
        if task and event["event"] == "epoch":
            self._log(task.label, {k: event[k] for k in ("loss", "lr", "images_per_second")}, event["number"])
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()
        for tracker in self.trackers:
            tracker.close()

    def _log(self, group: str, values: Mapping[str, float], step: int) -> None:
        for tracker in self.trackers:
            tracker.scalars(group, values, step)


class TensorBoard:
    """Event files in `out/tensorboard`."""

    def __init__(self, name: str, out: Path) -> None:
        module = _library("torch.utils.tensorboard", "tensorboard")
        self.writer = module.SummaryWriter(log_dir=str(out / "tensorboard"))

    def scalars(self, group: str, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(f"{group}/{name}", value, step)

    def close(self) -> None:
        self.writer.close()


class MLflow:
    """A run in the store that MLFLOW_TRACKING_URI names, or in `out/mlflow.db`."""

    def __init__(self, name: str, out: Path) -> None:
        library = _library("mlflow", "mlflow")
        address = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(out / 'mlflow.db').resolve()}"
        self.client = library.MlflowClient(tracking_uri=address)
        found = self.client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self.client.create_experiment(name)
        self.run = self.client.create_run(experiment).info.run_id

    def scalars(self, group: str, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self.client.log_metric(self.run, _plain(f"{group}/{name}"), value, step=step)

    def close(self) -> None:
        self.client.set_terminated(self.run)


class WandB:
    """A Weights & Biases run in `out`, offline unless WANDB_MODE says otherwise: no account is needed."""

    def __init__(self, name: str, out: Path) -> None:
        library = _library("wandb", "wandb")
        mode = os.environ.get("WANDB_MODE", "offline")
        quiet = library.Settings(silent=True, console="off")
        self.run = library.init(project=name, dir=str(out), mode=mode, settings=quiet)

    def scalars(self, group: str, values: Mapping[str, float], step: int) -> None:
        numbers: dict[str, Any] = {f"{group}/{name}": value for name, value in values.items()}
        self.run.log({**numbers, f"{group}/step": step})

    def close(self) -> None:
        self.run.finish()


TRACKERS: dict[str, Callable[[str, Path], Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


def open_trackers(names: Sequence[str], study: str, out: Path) -> list[Tracker]:
    """The trackers asked for; unknown names, and libraries that are not installed, are errors before any work."""
    problems = [unknown("tracker", name, TRACKERS) for name in names if name not in TRACKERS]
    if problems:
        raise SettingsError(problems)
    return [TRACKERS[name](study, out) for name in names]


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise RegunError(f"tracking with {package} needs it installed: pip install {package}.") from None


def _plain(name: str) -> str:
    """A metric name with only what MLflow allows in one."""
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in name)
