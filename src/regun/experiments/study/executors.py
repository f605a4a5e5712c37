"""Where tasks run on this machine: in this process, or in worker processes. A Ray cluster is in on_ray."""

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Protocol

from regun.errors import RegunError
from regun.experiments.study.context import StudyContext
from regun.experiments.study.worker import do_task, payload, serve

Events = Callable[[Mapping[str, Any]], None]
ATTEMPTS = 3
"""How often a task is begun whose worker dies under it."""
SILENCE = 3600.0
"""Seconds without a word after which a worker counts as stuck; training speaks several times a second."""


class Executor(Protocol):
    """`start` a task while `free` is above 0; `wait` for events, among them `finished` with a task's answer."""

    @property
    def free(self) -> int: ...
    def start(self, task_id: str) -> None: ...
    def wait(self, seconds: float, listen: Events) -> None: ...
    def close(self) -> None: ...


class InProcess:
    """One task after the other, here."""

    def __init__(self, ctx: StudyContext) -> None:
        self.ctx = ctx
        self.waiting: list[str] = []

    @property
    def free(self) -> int:
        return 1 - len(self.waiting)

    def start(self, task_id: str) -> None:
        self.waiting.append(task_id)

    def wait(self, seconds: float, listen: Events) -> None:
        while self.waiting:
            task_id = self.waiting.pop()
            listen({"event": "started", "task": task_id})
            listen(do_task(self.ctx, task_id, lambda e, t=task_id: listen({**e, "task": t})))

    def close(self) -> None:
        self.waiting.clear()


@dataclass
class _Worker:
    process: SpawnProcess
    connection: Connection
    task: str = ""
    ready: bool = False
    heard: float = field(default_factory=time.monotonic)


class Processes:
    """Worker processes of this machine, each with its share of threads; one that dies, hangs or babbles is replaced."""

    def __init__(self, ctx: StudyContext, workers: int, threads: int | None = None, silence: float = SILENCE) -> None:
        if workers < 1:
            raise RegunError(f"the number of workers is {workers}; give at least 1.")
        share = threads or max(1, (os.cpu_count() or 1) // workers)
        self.text, self.silence = payload(ctx.study, ctx.place, share), silence
        self.context = multiprocessing.get_context("spawn")
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
            self._give(worker)

    def wait(self, seconds: float, listen: Events) -> None:
        by_connection = {worker.connection: worker for worker in self.workers}
        for connection in wait(list(by_connection), timeout=seconds):
            worker = by_connection[connection]  # type: ignore[index]
            try:
                event = json.loads(worker.connection.recv_bytes())
                worker.heard = time.monotonic()
                self._heard(worker, event, listen)
            except (EOFError, OSError):
                self._lost(worker, listen, "")
            except (ValueError, TypeError, KeyError):
                self._lost(worker, listen, "its worker answered what nobody understands")
        for worker in [w for w in self.workers if w.task and time.monotonic() - w.heard > self.silence]:
            self._lost(worker, listen, f"its worker said nothing for {self.silence / 60:.0f} minutes")

    def close(self) -> None:
        """Stop at once: what was being made goes on from its snapshot another time."""
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

    def _give(self, worker: _Worker) -> None:
        """Hand the worker its task; one that is gone meanwhile shows when it is next waited for."""
        worker.heard = time.monotonic()
        try:
            worker.connection.send_bytes(worker.task.encode())
        except OSError:
            return

    def _heard(self, worker: _Worker, event: Mapping[str, Any], listen: Events) -> None:
        if event["event"] == "ready":
            worker.ready = True
            if worker.task:
                self._give(worker)
            return
        if event["event"] == "finished":
            worker.task = ""
        listen(event)

    def _lost(self, worker: _Worker, listen: Events, fault: str) -> None:
        """Replace a worker; its task begins again there, unless it has killed too many."""
        worker.process.kill() if fault else None
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
            why = f"{reason}, {ATTEMPTS} times in all (out of memory?)"
            listen({"event": "finished", "task": task, "error": why, "seconds": 0.0})
            return
        listen({"event": "lost", "task": task, "reason": f"{reason}; it begins again"})
        replacement.task = task
        self.attempts[task] += 1
