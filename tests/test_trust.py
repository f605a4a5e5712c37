"""Code that a store names: never run unless the user names the same code, and compared before it is imported."""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from expect import assert_names, error
from regun import files
from regun.artifacts import Store
from regun.cli import main
from regun.errors import RegunError
from regun.plugins import file_digest, is_code, trusted_name

MODEL = """
import pathlib
from torch import nn

with open({log!r}, "a") as log:
    log.write("ran {name}\\n")

def net(num_classes, image_size):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))
"""
METHOD = """
with open({log!r}, "a") as log:
    log.write("ran {name}\\n")

def halve(job):
    for parameter in job.model.parameters():
        parameter.data.mul_(0.5)
"""
TINY = ["--threads", "1", "--quiet"]


class World:
    """A store with a model and an unlearned model, made with code in `theirs`; each run of that code is logged."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.theirs, self.log, self.store = folder, folder / "theirs", folder / "log", folder / "store"
        self.theirs.mkdir()
        for name, text in (("net.py", MODEL), ("method.py", METHOD)):
            (self.theirs / name).write_text(text.format(log=str(self.log), name=name))
        data = ["--data", "digits,limit=400,test_limit=50", "--recipe", "digits,epochs=1"]
        self.call("train", *data, "--model", f"{self.theirs}/net.py:net")
        self.base = self.key("base")
        words = ("--base", self.base, "--forget", "0.1", "--method", f"{self.theirs}/method.py:halve")
        self.call("unlearn", *words, "--model", f"{self.theirs}/net.py:net")
        self.unlearned = self.key("unlearned")
        self.forget()

    def call(self, *args: str) -> None:
        assert main([*args, *TINY, "--store", str(self.store)]) == 0

    def key(self, role: str) -> str:
        return next(a.key for a in Store(self.store).artifacts("model") if a.info["role"] == role)

    def forget(self) -> None:
        """As in a new process: nothing of theirs is loaded, nothing has run."""
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", "")).startswith(str(self.folder)):
                del sys.modules[name]
        self.log.write_text("")

    @property
    def ran(self) -> list[str]:
        return sorted(set(self.log.read_text().split("\n")) - {""})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture
def world(made: World) -> Iterator[World]:
    before = {path: path.read_bytes() for path in made.theirs.glob("*.py")}
    made.forget()
    yield made
    for path, text in before.items():
        path.write_bytes(text)


def command(world: World, words: str) -> list[str]:
    values = {"base": world.base, "unlearned": world.unlearned, "folder": world.folder, "theirs": world.theirs}
    return [*(word.format(**values) for word in words.split()), *TINY, "--store", str(world.store)]


COMMANDS = [
    "audit {base} --forget 0.1",
    "audit {unlearned}",
    "audit {unlearned} --base {base}",
    "unlearn --base {base} --forget 0.1 --method finetune,epochs=1",
    "tune --base {base} --forget 0.1 --methods finetune --trials 1 --objective reference",
    "forget --base {base} --ids {folder}/ids.txt --out {folder}/out",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_code_named_by_a_store_is_not_run(
    world: World, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (world.folder / "ids.txt").write_text("3\n")
    capsys.readouterr()
    assert main(command(world, words)) == 2
    shown = capsys.readouterr().err
    assert_names(shown, "--model", f"{world.theirs}/net.py:net")
    assert world.ran == []
    assert not (world.folder / "out").exists()


@pytest.mark.parametrize("words", COMMANDS[:4])
def test_code_that_the_user_names_too_is_run(world: World, words: str) -> None:
    assert main(command(world, f"{words} --model {{theirs}}/net.py:net")) == 0
    assert set(world.ran) <= {"ran net.py"}  # or not even that, where the store has the answer


def test_the_file_may_have_moved_but_not_changed(world: World, tmp_path: Path) -> None:
    shutil.copy(world.theirs / "net.py", tmp_path / "moved.py")
    words = f"unlearn --base {{base}} --forget 0.1 --method finetune,epochs=1 --seed 5 --model {tmp_path}/moved.py:net"
    assert main(command(world, words)) == 0
    assert world.ran == ["ran net.py"]


def test_a_model_that_a_function_returns_can_be_audited(world: World) -> None:
    words = "audit {theirs}/net.py:net --forget 0.1 --data digits,limit=400,test_limit=50 --bootstrap 10"
    assert main(command(world, words)) == 0
    assert world.ran == ["ran net.py"]


@pytest.mark.parametrize("place", ["theirs", "elsewhere"])
def test_code_that_has_changed_is_refused_before_it_runs(
    world: World, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = world.theirs / "net.py" if place == "theirs" else tmp_path / "net.py"
    other.write_text((world.theirs / "net.py").read_text() + "\nX = 1\n")
    assert main(command(world, f"audit {{unlearned}} --model {other}:net")) == 2
    assert_names(capsys.readouterr().err, f"{other}:net")
    assert world.ran == []


def test_a_method_that_a_store_names_is_not_run_for_shadows(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    words = "audit {unlearned} --shadows 4 --model {theirs}/net.py:net"
    assert main(command(world, words)) == 2
    assert_names(capsys.readouterr().err, "--method", f"{world.theirs}/method.py:halve")
    assert world.ran == []


def test_a_hostile_store_runs_nothing(world: World, tmp_path: Path) -> None:
    """A manifest with a valid seal whose model is another file, or a function of Python's own."""
    base = Store(world.store).load("model", world.base)
    (tmp_path / "evil.py").write_text(f"open({str(world.log)!r}, 'a').write('ran evil.py')\n\ndef net(**more): ...\n")
    digest = hashlib.sha256((tmp_path / "evil.py").read_bytes()).hexdigest()
    for name in (f"{tmp_path}/evil.py:net", "subprocess:run", "os:system", f"{tmp_path}/evil.py"):
        inputs = {
            **base.inputs,
            "model": {"name": name, "settings": {"args": "true"}, "source": digest, "file": digest},
        }
        key = Store.key("model", inputs)
        folder = world.store / "artifacts/model" / key
        folder.mkdir()
        for file in base.manifest["files"]:
            shutil.copy(base.path / file, folder / file)
        sealed = files.sealed({**json.loads(json.dumps(base.manifest)), "inputs": inputs, "key": key})
        (folder / "manifest.json").write_bytes(sealed)
        for words in (
            f"audit {key} --forget 0.1",
            f"unlearn --base {key} --forget 0.1",
            f"audit {{unlearned}} --retrained {key} --model {{theirs}}/net.py:net",
        ):
            assert main(command(world, words)) == 2
        shutil.rmtree(folder)
    assert "ran evil.py" not in world.ran


