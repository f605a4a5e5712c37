"""Reading a deletion request: every form, all text taken as text, every mistake named."""

import csv
import io
import json
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expect import error
from regun import DeletionRequest
from regun.deletion import RequestedRecord, read_request_file
from regun.deletion.plan import match_records
from regun.deletion.pseudonyms import Pseudonyms
from regun.deletion.request import deadline, month_after, read_day
from regun.errors import DataError, RegunError

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=30).map(str.strip)
DAY = st.dates(date(1990, 1, 1), date(2026, 1, 1)).map(date.isoformat) | st.just("")
IDS = st.lists(TEXT.filter(bool), min_size=1, max_size=8)


def read(tmp_path: Path, name: str, content: str | bytes) -> DeletionRequest:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_request_file(path)


@settings(deadline=None)
@given(st.lists(st.tuples(TEXT.filter(bool), TEXT, TEXT, DAY, st.just("")), min_size=1, max_size=6))
def test_csv_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, ...]]) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(["received", "id", "name", "requester", "reason"])
    writer.writerows([[day, one, "Ann", requester, reason] for one, reason, requester, day, _ in rows])
    request = read(tmp_path_factory.mktemp("ids"), "a.csv", out.getvalue())
    assert request.records == tuple(RequestedRecord(*row) for row in rows)
    assert request.ignored_columns == ("name",)


@settings(deadline=None)
@given(IDS)
def test_text_and_json_give_the_same_ids(tmp_path_factory: pytest.TempPathFactory, ids: list[str]) -> None:
    folder = tmp_path_factory.mktemp("ids")
    plain = read(folder, "a.txt", "\n".join([*ids, "", "  "]))
    listed = read(folder, "a.json", json.dumps(ids))
    objects = read(folder, "b.json", json.dumps([{"id": one} for one in ids]))
    assert plain == listed == objects == DeletionRequest.of(ids)


@given(IDS, st.lists(TEXT.filter(bool), max_size=5), st.sets(st.integers(0, 7)))
def test_every_record_ends_in_one_group(ids: list[str], others: list[str], earlier: set[int]) -> None:
    forgotten = {ids[n] for n in earlier if n < len(ids)}
    request = DeletionRequest.of([*ids, *others, ids[0]])
    matched = match_records(request, {"train": ids[::2], "heldout": ids[1::2]}, forgotten, Pseudonyms())
    unseen = [one for some in matched.unseen.values() for one in some]
    groups = [{record.id for record in matched.records}, set(matched.already), set(matched.unknown), set(unseen)]
    different = {record.id for record in request.records}
    assert sum(map(len, groups)) == len(set().union(*groups)) == len(different)
    assert groups[0] == set(ids[::2]) - forgotten
    assert set(matched.unknown) == set(others) - set(ids)
    assert len(matched.duplicate) == len(request.records) - len(different)


def test_numbers_semicolons_marks_and_shared_reasons(tmp_path: Path) -> None:
    assert [one.id for one in read(tmp_path, "a.json", '[7, "7", "07"]').records] == ["7", "7", "07"]
    excel = "\ufeffID;Reason\r\n7;moved away\r\n"
    assert read(tmp_path, "a.csv", excel).records == (RequestedRecord("7", "moved away"),)
    shared = {"ids": [1, {"id": "b", "reason": "own"}], "reason": "art. 17", "received": "2025-11-01"}
    assert read(tmp_path, "b.json", json.dumps(shared)).records == (
        RequestedRecord("1", "art. 17", "", "2025-11-01"),
        RequestedRecord("b", "own", "", "2025-11-01"),
    )
    assert DeletionRequest.of([1]).with_defaults("why", "who").records == (RequestedRecord("1", "why", "who"),)


