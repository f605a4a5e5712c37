"""The ledger: every change is found and named by its line; a torn end never counts."""

import hashlib
import json
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expect import error
from regun.deletion.ledger import BEGINNING, LedgerLine, append, check_intact, parse_line, read_ledger
from regun.errors import RegunError

ONE = LedgerLine(
    number=1,
    time="2026-11-01T00:00:00+00:00",
    status="accepted",
    pseudonyms="plain",
    request="r",
    base="b",
    before="b",
    after="a",
    data="d",
    ids="given",
    signer="",
    files={"receipt.json": "0" * 64},
)


@lru_cache
def lines_of(path: Path, count: int) -> tuple[bytes, ...]:
    path.unlink(missing_ok=True)
    for number in range(1, count + 1):
        status = "rejected" if number == 2 else "accepted"
        append(path, ONE._replace(number=number, status=status, after=f"a{number}", previous=read_ledger(path).tip))
    return tuple(path.read_bytes().split(b"\n")[:-1])


def write(path: Path, count: int) -> tuple[bytes, ...]:
    """Write a ledger of `count` lines."""
    lines = lines_of(path, count)
    path.write_bytes(b"\n".join([*lines, b""]))
    return lines


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger") / "ledger.jsonl"


def test_what_was_written_is_read(place: Path) -> None:
    write(place, 3)
    ledger = read_ledger(place)
    assert (len(ledger.lines), ledger.problems, ledger.torn) == (3, (), b"")
    assert ledger.current == ledger.lines[2]
    assert ledger.lines[0].previous == BEGINNING
    assert read_ledger(place.parent / "none").lines == ()
    check_intact(ledger, place)


@settings(deadline=None)
@given(st.data())
def test_a_changed_byte_is_found_in_its_line(place: Path, data: st.DataObject) -> None:
    lines = write(place, 3)
    content = b"\n".join(lines) + b"\n"
    at = data.draw(st.integers(0, len(content) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != content[at]))
    place.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
    line = content[:at].count(b"\n") + 1
    assert any(f"line {line} " in problem for problem in read_ledger(place).problems)
    with error(RegunError, place, line):
        check_intact(read_ledger(place), place)


@settings(deadline=None)
@given(st.data())
def test_lines_removed_or_moved_are_found(place: Path, data: st.DataObject) -> None:
    lines = write(place, 4)
    order = data.draw(st.permutations(range(4)).filter(lambda order: list(order) != [0, 1, 2, 3]))
    for rest in (order, [n for n in range(4) if n != order[0]] if order[0] != 3 else order):
        place.write_bytes(b"".join(lines[n] + b"\n" for n in rest))
        assert read_ledger(place).problems


def test_a_line_rewritten_with_a_fresh_hash_breaks_the_next_one(place: Path) -> None:
    lines = write(place, 3)
    line = read_ledger(place).lines[1]._replace(status="accepted")
    place.write_bytes(b"\n".join([lines[0], line.text().encode(), lines[2], b""]))
    (problem,) = read_ledger(place).problems
    assert "line 3" in problem


@settings(deadline=None)
@given(st.data())
def test_a_torn_end_never_counts(place: Path, data: st.DataObject) -> None:
    lines = write(place, 3)
    whole = b"\n".join(lines[:2]) + b"\n"
    torn = lines[2][: data.draw(st.integers(1, len(lines[2]) - 1))]
    place.write_bytes(whole + torn)
    ledger = read_ledger(place)
    assert (len(ledger.lines), ledger.problems, ledger.torn) == (2, (), torn)


def test_a_whole_line_counts_without_its_newline(place: Path) -> None:
    lines = write(place, 3)
    place.write_bytes(b"\n".join(lines))
    ledger = read_ledger(place)
    assert (len(ledger.lines), ledger.problems, ledger.torn, ledger.ended) == (3, (), b"", False)
    place.write_bytes(lines[0] + b"\n" + lines[2])
    assert read_ledger(place).problems, "it does not follow"


def test_other_bytes_at_the_end_are_damage(place: Path) -> None:
    lines = write(place, 3)
    place.write_bytes(b"\n".join(lines) + b"\n# to do: call Ann")
    assert any("line 4" in problem for problem in read_ledger(place).problems)


@pytest.mark.timeout(120)
def test_a_long_ledger_is_read(tmp_path: Path) -> None:
    """A line costs the same wherever it stands (benchmarks/ledger.py has the speed)."""
    path, tip = tmp_path / "ledger.jsonl", BEGINNING
    with path.open("wb") as file:
        for number in range(1, 10_001):
            line = ONE._replace(number=number, previous=tip)
            tip = line.hash
            file.write(line.text().encode() + b"\n")
    ledger = read_ledger(path)
    assert (len(ledger.lines), ledger.tip, ledger.problems) == (10_000, tip, ())


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"after":', '"after": ', 1),
        lambda text: text.replace('{"after"', '{"after":"x","after"', 1),
        lambda text: text.replace("accepted", "\\u0061ccepted", 1),
        lambda text: text.replace('"number":1', '"number":1.0', 1),
        lambda text: text.replace('{"after"', '{"aa":"x","after"', 1),
        lambda text: text.replace('"ids":"given",', "", 1),
    ],
)
def test_a_line_has_one_form_only(change) -> None:
    """Also under a hash that fits: what two readers might read differently is no line."""
    forged = change(ONE.text())
    assert forged != ONE.text()
    assert parse_line(forged.encode()) is None
    fields = json.loads(forged)
    del fields["hash"]
    body = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    fitting = forged.replace(ONE.hash, hashlib.sha256(body.encode()).hexdigest())
    assert parse_line(fitting.encode()) is None


@pytest.mark.parametrize(
    "change", [{"number": "1"}, {"number": True}, {"status": 3}, {"status": "approved"}, {"time": None}, {"ids": []}]
)
def test_fields_of_another_type_are_no_line(change: dict) -> None:
    assert parse_line(ONE._replace(**change).text().encode()) is None


@pytest.mark.parametrize("line", [b"", b"[]", b"3", b"{}", b"\xff", b'{"number": 1}', b"[" * 100_000])
def test_what_is_no_line(place: Path, line: bytes) -> None:
    place.write_bytes(line + b"\n")
    (problem,) = read_ledger(place).problems
    assert "line 1" in problem
