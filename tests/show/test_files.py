"""What a study leaves in its folder: everything, the report first, each file whole or not at all."""

import os
from pathlib import Path

import pytest

from regun.errors import RegunError
from regun.show import files
from regun.show.files import safe_name, write_figures, write_study, write_text
from report_samples import evaluated, relabelled, tradeoff


def test_a_study_leaves_report_tables_rows_and_figures(tmp_path: Path) -> None:
    whole, close = evaluated()
    paths = write_study(whole, [close], [tradeoff()], [], tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [
        *("report.html", "table.md", "table.tex", "table.csv", "table.json", "rows.csv"),
        *("tradeoff.png", "tradeoff.svg", "tradeoff.pdf"),
    ]
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {path.name for path in paths}
    assert paths[0].read_text("utf-8").lower().startswith("<!doctype html>")
    assert b"\r\r" not in paths[3].read_bytes()


def test_figures_of_several_requests_have_names_of_their_own(tmp_path: Path) -> None:
    whole, _ = evaluated()
    assert len(relabelled(whole, "50 %").blocks) == 2
    paths = write_figures([tradeoff(), tradeoff(label="class 3/../x")], tmp_path)
    assert {path.name for path in paths} == {
        f"tradeoff-{label}{suffix}" for label in ("10", "class-3-x") for suffix in (".png", ".svg", ".pdf")
    }
    assert all(path.parent == tmp_path for path in paths)
    assert safe_name("../../etc/passwd") == "etc-passwd"


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = write_text(tmp_path / "a.txt", "before")

    def fails(old: object, new: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(files.os, "replace", fails)
    with pytest.raises(RegunError, match=r"cannot write .*a\.txt: disk full. Name a folder you may write."):
        write_text(target, "after")
    assert target.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "")
    with pytest.raises(RegunError, match="cannot write"):
        write_text(tmp_path / "file" / "a.txt", "")
