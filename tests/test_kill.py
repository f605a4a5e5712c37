"""A training process that is killed at random moments ends, resumed, with exactly the weights of one that was not."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.nn.functional import cross_entropy

from expect import assert_names
from regun.artifacts import SnapshotFolder, Store
from regun.training.fit import fit
from regun.training.job import Job
from regun.training.recipes import Recipe
from regun.training.snapshots import Snapshot
from regun.training.streams import one_pass
from toys import conv_net, hear_interrupts, images, job_for, same_state

TRAIN = [sys.executable, "-m", "regun", "train", "--data", "digits,limit=400,test_limit=50"]
TRAIN += ["--recipe", "digits,epochs=6,batch_size=4", "--threads", "1", "--json"]
PATIENCE = 120


def start(store: Path, *more: str) -> subprocess.Popen[str]:
    command = [*TRAIN, "--store", str(store), *more]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=surroundings,
        start_new_session=True,
        preexec_fn=hear_interrupts,
    )


def snapshot(store: Path) -> Snapshot | None:
    """The one snapshot of the one unfinished run; checked, as every load is."""
    folders = list((store / ".regun-partial").glob("*"))
    return SnapshotFolder(folders[0], 0).load() if folders else None


def place(saved: Snapshot | None) -> tuple[int, int]:
    return (saved.meta["epoch"], saved.meta["step"]) if saved else (0, 0)


def stop(process: subprocess.Popen[str], store: Path, how: signal.Signals, delay: float, since: str) -> str:
    """Wait until the run has written another snapshot than `since`, then a little longer, then stop it."""
    deadline = time.monotonic() + PATIENCE
    while pointer(store) in ("", since) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(delay)
    process.send_signal(how)
    _, errors = process.communicate(timeout=PATIENCE)
    return errors


def pointer(store: Path) -> str:
    saved = list(store.glob(".regun-partial/*/snapshot.json"))
    return saved[0].read_text() if saved else ""


def finish(process: subprocess.Popen[str]) -> tuple[dict, str]:
    out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return json.loads(out), errors


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return finish(start(tmp_path_factory.mktemp("undisturbed")))[0]


def same_result(report: dict, other: dict) -> bool:
    losses = [[epoch["loss"] for epoch in r["epochs"]] for r in (report, other)]
    return (
        (report["key"], report["weights"]) == (other["key"], other["weights"])
        and losses[0] == losses[1]
        and report["accuracy"] == other["accuracy"]
        and report["cost"]["steps"] == other["cost"]["steps"]
    )


def test_killed_three_times_and_resumed_the_weights_are_the_same(undisturbed: dict, tmp_path: Path) -> None:
    draw = random.Random(20)
    before, errors = (0, 0), ""
    for _ in range(3):
        process = start(tmp_path, "--snapshot-seconds", "0")
        errors = stop(process, tmp_path, signal.SIGKILL, draw.uniform(0, 0.1), pointer(tmp_path))
        assert process.returncode == -signal.SIGKILL
        assert_resumed_at(errors, before)
        store = Store(tmp_path)
        assert store.verify().problems == []
        assert store.artifacts() == []
        reached = place(snapshot(tmp_path))
        assert reached > before
        before = reached
    report, errors = finish(start(tmp_path))
    assert_resumed_at(errors, before)
    assert same_result(report, undisturbed)
    assert Store(tmp_path).verify().problems == []
    assert list((tmp_path / ".regun-partial").iterdir()) == []


def assert_resumed_at(errors: str, reached: tuple[int, int]) -> None:
    """A run says where it goes on, from 1; a fresh one says nothing of the kind."""
    saved = re.search(r"train: resuming at epoch (\d+), step (\d+)", errors)
    assert (saved is None) == (reached == (0, 0)), errors
    if saved is not None:
        assert (int(saved[1]) - 1, int(saved[2]) - 1) == reached


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_a_state_to_go_on_from(undisturbed: dict, tmp_path: Path, number: int) -> None:
    process = start(tmp_path, "--snapshot-seconds", "0")
    errors = stop(process, tmp_path, number, 0.1, "")
    assert process.returncode == 130
    assert_names(errors.splitlines()[-1], "regun:", "interrupted")
    assert "Traceback" not in errors
    assert Store(tmp_path).artifacts() == []
    reached = place(snapshot(tmp_path))
    report, errors = finish(start(tmp_path))
    assert_resumed_at(errors, reached)
    assert same_result(report, undisturbed)


class OnDisk(SnapshotFolder):
    """A slot that asks for a snapshot after every step and stops the run after some of them."""

    left = -1

    def due(self) -> bool:
        return True

    def save(self, snapshot: Snapshot) -> None:
        super().save(snapshot)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("stop_after", [1, 5])
def test_optimizers_go_on_from_what_was_on_disk(tmp_path: Path, optimizer: str, stop_after: int) -> None:
    """Files know no memory layout; the fused optimizers need their state laid out as the weights are."""
    examples = images(channels=3)
    recipe = Recipe(epochs=2, batch_size=8, lr=0.01, optimizer=optimizer)

    def train(slot: OnDisk | None) -> Job:
        job = job_for(conv_net(channels=3), examples)
        stream = one_pass(job, "retain", job.indices("retain"), 8)
        fit(job, stream, lambda s: cross_entropy(job.logits(s.retain.x), s.retain.y), recipe, checkpoint=slot)
        return job

    slot = OnDisk(tmp_path, 0)
    slot.left = stop_after
    with pytest.raises(KeyboardInterrupt):
        train(slot)
    resumed, whole = train(OnDisk(tmp_path, 0)), train(None)
    assert resumed.cost.steps == whole.cost.steps > stop_after
    assert same_state(resumed.model, whole.model)
