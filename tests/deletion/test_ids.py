"""Reading what somebody wants gone: every form, all text taken as text, every mistake named."""

import csv
import io
import json
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_project import project

from regun.deletion.plan import match
from regun.deletion.request import (
    Dates,
    DeletionRequest,
    RequestedRecord,
    deletion_request,
    month_after,
    read_date,
    read_request_file,
)
from regun.deletion.signing import Pseudonyms, read_pseudonyms
from regun.errors import DataError, RegunError

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=30).map(str.strip)
DAY = st.dates(date(1990, 1, 1), date(2026, 1, 1)).map(date.isoformat) | st.just("")
IDS = st.lists(TEXT.filter(bool), min_size=1, max_size=8)


def asked(tmp_path: Path, name: str, content: str | bytes) -> DeletionRequest:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_request_file(path)


@settings(deadline=None)
@given(st.lists(st.tuples(TEXT.filter(bool), TEXT, TEXT, DAY, st.just("")), min_size=1, max_size=6))
def test_csv_gives_back_what_was_written(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, ...]]) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(["received", "id", "name", "requester", "reason"])
    writer.writerows([[day, one, "Ann", requester, reason] for one, reason, requester, day, _ in rows])
    found = asked(tmp_path_factory.mktemp("ids"), "a.csv", out.getvalue())
    assert found.lines == tuple(RequestedRecord(*row) for row in rows)
    assert found.ignored == ("name",)


@settings(deadline=None)
@given(IDS)
def test_text_and_json_give_the_same_ids(tmp_path_factory: pytest.TempPathFactory, ids: list[str]) -> None:
    folder = tmp_path_factory.mktemp("ids")
    plain = asked(folder, "a.txt", "\n".join([*ids, "", "  "]))
    listed = asked(folder, "a.json", json.dumps(ids))
    objects = asked(folder, "b.json", json.dumps([{"id": one} for one in ids]))
    assert plain == listed == objects == deletion_request(ids)


@given(IDS, st.lists(TEXT.filter(bool), max_size=5), st.sets(st.integers(0, 7)))
def test_every_line_ends_in_one_group(ids: list[str], others: list[str], earlier: set[int]) -> None:
    forgotten = {ids[n] for n in earlier if n < len(ids)}
    request = deletion_request([*ids, *others, ids[0]])
    found = match(request, {"train": ids[::2], "heldout": ids[1::2]}, forgotten, Pseudonyms())
    unseen = [one for some in found.unseen.values() for one in some]
    groups = [{line.id for line in found.lines}, set(found.already), set(found.unknown), set(unseen)]
    assert sum(map(len, groups)) == len(set().union(*groups)) == len({line.id for line in request.lines})
    assert groups[0] == set(ids[::2]) - forgotten
    assert set(found.unknown) == set(others) - set(ids)
    assert len(found.duplicate) == len(request.lines) - len({line.id for line in request.lines})


def test_numbers_semicolons_marks_and_shared_reasons(tmp_path: Path) -> None:
    assert asked(tmp_path, "a.json", '[7, "7", "07"]').lines == (
        RequestedRecord("7"),
        RequestedRecord("7"),
        RequestedRecord("07"),
    )
    excel = "\ufeffID;Reason\r\n7;moved away\r\n;;\r\n".replace(";;\r\n", "")
    assert asked(tmp_path, "a.csv", excel).lines == (RequestedRecord("7", "moved away"),)
    shared = {
        "ids": [1, {"id": "b", "reason": "own"}],
        "reason": "art. 17",
        "requester": "T-1",
        "received": "2025-11-01",
    }
    lines = asked(tmp_path, "b.json", json.dumps(shared)).lines
    assert lines == (
        RequestedRecord("1", "art. 17", "T-1", "2025-11-01"),
        RequestedRecord("b", "own", "T-1", "2025-11-01"),
    )
    assert deletion_request([1]).filled("why", "who").lines == (RequestedRecord("1", "why", "who"),)


