"""A request that is stopped anywhere: either it has not happened or it has, and the ledger says which."""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from forked import PATIENCE, Forked
from small_project import EASY, QUICK, ids, project

import regun
import regun.deletion.folder as folder_room
from regun.deletion import Options, history, verify_folder
from regun.deletion.folder import commit, opened
from regun.deletion.ledger import read_ledger
from regun.errors import RegunError

PROJECT = f"{Path(__file__).parent / 'small_project.py'}:slow_project"
LENIENT = Options(accept=EASY, accept_untestable=True, bootstrap=20)


def start(out: Path, request: Path) -> Forked:
    how = ("--threads", "1", "--bootstrap", "20", "--json", "--accept-untestable")
    said = request.parent / "said"
    return Forked(said, "forget", "--project", PROJECT, "--ids", request, "--out", out, *how)


def state(out: Path) -> int:
    """How many requests have happened; all of them whole, whatever else lies about."""
    ledger = read_ledger(out / "ledger.jsonl")
    assert ledger.problems == []
    if (out / "ledger.jsonl").exists():
        found = dict(verify_folder(out))
        assert [c for some in found.values() for c in some if c.fine is False and "no intact line" not in c.note] == []
    return len(ledger.lines)


WHEN = ["working", "writing", "in place", "writing", "in place"]


def killed(process: Forked, out: Path, when: str, number: int, draw: random.Random) -> bool:
    """SIGKILL while it works, while its results are being written, or between their coming into place and the line;
    whether it came before the end."""
    sign = {"working": ".regun-lock", "writing": ".regun-new-*", "in place": f"requests/{number:04d}"}[when]
    deadline = time.monotonic() + PATIENCE
    while not any(out.glob(sign)) and process.running and time.monotonic() < deadline:
        time.sleep(0.0005)
    time.sleep(draw.uniform(0, {"working": 1.0, "writing": 0.03, "in place": 0.002}[when]))
    return process.kill() == -signal.SIGKILL


def test_killed_at_random_it_has_happened_or_not(tmp_path: Path) -> None:
    draw, out, request = random.Random(7), tmp_path / "out", tmp_path / "ids.txt"
    request.write_text("\n".join(ids()[:10]))
    kills = 0
    for when in WHEN:
        before = state(out)
        kills += killed(start(out, request), out, when, before + 1, draw)
        after = state(out)
        assert after in (before, before + 1)
        if after > before:  # it had happened: the next request is another one
            request.write_text("\n".join(ids()[10 * (after + 1) : 10 * (after + 2)]))
    assert kills >= 3
    before = state(out)
    code, said, errors = start(out, request).ended()
    assert code == 0, errors
    assert json.loads(said)["done"]
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
    """A request makes about a dozen writes, all of them when it is committed; a process that ends at any of them leaves
    the old state or the new one, and the next one goes on from there."""
    first, whole = tmp_path / "first", tmp_path / "whole"
    regun.forget(project(method=QUICK), regun.deletion_request(ids()[:5]), first, LENIENT)
    shutil.copytree(first, whole)
    with monkeypatch.context() as patch:
        calls = stop_at(patch, 0)
        done = regun.forget(project(method=QUICK), regun.deletion_request(ids()[5:10]), whole, LENIENT)
    assert calls.count("append") == calls.count("replace") == 1
    assert len(calls) >= 9
    line = history(whole)[1]
    files = {name: (done.folder / name).read_bytes() for name in line.files}

    def finish(out: Path) -> list[str]:
        """Commit the second request, unless it has happened; what had to be cleared up before."""
        with opened(out) as (folder, ledger, notes):
            if ledger.count == 1:
                commit(folder, line, files)
        return notes

    for call in range(1, len(calls) + 1):
        out = Path(shutil.copytree(first, tmp_path / str(call)))
        with monkeypatch.context() as patch:
            made = stop_at(patch, call)
            with pytest.raises(Stopped):
                finish(out)
            assert made == calls[:call], "the writes of a whole request"
        happened = state(out) == 2
        assert happened is (call > calls.index("append") + 1), "the line is the moment; after it, only syncing is left"
        notes = finish(out)
        assert state(out) == 2
        assert {p.name for p in (out / "requests").iterdir()} == {"0001", "0002"}
        assert bool(notes) is (not happened), notes


