"""Two `regun forget` on one folder at the same time, each stopped where the other one is to catch up: what comes out is
what would have come out one after the other, or the second is refused and nothing has happened."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked import PATIENCE, Forked
from small_project import failed, ids, meeting_project

import regun
from regun.deletion import Options, history, verify_folder

PROJECT = f"{Path(__file__).parent / 'small_project.py'}:meeting_project"
Start = Callable[[str, list[str]], Forked]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a request under a name; whatever is left at the end is ended."""
    started: list[Forked] = []

    def begin(name: str, wanted: list[str]) -> Forked:
        (tmp_path / f"{name}.txt").write_text("\n".join(wanted))
        request = ["forget", "--project", PROJECT, "--ids", tmp_path / f"{name}.txt", "--out", tmp_path / "out"]
        how = ["--bootstrap", "20", "--threads", "1", "--accept-inconclusive"]
        started.append(Forked(tmp_path / "said", *request, *how, MEETING=str(tmp_path), NAME=name))
        return started[-1]

    yield begin
    for process in started:
        process.kill()


def reached(tmp_path: Path, mark: str, process: Forked) -> None:
    """Wait until a process has got somewhere."""
    deadline = time.monotonic() + PATIENCE
    while not (tmp_path / mark).exists():
        assert process.running, process.ended()
        assert time.monotonic() < deadline, mark
        time.sleep(0.01)


def go(tmp_path: Path, *marks: str) -> None:
    for mark in marks:
        (tmp_path / f"{mark}-go").touch()


def in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *requests: list[str]) -> list[str]:
    """The digests of the models that the same requests lead to, one after the other."""
    monkeypatch.setenv("MEETING", str(tmp_path))
    monkeypatch.setenv("NAME", "first")  # who may pass everywhere by now
    options = Options(accept_inconclusive=True, bootstrap=20)
    for wanted in requests:
        regun.forget(meeting_project(), regun.DeletionRequest.of(wanted), tmp_path / "turn", options)
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
    assert first.ended()[0] == 0
    assert [line.status for line in history(out)] == ["accepted inconclusive"]
    assert (second.running, third.running) == (True, True)
    go(tmp_path, "second-planned", "second-working")
    code, said, _ = second.ended()
    assert code == 0
    assert said.index("10 ids") < said.index("5 ids"), "what it planned first, and what it did"
    go(tmp_path, "third-planned")
    assert third.ended()[0] == 0
    lines = history(out)
    assert [line.number for line in lines] == [1, 2]
    assert lines[1].before == lines[0].after
    assert failed(verify_folder(out)) == []
    assert [line.after for line in lines] == in_turn(tmp_path, monkeypatch, one, two)


def test_the_second_is_refused_while_the_first_is_at_work(tmp_path: Path, start: Start) -> None:
    out = tmp_path / "out"
    first = start("first", ids()[:10])
    go(tmp_path, "first-planned", "second-planned", "second-working")
    reached(tmp_path, "first-working", first)
    second = start("second", ids()[10:20])
    code, _, errors = second.ended()
    assert (code, first.running) == (2, True), "the first was at work all the while"
    assert str(out) in errors
    assert not (out / "ledger.jsonl").exists()
    go(tmp_path, "first-working")
    assert first.ended()[0] == 0
    assert start("second", ids()[10:20]).ended()[0] == 0
    lines = history(out)
    assert len(lines) == 2
    assert lines[1].before == lines[0].after
    assert failed(verify_folder(out)) == []
