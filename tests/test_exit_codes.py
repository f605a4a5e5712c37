"""Exit codes: their meanings, that only success is 0, and streams that cannot be written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from expect import assert_names, error
from regun.cli import build_parser, lists, main
from regun.cli.arguments import EXIT_CODES
from regun.errors import RegunError
from regun.plugins import find_function, find_module, user_code

DOCS = Path(__file__).parents[1] / "docs/reliability.md"
REGUN = [sys.executable, "-m", "regun"]
TINY = ["--data", "digits,limit=400,test_limit=50", "--recipe", "digits,epochs=1", "--threads", "1", "--quiet"]

LEAVING = """
import sys
from torch import nn

def net(num_classes, image_size):
    sys.exit(0)

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.layer, self.calls = nn.Linear(64, num_classes), 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 2:
            sys.exit(0)
        return self.layer(x.flatten(1))

def method(job):
    raise SystemExit(0)
"""


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGUN_TRACEBACK", raising=False)
    monkeypatch.delenv("REGUN_STORE", raising=False)


@pytest.fixture
def leaving(tmp_path: Path) -> Path:
    (tmp_path / "leaving.py").write_text(LEAVING)
    (tmp_path / "at_import.py").write_text("import sys\nsys.exit(0)\n")
    return tmp_path / "leaving.py"


@pytest.mark.parametrize(("line", "near"), [("stdy", "study"), ("study lst", "list"), ("Forget", "forget")])
def test_a_mistyped_command_is_answered_with_the_nearest(line: str, near: str, capsys) -> None:
    with pytest.raises(SystemExit) as left:
        main(line.split())
    assert left.value.code == 2
    assert_names(capsys.readouterr().err, repr(line.split()[-1]), repr(near))


def raising(monkeypatch: pytest.MonkeyPatch, fault: BaseException) -> None:
    def data(args: object) -> int:
        raise fault

    monkeypatch.setattr(lists, "data", data)


# ----------------------------------------------------------------------------------------------- every way to end


@pytest.mark.parametrize(
    ("fault", "code", "names"),
    [
        (RegunError("lr is 0; give more."), 2, ["lr", "0"]),
        (KeyboardInterrupt(), 130, ["interrupted"]),
        (ZeroDivisionError("by zero"), 3, ["ZeroDivisionError", "--traceback"]),
        (SystemExit(0), 3, ["SystemExit"]),
        (SystemExit("done"), 3, ["SystemExit", "done"]),
        (BrokenPipeError(32, "Broken pipe"), 3, ["BrokenPipeError"]),
        (MemoryError(), 2, ["memory"]),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 2, ["memory"]),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), 2, ["memory"]),
        (RuntimeError("a bug"), 3, ["RuntimeError", "bug"]),
        (RecursionError("too deep"), 3, ["RecursionError"]),
        (ValueError("two\nlines\tand \x1b[31mred"), 3, ["ValueError", "lines"]),
    ],
)
def test_every_error_of_a_command_has_its_code_and_one_line(
    fault: BaseException,
    code: int,
    names: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    raising(monkeypatch, fault)
    assert main(["data"]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("regun: ")
    assert "\x1b" not in shown.err
    assert_names(shown.err, *names)
    assert len(shown.err.splitlines()) == 1
    assert code in EXIT_CODES


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_traceback_is_shown_on_request(
    how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, ZeroDivisionError("by zero"))
    if how == "environment":
        monkeypatch.setenv("REGUN_TRACEBACK", "1")
    assert main(["data", *(["--traceback"] if how == "option" else [])]) == 3
    shown = capsys.readouterr().err
    assert "Traceback (most recent call last)" in shown
    assert "test_exit_codes.py" in shown


def test_help_and_docs_name_every_exit_code() -> None:
    shown = build_parser().format_help()
    listed = re.findall(r"^\| `?(\d+)`? \| (.+?) \|$", DOCS.read_text(), re.MULTILINE)
    assert {int(code) for code, _ in listed} == set(EXIT_CODES)
    for code, meaning in EXIT_CODES.items():
        assert f"  {code:<4} {meaning}" in shown


# ------------------------------------------------------------------------------------------ code of the user's own


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("leaving.py:net", ["leaving.py:net", "SystemExit"]),
        ("leaving.py:Net", ["Net", "sys.exit(0)"]),
        ("at_import.py:net", ["at_import.py", "SystemExit"]),
    ],
)
def test_a_model_that_leaves_python_is_no_success(
    name: str, named: list[str], leaving: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["train", *TINY, "--model", f"{leaving.parent}/{name}", "--store", str(tmp_path / "store")])
    assert code == 2
    assert_names(capsys.readouterr().err, *named)


def test_user_code_is_named_in_its_error() -> None:
    with error(RegunError, "x.py", "SystemExit"), user_code("the method x.py"):
        sys.exit(0)
    with error(RegunError, "it", "ZeroDivisionError") as caught, user_code("it"):
        _ = 1 / 0
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(RegunError) as caught, user_code("it"):
        raise RegunError("unchanged")
    assert str(caught.value) == "unchanged"
    with pytest.raises(KeyboardInterrupt), user_code("it"):
        raise KeyboardInterrupt


def test_a_file_that_leaves_python_stays_unloaded(leaving: Path) -> None:
    before = set(sys.modules)
    for _ in range(2):
        with error(RegunError, "at_import.py", "SystemExit"):
            find_module(str(leaving.parent / "at_import.py"))
    assert set(sys.modules) == before


def test_a_file_imports_its_neighbours_while_it_is_loaded(tmp_path: Path) -> None:
    before = list(sys.path)
    for folder in ("first", "second"):
        (tmp_path / folder / "beside_pack").mkdir(parents=True)
        (tmp_path / folder / "beside.py").write_text(f"name = {folder!r}\n")
        (tmp_path / folder / "beside_pack" / "__init__.py").write_text("")
        (tmp_path / folder / "beside_pack" / "inner.py").write_text(f"place = {folder!r}\n")
        text = "from beside import name\nfrom beside_pack.inner import place\n"
        (tmp_path / folder / "app.py").write_text(text)
    for folder in ("first", "second", "first"):
        module = find_module(str(tmp_path / folder / "app.py"))
        assert (module.name, module.place) == (folder, folder)
    assert sys.path == before
    (tmp_path / "first" / "broken.py").write_text("import no_such_module_anywhere\n")
    with error(RegunError, "ModuleNotFoundError", "'no_such_module_anywhere'"):
        find_module(str(tmp_path / "first" / "broken.py"))
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("~nobody-here/x.py:f", "'~nobody-here/x.py'"),
        (".py:f", "'.py'"),
        ("..:f", ".."),
        ("os.path:sep", "os.path:sep"),
        ("", "module:function"),
    ],
)
def test_names_that_are_no_code_are_named(name: str, named: str) -> None:
    with error(RegunError, named):
        find_function(name, "builds a model")


# ------------------------------------------------------------------------------------------------------- streams


def test_a_reader_who_leaves_early_is_no_error() -> None:
    with subprocess.Popen([*REGUN, "models"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")


def test_work_is_done_although_nobody_reads_its_progress(tmp_path: Path) -> None:
    """The reader of standard error is gone before anything is written."""
    read, write = os.pipe()
    os.close(read)
    words = [*TINY[:-1], "--store", str(tmp_path / "store")]
    done = subprocess.run([*REGUN, "train", *words], stdout=subprocess.PIPE, stderr=write, timeout=120)
    os.close(write)
    assert done.returncode == 0
    assert_names(done.stdout.decode(), "cnn", "digits", "trained")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_output_that_cannot_be_written_is_no_success() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*REGUN, "models"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 3
    assert done.stderr.startswith("regun: ")
    assert_names(done.stderr, "output")


def test_streams_may_be_closed(tmp_path: Path) -> None:
    words = " ".join([*TINY[:-1], "--store", str(tmp_path / "store")])
    for command in ("data", f"train {words}"):
        closed = subprocess.run(f"{sys.executable} -m regun {command} >&- 2>&-", shell=True, timeout=120)
        assert closed.returncode == 0


def test_characters_that_the_encoding_lacks_are_escaped() -> None:
    surroundings = {**os.environ, "PYTHONIOENCODING": "ascii"}
    name = "größe-\udcff.py:x"
    done = subprocess.run([*REGUN, "methods", name], capture_output=True, env=surroundings, timeout=60)
    assert done.returncode == 2
    assert b"gr\\xf6\\xdfe-" in done.stderr
    assert b"Traceback" not in done.stderr
