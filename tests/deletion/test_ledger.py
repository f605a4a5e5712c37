"""The ledger: whatever is changed in it is found and named by its line; a torn end never counts."""

import hashlib
import json
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regun.deletion.ledger import BEGINNING, LedgerLine, append, check_damaged, drop_torn_line, read_ledger
from regun.errors import RegunError

ONE = LedgerLine(
    1, "2026-11-01T00:00:00+00:00", "accepted", "plain", "r", "b", "b", "a", "d", "given", {"receipt.json": "0" * 64}
)


@lru_cache
def lines_of(path: Path, count: int) -> tuple[bytes, ...]:
    path.unlink(missing_ok=True)
    for number in range(1, count + 1):
        status = "rejected" if number == 2 else "accepted"
        append(path, ONE._replace(number=number, status=status, after=f"a{number}", previous=read_ledger(path).tip))
    return tuple(path.read_bytes().split(b"\n")[:-1])


def written(path: Path, count: int) -> tuple[bytes, ...]:
    """A ledger of `count` entries; its lines."""
    lines = lines_of(path, count)
    path.write_bytes(b"\n".join([*lines, b""]))
    return lines


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger") / "ledger.jsonl"


def test_what_was_written_is_read(place: Path) -> None:
    written(place, 3)
    ledger = read_ledger(place)
    assert (len(ledger.lines), ledger.problems, ledger.torn) == (3, [], b"")
    assert [line.number for line in ledger.accepted] == [1, 3]
    assert ledger.lines[0].previous == BEGINNING
    assert read_ledger(place.parent / "none").lines == []
    check_damaged(ledger, place)


@settings(deadline=None)  # the disk is not always quick
@given(st.data())
def test_a_changed_byte_is_found_in_its_line(place: Path, data: st.DataObject) -> None:
    lines = written(place, 3)
    content = b"\n".join(lines) + b"\n"
    at = data.draw(st.integers(0, len(content) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != content[at]))
    place.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
    line = content[:at].count(b"\n") + 1
    assert any(f"line {line} " in problem for problem in read_ledger(place).problems)
    with pytest.raises(RegunError, match="is not as it was written: ledger.jsonl line"):
        check_damaged(read_ledger(place), place)


@settings(deadline=None)  # the disk is not always quick
@given(st.data())
def test_lines_taken_out_or_moved_are_found(place: Path, data: st.DataObject) -> None:
    lines = written(place, 4)
    order = data.draw(st.permutations(range(4)).filter(lambda order: list(order) != [0, 1, 2, 3]))
    for kept in (order, [n for n in range(4) if n != order[0]] if order[0] != 3 else order):
        place.write_bytes(b"".join(lines[n] + b"\n" for n in kept))
        assert read_ledger(place).problems


def test_a_line_rewritten_with_a_fresh_digest_breaks_the_next_one(place: Path) -> None:
    lines = written(place, 3)
    line = read_ledger(place).lines[1]._replace(status="accepted")
    place.write_bytes(b"\n".join([lines[0], line.text().encode(), lines[2], b""]))
    (problem,) = read_ledger(place).problems
    assert problem == (
        "ledger.jsonl line 3 does not follow from the line before it: line 2 was changed, moved or taken out."
    )


@settings(deadline=None)  # the disk is not always quick
@given(st.data())
def test_a_torn_end_never_counts(place: Path, data: st.DataObject) -> None:
    lines = written(place, 3)
    whole = b"\n".join(lines[:2]) + b"\n"
    torn = lines[2][: data.draw(st.integers(1, len(lines[2])))]
    place.write_bytes(whole + torn)
    ledger = read_ledger(place)
    assert (len(ledger.lines), ledger.problems, ledger.torn) == (2, [], torn)
    drop_torn_line(place, len(ledger.torn))
    assert place.read_bytes() == whole


@pytest.mark.timeout(120)
def test_a_long_ledger_is_read(tmp_path: Path) -> None:
    """A line costs the same wherever it stands (benchmarks/ledger.py has the speed)."""
    path, tip = tmp_path / "ledger.jsonl", BEGINNING
    with path.open("wb") as file:
        for number in range(1, 20_001):
            line = ONE._replace(number=number, previous=tip)
            tip = line.hash()
            file.write(line.text().encode() + b"\n")
    ledger = read_ledger(path)
    assert (ledger.count, ledger.tip, ledger.problems) == (20_000, tip, [])


def test_a_line_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_bytes(ONE.text().encode() + b"\n" + b'{"after":"' + b"a" * 3_000_000 + b"\n")
    assert read_ledger(tmp_path / "ledger.jsonl").problems == [
        "ledger.jsonl line 2 is nothing that regun began to write."
    ]


@pytest.mark.parametrize(
    "other",
    [
        lambda line: line.replace('"after":', '"after": ', 1),
        lambda line: line.replace('{"after"', '{"after":"x","after"', 1),
        lambda line: line.replace("accepted", "\\u0061ccepted", 1),
        lambda line: line.replace('"number":1', '"number":01', 1),
        lambda line: line.replace('{"receipt.json"', '{"b":"2","a":"1","receipt.json"', 1),
        lambda line: line.replace('"files":{', '"files":{,', 1),
    ],
)
def test_a_line_has_one_form_only(place: Path, other) -> None:
    """Also under a digest that fits its bytes: what two readers might read differently is no line."""
    start, mark, _ = other(ONE.text()).rpartition(',"~digest":"')
    forged = f'{start}{mark}{hashlib.sha256((start + "}").encode()).hexdigest()}"}}'
    assert start != ONE.text().rpartition(mark)[0]
    place.write_text(forged + "\n")
    assert read_ledger(place).lines == []


def test_lines_that_are_no_entries(place: Path) -> None:
    for line in (b"", b"[]", b"3", b"{}", b"\xff", json.dumps({"number": 1}).encode(), b"[" * 100_000):
        place.write_bytes(line + b"\n")
        (problem,) = read_ledger(place).problems
        assert problem == "ledger.jsonl line 1 was changed: it cannot be read as an entry."


@pytest.mark.parametrize("change", [{"number": "1"}, {"number": True}, {"status": 3}, {"time": None}, {"ids": []}])
def test_fields_of_another_kind_are_no_entry(place: Path, change: dict) -> None:
    """Also under a digest that fits."""
    place.write_bytes(ONE._replace(**change).text().encode() + b"\n")
    assert "ledger.jsonl line 1 was changed: it cannot be read as an entry." in read_ledger(place).problems


def test_a_whole_line_without_newline_is_known_as_such(place: Path) -> None:
    lines = written(place, 3)
    place.write_bytes(b"\n".join(lines))
    ledger = read_ledger(place)
    assert (len(ledger.lines), ledger.unended and ledger.unended.number) == (2, 3)
    place.write_bytes(lines[0] + b"\n" + lines[2])
    assert read_ledger(place).unended is None, "it does not follow"
