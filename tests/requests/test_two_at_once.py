"""Two `regun forget` on one folder at the same time, each stopped where the other one is to catch up: what comes out is
what would have come out one after the other, or the second is refused and nothing has happened."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from small_project import ids, meeting_project

import regun
from regun.requests import Options, history, verify_folder

PROJECT = f"{Path(__file__).parent / 'small_project.py'}:meeting_project"
PATIENCE = 120
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a request under a name; whatever is left at the end is ended."""
    running: list[subprocess.Popen[str]] = []

    def begin(name: str, wanted: list[str]) -> subprocess.Popen[str]:
        (tmp_path / f"{name}.txt").write_text("\n".join(wanted))
        command = [sys.executable, "-m", "regun.cli", "forget", "--project", PROJECT, "--ids", tmp_path / f"{name}.txt"]
        command += ["--out", tmp_path / "out", "--bootstrap", "20", "--threads", "1", "--accept-untestable"]
        around = {**os.environ, "MEETING": str(tmp_path), "NAME": name, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            list(map(str, command)), env=around, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def reached(tmp_path: Path, mark: str, process: subprocess.Popen[str]) -> None:
    """Wait until a process has got somewhere."""
    deadline = time.monotonic() + PATIENCE
    while not (tmp_path / mark).exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, mark
        time.sleep(0.01)


def go(tmp_path: Path, *marks: str) -> None:
    for mark in marks:
        (tmp_path / f"{mark}-go").touch()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, out, errors


def in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *requests: list[str]) -> list[str]:
    """The digests of the models that the same requests lead to, one after the other."""
    monkeypatch.setenv("MEETING", str(tmp_path))
    monkeypatch.setenv("NAME", "first")  # who may pass everywhere by now
    options = Options(accept_untestable=True, bootstrap=20)
    for wanted in requests:
        regun.forget(meeting_project(), regun.asked_of(wanted), tmp_path / "turn", options)
    return [line.after for line in history(tmp_path / "turn")]


def test_all_plan_first_and_each_goes_on_from_what_the_one_before_has_left(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have seen an empty ledger; each finds the lines of those before it when its turn comes."""
    one, two, out = ids()[:10], ids()[5:15], tmp_path / "out"
    first, second, third = start("first", one), start("second", two), start("third", one[:4])
    for name, process in (("first", first), ("second", second), ("third", third)):
        reached(tmp_path, f"{name}-planned", process)
    assert not (out / "ledger.jsonl").exists(), "all are at work, and nothing has happened yet"
    go(tmp_path, "first-planned", "first-working")
    assert ended(first)[0] == 0
    assert [line.status for line in history(out)] == ["accepted untestable"]
    assert (second.poll(), third.poll()) == (None, None)
    go(tmp_path, "second-planned", "second-working")
    code, said, _ = ended(second)
    assert code == 0
    assert "10 ids to forget (10 training examples)\n" in said, "what it planned first"
    assert "5 ids to forget (5 training examples)\n  5 already forgotten by an earlier request" in said, "what it did"
    go(tmp_path, "third-planned")
    code, said, _ = ended(third)
    assert (code, "Nothing to do: every id that is known is already forgotten." in said) == (0, True)
    lines = history(out)
    assert [line.number for line in lines] == [1, 2]
    assert lines[1].before == lines[0].after
    assert all(check.fine is not False for _, some in verify_folder(out) for check in some)
    assert [line.after for line in lines] == in_turn(tmp_path, monkeypatch, one, two)


def test_the_second_is_refused_while_the_first_is_at_work(tmp_path: Path, start: Start) -> None:
    out = tmp_path / "out"
    first = start("first", ids()[:10])
    go(tmp_path, "first-planned", "second-planned", "second-working")
    reached(tmp_path, "first-working", first)
    second = start("second", ids()[10:20])
    code, _, errors = ended(second)
    assert (code, first.poll()) == (2, None), "the first was at work all the while"
    assert f"another regun forget is at work in {out}; wait until it has ended." in errors
    assert not (out / "ledger.jsonl").exists()
    go(tmp_path, "first-working")
    assert ended(first)[0] == 0
    assert ended(start("second", ids()[10:20]))[0] == 0
    lines = history(out)
    assert len(lines) == 2
    assert lines[1].before == lines[0].after
    assert all(check.fine is not False for _, some in verify_folder(out) for check in some)
