"""Makes `tests/toys.py` importable from every test folder, hypothesis repeatable where a run decides something; and
the surroundings of commands."""

import os
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from regun.cli import main

for folder in (".", "experiments/study", "experiments/report", "parallel", "deletion"):
    sys.path.insert(0, str(Path(__file__).parent / folder))

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture
def plain_surroundings(monkeypatch: pytest.MonkeyPatch):
    """No settings from the environment, and the number of threads as it was."""
    monkeypatch.delenv("REGUN_STORE", raising=False)
    monkeypatch.delenv("REGUN_DATA", raising=False)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str]):
    """Run a command on the store of `home`; its exit code, output and errors."""

    def call(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*args, *([] if "--store" in args else ["--store", str(home / "store")])])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call
