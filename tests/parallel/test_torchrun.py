"""Commands under `torchrun`: one result, a process that is killed, and commands that run in one process."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from regun.artifacts import Store
from regun.cli import main
from regun.cli.arguments import BAD_INPUT

TRAIN = ("train", "--model", "mlp,hidden=64", "--recipe", "digits,epochs=30,lr=0.02")


def torchrun(processes: int, *command: str) -> list[str]:
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable, *launch, "-m", "regun", *command]


def weights(store: Path) -> dict[str, torch.Tensor]:
    (artifact,) = Store.existing(store).artifacts("model")
    return artifact.tensors("weights")


def processes_of(parent: int) -> list[int]:
    """Return the processes that torchrun has started."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=True)
    return [int(pid) for pid in listed.stdout.split()]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_process_ends_the_run_and_another_number_of_processes_goes_on(tmp_path: Path) -> None:
    assert main([*TRAIN, "--store", str(tmp_path / "whole"), "--quiet"]) == 0
    store = tmp_path / "killed"
    command = torchrun(2, *TRAIN, "--store", str(store), "--snapshot-seconds", "0", "--quiet")
    run = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    while not list(store.glob(".regun-partial/*/snapshot.json")):
        assert run.poll() is None, run.communicate()
        time.sleep(0.01)
    victim = processes_of(run.pid)[-1]
    os.kill(victim, signal.SIGKILL)
    _, errors = run.communicate(timeout=300)
    assert run.returncode != 0
    assert "regun: " in errors
    assert not Store.existing(store).artifacts("model")
    assert main([*TRAIN, "--store", str(store)]) == 0
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.allclose(tensor, weights(store)[name], rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_unlearning_and_its_audit(tmp_path: Path) -> None:
    """Two processes make what one makes, and print it once; numbers of an audit of the same weights are equal."""
    store = str(tmp_path)
    assert main([*TRAIN, "--store", store, "--quiet"]) == 0
    base = Store.existing(tmp_path).artifacts("model")[0].key
    unlearn = ("unlearn", "--base", base, "--forget", "0.1", "--method", "regun,epochs=2", "--store", store, "--json")
    made = json.loads(subprocess.run(torchrun(2, *unlearn), capture_output=True, check=True).stdout)
    audit = ("audit", made["key"], "--store", store, "--json", "--bootstrap", "50")
    several = json.loads(subprocess.run(torchrun(3, *audit), capture_output=True, check=True).stdout)
    for kind in ("evaluation", "signals"):
        shutil.rmtree(tmp_path / "artifacts" / kind)
    one = subprocess.run([sys.executable, "-m", "regun", *audit], capture_output=True, check=True)
    assert json.loads(one.stdout) == several


def test_commands_that_run_in_one_process_say_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["methods"]) == BAD_INPUT
    assert "train" in capsys.readouterr().err
