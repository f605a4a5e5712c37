"""Logging a running study: a file of JSON lines always, experiment trackers on request."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from regun.errors import RegunError, SettingsError, not_installed, unknown
from regun.experiments.study.collect import stored_evaluation
from regun.experiments.study.events import (
    EpochDone,
    Event,
    StepDone,
    TaskEvent,
    TaskFinished,
    event_to_json,
)
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.tasks import Evaluate


class Tracker(Protocol):
    """Logs named numbers of a group (a task) at a step."""

    def scalars(self, group: str, values: Mapping[str, float], step: int) -> None: ...
    def close(self) -> None: ...


class Tracking:
    """Writes every event but single steps as a JSON line, and learning curves and results to trackers."""

    def __init__(self, opened: OpenStudy, out: Path, trackers: Sequence[Tracker] = ()) -> None:
        self.opened, self.trackers = opened, trackers
        try:
            out.mkdir(parents=True, exist_ok=True)
            self.file = (out / "metrics.jsonl").open("a", encoding="utf-8")
        except OSError as error:
            raise RegunError(
                f"cannot write to {out}: {error.strerror or error}. Name a folder you may write."
            ) from None

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepDone):
            return
        row = {"time": time.time(), **event_to_json(event)}
        if isinstance(event, TaskEvent):
            task = self.opened.plan.tasks[event.task]
            if isinstance(task, Evaluate) and isinstance(event, TaskFinished):
                evaluation = stored_evaluation(self.opened, task)
                row["metrics"] = evaluation.values() if evaluation else {}
                self._log(task.id, row["metrics"], 0)
            if isinstance(event, EpochDone):
                curve = {"loss": event.loss, "lr": event.lr, "images_per_second": event.images_per_second}
                self._log(task.id, curve, event.number)
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
        existing = self.client.get_experiment_by_name(name)
        experiment = existing.experiment_id if existing else self.client.create_experiment(name)
        self.run = self.client.create_run(experiment).info.run_id

    def scalars(self, group: str, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            allowed = "".join(c if c.isalnum() or c in "_-. /" else "_" for c in f"{group}/{name}")
            self.client.log_metric(self.run, allowed, value, step=step)

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
    """Open trackers by name; an unknown name or a library that is not installed is an error before any work."""
    problems = [unknown("tracker", name, TRACKERS) for name in names if name not in TRACKERS]
    if problems:
        raise SettingsError(problems)
    return [TRACKERS[name](study, out) for name in names]


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise RegunError(not_installed(f"tracking with {module}", package, "trackers")) from None