def test_a_torn_line_is_removed_and_said(tmp_path: Path) -> None:
    regun.forget(project(method=QUICK), regun.deletion_request(ids()[:5]), tmp_path, LENIENT)
    whole = (tmp_path / "ledger.jsonl").read_bytes()
    (tmp_path / "ledger.jsonl").write_bytes(whole + whole[:100])
    assert state(tmp_path) == 1
    notes: list[str] = []
    regun.forget(project(method=QUICK), regun.deletion_request(ids()[5:9]), tmp_path, LENIENT, on_note=notes.append)
    assert notes == ["an earlier run was stopped while adding its line to the ledger; the unfinished line is removed"]
    assert state(tmp_path) == 2
    assert (tmp_path / "ledger.jsonl").read_bytes().startswith(whole)


def test_a_folder_without_a_line_is_put_aside_and_not_thrown_away(tmp_path: Path) -> None:
    for wanted in (ids()[:5], ids()[5:9]):
        regun.forget(project(method=QUICK), regun.deletion_request(wanted), tmp_path, LENIENT)
    first, _ = (tmp_path / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "ledger.jsonl").write_bytes(first)
    receipt = (tmp_path / "requests/0002/receipt.json").read_bytes()
    notes: list[str] = []
    regun.forget(project(method=QUICK), regun.deletion_request(ids()[20:25]), tmp_path, LENIENT, on_note=notes.append)
    (kept,) = tmp_path.glob(".regun-aside-*")
    assert (kept / "receipt.json").read_bytes() == receipt
    assert notes == [f"requests/0002 has no line in the ledger and never took effect; it is now {kept}"]
    assert state(tmp_path) == 2


def two_requests(out: Path) -> bytes:
    for wanted in (ids()[:5], ids()[5:9]):
        regun.forget(project(method=QUICK), regun.deletion_request(wanted), out, LENIENT)
    return (out / "ledger.jsonl").read_bytes()


def test_a_ledger_that_is_lost_or_cut_by_several_lines_stops_the_next_request(tmp_path: Path) -> None:
    two_requests(tmp_path)
    third = project(method=QUICK), regun.deletion_request(ids()[20:25]), tmp_path, LENIENT
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
    again = project(method=QUICK), regun.deletion_request([*ids()[5:9], *ids()[30:32]]), tmp_path
    done = regun.forget(*again, LENIENT, on_note=notes.append)
    assert notes == ["line 2 of the ledger lacked only its newline; it is added, the line counts"]
    assert (done.plan.number, done.plan.matched.already) == (3, tuple(ids()[5:9]))
    assert (tmp_path / "ledger.jsonl").read_bytes().startswith(whole)
    assert state(tmp_path) == 3


def test_a_line_without_newline_and_whole_files_does_not_count(tmp_path: Path) -> None:
    whole = two_requests(tmp_path)
    (tmp_path / "ledger.jsonl").write_bytes(whole[:-1])
    (tmp_path / "requests/0002/risks.csv").unlink()
    regun.forget(project(method=QUICK), regun.deletion_request(ids()[5:9]), tmp_path, LENIENT)
    assert len(list(tmp_path.glob(".regun-aside-*"))) == 1
    assert state(tmp_path) == 2


def test_verify_names_what_was_put_aside(tmp_path: Path) -> None:
    first = two_requests(tmp_path).splitlines(keepends=True)[0]
    (tmp_path / "ledger.jsonl").write_bytes(first)
    regun.forget(project(method=QUICK), regun.deletion_request(ids()[20:25]), tmp_path, LENIENT)
    (kept,) = tmp_path.glob(".regun-aside-*")
    (check,) = [c for _, some in verify_folder(tmp_path) for c in some if c.fine is False]
    assert check.what == kept.name
    assert "is a finished request put aside" in check.note
