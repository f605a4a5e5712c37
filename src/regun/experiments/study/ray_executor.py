"""Tasks on a Ray cluster."""

import os
from contextlib import suppress
from importlib import import_module
from typing import Any

from regun.errors import RegunError, not_installed
from regun.experiments.study.events import OnTaskEvent, TaskFailed, event_from_json
from regun.experiments.study.executors import ATTEMPTS
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.worker import payload, ray_task

QUEUED = 1000
"""Tasks submitted at a time; Ray queues what it cannot run yet."""


class RayExecutor:
    """Tasks on the cluster at `address`, or on one that is started here; all nodes share the path of the store."""

    def __init__(
        self, opened: OpenStudy, address: str | None = None, workers: int | None = None, threads: int | None = None
    ) -> None:
        try:
            ray = import_module("ray")
        except ImportError:
            raise RegunError(not_installed("the ray engine", "ray", "ray")) from None
        self.ray, self.started_here, share = ray, not ray.is_initialized(), threads or 1
        if self.started_here:
            _start(ray, address, workers, share)
        strategies = import_module("ray.util.scheduling_strategies")  # on this node, the queue is lost only with it
        here = strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options = {"num_cpus": 0, "scheduling_strategy": here}
        self.queue = import_module("ray.util.queue").Queue(actor_options=options)
        gpus = 1 if opened.device.type == "cuda" else 0
        self.remote = ray.remote(num_cpus=share, num_gpus=gpus, max_retries=ATTEMPTS - 1)(ray_task)
        self.text = ray.put(payload(opened, share))
        self.running: dict[Any, str] = {}

    @property
    def free(self) -> int:
        return QUEUED - len(self.running)

    def start(self, task_id: str) -> None:
        self.running[self.remote.remote(self.text, task_id, self.queue)] = task_id

    def wait(self, seconds: float, on_event: OnTaskEvent) -> None:
        done: list[Any] = []
        try:
            if self.running:
                done, _ = self.ray.wait(list(self.running), num_returns=1, timeout=seconds)
            events: list[Any] = self.queue.get_nowait_batch(self.queue.qsize())
        except self.ray.exceptions.RayError as error:  # the queue is on the study's own node: only its head can be gone
            raise RegunError(
                f"the Ray cluster is gone ({' '.join(f'{error}'.split())[:200]}). Finished work is in the store: start "
                f"a cluster again, or leave engine= out, and run the same command."
            ) from None
        for event in events:
            on_event(event_from_json(event))
        for reference in done:
            task = self.running.pop(reference)
            try:
                on_event(event_from_json(self.ray.get(reference)))
            except self.ray.exceptions.RayError as error:
                on_event(TaskFailed(task=task, error=f"lost on the cluster: {error}"))

    def close(self) -> None:
        """Stop at once; unfinished training continues from its snapshot in the next run."""
        with suppress(self.ray.exceptions.RayError, OSError, RuntimeError):  # of a cluster that is gone itself
            for reference in self.running:
                self.ray.cancel(reference, force=True)
            self.queue.shutdown(force=True)
        if self.started_here:
            self.ray.shutdown()


def _start(ray: Any, address: str | None, workers: int | None, share: int) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
            cores = workers * share if workers else os.cpu_count()
            # `local` starts a new cluster even if an earlier one left its address behind
            ray.init(address="local", num_cpus=cores, include_dashboard=False, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = f"the cluster at {address}" if address else "a cluster on this machine"
        raise RegunError(
            f"cannot reach {where}: {error}. Start one with `ray start --head`, or leave the address out; if the "
            f"cluster asks for a token, set RAY_AUTH_MODE=token."
        ) from None
