"""What people see while a study runs: what is being made, what is done, what is left, when it will end."""

import sys
import time

from regun.experiments.study.events import (
    EpochDone,
    Event,
    StepDone,
    StudyEnded,
    StudyPlanned,
    TaskFailed,
    TaskFinished,
    TaskRestarted,
    TaskResumed,
    TrialDone,
)
from regun.experiments.study.plan import StudyPlan
from regun.render.numbers import duration


class StudyProgress:
    """A listener of a study: one line in place on a terminal, otherwise a line for each task that ends."""

    def __init__(self, plan: StudyPlan, *, quiet: bool = False) -> None:
        self.plan, self.quiet = plan, quiet
        self.live = sys.stderr.isatty()
        self.started = time.monotonic()
        self.over: set[str] = set()
        self.found = 0
        self.work = 0
        self.running: dict[str, str] = {}
        self.shown = 0.0

    def __call__(self, event: Event) -> None:
        if self.quiet:
            return
        match event:
            case StudyPlanned():
                self.over, self.found = set(event.in_store), len(event.in_store)
                self._line(f"{event.tasks} tasks, {self.found} of them in the store")
            case TaskFinished() | TaskFailed():
                self._ended(event)
            case StudyEnded():
                pass
            case _:
                self.running[event.task] = _where(event)
                self._lively()

    def close(self) -> None:
        if self.live and self.shown and not self.quiet:
            print(file=sys.stderr, flush=True)

    def _ended(self, event: TaskFinished | TaskFailed) -> None:
        self.running.pop(event.task, None)
        self.over.add(event.task)
        task = self.plan.tasks[event.task]
        self.work += task.work.samples if task.work else 0
        if isinstance(event, TaskFailed):
            self._line(f"FAILED {task.label}: {event.error}")
        elif task.kind in ("train", "tune", "unlearn") or self.live:
            spent = "in the store" if event.in_store else duration(event.seconds)
            self._line(f"{task.label}: {spent}{self._left()}")

    def _left(self) -> str:
        left = sum(t.work.samples for t in self.plan.tasks.values() if t.work and t.id not in self.over)
        elapsed = time.monotonic() - self.started
        if not self.work or not left:
            return ""
        return f"; {len(self.plan.tasks) - len(self.over)} tasks left, about {duration(left * elapsed / self.work)}"

    def _lively(self) -> None:
        now = time.monotonic()
        if not self.live or now - self.shown < 0.2:
            return
        self.shown = now
        what = " | ".join(f"{self.plan.tasks[t].label} {w}".rstrip() for t, w in list(self.running.items())[:2])
        more = f" | {len(self.running) - 2} more" if len(self.running) > 2 else ""
        text = f"[{len(self.over)}/{len(self.plan.tasks)}] {what}{more}{self._left()}"
        print(f"\r\033[K{text[:150]}", end="", file=sys.stderr, flush=True)

    def _line(self, text: str) -> None:
        start = "\r\033[K" if self.live else ""
        print(f"{start}[{len(self.over)}/{len(self.plan.tasks)}] {text}", file=sys.stderr, flush=True)
        self.shown = 0.0


def _where(event: Event) -> str:
    match event:
        case StepDone():
            return f"epoch {event.epoch}/{event.epochs} step {event.step}/{event.steps}"
        case EpochDone():
            return f"epoch {event.number}/{event.epochs} loss {event.loss:.3f}"
        case TrialDone():
            return f"trial {event.number + 1}/{event.trials} score {event.score:.2f}"
        case TaskResumed():
            return f"continues at epoch {event.epoch}"
        case TaskRestarted():
            return "starts again"
        case _:
            return ""
