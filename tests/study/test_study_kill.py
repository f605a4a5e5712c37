"""A study killed five times at random ends with the results of one that was not, and nothing is made twice."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from mini import MINI, evaluations, run, study

TEXT = MINI.replace("digits,epochs=3", "digits,epochs=10,batch_size=8").replace("references = 2", "references = 1")
PATIENCE = 120


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "regun", "study", "run", str(folder / "mini.toml")]
    command += ["--store", str(folder / "store"), "--out", str(folder / "out"), "--snapshot-seconds", "0.2"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def events(folder: Path) -> list[dict]:
    file = folder / "out" / "metrics.jsonl"
    if not file.exists():
        return []
    whole = [line for line in file.read_text().splitlines() if line.endswith("}")]  # the last may be torn by a kill
    return [json.loads(line) for line in whole]


def artefacts(folder: Path) -> dict[str, int]:
    return {str(p.parent): p.stat().st_mtime_ns for p in (folder / "store" / "artefacts").rglob("manifest.json")}


def kill_after(process: subprocess.Popen[bytes], folder: Path, begun: int, delay: float) -> None:
    """Wait until this run has begun to work, then a little longer, then kill it and all it started."""
    deadline = time.monotonic() + PATIENCE
    while len(events(folder)) <= begun and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(delay)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)


def test_five_kills(tmp_path: Path) -> None:
    (tmp_path / "mini.toml").write_text(TEXT)
    chance = random.Random(time.time_ns())
    kept: dict[str, int] = {}
    killed = 0
    for _ in range(5):
        process = start(tmp_path)
        kill_after(process, tmp_path, len(events(tmp_path)), chance.uniform(0.1, 1.2))
        killed += process.returncode == -signal.SIGKILL
        now = artefacts(tmp_path)
        assert {path: now.get(path) for path in kept} == kept, "something finished was made again"
        kept = now
    assert killed >= 2, "the study was over before it could be killed"
    last = start(tmp_path)
    _, errors = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0, errors.decode()
    made = Counter(e["task"] for e in events(tmp_path) if e["event"] == "finished" and not e["found"])
    assert not [task for task, times in made.items() if times > 1]
    _, ran, _ = run(study(TEXT, tmp_path), tmp_path / "calm")
    assert not ran.failed
    assert evaluations(tmp_path / "store") == evaluations(tmp_path / "calm")
