"""What runs in a worker: a process of this machine, or a task of a Ray cluster."""

import json
import logging
import os
import platform
import signal
import time
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

import torch

from regun.errors import RegunError
from regun.experiments.study.context import Location, StudyContext
from regun.experiments.study.events import (
    OnTaskEvent,
    StepDone,
    TaskEvent,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    event_to_json,
)
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.spec import Study

READY = "ready"
"""What a worker process sends once it can take tasks."""


def payload(ctx: StudyContext, threads: int | None) -> str:
    """Return all that a worker has to know, as text."""
    return json.dumps({"study": ctx.study.to_json(), "location": asdict(ctx.location), "threads": threads})


@lru_cache(maxsize=1)
def open_payload(text: str) -> OpenStudy:
    """Open the study of a payload, once per process; sets the number of threads."""
    value = json.loads(text)
    if value["threads"] is not None:
        torch.set_num_threads(value["threads"])
    return OpenStudy(Study.from_json(value["study"]), Location(**value["location"]))


def do_task(opened: OpenStudy, task_id: str, emit: OnTaskEvent) -> TaskEvent:
    """Do one task, and return that it has finished or why it failed."""
    started = time.perf_counter()
    try:
        task = opened.plan.tasks[task_id]
        in_store = task.done(opened)
        with _without_log():
            task.make(opened, emit)
        seconds, worker = time.perf_counter() - started, f"{platform.node()}:{os.getpid()}"
        key = (task.keys(opened) or [("", "")])[0][1]
        return TaskFinished(task=task_id, key=key, in_store=in_store, seconds=seconds, worker=worker)
    except RegunError as error:
        bug = error.__cause__ is not None  # in a user's code, which only its traceback finds
        return TaskFailed(task=task_id, error=str(error), traceback=traceback.format_exc() if bug else "")
    except SystemExit as error:  # of a user's code, which would end the worker
        return TaskFailed(task=task_id, error=f"its code called sys.exit({error.code!r})")
    except Exception as error:  # a bug or a full disk: the study continues with what does not depend on it
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return TaskFailed(task=task_id, error=text, traceback=traceback.format_exc())


@contextmanager
def _without_log() -> Generator[None]:
    """Print no warnings of single runs: they are stored with the model, and a study has hundreds of runs."""
    log, handler = logging.getLogger("regun"), logging.NullHandler()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def serve(connection: Connection, text: str) -> None:
    """Do the tasks whose ids arrive until an empty one does or the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the study's own process decides when to stop
    try:
        opened = open_payload(text)

        def send(event: TaskEvent) -> None:
            connection.send_bytes(json.dumps(event_to_json(event)).encode())

        connection.send_bytes(json.dumps({"event": READY}).encode())
        while task_id := connection.recv_bytes().decode():
            send(do_task(opened, task_id, send))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def ray_task(text: str, task_id: str, queue: Any) -> dict[str, Any]:
    """Do one task on a Ray cluster; events go through the queue, at most two steps per second."""
    last_step = 0.0

    def emit(event: TaskEvent) -> None:
        nonlocal last_step
        if isinstance(event, StepDone):
            if time.monotonic() - last_step <= 0.5:
                return
            last_step = time.monotonic()
        queue.actor.put_nowait.remote(event_to_json(event))  # to wait here would lend our core to other tasks

    emit(TaskStarted(task=task_id, node=import_module("ray").get_runtime_context().get_node_id()))
    return event_to_json(do_task(open_payload(text), task_id, emit))
