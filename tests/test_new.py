"""`regun new`: its files run as they are, and no file is overwritten."""

from pathlib import Path

import pytest

import regun
from expect import assert_names
from regun.cli import main
from regun.cli.arguments import FAILED, INCONCLUSIVE
from regun.experiments.study.parse import parse_study
from regun.plugins import find_module

pytestmark = pytest.mark.usefixtures("plain_surroundings")


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_new_project_answers_a_request() -> None:
    assert main(["new", "project", "mine.py"]) == 0
    assert "--project mine.py:project" in Path("mine.py").read_text()
    project = find_module("mine.py")
    project.train()
    Path("ids.txt").write_text("image-3\nimage-7\n")
    command = ["forget", "--project", "mine.py:project", "--ids", "ids.txt", "--out", "deletions", "--threads", "1"]
    assert main([*command, "--dry-run"]) == 0
    quick = ["--method", "finetune,epochs=1", "--bootstrap", "20", "--out-models", "0", "--quiet"]
    assert main([*command, *quick]) in (0, FAILED, INCONCLUSIVE)
    assert main(["verify", "deletions"]) == 0
    assert len(regun.deletion.history("deletions")) == 1


def test_a_new_study_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "study"]) == 0
    path = Path("study.toml")
    text = path.read_text()
    assert main(["study", "plan", "study.toml", "--threads", "1"]) == 0
    for usual, short in (("limit=800", "limit=200"), ("epochs=10", "epochs=1"), ("steps=30", "steps=2")):
        assert usual in text
        text = text.replace(usual, short)
    path.write_text(text)
    assert main(["study", "run", "study.toml", "--seeds", "0", "--threads", "1", "--quiet"]) == 0
    assert "ReGUn" in capsys.readouterr().out


def test_what_a_new_study_has_as_comments_is_allowed() -> None:
    assert main(["new", "study"]) == 0
    whole = [line.removeprefix("# ") for line in Path("study.toml").read_text().splitlines()[8:]]
    lines = [line for line in whole if line.startswith(("[", '"')) or " = " in line]
    study = parse_study("\n".join(lines), "study.toml", Path())
    assert study.tuning is not None
    assert study.settings == {"0.1": {"finetune": {"lr": 0.05}}}


@pytest.mark.parametrize(("arguments", "named"), [(["study", "a.toml"], "a.toml"), (["project", "a.toml"], ".py")])
def test_other_files_stay_as_they_are(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.toml").write_text("mine")
    assert main(["new", *arguments]) == 2
    assert_names(capsys.readouterr().err, named)
    assert Path("a.toml").read_text() == "mine"
