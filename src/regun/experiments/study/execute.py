"""Carrying out a plan: what can run is started, what is finished is told, what failed takes only its own with it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any

from regun.experiments.study.context import StudyContext
from regun.experiments.study.executors import Executor
from regun.experiments.study.tasks import Task

Listen = Callable[[Mapping[str, Any]], None]


@dataclass
class Ran:
    """What came of a run, by task id: made now, found in the store, failed with a reason."""

    made: list[str] = field(default_factory=list[str])
    found: list[str] = field(default_factory=list[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])


def execute(ctx: StudyContext, engine: Executor, listen: Listen) -> Ran:
    """Make all that the study lacks; the engine is closed at the end, also when this is interrupted."""
    return _Run(ctx, engine, listen).go()


class _Run:
    def __init__(self, ctx: StudyContext, engine: Executor, listen: Listen) -> None:
        self.ctx, self.engine, self.tell = ctx, engine, listen
        self.tasks, self.ran = ctx.plan.tasks, Ran()
        self.order = {task_id: place for place, task_id in enumerate(self.tasks)}
        self.sorter = TopologicalSorter({task.id: task.needs for task in self.tasks.values()})
        self.ready: list[Task] = []

    def go(self) -> Ran:
        try:
            self.ran.found = [task.id for task in self.tasks.values() if self.ctx.done(task)]
            self.tell({"event": "planned", "tasks": len(self.tasks), "found": list(self.ran.found)})
            self.sorter.prepare()
            while self.sorter.is_active():
                self._take_ready()
                while self.ready and self.engine.free > 0:
                    self.engine.start(self.ready.pop(0).id)
                self.engine.wait(0.2, self._heard)
            self.tell({"event": "ended", "made": len(self.ran.made), "failed": dict(self.ran.failed)})
            return self.ran
        finally:
            self.engine.close()

    def _take_ready(self) -> None:
        """Sort what has become possible: found and hopeless tasks are over at once, the rest waits for a worker."""
        found = set(self.ran.found)
        while fresh := self.sorter.get_ready():
            for task in (self.tasks[task_id] for task_id in fresh):
                lost = [need for need in task.needs if need in self.ran.failed]
                if lost:
                    self._fail(task.id, f"it needs {self.tasks[lost[0]].label}, which failed")
                elif task.id in found:
                    self.sorter.done(task.id)
                else:
                    self.ready.append(task)
        self.ready.sort(key=lambda task: self.order[task.id])

    def _heard(self, event: Mapping[str, Any]) -> None:
        if event["event"] != "finished":
            self.tell(event)
            return
        if "error" in event:
            self._fail(event["task"], event["error"], {k: v for k, v in event.items() if k == "traceback"})
            return
        (self.ran.found if event["found"] else self.ran.made).append(event["task"])
        self.tell(event)
        self.sorter.done(event["task"])

    def _fail(self, task_id: str, reason: str, more: Mapping[str, Any] | None = None) -> None:
        self.ran.failed[task_id] = reason
        self.tell({"event": "failed", "task": task_id, "error": reason, **(more or {})})
        self.sorter.done(task_id)
