"""A request that is stopped anywhere: either it has not happened or it has, and the ledger says which."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_project import EASY, QUICK, ids, project

import regun
import regun.requests.folder as folder_room
from regun.errors import RegunError
from regun.requests import Options, verify_folder
from regun.requests.ledger import read_ledger

PROJECT = f"{Path(__file__).parent / 'small_project.py'}:slow_project"
PATIENCE = 120


def start(out: Path, request: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "regun.cli", "forget", "--project", PROJECT, "--ids", str(request)]
    command += ["--out", str(out), "--threads", "1", "--bootstrap", "20", "--json", "--accept-untestable"]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[dict, str]:
    out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return json.loads(out), errors


def state(out: Path) -> int:
    """How many requests have happened; all of them whole, whatever else lies about."""
    ledger = read_ledger(out / "ledger.jsonl")
    assert ledger.problems == []
    if (out / "ledger.jsonl").exists():
        found = dict(verify_folder(out))
        assert [c for some in found.values() for c in some if c.fine is False and "no intact line" not in c.note] == []
    return len(ledger.lines)


WHEN = ["working", "writing", "in place", "writing", "in place"]


def kill(process: subprocess.Popen[str], out: Path, when: str, number: int, draw: random.Random) -> None:
    """SIGKILL while it works, while its results are being written, or between their coming into place and the line."""
    sign = {"working": ".regun-lock", "writing": ".regun-new-*", "in place": f"requests/{number:04d}"}[when]
    deadline = time.monotonic() + PATIENCE
    while not any(out.glob(sign)) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.0005)
    time.sleep(draw.uniform(0, {"working": 1.0, "writing": 0.03, "in place": 0.002}[when]))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE)


def test_killed_at_random_it_has_happened_or_not(tmp_path: Path) -> None:
    draw, out, request = random.Random(7), tmp_path / "out", tmp_path / "ids.txt"
    request.write_text("\n".join(ids()[:10]))
    kills = 0
    for when in WHEN:
        before = state(out)
        process = start(out, request)
        kill(process, out, when, before + 1, draw)
        kills += process.returncode == -signal.SIGKILL
        after = state(out)
        assert after in (before, before + 1)
        if after > before:  # it had happened: the next request is another one
            request.write_text("\n".join(ids()[10 * (after + 1) : 10 * (after + 2)]))
    assert kills >= 3
    before = state(out)
    report, _ = finish(start(out, request))
    assert report["done"]
    assert state(out) == before + 1
    assert list(out.glob(".regun-new-*")) == []
    assert {p.name for p in (out / "requests").iterdir()} == {f"{n:04d}" for n in range(1, before + 2)}


class Stopped(BaseException):
    """Stands for a kill: nothing may catch it."""


def stop_at(monkeypatch: pytest.MonkeyPatch, call: int) -> list[str]:
    """Every write to disk counts; the `call`-th one is where the process ends."""
    made: list[str] = []

    def counted(name: str, real):
        def run(*args, **more):
            made.append(name)
            if len(made) == call:
                raise Stopped
            return real(*args, **more)

        return run

    for room, name in ((os, "fsync"), (os, "replace"), (folder_room, "append")):
        monkeypatch.setattr(room, name, counted(name, getattr(room, name)))
    return made


def test_stopped_before_each_write_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit makes about a dozen writes; a process that ends at any of them leaves the old state or the new one."""

    def run(out: Path, wanted: list[str]) -> list[str]:
        notes: list[str] = []
        options = Options(accept=EASY, accept_untestable=True, bootstrap=20)
        regun.forget(project(method=QUICK), regun.asked_of(wanted), out, options, on_note=notes.append)
        return notes

    with monkeypatch.context() as patch:
        calls = stop_at(patch, 0)
        run(tmp_path / "count", ids()[:5])
    assert calls.count("append") == calls.count("replace") == 1
    assert len(calls) >= 9
    for call in range(1, len(calls) + 1):
        out = tmp_path / str(call)
        run(out, ids()[:5])
        with monkeypatch.context() as patch:
            stop_at(patch, call)
            with pytest.raises(Stopped):
                run(out, ids()[5:10])
        happened = state(out) == 2
        assert happened is (call > calls.index("append") + 1), "the line is the moment; after it, only syncing is left"
        notes = run(out, ids()[5:10])
        assert state(out) == 2
        assert {p.name for p in (out / "requests").iterdir()} == {"0001", "0002"}
        assert bool(notes) is (not happened), notes


