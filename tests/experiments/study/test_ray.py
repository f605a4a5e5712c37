"""The Ray engine: lost nodes and workers cost nothing, a lost head only what was running."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from expect import assert_names, error
from mini import MINI, evaluations, run, study
from regun.errors import RegunError
from regun.experiments.study import ray_executor
from regun.experiments.study.context import Location
from regun.experiments.study.opened import OpenStudy

HERE = Path(__file__).parent
PATIENCE = 900
"""Seconds until a test is given up: three clusters beside other work have taken four minutes each."""
TEXT = MINI.replace("digits,epochs=3", "digits,epochs=12,batch_size=16").replace("references = 2", "references = 1")


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE)
def test_a_lost_node_changes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "mini.toml").write_text(TEXT)
    command = [sys.executable, str(HERE / "ray_cluster.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    told = json.loads((tmp_path / "ran.json").read_text())
    assert told["failed"] == {}
    assert told["killed"], "no task ran on the node that was to die"
    _, ran, _ = run(study(TEXT, tmp_path), tmp_path / "local")
    assert not ran.failed
    assert sorted(told["made"] + told["found"]) == sorted(ran.made + ran.in_store)
    assert evaluations(tmp_path / "store") == evaluations(tmp_path / "local")


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE)
def test_a_lost_head_ends_the_study_in_a_sentence_and_the_next_run_goes_on(tmp_path: Path) -> None:
    """Ray itself ends a process whose head is gone for long; either way nothing is lost but what was running."""
    pytest.importorskip("ray")
    command = [sys.executable, str(HERE / "ray_lost.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    first = (tmp_path / "killed").read_text()
    assert done.returncode != 0
    if done.returncode == 7:
        assert_names((tmp_path / "said").read_text(), "Ray", "engine")
    _, ran, _ = run(study(folder=tmp_path), tmp_path / "store")
    assert not ran.failed
    assert first in ran.in_store


DIES = '''"""Takes its worker with it, once."""
import os
from dataclasses import dataclass
from pathlib import Path
@dataclass(frozen=True)
class Config:
    seen: str = ""
def unlearn(job, config):
    mark = Path(config.seen)
    if not mark.exists():
        mark.write_text("")
        os.kill(os.getpid(), 9)
'''


def test_a_lost_worker_begins_again(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "dies.py").write_text(DIES)
    methods = f'methods = ["dies.py,seen={tmp_path / "mark"}"]'
    (tmp_path / "mini.toml").write_text(
        re.sub("methods = .*", methods, MINI.replace("references = 2", "references = 0"))
    )
    command = [sys.executable, "-m", "regun", "study", "run", str(tmp_path / "mini.toml"), "--engine", "ray"]
    command += ["--workers", "1", "--threads", "1", "--quiet", "--store", str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert (tmp_path / "mark").exists(), done.stderr.decode()[-3000:]
    assert done.returncode == 0, done.stderr.decode()[-3000:]


def test_without_ray_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(ray_executor, "import_module", absent)
    with error(RegunError, "ray"):
        ray_executor.RayExecutor(OpenStudy(study(), Location(str(tmp_path))))


class Unreachable:
    """A Ray that finds no cluster."""

    @staticmethod
    def is_initialized() -> bool:
        return False

    @staticmethod
    def init(**settings) -> None:
        raise ConnectionError(f"nobody at {settings['address']}")


def test_an_unreachable_cluster_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_executor, "import_module", lambda name: Unreachable)
    with error(RegunError, "10.9.8.7:6379", "--head"):
        ray_executor.RayExecutor(OpenStudy(study(), Location(str(tmp_path))), "10.9.8.7:6379")
