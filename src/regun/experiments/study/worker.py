"""What runs in a worker: a process of this machine's, or a task of a Ray cluster."""

import json
import logging
import os
import platform
import signal
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

import torch

from regun.errors import RegunError
from regun.experiments.study.context import Location, StudyContext
from regun.experiments.study.spec import Study


def payload(study: Study, place: Location, threads: int | None) -> str:
    """All that a worker has to know, as text."""
    return json.dumps({"study": study.to_json(), "place": asdict(place), "threads": threads})


@lru_cache(maxsize=1)
def open_context(text: str) -> StudyContext:
    """The workshop of a payload, kept while a process works for the same study; sets the process's threads."""
    value = json.loads(text)
    if value["threads"] is not None:
        torch.set_num_threads(value["threads"])
    return StudyContext(Study.from_json(value["study"]), Location(**value["place"]))


def do_task(ctx: StudyContext, task_id: str, tell: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Do one task; the answer holds its key or, if it failed, the reason."""
    started = time.perf_counter()
    answer: dict[str, Any] = {"event": "finished", "task": task_id}
    try:
        task = ctx.plan.tasks[task_id]
        found = ctx.done(task)
        with _unheard():
            answer |= {"key": task.do(ctx, tell), "found": found}
    except RegunError as fault:
        answer["error"] = str(fault)
        if fault.__cause__ is not None:  # a bug in a user's code, which only its traceback finds
            answer["traceback"] = traceback.format_exc()
    except SystemExit as fault:  # of a user's code, which would end the worker and look like an accident
        answer["error"] = f"its code called sys.exit({fault.code!r})"
    except Exception as fault:  # a bug or a full disk: the study goes on with what does not depend on it, and tells
        answer["error"] = " ".join(f"{type(fault).__name__}: {fault}".split())
        answer["traceback"] = traceback.format_exc()
    return answer | {"seconds": time.perf_counter() - started, "worker": f"{platform.node()}:{os.getpid()}"}


@contextmanager
def _unheard() -> Generator[None]:
    """What looks wrong in a run is kept with its model; a study of hundreds of runs does not print it as well."""
    log, nobody = logging.getLogger("regun"), logging.NullHandler()
    log.addHandler(nobody)
    try:
        yield
    finally:
        log.removeHandler(nobody)


def serve(connection: Connection, text: str) -> None:
    """Do the tasks whose ids arrive until an empty one does or the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the study's own process decides when to stop
    try:
        ctx = open_context(text)

        def send(event: Mapping[str, Any]) -> None:
            connection.send_bytes(json.dumps(event).encode())

        send({"event": "ready"})
        while task_id := connection.recv_bytes().decode():
            send(do_task(ctx, task_id, lambda event, t=task_id: send({**event, "task": t})))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def ray_task(text: str, task_id: str, queue: Any) -> dict[str, Any]:
    """One task on a Ray cluster; events go through the queue, at most two steps a second."""
    last: dict[str, float] = {}

    def tell(event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind != "step" or time.monotonic() - last.get(kind, 0.0) > 0.5:
            last[kind] = time.monotonic()
            queue.actor.put_nowait.remote({**event, "task": task_id})  # to wait here would lend our core to other tasks

    node = import_module("ray").get_runtime_context().get_node_id()
    tell({"event": "started", "node": node})
    return do_task(open_context(text), task_id, tell)
