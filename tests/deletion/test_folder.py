"""`--out DIR`: whatever else is in it, or behind its links, is as it was afterwards; and what a killed run left."""

import os
import shutil
from pathlib import Path

import pytest
from small_project import LENIENT, failed, forget, ids, project, receipt_path

import regun
from expect import error
from regun.deletion import history, plan_request, verify_folder
from regun.deletion.folder import opened
from regun.errors import RegunError, StoreError


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


@pytest.mark.parametrize(
    "names",
    [
        ["thesis.tex", "tmp/0001/figure.svg"],
        ["requests/0001/thesis.tex"],
        ["requests/2024/thesis.tex"],
        ["requests/0001"],
        ["ledger.jsonl"],
    ],
)
def test_a_folder_of_other_things_is_refused_and_left_as_it_is(tmp_path: Path, names: list[str]) -> None:
    put(tmp_path, *names)
    before = everything(tmp_path)
    for call in (forget, lambda out, wanted: plan_request(project(), regun.DeletionRequest.of(wanted), out)):
        with error(RegunError):
            call(tmp_path, ids()[:5])
        assert everything(tmp_path) == before


def test_other_files_next_to_a_ledger_stay_as_they_are(out: Path) -> None:
    put(out, "thesis.tex", "requests/list.csv", "requests/0001/my notes.txt")
    before = everything(out)
    assert forget(out, ids()[60:65]).accepted
    after = everything(out)
    changes = ("ledger.jsonl", "current.safetensors")
    assert {name: after[name] for name in before if name not in changes} == {
        name: what for name, what in before.items() if name not in changes
    }
    assert failed(verify_folder(out)) == []


@pytest.mark.parametrize("piece", ["requests", "ledger.jsonl", ".regun-lock", ".regun-new", ".regun-work"])
def test_links_are_refused_and_nothing_behind_them_is_touched(tmp_path: Path, piece: str) -> None:
    put(tmp_path / "else", "thesis.tex", "folder/thesis.tex")
    (tmp_path / "out").mkdir()
    target = "thesis.tex" if piece in ("ledger.jsonl", ".regun-lock") else "folder"
    (tmp_path / "out" / piece).symlink_to(tmp_path / "else" / target)
    before = everything(tmp_path)
    with error(RegunError, tmp_path / "out" / piece):
        forget(tmp_path / "out", ids()[:5])
    assert everything(tmp_path) == before


@pytest.mark.parametrize("content", ["my accounts", '{"rent": 700}', '{"rent": 700}\n{"food"', "\n"])
def test_somebody_else_s_ledger_is_not_cut(tmp_path: Path, content: str) -> None:
    (tmp_path / "ledger.jsonl").write_text(content)
    with error(RegunError, tmp_path / "ledger.jsonl"):
        forget(tmp_path, ids()[:5])
    assert (tmp_path / "ledger.jsonl").read_text() == content


def test_a_torn_line_is_removed_and_noted(out: Path) -> None:
    whole, notes = (out / "ledger.jsonl").read_bytes(), list[str]()
    (out / "ledger.jsonl").write_bytes(whole + whole[:100])
    forget(out, ids()[60:65], on_note=notes.append)
    assert len(notes) == 1
    assert (out / "ledger.jsonl").read_bytes().startswith(whole)
    assert len(history(out)) == 3


def test_a_line_that_lacks_only_its_newline_counts(out: Path) -> None:
    whole = (out / "ledger.jsonl").read_bytes()
    (out / "ledger.jsonl").write_bytes(whole[:-1])
    assert failed(verify_folder(out)) == []
    done = forget(out, [*ids()[15:20], *ids()[60:65]])
    assert (done.plan.number, done.plan.matched.already) == (3, tuple(ids()[15:20]))
    assert (out / "ledger.jsonl").read_bytes().startswith(whole)


def test_a_ledger_that_was_lost_or_cut_stops_the_next_request(out: Path) -> None:
    ledger = out / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    for rest in (lines[:1], []):
        ledger.write_bytes(b"".join(rest))
        before = everything(out)
        with error(RegunError, receipt_path(out, 2).parent, ledger):
            forget(out, ids()[60:65])
        assert everything(out) == before
    ledger.unlink()
    with error(RegunError, receipt_path(out, 2).parent):
        forget(out, ids()[60:65])


def test_a_damaged_model_stops_the_next_request(out: Path) -> None:
    model = receipt_path(out, 2).parent / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"x")
    for call in (forget, lambda out, wanted: plan_request(project(), regun.DeletionRequest.of(wanted), out)):
        with error(StoreError, model):
            call(out, ids()[60:65])
    assert len(history(out)) == 2


def test_partial_results_of_a_killed_run_are_removed_unless_others_put_files_there(out: Path) -> None:
    put(out, ".regun-new/receipt.json")
    notes: list[str] = []
    forget(out, ids()[60:65], on_note=notes.append)
    assert len(notes) == 1
    assert not (out / ".regun-new").exists()
    put(out, ".regun-new/receipt.json", ".regun-new/thesis.tex")
    with error(StoreError, out):
        forget(out, ids()[70:75])
    assert (out / ".regun-new/thesis.tex").exists()


def test_a_request_that_was_committed_and_not_moved_is_complete(out: Path) -> None:
    """A run killed between the ledger line and the renaming of its folder."""
    receipt_path(out, 2).parent.rename(out / ".regun-new")
    assert failed(verify_folder(out)) == []
    assert plan_request(project(), regun.DeletionRequest.of(ids()[60:65]), out).number == 3
    notes: list[str] = []
    assert forget(out, ids()[60:65], on_note=notes.append).plan.number == 3
    assert len(notes) == 1
    assert receipt_path(out, 2).exists()
    assert failed(verify_folder(out)) == []


def test_a_work_folder_that_is_half_removed_does_not_stop_the_next_request(out: Path) -> None:
    """A run killed after its commit, while it removed what it had made on the way."""
    put(out, ".regun-work/artifacts/model/key/manifest.json")
    assert forget(out, ids()[60:65]).plan.number == 3
    assert not (out / ".regun-work").exists()


def test_a_folder_in_use_or_not_writable_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "out"), error(RegunError, tmp_path / "out"):
        forget(tmp_path / "out", ids()[:5])
    (tmp_path / "file").write_text("")
    with error(StoreError, tmp_path / "file/x"):
        forget(tmp_path / "file/x", ids()[:5])
    with error(RegunError, tmp_path / "file"):
        forget(tmp_path / "file", ids()[:5])


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_what_names_people_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        forget(tmp_path, ids()[:5])
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "requests/0001").iterdir()}
    assert modes.pop("model.safetensors") == 0o666
    assert set(modes) == {"receipt.json", "receipt.html", "request.json", "risks.csv"}
    assert set(modes.values()) == {0o600}


def test_a_finished_request_leaves_nothing_but_its_files(tmp_path: Path) -> None:
    forget(tmp_path, ids()[:5], LENIENT)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("ledger.jsonl", "requests", ".regun-lock", "current.safetensors")
    }
    shutil.rmtree(tmp_path)
