"""A study small enough for tests: seconds of work, every kind of task."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regun.artifacts import Artifact
from regun.experiments.study.context import Location
from regun.experiments.study.events import Event
from regun.experiments.study.executors import Executor, InProcess
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.parse import parse_study
from regun.experiments.study.scheduler import RunSummary, execute
from regun.experiments.study.spec import Study

MINI = """
name = "mini"
data = "digits,limit=400,test_limit=100"
model = "cnn,width=4"
recipe = "digits,epochs=3"
forget = [0.1]
seeds = [0]
references = 2
bootstrap = 20
threads = 1
methods = ["regun,epochs=2,batch_size=16", "finetune,epochs=1,batch_size=64", "ssd"]
"""


def study(text: str = MINI, folder: Path | None = None, **changes: Any) -> Study:
    """The mini study with other values, as its file would give them."""
    return replace(parse_study(text, "mini.toml", folder or Path.cwd()), **changes)


def run(
    found: Study, store: Path, engine: type[Executor] | None = None, **more: Any
) -> tuple[OpenStudy, RunSummary, list[Event]]:
    """Carry a study out in this process, or by an engine; with all its events."""
    opened = OpenStudy(found, Location(str(store)))
    events: list[Event] = []
    with threads(1):
        ran = execute(opened, engine(opened, **more) if engine else InProcess(opened), events.append)
    return opened, ran, events


def artifact(opened: OpenStudy, task_id: str) -> Artifact:
    """What a task of a finished study has made."""
    return opened.plan.tasks[task_id].artifact(opened)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """As many threads as the study's workers have: sums in another order differ in their last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def evaluations(store: Path) -> dict[str, bytes]:
    """Every evaluation of a store: its key and what it says, without when it was made."""
    found = {}
    for path in (store / "artifacts" / "evaluation").iterdir():
        manifest = json.loads((path / "manifest.json").read_text())
        found[path.name] = json.dumps(manifest["info"], sort_keys=True).encode()
    return found
