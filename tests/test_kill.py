"""A training process that is killed at random moments ends, resumed, with exactly the weights of one that was not."""

import json
import random
import re
import signal
import time
from pathlib import Path

import pytest
from forked import PATIENCE, Forked
from torch.nn.functional import cross_entropy

from expect import assert_names
from regun.artifacts import SnapshotFolder, Store
from regun.training.fit import fit
from regun.training.job import Job
from regun.training.recipes import Recipe
from regun.training.snapshots import Snapshot
from regun.training.streams import one_pass
from toys import conv_net, images, job_for, same_state

TRAIN = ["train", "--data", "digits,limit=400,test_limit=50", "--recipe", "digits,epochs=4,batch_size=4"]
TRAIN += ["--threads", "1", "--json"]


def start(folder: Path, *more: str) -> Forked:
    return Forked(folder / "said", *TRAIN, "--store", folder / "store", *more)


def snapshot(store: Path) -> Snapshot | None:
    """The one snapshot of the one unfinished run; checked, as every load is."""
    folders = list((store / ".regun-partial").glob("*"))
    return SnapshotFolder(folders[0], 0).load() if folders else None


def place(saved: Snapshot | None) -> tuple[int, int]:
    return (saved.meta["epoch"], saved.meta["step"]) if saved else (0, 0)


def stop(process: Forked, store: Path, how: signal.Signals, delay: float, since: str) -> tuple[int, str]:
    """Wait until the run has written another snapshot than `since`, then a little longer, then stop it."""
    deadline = time.monotonic() + PATIENCE
    while pointer(store) in ("", since) and process.running and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(delay)
    return process.kill(how), process.errors.read_text()


def pointer(store: Path) -> str:
    saved = list(store.glob(".regun-partial/*/snapshot.json"))
    return saved[0].read_text() if saved else ""


def finish(process: Forked) -> tuple[dict, str]:
    code, out, errors = process.ended()
    assert code == 0, errors
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
    draw, folder = random.Random(20), tmp_path / "store"
    before, errors = (0, 0), ""
    for _ in range(3):
        process = start(tmp_path, "--snapshot-seconds", "0")
        code, errors = stop(process, folder, signal.SIGKILL, draw.uniform(0, 0.1), pointer(folder))
        assert code == -signal.SIGKILL
        assert_resumed_at(errors, before)
        store = Store(folder)
        assert store.verify().problems == []
        assert store.artifacts() == []
        reached = place(snapshot(folder))
        assert reached > before
        before = reached
    report, errors = finish(start(tmp_path))
    assert_resumed_at(errors, before)
    assert same_result(report, undisturbed)
    assert Store(folder).verify().problems == []
    assert list((folder / ".regun-partial").iterdir()) == []


def assert_resumed_at(errors: str, reached: tuple[int, int]) -> None:
    """A run says where it goes on, from 1; a fresh one says nothing of the kind."""
    saved = re.search(r"train: resuming at epoch (\d+), step (\d+)", errors)
    assert (saved is None) == (reached == (0, 0)), errors
    if saved is not None:
        assert (int(saved[1]) - 1, int(saved[2]) - 1) == reached


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_a_state_to_go_on_from(undisturbed: dict, tmp_path: Path, number: int) -> None:
    folder = tmp_path / "store"
    code, errors = stop(start(tmp_path, "--snapshot-seconds", "0"), folder, number, 0.1, "")
    assert code == 130
    assert_names(errors.splitlines()[-1], "regun:", "interrupted")
    assert "Traceback" not in errors
    assert Store(folder).artifacts() == []
    reached = place(snapshot(folder))
    if number == signal.SIGINT:
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
