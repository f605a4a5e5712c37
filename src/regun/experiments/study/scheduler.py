"""Running a plan: start what is possible, and keep going when a task fails; only what needs it fails with it."""

from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from regun.experiments.study.events import (
    OnEvent,
    StudyEnded,
    StudyPlanned,
    TaskEvent,
    TaskFailed,
    TaskFinished,
)
from regun.experiments.study.executors import Executor
from regun.experiments.study.opened import OpenStudy


@dataclass
class RunSummary:
    """What came of a run, by task id: made now, in the store before, failed with a reason."""

    made: list[str] = field(default_factory=list[str])
    in_store: list[str] = field(default_factory=list[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])


def execute(opened: OpenStudy, executor: Executor, on_event: OnEvent) -> RunSummary:
    """Make all that the study lacks; the executor is closed at the end, also when this is interrupted."""
    tasks, summary = opened.plan.tasks, RunSummary()
    order = {task_id: place for place, task_id in enumerate(tasks)}
    sorter = TopologicalSorter({task.id: [need.id for need in task.needs] for task in tasks.values()})
    waiting: list[str] = []

    def fail(event: TaskFailed) -> None:
        summary.failed[event.task] = event.error
        on_event(event)
        sorter.done(event.task)

    def take_ready() -> None:
        """Sort what has become possible: some tasks are over at once, the others wait for a worker."""
        while ready := sorter.get_ready():
            for task in (tasks[task_id] for task_id in ready):
                lost = [need for need in task.needs if need.id in summary.failed]
                if lost:
                    fail(TaskFailed(task=task.id, error=f"it needs {lost[0].id!r}, which failed"))
                elif task.id in in_store:
                    sorter.done(task.id)
                else:
                    waiting.append(task.id)
        waiting.sort(key=order.__getitem__)

    def receive(event: TaskEvent) -> None:
        if isinstance(event, TaskFailed):
            fail(event)
            return
        on_event(event)
        if isinstance(event, TaskFinished):
            (summary.in_store if event.in_store else summary.made).append(event.task)
            sorter.done(event.task)

    try:
        summary.in_store = [task.id for task in tasks.values() if task.done(opened)]
        in_store = frozenset(summary.in_store)
        on_event(StudyPlanned(tasks=len(tasks), in_store=tuple(summary.in_store)))
        sorter.prepare()
        while sorter.is_active():
            take_ready()
            while waiting and executor.free > 0:
                executor.start(waiting.pop(0))
            executor.wait(0.2, receive)
        on_event(StudyEnded(made=len(summary.made), failed=dict(summary.failed)))
        return summary
    finally:
        executor.close()
