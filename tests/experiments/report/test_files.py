"""What a study leaves in its folder: everything, the report first, each file whole or not at all."""

import os
from pathlib import Path

import pytest

from expect import error
from regun import files
from regun.cli.terminal import write
from regun.errors import RegunError
from regun.experiments.report.files import safe_name, study_files, tradeoff_files
from report_samples import evaluated, relabelled, tradeoff


def test_a_study_leaves_report_tables_rows_and_figures() -> None:
    whole, close = evaluated()
    found = study_files(whole, [close], [tradeoff()], [])
    assert list(found) == [
        *("report.html", "table.md", "table.tex", "table.csv", "table.json", "rows.csv"),
        *("tradeoff.png", "tradeoff.svg", "tradeoff.pdf"),
    ]
    assert found["report.html"].lower().startswith(b"<!doctype html>")
    assert b"\r\n" in found["table.csv"]
    assert b"\r\r" not in found["table.csv"]


def test_figures_of_several_requests_have_names_of_their_own() -> None:
    whole, _ = evaluated()
    assert len(relabelled(whole, "50 %").blocks) == 2
    assert set(tradeoff_files([tradeoff(), tradeoff(label="class 3/../x")])) == {
        f"tradeoff-{label}{suffix}" for label in ("10", "class-3-x") for suffix in (".png", ".svg", ".pdf")
    }
    assert safe_name("../../etc/passwd") == "etc-passwd"


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = write(tmp_path / "new" / "folder" / "a.txt", "before")
    assert write(target, b"again").read_bytes() == b"again"

    def fails(old: object, new: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(files.os, "replace", fails)
    with error(RegunError, target, "disk", "full"):
        write(target, "after")
    assert target.read_text() == "again"
    assert os.listdir(target.parent) == ["a.txt"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    with error(RegunError, tmp_path / "file" / "a.txt"):
        write(tmp_path / "file" / "a.txt", "")
