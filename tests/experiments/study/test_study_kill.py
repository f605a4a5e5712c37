"""A study killed three times ends with the results of one that was not, and nothing is made twice."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from forked import PATIENCE, Forked

from mini import MINI, evaluations, run, study

TEXT = MINI.replace("digits,epochs=3", "digits,epochs=10,batch_size=8").replace("references = 2", "references = 1")


def start(folder: Path, *more: str) -> Forked:
    where = ("--store", folder / "store", "--out", folder / "out", "--snapshot-seconds", "0.2")
    return Forked(folder / "said", "study", "run", folder / "mini.toml", *where, *more)


def events(folder: Path) -> list[dict]:
    file = folder / "out" / "metrics.jsonl"
    if not file.exists():
        return []
    whole = [line for line in file.read_text().splitlines() if line.endswith("}")]  # the last may be torn by a kill
    return [json.loads(line) for line in whole]


def artifacts(folder: Path) -> dict[str, int]:
    return {str(p.parent): p.stat().st_mtime_ns for p in (folder / "store" / "artifacts").rglob("manifest.json")}


def work_until(running: Callable[[], bool], folder: Path, count: int) -> None:
    """Wait until the study has told so many things, or is over."""
    deadline = time.monotonic() + PATIENCE
    while len(events(folder)) < count and running() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_three_kills(tmp_path: Path) -> None:
    (tmp_path / "mini.toml").write_text(TEXT)
    kept: dict[str, int] = {}
    killed = 0
    for more in (1, 4, 9):
        process = start(tmp_path)
        work_until(process.process.is_alive, tmp_path, len(events(tmp_path)) + more)
        killed += process.kill() == -signal.SIGKILL
        now = artifacts(tmp_path)
        assert {path: now.get(path) for path in kept} == kept, "something finished was made again"
        kept = now
    assert killed >= 2, "the study was over before it could be killed"
    code, _, errors = start(tmp_path).ended()
    assert code == 0, errors
    made = Counter(e["task"] for e in events(tmp_path) if e["event"] == "finished" and not e["in_store"])
    assert not [task for task, times in made.items() if times > 1]
    _, ran, _ = run(study(TEXT, tmp_path), tmp_path / "calm")
    assert not ran.failed
    assert evaluations(tmp_path / "store") == evaluations(tmp_path / "calm")


def test_told_to_end_it_ends_its_workers_too(tmp_path: Path) -> None:
    """A scheduler speaks to the first process only; what works for it must not go on."""
    (tmp_path / "mini.toml").write_text(TEXT)
    command = [sys.executable, "-m", "regun", "study", "run", "mini.toml", "--workers", "2", "--out", "out"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True)
    work_until(lambda: process.poll() is None, tmp_path, 2)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors.decode()
    deadline = time.monotonic() + PATIENCE
    while left := session(process.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def session(leader: int) -> list[str]:
    """What runs in a session, as far as /proc tells."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append((folder / "cmdline").read_text().replace("\0", " "))
    return found