BAD = {
    ("a.csv", "name,reason\nx,y\n"): "one of them id (others: reason, requester, received, due); got name, reason",
    ("b.csv", ""): "got nothing",
    ("c.csv", "id,reason\n ,why\n"): "line 2 has no id",
    ("d.csv", "id\n" + "x" * 1001): "line 2 has 1,001 characters; at most 1,000 are read",
    ("e.csv", 'id\n"' + "x" * 140_000): "is not CSV: field larger than field limit",
    ("f.csv", "id\n"): "the request names no id",
    ("g.csv", 'id,reason\n7,"moved away\n8,also\n'): "line 3 is not CSV: unexpected end of data. Is a quotation mark",
    ("h.csv", 'id,reason\n7,"moved" away\n'): "line 2 is not CSV",
    ("a.json", "[1, 2"): "not valid JSON",
    ("b.json", "3"): "give a JSON list of ids or of objects with an id",
    ("c.json", "[1.5]"): "entry 1 is a float; an id is text or a whole number",
    ("d.json", "[true]"): "entry 1 is a bool",
    ("e.json", '["a", ""]'): "entry 2 is empty",
    ("f.json", '[{"reason": "x"}]'): "entry 1 has no id",
    ("g.json", '[{"id": 1, "reason": ["x"]}]'): "the reason of entry 1 is a list; give text",
    ("h.json", r'["\ud800"]'): "half of a character",
    ("i.json", "[" * 100_000): "not valid JSON",
    ("j.json", f"[{'9' * 5000}]"): "not valid JSON",
    ("k.json", f"[{'9' * 1001}]"): "entry 1 has more than 1,000 digits",
    ("l.json", "[NaN]"): "NaN",
    ("repeated.json", '{"ids": [1], "ids": [2]}'): "'ids' occurs more than once",
    ("twice.json", '[{"id": 1, "id": 2}]'): "'id' occurs more than once",
    ("m.json", '[{"id": 1, "received": "yesterday"}]'): "received in entry 1 is 'yesterday'; give a day as 2026-11-30",
    ("i.csv", "id,due\n7,30.11.2026\n"): "due in line 2 is '30.11.2026'; give a day as 2026-11-30",
    ("j.csv", "id,received\n7,2999-01-01\n"): "line 2 was received on 2999-01-01, which is in the future",
    ("k.csv", "id,received,due\n7,2025-03-02,2025-03-01\n"): "line 2 is due on 2025-03-01, before it was received",
    ("l.csv", "id,received\n7,0001-01-01\n"): "received in line 2 is '0001-01-01'; give a day",
    ("a.txt", "\n \n"): "the request names no id",
    ("b.txt", b"\xff\xfe7\x00"): "is not UTF-8 text (byte 0 is not)",
}


