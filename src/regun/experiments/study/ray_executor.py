"""Tasks on a Ray cluster."""

import os
from contextlib import suppress
from importlib import import_module
from typing import Any

from regun.errors import RegunError
from regun.experiments.study.context import StudyContext
from regun.experiments.study.executors import ATTEMPTS, Events
from regun.experiments.study.worker import payload, ray_task

MANY = 1000
"""Tasks handed over at a time: Ray queues what it cannot run yet."""


class RayExecutor:
    """A cluster that exists (`address`), or one made on this machine for the study; the store is on a shared path."""

    def __init__(
        self, ctx: StudyContext, address: str | None = None, workers: int | None = None, threads: int | None = None
    ) -> None:
        ray = _ray()
        self.ray, self.own, share = ray, not ray.is_initialized(), threads or 1
        if self.own:
            _start(ray, address, workers, share)
        self.queue = _queue_here(ray)
        gpus = 1 if ctx.device.type == "cuda" else 0
        self.remote = ray.remote(num_cpus=share, num_gpus=gpus, max_retries=ATTEMPTS - 1)(ray_task)
        self.text = ray.put(payload(ctx.study, ctx.place, share))
        self.running: dict[Any, str] = {}

    @property
    def free(self) -> int:
        return MANY - len(self.running)

    def start(self, task_id: str) -> None:
        self.running[self.remote.remote(self.text, task_id, self.queue)] = task_id

    def wait(self, seconds: float, listen: Events) -> None:
        done: list[Any] = []
        try:
            if self.running:
                done, _ = self.ray.wait(list(self.running), num_returns=1, timeout=seconds)
            events: list[Any] = self.queue.get_nowait_batch(self.queue.qsize())
        except self.ray.exceptions.RayError as fault:  # the queue is on the study's own node: only its head can be gone
            said = " ".join(f"{fault}".split())[:200]
            raise RegunError(
                f"the Ray cluster is gone ({said}). What is finished is kept: start a cluster again, or leave --engine "
                f"out, and run the same command."
            ) from None
        for event in events:
            listen(event)
        for reference in done:
            task = self.running.pop(reference)
            try:
                listen(self.ray.get(reference))
            except self.ray.exceptions.RayError as fault:
                listen({"event": "finished", "task": task, "error": f"lost on the cluster: {fault}", "seconds": 0.0})

    def close(self) -> None:
        """Stop at once: what was being made goes on from its snapshot another time."""
        with suppress(self.ray.exceptions.RayError, OSError, RuntimeError):  # of a cluster that is gone itself
            for reference in self.running:
                self.ray.cancel(reference, force=True)
            self.queue.shutdown(force=True)
        if self.own:
            self.ray.shutdown()


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError:
        raise RegunError("the ray engine needs Ray; install it with: pip install 'regun[ray]'.") from None


def _queue_here(ray: Any) -> Any:
    """A queue for events, on the node of the study's own process: it cannot be lost without it."""
    strategies = import_module("ray.util.scheduling_strategies")
    here = strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return import_module("ray.util.queue").Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})


def _start(ray: Any, address: str | None, workers: int | None, share: int) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster of ours reports to nobody
            cores = workers * share if workers else os.cpu_count()
            # `local`: a cluster of our own, also where an earlier one has left word of itself
            ray.init(address="local", num_cpus=cores, include_dashboard=False, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as fault:
        where = f"the cluster at {address}" if address else "a cluster on this machine"
        raise RegunError(
            f"cannot reach {where}: {fault}. Start one with `ray start --head`, or leave the address out; if the "
            f"cluster asks for a token, set RAY_AUTH_MODE=token."
        ) from None
