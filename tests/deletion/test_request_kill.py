"""A request that is killed anywhere: it is committed or it is not, and the ledger says which."""

import hashlib
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from forked import PATIENCE, Forked
from small_project import failed, forget, ids

import regun.deletion.folder as folder_module
from regun.deletion import history, verify_folder
from regun.deletion.folder import commit, opened
from regun.deletion.ledger import read_ledger

PROJECT = f"{Path(__file__).parent / 'small_project.py'}:slow_project"


def start(out: Path, request: Path) -> Forked:
    how = ("--threads", "1", "--bootstrap", "20", "--json", "--accept-inconclusive")
    return Forked(request.parent / "said", "forget", "--project", PROJECT, "--ids", request, "--out", out, *how)


def committed(out: Path) -> int:
    """How many requests are committed; all of them whole, whatever else lies about."""
    assert read_ledger(out / "ledger.jsonl").problems == ()
    if (out / "ledger.jsonl").exists():
        assert failed(verify_folder(out)) == []
    return len(history(out))


def killed(process: Forked, out: Path, when: str, number: int, draw: random.Random) -> bool:
    """SIGKILL while it works, while its results are written, or around the ledger line; True if it came in time."""
    sign = {"working": ".regun-lock", "writing": ".regun-new", "placing": f"requests/{number:04d}"}[when]
    deadline = time.monotonic() + PATIENCE
    while not (out / sign).exists() and process.running and time.monotonic() < deadline:
        time.sleep(0.0005)
    time.sleep(draw.uniform(0, {"working": 1.0, "writing": 0.03, "placing": 0.002}[when]))
    return process.kill() == -signal.SIGKILL


def test_killed_at_random_it_is_committed_or_not(tmp_path: Path) -> None:
    draw, out, request = random.Random(7), tmp_path / "out", tmp_path / "ids.txt"
    request.write_text("\n".join(ids()[:10]))
    kills = 0
    for when in ("working", "writing", "placing", "writing"):
        before = committed(out)
        kills += killed(start(out, request), out, when, before + 1, draw)
        after = committed(out)
        assert after in (before, before + 1)
        if after > before:  # the next request is another one
            request.write_text("\n".join(ids()[10 * (after + 1) : 10 * (after + 2)]))
    assert kills >= 2
    before = committed(out)
    code, said, errors = start(out, request).ended()
    assert code == 0, errors
    assert json.loads(said)["done"]
    assert committed(out) == before + 1
    assert not (out / ".regun-new").exists()
    assert not (out / ".regun-work").exists()
    assert {p.name for p in (out / "requests").iterdir()} == {f"{n:04d}" for n in range(1, before + 2)}


class Stopped(BaseException):
    """Stands for a kill: nothing may catch it."""


def stop_at(monkeypatch: pytest.MonkeyPatch, call: int) -> list[str]:
    """Count every write to disk; the process ends before the `call`-th one."""
    made: list[str] = []

    def counted(name: str, real):
        def run(*args, **more):
            made.append(name)
            if len(made) == call:
                raise Stopped
            return real(*args, **more)

        return run

    for module, name in ((os, "fsync"), (os, "replace"), (folder_module, "append")):
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    return made


def test_stopped_before_each_write_to_disk(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit makes about a dozen writes; a process that ends at any of them leaves the old state or the new one."""
    whole, start = (Path(shutil.copytree(original, tmp_path / name)) for name in ("whole", "start"))
    done = forget(whole, ids()[60:65])
    line = history(whole)[2]
    files = {name: (done.folder / name).read_bytes() for name in line.files}

    def finish(out: Path) -> list[str]:
        """Commit the third request, unless it is committed; what had to be recovered before."""
        with opened(out) as (folder, ledger, notes):
            if len(ledger.lines) == 2:
                commit(folder, line, files)
        return notes

    with monkeypatch.context() as patch:
        calls = stop_at(patch, 0)
        finish(Path(shutil.copytree(start, tmp_path / "calls")))
    assert calls.count("append") == 1
    assert calls.count("replace") == 2, "the folder gets its number, then current.safetensors is switched"
    assert len(calls) >= 9
    for call in range(1, len(calls) + 1):
        out = Path(shutil.copytree(start, tmp_path / str(call)))
        with monkeypatch.context() as patch:
            made = stop_at(patch, call)
            with pytest.raises(Stopped):
                finish(out)
            assert made == calls[:call]
        happened = committed(out) == 3
        served = hashlib.sha256((out / "current.safetensors").read_bytes()).hexdigest()
        assert served in [one.files["model.safetensors"] for one in history(out) if one.accepted]
        assert happened is (call > calls.index("append") + 1), "the ledger line is the commit"
        finish(out)
        assert committed(out) == 3
        assert (out / "current.safetensors").read_bytes() == files["model.safetensors"]
        assert {p.name for p in (out / "requests").iterdir()} == {"0001", "0002", "0003"}
