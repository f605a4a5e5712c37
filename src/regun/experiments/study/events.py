"""What happens while a study runs: one frozen dataclass per event, plain JSON between processes and in files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from regun.training.job import Callbacks, Epoch, Progress


@dataclass(frozen=True, kw_only=True)
class StudyPlanned:
    """The study begins; `in_store` are the ids of tasks whose artifacts exist already."""

    event: ClassVar[str] = "planned"
    tasks: int
    in_store: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TaskEvent:
    """An event of one task, by its id."""

    event: ClassVar[str]
    task: str


@dataclass(frozen=True, kw_only=True)
class TaskStarted(TaskEvent):
    """A worker has begun a task."""

    event: ClassVar[str] = "started"
    node: str = ""
    """The node of a Ray cluster."""


@dataclass(frozen=True, kw_only=True)
class TaskResumed(TaskEvent):
    """A task continues from the snapshot of a killed run; epoch and step count from 1."""

    event: ClassVar[str] = "resumed"
    epoch: int
    step: int


@dataclass(frozen=True, kw_only=True)
class StepDone(TaskEvent):
    """Progress within an epoch."""

    event: ClassVar[str] = "step"
    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    images_per_second: float
    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class EpochDone(TaskEvent):
    """An epoch has ended; `number` counts from 1."""

    event: ClassVar[str] = "epoch"
    number: int
    epochs: int
    loss: float
    lr: float
    seconds: float
    images_per_second: float


@dataclass(frozen=True, kw_only=True)
class TrialDone(TaskEvent):
    """A search has scored trial `number`, counted from 0."""

    event: ClassVar[str] = "trial"
    number: int
    trials: int
    score: float


@dataclass(frozen=True, kw_only=True)
class TaskRestarted(TaskEvent):
    """The worker of a task was lost, and another one starts the task again."""

    event: ClassVar[str] = "restarted"
    reason: str


@dataclass(frozen=True, kw_only=True)
class TaskFinished(TaskEvent):
    """The artifacts of a task are in the store; `key` is that of the first."""

    event: ClassVar[str] = "finished"
    key: str
    in_store: bool
    """True if they existed before the task began."""
    seconds: float
    worker: str


@dataclass(frozen=True, kw_only=True)
class TaskFailed(TaskEvent):
    """A task has failed, or a task that it needs has."""

    event: ClassVar[str] = "failed"
    error: str
    traceback: str = ""
    """For bugs only."""


@dataclass(frozen=True, kw_only=True)
class StudyEnded:
    """The study has ended: how many tasks were done, and the errors of those that failed, by id."""

    event: ClassVar[str] = "ended"
    made: int
    failed: Mapping[str, str] = field(default_factory=dict[str, str])


Event = StudyPlanned | TaskEvent | StudyEnded
OnEvent = Callable[[Event], None]
OnTaskEvent = Callable[[TaskEvent], None]

_TASK_EVENTS = {kind.event: kind for kind in TaskEvent.__subclasses__()}


def event_to_json(event: Event) -> dict[str, Any]:
    """Return the event as JSON, its kind under `event`."""
    return {"event": event.event, **{one.name: getattr(event, one.name) for one in fields(event)}}


def event_from_json(value: Mapping[str, Any]) -> TaskEvent:
    """Return the event of a task that a worker sent; raise KeyError or TypeError for anything else."""
    return _TASK_EVENTS[value["event"]](**{name: part for name, part in value.items() if name != "event"})


def training_callbacks(task: str, emit: OnTaskEvent) -> Callbacks:
    """Return callbacks that emit steps, epochs and resumption as events of a task."""

    def on_epoch(epoch: Epoch, model: Any) -> None:
        emit(EpochDone(task=task, **vars(epoch)))

    def on_progress(progress: Progress) -> None:
        emit(StepDone(task=task, **vars(progress)))

    def on_resume(epoch: int, step: int) -> None:
        emit(TaskResumed(task=task, epoch=epoch + 1, step=step + 1))

    return Callbacks(on_epoch, on_progress, on_resume)