BAD = {
    ("a.csv", "name,reason\nx,y\n"): ("id", "reason", "requester", "received", "due", "name"),
    ("b.csv", ""): ("id", "nothing"),
    ("c.csv", "id,reason\n ,why\n"): ("2", "id"),
    ("d.csv", "id\n" + "x" * 1001): ("2", "1,001", "1,000"),
    ("e.csv", "id,ID\n7,8\n"): ("id",),
    ("f.csv", "id\n"): ("id",),
    ("g.csv", 'id,reason\n7,"moved away\n8,also\n'): ("3", "CSV"),
    ("h.csv", 'id,reason\n7,"moved" away\n'): ("2", "CSV"),
    ("i.csv", "id,reason\n7,moved\n8,moved, far away\n"): ("3", "header"),
    ("j.csv", "id,due\n7,30.11.2026\n"): ("2", "due", "30.11.2026"),
    ("k.csv", "id,received\n7,2999-01-01\n"): ("2", "received", "2999-01-01"),
    ("l.csv", "id,received,due\n7,2025-03-02,2025-03-01\n"): ("2", "2025-03-01", "2025-03-02"),
    ("m.csv", "id,received\n7,0001-01-01\n"): ("2", "received", "0001-01-01"),
    ("a.json", "[1, 2"): ("JSON",),
    ("b.json", "3"): ("JSON", "list"),
    ("c.json", "[1.5]"): ("1", "float"),
    ("d.json", "[true]"): ("1", "bool"),
    ("e.json", '["a", ""]'): ("2", "id"),
    ("f.json", '[{"reason": "x"}]'): ("1", "id"),
    ("g.json", '[{"id": 1, "reason": ["x"]}]'): ("1", "reason", "list"),
    ("h.json", '[{"id": 1, "received": "yesterday"}]'): ("1", "received", "yesterday"),
    ("i.json", '{"ids": [1], "ids": [2]}'): ("ids",),
    ("j.json", '[{"id": 1, "id": 2}]'): ("id",),
    ("a.txt", "\n \n"): ("id",),
    ("b.txt", b"\xff\xfe7\x00"): ("UTF-8", "0"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content"), BAD, ids=[name for name, _ in BAD])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, content: str | bytes) -> None:
    with error(RegunError, *BAD[name, content]) as caught:
        read(tmp_path, name, content)
    assert name in str(caught.value)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Noise, and files that are right but for some bytes."""
    right = st.sampled_from(
        [b"id,reason\r\n7,'a'\n8,\"b, c\"\n", b'{"ids": [1, {"id": "b"}], "reason": "r"}', b"7\n8\n"]
    )
    content = data.draw(st.binary(max_size=200) | right)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(content)))
        content = content[:at] + data.draw(st.binary(max_size=3)) + content[at + data.draw(st.integers(0, 2)) :]
    for name in ("a.csv", "a.json", "a.txt"):
        try:
            request = read(tmp_path_factory.getbasetemp(), name, content)
        except RegunError:
            continue
        assert all(record.id for record in request.records)


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with error(DataError, tmp_path / "nowhere.csv"):
        read_request_file(tmp_path / "nowhere.csv")


def test_empty_cells_beyond_the_header_are_ignored(tmp_path: Path) -> None:
    records = read(tmp_path, "c.csv", "id,reason\n7,moved,, \n8\n").records
    assert records == (RequestedRecord("7", "moved"), RequestedRecord("8"))


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_only_newlines_end_a_line(tmp_path: Path, sign: str) -> None:
    one = f"a{sign}b"
    records = read(tmp_path, "a.csv", f"id,reason\r\n{one},why{sign}so\r\nc,\r\n").records
    assert records == (RequestedRecord(one, f"why{sign}so"), RequestedRecord("c"))
    assert read(tmp_path, "a.txt", f"{one}\r\nc\n").records == (RequestedRecord(one), RequestedRecord("c"))


@pytest.mark.parametrize("name", ["reason", "requester", "received", "due"])
@pytest.mark.parametrize(("text", "got"), [("x" * 1001, "1,001"), (3, "int")])
def test_shared_texts_are_checked_like_cells(name: str, text: str, got: str) -> None:
    with error(DataError, name, got):
        DeletionRequest.of(["7"], **{name: text})
    with error(DataError, name, got):
        DeletionRequest.of(["7"]).with_defaults(**{name: text})


def test_a_single_text_is_no_list_of_ids() -> None:
    with error(DataError, "ids", "'12'"):
        DeletionRequest.of("12")


# --------------------------------------------------------------------------------------------------------------- dates


@pytest.mark.parametrize(
    ("days", "received", "due"),
    [
        ([("", "")], "2026-11-16", "2026-12-16"),
        ([("2026-10-31", "")], "2026-10-31", "2026-11-30"),
        ([("2026-01-30", ""), ("2026-01-20", "2026-03-01")], "2026-01-20", "2026-02-28"),
        ([("", "2026-11-20"), ("2026-11-01", "")], "2026-11-01", "2026-11-20"),
    ],
)
def test_a_request_is_as_old_as_its_oldest_record_and_due_with_the_first(days: list, received: str, due: str) -> None:
    dates = deadline(days, date(2026, 11, 16))
    assert (dates["received"], dates["due"], dates["done"]) == (received, due, "2026-11-16")
    assert dates["days_late"] == max(0, (date(2026, 11, 16) - date.fromisoformat(due)).days)


@given(st.dates(date(1970, 1, 1), date(2100, 1, 1)))
def test_a_month_is_a_month(day: date) -> None:
    after = month_after(day)
    assert (after.month - day.month) % 12 == 1
    assert after.day == day.day or (after + timedelta(days=1)).day == 1


def test_a_time_of_day_is_read_as_its_day() -> None:
    assert read_day("2026-11-30T23:59:00+01:00", "x") == read_day("2026-11-30", "x") == "2026-11-30"
    assert read_day("", "x") == ""