def test_a_torn_line_is_removed_and_said(tmp_path: Path) -> None:
    options = Options(accept=EASY, accept_untestable=True, bootstrap=20)
    regun.forget(project(method=QUICK), regun.asked_of(ids()[:5]), tmp_path, options)
    whole = (tmp_path / "ledger.jsonl").read_bytes()
    (tmp_path / "ledger.jsonl").write_bytes(whole + whole[:100])
    assert state(tmp_path) == 1
    notes: list[str] = []
    regun.forget(project(method=QUICK), regun.asked_of(ids()[5:9]), tmp_path, options, on_note=notes.append)
    assert notes == ["an earlier run was stopped while adding its line to the ledger; the unfinished line is removed"]
    assert state(tmp_path) == 2
    assert (tmp_path / "ledger.jsonl").read_bytes().startswith(whole)


def test_a_folder_without_a_line_is_put_aside_and_not_thrown_away(tmp_path: Path) -> None:
    options = Options(accept=EASY, accept_untestable=True, bootstrap=20)
    for wanted in (ids()[:5], ids()[5:9]):
        regun.forget(project(method=QUICK), regun.asked_of(wanted), tmp_path, options)
    first, _ = (tmp_path / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "ledger.jsonl").write_bytes(first)
    receipt = (tmp_path / "requests/0002/receipt.json").read_bytes()
    notes: list[str] = []
    regun.forget(project(method=QUICK), regun.asked_of(ids()[20:25]), tmp_path, options, on_note=notes.append)
    (kept,) = tmp_path.glob(".regun-aside-*")
    assert (kept / "receipt.json").read_bytes() == receipt
    assert notes == [f"requests/0002 has no line in the ledger and never took effect; it is now {kept}"]
    assert state(tmp_path) == 2


def two_requests(out: Path) -> bytes:
    for wanted in (ids()[:5], ids()[5:9]):
        regun.forget(
            project(method=QUICK),
            regun.asked_of(wanted),
            out,
            Options(accept=EASY, accept_untestable=True, bootstrap=20),
        )
    return (out / "ledger.jsonl").read_bytes()


def test_a_ledger_that_is_lost_or_cut_by_several_lines_stops_the_next_request(tmp_path: Path) -> None:
    two_requests(tmp_path)
    third = (
        project(method=QUICK),
        regun.asked_of(ids()[20:25]),
        tmp_path,
        Options(accept=EASY, accept_untestable=True, bootstrap=20),
    )
    (tmp_path / "ledger.jsonl").write_bytes(b"")
    with pytest.raises(RegunError, match=r"0002 is a finished request and the ledger .* lost or cut short after 0 lin"):
        regun.forget(*third)
    (tmp_path / "ledger.jsonl").unlink()
    with pytest.raises(RegunError, match="restore the ledger from a copy"):
        regun.forget(*third)
    shutil.rmtree(tmp_path / "requests/0002")
    with pytest.raises(RegunError, match="0001 is a finished request and the ledger"):
        regun.forget(*third)
    assert (tmp_path / "requests/0001/receipt.json").exists()


def test_a_line_that_lacks_only_its_newline_counts(tmp_path: Path) -> None:
    whole = two_requests(tmp_path)
    (tmp_path / "ledger.jsonl").write_bytes(whole[:-1])
    notes: list[str] = []
    again = project(method=QUICK), regun.asked_of([*ids()[5:9], *ids()[30:32]]), tmp_path
    done = regun.forget(*again, Options(accept=EASY, accept_untestable=True, bootstrap=20), on_note=notes.append)
    assert notes == ["line 2 of the ledger lacked only its newline; it is added, the line counts"]
    assert (done.plan.number, done.plan.matched.already) == (3, tuple(ids()[5:9]))
    assert (tmp_path / "ledger.jsonl").read_bytes().startswith(whole)
    assert state(tmp_path) == 3


def test_a_line_without_newline_and_whole_files_does_not_count(tmp_path: Path) -> None:
    whole = two_requests(tmp_path)
    (tmp_path / "ledger.jsonl").write_bytes(whole[:-1])
    (tmp_path / "requests/0002/risks.csv").unlink()
    regun.forget(
        project(method=QUICK),
        regun.asked_of(ids()[5:9]),
        tmp_path,
        Options(accept=EASY, accept_untestable=True, bootstrap=20),
    )
    assert len(list(tmp_path.glob(".regun-aside-*"))) == 1
    assert state(tmp_path) == 2


def test_verify_names_what_was_put_aside(tmp_path: Path) -> None:
    first = two_requests(tmp_path).splitlines(keepends=True)[0]
    (tmp_path / "ledger.jsonl").write_bytes(first)
    regun.forget(
        project(method=QUICK),
        regun.asked_of(ids()[20:25]),
        tmp_path,
        Options(accept=EASY, accept_untestable=True, bootstrap=20),
    )
    (kept,) = tmp_path.glob(".regun-aside-*")
    (check,) = [c for _, some in verify_folder(tmp_path) for c in some if c.fine is False]
    assert check.what == kept.name
    assert "is a finished request put aside" in check.note
