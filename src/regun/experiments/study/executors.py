"""Where tasks run on this machine: in this process, or in worker processes. `ray_executor` is for a Ray cluster."""

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from regun.errors import RegunError
from regun.experiments.study.events import (
    OnTaskEvent,
    TaskFailed,
    TaskFinished,
    TaskRestarted,
    TaskStarted,
    event_from_json,
)
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.worker import READY, do_task, payload, serve

ATTEMPTS = 3
"""How often a task is started whose worker dies."""
SILENCE = 3600.0
"""Seconds without an event after which a worker counts as stuck; training sends several per second."""


class Executor(Protocol):
    """`start` tasks while `free` is above 0; `wait` for events, among them how each task ended."""

    @property
    def free(self) -> int: ...
    def start(self, task_id: str) -> None: ...
    def wait(self, seconds: float, on_event: OnTaskEvent) -> None: ...
    def close(self) -> None: ...


class InProcess:
    """One task after the other, in this process."""

    def __init__(self, opened: OpenStudy) -> None:
        self.opened = opened
        self.waiting: list[str] = []

    @property
    def free(self) -> int:
        return 1 - len(self.waiting)

    def start(self, task_id: str) -> None:
        self.waiting.append(task_id)

    def wait(self, seconds: float, on_event: OnTaskEvent) -> None:
        while self.waiting:
            task_id = self.waiting.pop()
            on_event(TaskStarted(task=task_id))
            on_event(do_task(self.opened, task_id, on_event))

    def close(self) -> None:
        self.waiting.clear()


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    task: str = ""
    ready: bool = False
    last_event: float = field(default_factory=time.monotonic)


class Processes:
    """Worker processes, each with its share of threads; one that dies, hangs or sends nonsense is replaced."""

    def __init__(self, opened: OpenStudy, workers: int, threads: int | None = None) -> None:
        if workers < 1:
            raise RegunError(f"workers is {workers}; give at least 1.")
        share = threads or max(1, (os.cpu_count() or 1) // workers)
        self.text, self.silence = payload(opened, share), SILENCE
        # on Linux workers are forked from a server that has imported everything once and started no threads
        self.context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
        self.context.set_forkserver_preload(["regun.experiments.study.worker", "torch._dynamo"])
        self.workers = [self._worker() for _ in range(workers)]
        self.attempts: dict[str, int] = {}

    @property
    def free(self) -> int:
        return sum(not worker.task for worker in self.workers)

    def start(self, task_id: str) -> None:
        worker = next(w for w in self.workers if not w.task)
        worker.task = task_id
        self.attempts[task_id] = self.attempts.get(task_id, 0) + 1
        if worker.ready:
            self._send_task(worker)

    def wait(self, seconds: float, on_event: OnTaskEvent) -> None:
        by_connection = {worker.connection: worker for worker in self.workers}
        for connection in wait(list(by_connection), timeout=seconds):
            worker = by_connection[connection]  # type: ignore[index]
            try:
                self._receive(worker, json.loads(worker.connection.recv_bytes()), on_event)
            except (EOFError, OSError):
                self._replace(worker, on_event, "")
            except (ValueError, TypeError, KeyError):
                self._replace(worker, on_event, "its worker sent an event that does not exist")
        for worker in [w for w in self.workers if w.task and time.monotonic() - w.last_event > self.silence]:
            self._replace(worker, on_event, f"its worker sent nothing for {self.silence / 60:.0f} minutes")

    def close(self) -> None:
        """Stop at once; unfinished training continues from its snapshot in the next run."""
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            worker.process.join()
            worker.connection.close()

    def _worker(self) -> _Worker:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=serve, args=(theirs, self.text), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _send_task(self, worker: _Worker) -> None:
        """Send the worker its task; one that died meanwhile is noticed in the next `wait`."""
        worker.last_event = time.monotonic()
        try:
            worker.connection.send_bytes(worker.task.encode())
        except OSError:
            return

    def _receive(self, worker: _Worker, message: Mapping[str, Any], on_event: OnTaskEvent) -> None:
        worker.last_event = time.monotonic()
        if message["event"] == READY:
            worker.ready = True
            if worker.task:
                self._send_task(worker)
            return
        event = event_from_json(message)
        if isinstance(event, TaskFinished | TaskFailed):
            worker.task = ""
        on_event(event)

    def _replace(self, worker: _Worker, on_event: OnTaskEvent, fault: str) -> None:
        """Replace a worker; its task starts again there, unless it has been started too often."""
        if fault:
            worker.process.kill()
        worker.process.join()
        worker.connection.close()
        task, code = worker.task, worker.process.exitcode
        reason = fault or f"its worker died with exit code {code}"
        if not worker.ready and not task:
            raise RegunError(f"a worker process ended with code {code} before it could work; see its message above.")
        replacement = self._worker()
        self.workers[self.workers.index(worker)] = replacement
        if not task:
            return
        if self.attempts[task] >= ATTEMPTS:
            on_event(TaskFailed(task=task, error=f"{reason}, {ATTEMPTS} times in all (out of memory?)"))
            return
        on_event(TaskRestarted(task=task, reason=reason))
        replacement.task = task
        self.attempts[task] += 1