@pytest.mark.parametrize(("name", "content"), BAD, ids=[name for name, _ in BAD])
def test_what_cannot_be_read_is_said_with_the_file(tmp_path: Path, name: str, content: str | bytes) -> None:
    with pytest.raises(DataError) as caught:
        asked(tmp_path, name, content)
    assert BAD[name, content] in str(caught.value)
    if content and "names no id" not in str(caught.value):
        assert name in str(caught.value)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_any_bytes_are_read_or_refused_in_words(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
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
            found = asked(tmp_path_factory.getbasetemp(), name, content)
        except DataError:
            continue
        assert all(line.id for line in found.lines)


def test_a_file_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regun.deletion.request.LARGEST", 1000)
    with pytest.raises(DataError, match="/dev/zero has more than 1,000 bytes"):
        read_request_file(Path("/dev/zero"))
    with pytest.raises(RegunError, match="/dev/zero has more than 1,000,000 bytes"):
        read_pseudonyms(Path("/dev/zero"))


def test_ids_of_too_many_digits_are_refused() -> None:
    with pytest.raises(DataError, match="id 1 has more than 1,000 digits"):
        deletion_request([10**5000])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the ids of .*nowhere.csv: No such file"):
        read_request_file(tmp_path / "nowhere.csv")


def secret(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def test_salted_names_need_the_salt(tmp_path: Path) -> None:
    secret(tmp_path / "salt", bytes(range(32)))
    naming = read_pseudonyms(tmp_path / "salt")
    first, again = naming.of(["7", "8"]), read_pseudonyms(tmp_path / "salt").of(["7", "8"])
    assert first == again
    assert len(set(first)) == 2
    assert Pseudonyms(bytes(32)).of(["7"]) != first[:1]
    assert naming.kind != Pseudonyms(bytes(32)).kind != Pseudonyms().kind == "plain"
    assert bytes(range(32)).hex() not in repr(naming) + naming.kind
    (tmp_path / "short").write_bytes(b"pepper")
    with pytest.raises(
        RegunError, match="has 6 bytes; at least 16 random ones are needed: .umask 077; head -c 32 /dev/ura"
    ):
        read_pseudonyms(tmp_path / "short")
    with pytest.raises(RegunError, match="cannot read the salt"):
        read_pseudonyms(tmp_path / "no")


def test_every_project_id_is_an_id() -> None:
    found = match(deletion_request(project().ids), {"train": list(project().ids)}, set(), Pseudonyms())
    assert len(found.lines) == 160


def test_cells_beyond_the_header_are_refused_unless_empty(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 3 has more cells than the header; quote texts that hold commas"):
        asked(tmp_path, "a.csv", "id,reason\n7,moved\n8,moved, far away\n")
    with pytest.raises(DataError, match="line 2 has more cells"):
        asked(tmp_path, "b.csv", "id\n7,2026-11-01\n")
    assert asked(tmp_path, "c.csv", "id,reason\n7,moved,, \n8\n").lines == (
        RequestedRecord("7", "moved"),
        RequestedRecord("8"),
    )


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_only_newlines_end_a_line(tmp_path: Path, sign: str) -> None:
    one = f"a{sign}b"
    assert asked(tmp_path, "a.csv", f"id,reason\r\n{one},why{sign}so\r\nc,\r\n").lines == (
        RequestedRecord(one, f"why{sign}so"),
        RequestedRecord("c"),
    )
    assert asked(tmp_path, "a.txt", f"{one}\r\nc\n").lines == (RequestedRecord(one), RequestedRecord("c"))


@pytest.mark.parametrize("name", ["reason", "requester", "received", "due"])
@pytest.mark.parametrize(
    ("text", "message"),
    [("x" * 1001, "has 1,001 characters"), ("\ud800", "half of a char"), (3, "is a int; give text")],
)
def test_texts_for_all_lines_are_checked_like_cells(name: str, text: str, message: str) -> None:
    for give in (
        lambda: deletion_request(["7"], **{name: text}),
        lambda: deletion_request(["7"]).filled(**{name: text}),
    ):
        with pytest.raises(DataError, match=f"the {name} {message}|the {name} holds {message}"):
            give()


def test_a_bare_text_is_no_list_of_ids() -> None:
    with pytest.raises(DataError, match="ids is the single text '12'; give a list of ids"):
        deletion_request("12")


# --------------------------------------------------------------------------------------------------------------- dates


@pytest.mark.parametrize(
    ("lines", "received", "due"),
    [
        ([("", "")], "2026-11-16", "2026-12-16"),
        ([("2026-10-31", "")], "2026-10-31", "2026-11-30"),
        ([("2026-01-30", ""), ("2026-01-20", "2026-03-01")], "2026-01-20", "2026-02-28"),
        ([("", "2026-11-20"), ("2026-11-01", "")], "2026-11-01", "2026-11-20"),
    ],
)
def test_a_request_is_as_old_as_its_oldest_line_and_due_with_the_first(lines: list, received: str, due: str) -> None:
    found = Dates.of(lines, date(2026, 11, 16))
    assert (found.received.isoformat(), found.due.isoformat()) == (received, due)
    assert found.days_late == max(0, (date(2026, 11, 16) - found.due).days)


@given(st.dates(date(1970, 1, 1), date(2100, 1, 1)))
def test_a_month_is_a_month(day: date) -> None:
    after = month_after(day)
    assert (after.month - day.month) % 12 == 1
    assert after.day == day.day or (after + timedelta(days=1)).day == 1


def test_a_time_of_day_is_read_as_its_day() -> None:
    assert read_date("2026-11-30T23:59:00+01:00", "x") == read_date("2026-11-30", "x") == "2026-11-30"
    assert read_date("", "x") == ""
