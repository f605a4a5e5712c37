"""The package: a wheel built from the source archive has everything, and works from somewhere else."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

import regun

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "src/regun"
NO_REGISTRY = re.compile(
    "No matching distribution found|Failed to establish a new connection|Temporary failure in name"
)


def run(*command: str | Path, where: Path, **more: str) -> str:
    surroundings = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "REGUN_STORE", "REGUN_DATA")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=where,
        env={**surroundings, "OMP_NUM_THREADS": "1", **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    if done.returncode and NO_REGISTRY.search(done.stdout):
        pytest.skip("the build backend is not installed and there is no package registry at hand")
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source archive, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    alone = ["--no-isolation"] if find_spec("hatchling") else []
    run(sys.executable, "-m", "build", *alone, "--outdir", folder, PROJECT, where=folder)
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return {"wheel": wheel, "archive": archive}


def test_the_wheel_holds_the_package_whole_and_nothing_else(built: dict[str, Path]) -> None:
    assert built["wheel"].name == f"regun-{version('regun')}-py3-none-any.whl"
    with zipfile.ZipFile(built["wheel"]) as wheel:
        packed = {n: wheel.read(n) for n in wheel.namelist() if ".dist-info/" not in n}
    ours = [p for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert packed == {f"regun/{p.relative_to(PACKAGE)}": p.read_bytes() for p in ours}
    assert "regun/py.typed" in packed
    folders = {p.parent for p in PACKAGE.rglob("*.py")}
    assert {f"regun/{f.relative_to(PACKAGE) / '__init__.py'}".replace("/./", "/") for f in folders} <= set(packed)


def test_the_wheel_says_what_it_is(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        (folder,) = {n.split("/")[0] for n in wheel.namelist() if ".dist-info/" in n}
        about = Parser().parsestr(wheel.read(f"{folder}/METADATA").decode())
        assert "regun = regun.cli:main" in wheel.read(f"{folder}/entry_points.txt").decode()
        assert f"{folder}/licenses/LICENSE" in wheel.namelist()
    assert (about["Name"], about["Requires-Python"], about["License-Expression"]) == ("regun", ">=3.11", "MIT")
    core = {re.split(r"[<>=;\[ ]", need)[0] for need in about.get_all("Requires-Dist") if "extra ==" not in need}
    assert core == {
        *(
            "numpy",
            "torch",
            "safetensors",
            "filelock",
            "scikit-learn",
            "scipy",
            "matplotlib",
            "jinja2",
            "markupsafe",
            "rich",
            "pooch",
            "tomli-w",
        )
    }
    assert len(about.get_payload()) > 200


def test_the_source_archive_can_be_tested_elsewhere(built: dict[str, Path]) -> None:
    with tarfile.open(built["archive"]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "src/regun/py.typed",
        "tests/conftest.py",
        "tests/toys.py",
    } <= names
    assert not [name for name in names if "__pycache__" in name or "regun-store" in name]


def test_twine_has_no_complaint(built: dict[str, Path]) -> None:
    said = run(sys.executable, "-m", "twine", "check", "--strict", *built.values(), where=PROJECT)
    assert said.count("PASSED") == 2


@pytest.mark.slow
def test_it_works_from_a_fresh_environment_and_another_folder(built: dict[str, Path], tmp_path: Path) -> None:
    """The wheel alone is installed; its dependencies are lent by a path entry, to spare a download."""
    place, elsewhere = tmp_path / "venv", tmp_path / "elsewhere"
    elsewhere.mkdir()
    run(sys.executable, "-m", "venv", place, where=tmp_path)
    python, command = place / "bin/python", place / "bin/regun"
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", built["wheel"], where=elsewhere)
    purelib = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", where=elsewhere).strip()
    (Path(purelib) / "lent.pth").write_text(sysconfig.get_path("purelib"))
    assert run(python, "-c", "import regun; print(regun.__file__)", where=elsewhere).startswith(str(place))
    assert run(command, "--version", where=elsewhere).strip() == f"regun {version('regun')}"
    data = ("--data", "digits,limit=400,test_limit=50", "--threads", "1")
    said = run(command, "train", "--recipe", "digits,epochs=1", *data, where=elsewhere)
    assert "cnn on digits: trained" in said
    assert "found in the store" in run(command, "train", "--recipe", "digits,epochs=1", *data, where=elsewhere)
    assert (elsewhere / "regun-store/artifacts/model").is_dir()
    assert "ReGUn" in run(command, "methods", "regun", where=elsewhere)
    assert run(command, "store", "verify", where=elsewhere).endswith(" 0 damaged.\n")


def test_the_public_list_can_be_had() -> None:
    for name in regun.__all__:
        assert getattr(regun, name) is not None
    with pytest.raises(AttributeError, match="module 'regun' has no attribute 'unlern'"):
        regun.unlern  # noqa: B018
