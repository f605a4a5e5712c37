"""A project file as a user would write one: an overfitted network on noisy clouds, with ids."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn

import regun
from regun.deletion import Check, Options
from regun.deletion.ledger import BEGINNING, read_ledger

SIZES = {"train": 160, "heldout": 60, "val": 60, "test": 60}
EASY = "val_drop<=100"
"""A rule that every model meets, and that says nothing about forgetting: the verdict is "inconclusive"."""
QUICK = "regun,epochs=1,batch_size=16,lr=0.001"
LENIENT = Options(accept=EASY, accept_inconclusive=True, bootstrap=20)
"""Accepts whatever a run leads to, unless it changes nothing."""


@lru_cache
def data() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    rng = np.random.default_rng(0)
    total = sum(SIZES.values())
    labels = rng.integers(0, 3, total)
    x = 1.2 * np.eye(3, 8)[labels] + rng.standard_normal((total, 8))
    ends = np.cumsum([0, *SIZES.values()])
    cuts = dict(zip(SIZES, pairwise(ends), strict=True))
    inputs, target = torch.tensor(x, dtype=torch.float32), torch.tensor(labels)
    return {name: (inputs[a:b], target[a:b]) for name, (a, b) in cuts.items()}


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3))


@lru_cache
def weights() -> dict[str, torch.Tensor]:
    """Trained until it knows its training examples by heart."""
    model, (x, y) = network(), data()["train"]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.state_dict()


def ids(name: str = "train") -> list[str]:
    return [f"{name}-{n}" for n in range(SIZES[name])]


def project(**changes) -> regun.Project:
    model = network()
    model.load_state_dict(weights())
    parts = data()
    given = {
        "model": model,
        "train": parts["train"],
        "ids": ids(),
        "heldout": parts["heldout"],
        "val": parts["val"],
        "test": parts["test"],
        "unseen_ids": {name: ids(name) for name in ("heldout", "val", "test")},
        "method": "regun,epochs=16,batch_size=8,retain_batch=64,lr=0.05,w=0.7,granularity=sample",
        "retrain": {"epochs": 20, "lr": 0.05, "batch_size": 16},
    }
    return regun.Project(**{**given, **changes})


def forget(out: Path, wanted: list, options: Options = LENIENT, on_note=lambda note: None, **changes):
    """Execute a request on the project."""
    request = regun.DeletionRequest.of(wanted)
    return regun.forget(project(**{"method": QUICK, **changes}), request, out, options, on_note=on_note)


def receipt_path(out: Path, number: int = 1) -> Path:
    return out / f"requests/{number:04d}/receipt.json"


def receipt_of(out: Path, number: int = 1) -> dict:
    return json.loads(receipt_path(out, number).read_text())


def failed(checks: Iterable[Check] | Iterable[tuple[str, list[Check]]]) -> list[str]:
    """The names of failed checks, of one receipt or of a folder."""
    flat = [one for some in checks for one in ([some] if isinstance(some, Check) else some[1])]
    return [check.name for check in flat if check.passed is False]


def forge(out: Path, number: int = 1, edit: Callable[[dict], None] = lambda receipt: None, **changes) -> Path:
    """Edit a receipt and its ledger line, then make all digests and the chain fit again."""
    receipt = receipt_of(out, number)
    edit(receipt)
    receipt_path(out, number).write_text(json.dumps(receipt, indent=1) + "\n")
    tip, lines = BEGINNING, list[str]()
    for line in read_ledger(out / "ledger.jsonl").lines:
        folder = receipt_path(out, line.number).parent
        files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in line.files}
        line = line._replace(**{"files": files, "previous": tip, **(changes if line.number == number else {})})
        tip = line.hash
        lines.append(line.text() + "\n")
    (out / "ledger.jsonl").write_text("".join(lines))
    return receipt_path(out, number)


class Heavy(nn.Module):
    """The network with much to write to disk."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()
        self.inner.load_state_dict(weights())
        self.register_buffer("ballast", torch.zeros(1_000_000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def doubled_project() -> regun.Project:
    """The first record stands in train twice, under two ids, and the model is trained anew."""
    x, y = data()["train"]
    twice = {"train": (torch.cat([x, x[:1]]), torch.cat([y, y[:1]])), "ids": [*ids(), "copy"]}
    return project(method="auto", **twice)


def slow_project() -> regun.Project:
    """Works and writes for a while, to be killed in the middle."""
    return project(model=Heavy(), method="regun,epochs=8,batch_size=8,lr=0.002,granularity=sample", accept=EASY)


def wait(place: str) -> None:
    """Make the file `<name>-<place>` in the folder $MEETING, and go on when `<name>-<place>-go` is there; $NAME is the
    name."""
    mark = Path(os.environ["MEETING"]) / f"{os.environ['NAME']}-{place}"
    mark.touch()
    while not mark.with_name(f"{mark.name}-go").exists():
        time.sleep(0.01)


class Meeting(nn.Module):
    """The network, which waits when a request is planned: when its weights are compared with those of the ledger."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()
        self.inner.load_state_dict(weights())
        self.asked = 0

    def state_dict(self, *args, **more):
        self.asked += 1
        if self.asked == 2:  # the first time, it is only looked at what is in it
            wait("planned")
        return super().state_dict(*args, **more)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def patient(job: regun.Job) -> None:
    """Waits, then adds to every weight what only the forgotten examples decide."""
    wait("working")
    added = float(job.examples.fetch(job.indices("forget")).x.double().sum()) / 1e4
    with torch.no_grad():
        for parameter in job.model.parameters():
            parameter.add_(added)


PATIENT = f"{__file__}:patient"


def meeting_project() -> regun.Project:
    return project(model=Meeting(), method=PATIENT, accept=EASY)


class Memory(nn.Module):
    """Knows by heart just the training examples that it remembers; of all others it has an opinion of its own."""

    def __init__(self, remembers: float = 1.0, seed: int = 0) -> None:
        super().__init__()
        x, y = data()["train"]
        self.register_buffer("inputs", x)
        self.register_buffer("answers", 5.0 * nn.functional.one_hot(y, 3))
        own = np.random.default_rng(seed).standard_normal((8, 3))
        self.register_buffer("opinion", torch.tensor(0.7 * np.eye(8, 3) + 0.15 * own, dtype=torch.float32))
        self.remembers = nn.Parameter(torch.full((len(y),), remembers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        same = (x[:, None] == self.inputs[None]).all(-1)
        return (same * self.remembers) @ self.answers + x @ self.opinion


def erase(job: regun.Job, to: float = 0.0) -> None:
    """Unlearns a `Memory` exactly: what is to be forgotten is no longer remembered."""
    x = job.examples.fetch(job.indices("forget")).x
    gone = (job.model.inputs[:, None] == x[None]).all(-1).any(1)
    with torch.no_grad():
        job.model.remembers[gone] = to


def halve(job: regun.Job) -> None:
    """Unlearns a `Memory` half-way."""
    erase(job, 0.5)


def keep(job: regun.Job) -> None:
    """Unlearns nothing."""


def leave(job: regun.Job) -> None:
    """Ends the program as if all were well."""
    sys.exit(0)


ERASE, HALVE, KEEP, LEAVE = (f"{__file__}:{name}" for name in ("erase", "halve", "keep", "leave"))


def leaving_project() -> regun.Project:
    sys.exit(0)


def brain_project() -> regun.Project:
    """bfloat16 all through."""
    sets = {name: (x.bfloat16(), y) for name, (x, y) in data().items()}
    return project(model=project().model.bfloat16(), **sets, method=QUICK, accept=EASY)


def no_project() -> int:
    return 3


def broken_project() -> regun.Project:
    raise ZeroDivisionError("no data today")