# ------------------------------------------------------------------------------------------------------- the check


def test_what_is_code_and_what_is_not() -> None:
    assert [name for name in ("cnn", "hf:google/vit", "net.py", "a.py:f", "m:f", "regun", "") if is_code(name)] == [
        "net.py",
        "a.py:f",
        "m:f",
    ]
    assert trusted_name("cnn", None, (), "--model") == "cnn"
    assert trusted_name("hf:owner/name", None, (), "--model") == "hf:owner/name"


def test_a_file_is_hashed_without_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "unrun_package"
    (package / "inner").mkdir(parents=True)
    for file in (package / "__init__.py", package / "inner/__init__.py", package / "inner/deep.py"):
        file.write_text("raise ZeroDivisionError")
    monkeypatch.syspath_prepend(tmp_path)
    expected = hashlib.sha256(b"raise ZeroDivisionError").hexdigest()
    for name in (
        "unrun_package:f",
        "unrun_package.inner:f",
        "unrun_package.inner.deep:f",
        f"{package}/inner/deep.py:f",
        f"{package}/__init__.py",
    ):
        assert file_digest(name) == expected
    assert not [name for name in sys.modules if name.startswith("unrun_package")]
    for name in ("unrun_package.none:f", "sys:exit", "no_such_thing:f", "os.path.more:f"):
        with error(RegunError, name.partition(":")[0].partition(".")[0]):
            file_digest(name)
    with error(RegunError, f"'{tmp_path}/none.py'"):
        file_digest(f"{tmp_path}/none.py:f")


def test_the_same_code_is_the_same_function_of_the_same_file(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("def f(): ...\ndef g(): ...\n")
    digest = file_digest(f"{tmp_path}/a.py:f")
    there, copy = f"{tmp_path}/a.py:f", f"{tmp_path}/b.py:f"
    assert trusted_name(there, digest, [copy], "--model") == copy
    assert trusted_name(there, digest, ["cnn", f"{tmp_path}/b.py:g", copy], "--model") == copy
    assert trusted_name(there, None, [there], "--model") == there
    for trusted in ([], [f"{tmp_path}/b.py:g"], [f"{tmp_path}/b.py"]):
        with error(RegunError, "--model", there):
            trusted_name(there, digest, trusted, "--model")
    with error(RegunError, copy, there):
        trusted_name(there, None, [copy], "--model")
    with error(RegunError, there):
        trusted_name(there, "0" * 64, [there], "--model")
