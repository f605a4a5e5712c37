"""Python and the shell: the same environment, and errors that name the argument of the interface in use."""

import ast
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import regun
from expect import assert_names, error
from regun.artifacts import Store
from regun.cli import main
from regun.data.registry import DataSpec
from regun.deletion import Options, Pseudonyms, check_unknown, plan_request, verify_folder
from regun.errors import RegunError, SettingsError
from regun.experiments.study.results import Results

ROOT = Path(regun.__file__).parent
COMMAND = re.compile(r"(?:regun|ray) [a-z]+[^;]*$")
"""A whole command line, which is the same in both."""
TRUSTED = {"--model", "--method", "--data", "--all"}
"""Named next to their Python form, or only ever printed by a command."""


def literals(path: Path) -> list[str]:
    """The texts of a module as they are printed, values left out; docstrings and comments are not printed."""
    tree = ast.parse(path.read_text())
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            found.append("".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside | docs:
            found.append(node.value)
    return found


def test_the_library_names_options_of_the_shell_only_in_whole_commands() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        if "cli" in path.relative_to(ROOT).parts:
            continue
        for text in literals(path):
            for match in re.finditer(r"(?<![\w-])--[a-z][a-z-]*", text):
                if match[0] not in TRUSTED and not COMMAND.search(text[: match.start()].split("`")[-1]):
                    wrong.append(f"{path.relative_to(ROOT)}: {text[:100]}")
    assert not wrong, "\n".join(wrong)


def data() -> dict[str, object]:
    import torch

    x, y = torch.randn(30, 4), torch.arange(30) % 3
    return {"model": torch.nn.Linear(4, 3), "train": (x[:20], y[:20]), "test": (x[20:], y[20:]), "method": "finetune"}


def project() -> regun.Project:
    return regun.Project(**data())


def test_an_unknown_id_is_told_in_the_words_of_the_interface(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = regun.DeletionRequest.of([999])
    with error(RegunError, "ignore_unknown=") as caught:
        check_unknown(plan_request(project(), request, tmp_path / "out"), request)
    assert "--" not in str(caught.value)
    (tmp_path / "ids.txt").write_text("999\n")
    how = ["--project", f"{__file__}:project", "--ids", str(tmp_path / "ids.txt"), "--out", str(tmp_path / "out")]
    assert main(["forget", *how]) == 2
    shown = capsys.readouterr().err
    assert_names(shown, "--ignore-unknown")
    assert "ignore_unknown" not in shown


def test_a_folder_a_hash_and_a_store_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("7")
    with error(RegunError, "out="):
        plan_request(project(), regun.DeletionRequest.of([1]), file)
    (tmp_path / "ledger.jsonl").touch()
    with error(RegunError, "expect="):
        list(verify_folder(tmp_path, expect="x"))
    with error(RegunError, "store="):
        Store.existing(tmp_path / "nowhere")
    for command, option in (
        (["forget", "--project", f"{__file__}:project", "--ids", str(file), "--out", str(file)], "--out"),
        (["verify", str(tmp_path), "--expect", "x"], "--expect"),
        (["store", "list", "--store", str(tmp_path / "nowhere")], "--store"),
    ):
        assert main(command) == 2
        assert_names(capsys.readouterr().err, option)


def test_a_salt_is_called_pseudonyms_in_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    salted = Options(pseudonyms=Pseudonyms(b"0123456789abcdef"), accept="test_drop<=100", accept_inconclusive=True)
    for number in (0, 1):
        (tmp_path / "ids.txt").write_text(f"{number}\n")
        if not number:
            regun.forget(regun.Project(**fixed()), regun.DeletionRequest.of([number]), tmp_path / "out", salted)
    with error(RegunError, "pseudonyms="):
        plan_request(regun.Project(**fixed()), regun.DeletionRequest.of([1]), tmp_path / "out")
    how = ["--ids", str(tmp_path / "ids.txt"), "--out", str(tmp_path / "out")]
    assert main(["forget", "--project", f"{__file__}:fixed_project", *how]) == 2
    assert_names(capsys.readouterr().err, "--salt")


def fixed() -> dict[str, object]:
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return data()


def fixed_project() -> regun.Project:
    return regun.Project(**fixed())


def mine(root: str = "nowhere") -> None:
    """A data set of one's own that has a folder."""


def test_the_folder_of_the_data_comes_from_the_environment_in_python_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with error(SettingsError, "data_dir=", "REGUN_DATA"):
        DataSpec.read("cifar10", {})
    monkeypatch.setenv("REGUN_DATA", "/data")
    assert DataSpec.read("cifar10", {}).settings.root == "/data"
    assert DataSpec.read("cifar10", {"root": "/other"}).settings.root == "/other"
    assert DataSpec.read(f"{__file__}:mine", {}).arguments["root"] == "/data"
    assert DataSpec.read(f"{__file__}:mine", {"root": "here"}).arguments["root"] == "here"
    assert DataSpec.read("digits", {}).settings.root is None


def test_a_data_frame_without_pandas_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with error(RegunError, "pandas", "frames"):
        Results.frame(SimpleNamespace(rows=list))
