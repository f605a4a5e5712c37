"""Progress of a study: bars of the running tasks on a terminal, otherwise a line for each task that ends."""

import sys
import time

from rich.progress import TaskID

from regun.cli.display import progress_bars, stderr_console, write_line
from regun.experiments.study.events import (
    EpochDone,
    Event,
    StepDone,
    StudyPlanned,
    TaskEvent,
    TaskFailed,
    TaskFinished,
    TaskRestarted,
    TaskResumed,
    TrialDone,
)
from regun.experiments.study.plan import StudyPlan
from regun.render.numbers import duration


class StudyProgress:
    """A callback for the events of a study."""

    def __init__(self, plan: StudyPlan, *, quiet: bool = False) -> None:
        self.plan, self.quiet = plan, quiet
        self.live = sys.stderr.isatty()
        self.bars = progress_bars(stderr_console())
        self.all_tasks = self.bars.add_task(plan.study.name, total=len(plan.tasks), text="")
        self.running: dict[str, TaskID] = {}
        self.started = time.monotonic()
        self.ended: set[str] = set()
        self.samples = 0
        """Samples of the tasks that ended since the start, for an estimate of the time left."""

    def __call__(self, event: Event) -> None:
        if self.quiet:
            return
        match event:
            case StudyPlanned():
                self.ended = set(event.in_store)
                self._write(f"{event.tasks} tasks, {len(event.in_store)} of them in the store")
                if self.live:
                    self.bars.start()
            case TaskFinished() | TaskFailed():
                self._end(event)
            case TaskEvent() if self.live:
                if event.task not in self.running:
                    self.running[event.task] = self.bars.add_task(event.task, total=1.0, text="")
                fraction, text = _state(event)
                self.bars.update(self.running[event.task], completed=fraction, text=text)
            case _:
                pass

    def close(self) -> None:
        """Stop the bars and give the terminal back."""
        if self.live:
            self.bars.stop()

    def _end(self, event: TaskFinished | TaskFailed) -> None:
        task = self.plan.tasks[event.task]
        self.ended.add(event.task)
        self.samples += task.work.samples if task.work else 0
        if event.task in self.running:
            self.bars.remove_task(self.running.pop(event.task))
        count = len(self.plan.tasks) - len(self.ended)
        samples = sum(t.work.samples for t in self.plan.tasks.values() if t.work and t.id not in self.ended)
        left = f"{count} tasks left" if count else ""
        if count and samples and self.samples:
            seconds = samples * (time.monotonic() - self.started) / self.samples
            left += f", about {duration(seconds)}"
        self.bars.update(self.all_tasks, completed=len(self.ended), text=left)
        if isinstance(event, TaskFailed):
            self._write(f"FAILED {task.id}: {event.error}")
        elif task.kind in ("train", "tune", "unlearn") or self.live:
            spent = "in the store" if event.in_store else duration(event.seconds)
            self._write(f"{task.id}: {spent}" + (f"; {left}" if left else ""))

    def _write(self, text: str) -> None:
        write_line(self.bars.console, f"[{len(self.ended)}/{len(self.plan.tasks)}] {text}")


def _state(event: TaskEvent) -> tuple[float, str]:
    """Return how much of a task is done, and its state as text."""
    match event:
        case StepDone():
            done = (event.epoch - 1 + event.step / event.steps) / event.epochs
            return done, f"epoch {event.epoch}/{event.epochs} step {event.step}/{event.steps}"
        case EpochDone():
            return event.number / event.epochs, f"epoch {event.number}/{event.epochs} loss {event.loss:.3f}"
        case TrialDone():
            done = (event.number + 1) / event.trials
            return done, f"trial {event.number + 1}/{event.trials} score {event.score:.2f}"
        case TaskResumed():
            return 0.0, f"resumes at epoch {event.epoch}"
        case TaskRestarted():
            return 0.0, "starts again"
        case _:
            return 0.0, ""
