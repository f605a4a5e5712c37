"""`regun prepare`: the table of a project, its options, its errors, and requests that use it."""

import json
import shlex
from pathlib import Path

import pytest
import torch
from small_project import ERASE, Memory, ids, project

import regun
from expect import assert_names
from regun.cli import main
from regun.cli import prepare as prepare_cli
from regun.deletion import history

HERE = Path(__file__)
PROJECT = f"{HERE.parent / 'small_project.py'}:project"


def own_training() -> regun.Project:
    return project(model=Memory(), method=ERASE, train_function=lambda dataset, seed: Memory(0.0, seed % 1000))


def several_records_per_id() -> regun.Project:
    return project(ids=[f"user-{n // 4}" for n in range(160)])


def without_training() -> regun.Project:
    return project(retrain={})


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    threads = torch.get_num_threads()

    def call(*args: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*map(str, args), "--threads", "1"])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    yield call
    torch.set_num_threads(threads)


def test_prepare_forget_and_prepare_again(run, tmp_path: Path) -> None:
    """The whole life of a table, with the project's own training."""
    path, out, own = tmp_path / "p.safetensors", tmp_path / "out", f"{HERE}:own_training"
    code, said, _ = run("prepare", "--project", own, "--out", path, "--folds", 3, "--repeats", 2, "--json")
    stated, table = json.loads(said), regun.Prepared.load(path)
    assert (code, stated["digest"], stated["records"]) == (0, table.digest, 160)
    assert (table.about["folds"], table.about["repeats"]) == (3, 2)
    assert table.about["keyed_by"] == dict.fromkeys(("train", "heldout", "val", "test"), "ids")
    request = tmp_path / "ids.txt"
    request.write_text("\n".join(ids()[:30]))
    how = ("--project", own, "--ids", request, "--out", out, "--bootstrap", "20", "--json")
    code, said, errors = run("forget", *how, "--prepared", path)
    assert (code, json.loads(said)["status"]) == (0, "accepted"), errors
    assert len(regun.Prepared.load(path)) == 130
    code, _, errors = run("prepare", "--project", own, "--out", path)
    assert code == 2
    assert_names(errors, path, "--refresh")
    again = ("prepare", "--project", own, "--out", path, "--refresh")
    assert run(*again, "--deletions", out)[0] == 0
    fresh = regun.Prepared.load(path)
    assert (len(fresh), fresh.erased_share, fresh.about["version"]) == (130, 0.0, 1)
    request.write_text("\n".join(ids()[30:60]))
    assert run("forget", *how, "--prepared", path)[0] in (0, 4)
    assert len(regun.Prepared.load(path)) == (100 if history(out)[-1].accepted else 130)


def test_the_recipe_of_the_project_trains_without_a_function(run, tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    code, said, _ = run("prepare", "--project", PROJECT, "--out", path, "--share", "0.1", "--folds", "2")
    assert code == 0
    table = regun.Prepared.load(path)
    assert table.about["recipe"]["epochs"] == 2
    assert_names(said, 160, path, table.digest)


def test_ids_of_several_records_are_groups(run, tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    how = ("--share", "0.1", "--folds", "2", "--quiet")
    assert run("prepare", "--project", f"{HERE}:several_records_per_id", "--out", path, *how)[0] == 0
    table = regun.Prepared.load(path)
    assert table.about["keyed_by"]["train"] == "content"
    assert (table.folds[0][:160].reshape(-1, 4) == table.folds[0][:160:4, None]).all()


def test_helpers_run_the_same_command(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper makes the whole table before this process begins, which then reads it."""
    commands: list[list[str]] = []

    class Helper:
        def __init__(self, command: list[str], **how: object) -> None:
            commands.append(command)
            assert main(command[3:]) == 0

        def wait(self) -> int:
            return 0

    monkeypatch.setattr(prepare_cli.subprocess, "Popen", Helper)
    path = tmp_path / "p.safetensors"
    how = ("--share", "0.1", "--folds", "2", "--seed", "5", "--workers", "2")
    code, _, errors = run("prepare", "--project", PROJECT, "--out", path, *how)
    assert code == 0
    assert "fold 1" not in errors, "the helper has trained it"
    assert len(commands) == 1
    assert_names(shlex.join(commands[0]), "--seed=5", "--share=0.1", "--workers=1")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.safetensors"]


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (("--project", PROJECT, "--out", "nowhere/p.safetensors"), ["--out", "nowhere/p.safetensors"]),
        (("--project", f"{HERE}:without_training", "--out", "p"), ["train_function=...", "retrain="]),
        (("--out", "p"), ["--project", "--base"]),
        (("--project", PROJECT, "--out", "p", "--deletions", "nowhere"), ["nowhere"]),
        (("--project", PROJECT, "--out", "p", "--folds", "1000"), ["folds", "160"]),
    ],
)
def test_errors(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], names: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, errors = run("prepare", *args)
    assert code == 2
    assert all(name in errors for name in names), errors
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("args", [("--folds", "1"), ("--share", "2"), ("--workers", "0"), ("--repeats", "0")])
def test_wrong_numbers_are_refused_by_the_parser(args: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["prepare", "--project", PROJECT, "--out", "p", *args])
    assert ended.value.code == 2
    assert_names(capsys.readouterr().err, args[0])
