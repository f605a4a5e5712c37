"""`--out DIR`: whatever else is in it, or behind its links, is as it was afterwards."""

import hashlib
import os
from pathlib import Path

import pytest
from small_project import EASY, QUICK, ids, project

import regun
from regun.deletion import Options, history, prepare, verify_folder
from regun.deletion.folder import Folder, _private
from regun.errors import RegunError

LENIENT = Options(accept=EASY, accept_untestable=True, bootstrap=20)
BESIDE = Options(accept=EASY, accept_untestable=True, bootstrap=20, into_existing=True)


def run(out: Path, options: Options = LENIENT, wanted=None, **more):
    return regun.forget(project(method=QUICK), regun.deletion_request(wanted or ids()[:5]), out, options, **more)


def everything(root: Path) -> dict[str, str]:
    """All there is, links as links."""
    found = {}
    for path in sorted(root.rglob("*")):
        kind = f"-> {path.readlink()}" if path.is_symlink() else "folder" if path.is_dir() else path.read_bytes().hex()
        found[str(path.relative_to(root))] = kind
    return found


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"the only copy of {name}")


THESIS = ("thesis.tex", "tmp/chapter.tex", "tmp/0001/figure.svg", "leftover/0001-abc/notes.txt", "requests/list.csv")


def test_a_folder_of_other_things_is_refused_unless_asked_for(tmp_path: Path) -> None:
    put(tmp_path, *THESIS)
    before = everything(tmp_path)
    for call in (run, lambda out: prepare(project(), regun.deletion_request(ids()[:5]), out)):
        with pytest.raises(
            RegunError, match=r"holds other things \(4; the first is 'leftover'\) and no ledger of regun'"
        ):
            call(tmp_path)
        assert everything(tmp_path) == before


def test_what_is_not_regun_s_stays_where_and_as_it_is(tmp_path: Path) -> None:
    put(tmp_path, *THESIS)
    before = everything(tmp_path)
    for wanted in (ids()[:5], ids()[5:9]):
        assert run(tmp_path, BESIDE, wanted).accepted
    after = everything(tmp_path)
    assert {name: after[name] for name in before} == before
    assert run(tmp_path, LENIENT, ids()[9:12]).accepted, "with a ledger in it, the folder is regun's too"
    assert {name: after[name] for name in before} == before
    assert all(check.fine is not False for _, some in verify_folder(tmp_path) for check in some)


@pytest.mark.parametrize("name", ["requests/0001/thesis.tex", "requests/2024/thesis.tex", "requests/0001"])
def test_a_number_that_is_taken_by_others_is_refused(tmp_path: Path, name: str) -> None:
    put(tmp_path, name)
    before = everything(tmp_path)
    for options in (LENIENT, BESIDE):
        with pytest.raises(RegunError, match="is not a request that regun has written; move it away"):
            run(tmp_path, options)
        after = everything(tmp_path)
        assert {name: after[name] for name in before} == before
        assert not history(tmp_path)


def test_a_finished_request_with_something_of_the_user_s_in_it_is_not_moved(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "ledger.jsonl").write_bytes(b"")
    put(tmp_path, "requests/0001/my notes.txt")
    before = everything(tmp_path)
    with pytest.raises(RegunError, match="0001 is not a request that regun has written"):
        run(tmp_path)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("options", [LENIENT, BESIDE])
@pytest.mark.parametrize("piece", ["requests", "requests/0001", "ledger.jsonl", ".regun-lock"])
def test_links_are_refused_and_nothing_behind_them_is_touched(tmp_path: Path, piece: str, options: Options) -> None:
    put(tmp_path / "else", "thesis.tex", "folder/thesis.tex")
    (tmp_path / "out/requests").mkdir(parents=True)
    place = tmp_path / "out" / piece
    if place.is_dir():
        place.rmdir()
    place.symlink_to(tmp_path / "else" / ("thesis.tex" if piece in ("ledger.jsonl", ".regun-lock") else "folder"))
    before = everything(tmp_path)
    with pytest.raises(
        RegunError, match="is a symbolic link; regun writes into real files and folders only|not as it was"
    ):
        run(tmp_path / "out", options)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("content", ["my accounts", '{"rent": 700}', '{"rent": 700}\n{"food"', "\n"])
def test_a_ledger_of_somebody_else_s_is_not_cut(tmp_path: Path, content: str) -> None:
    (tmp_path / "ledger.jsonl").write_text(content)
    for options in (LENIENT, BESIDE):
        with pytest.raises(RegunError, match="is not as it was written"):
            run(tmp_path, options)
    assert (tmp_path / "ledger.jsonl").read_text() == content


def test_only_what_is_proven_to_be_left_over_is_removed(tmp_path: Path) -> None:
    """A name that ends in the digest of its beginning, and in it nothing but files that regun writes."""
    run(tmp_path)
    folder = Folder(tmp_path)
    left, mixed, linked = (_private(folder, "new", 2) for _ in range(3))
    put(tmp_path, f"{left.name}/receipt.json", f"{mixed.name}/receipt.json", f"{mixed.name}/thesis.tex")
    put(tmp_path, ".regun-new-0002/receipt.json", ".regun-new-0002-0123456789abcdef-0123456789abcdef/receipt.json")
    put(tmp_path, "else/receipt.json")
    linked.symlink_to(tmp_path / "else")
    before, notes = everything(tmp_path), []
    run(tmp_path, LENIENT, ids()[5:9], on_note=notes.append)
    after = everything(tmp_path)
    assert notes == ["an earlier run was stopped before it had written its results; they are removed"]
    assert set(before) - set(after) == {left.name, f"{left.name}/receipt.json"}
    assert all(after[name] == what for name, what in before.items() if name in after and name != "ledger.jsonl")


def test_a_torn_line_is_cut_only_where_it_is_one(tmp_path: Path) -> None:
    run(tmp_path)
    whole = (tmp_path / "ledger.jsonl").read_bytes()
    (tmp_path / "ledger.jsonl").write_bytes(whole + b"# to do: call Ann")
    with pytest.raises(RegunError, match="line 2 is nothing that regun began to write"):
        run(tmp_path, LENIENT, ids()[5:9])
    assert (tmp_path / "ledger.jsonl").read_bytes() == whole + b"# to do: call Ann"


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_what_names_people_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        run(tmp_path)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "requests/0001").iterdir()}
    assert modes.pop("model.safetensors") == 0o666
    assert set(modes) == {"receipt.json", "receipt.html", "request.json", "risks.csv"}
    assert set(modes.values()) == {0o600}


def test_names_of_regun_s_own_prove_themselves(tmp_path: Path) -> None:
    name = _private(Folder(tmp_path), "new", 7).name
    start, _, proof = name.rpartition("-")
    assert start.startswith(".regun-new-0007-")
    assert hashlib.sha256(start.encode()).hexdigest().startswith(proof)
