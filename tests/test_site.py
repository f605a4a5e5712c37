"""The documentation site: its pages follow from the code, its diagrams from their script, and its code runs."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

import regun
from regun.cli import build_parser
from regun.methods import method_names

DOCS = Path(__file__).parents[1] / "docs"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_command_and_method_has_its_place() -> None:
    pages = load("site_pages")
    api, shell, methods = pages.api_page(), pages.commands_page(), pages.methods_page()
    assert [name for name in regun.__all__ if f":: regun.{name}\n" not in api] == []
    assert [name for name, _ in pages.commands(build_parser()) if f"## {name}\n" not in shell] == []
    assert [name for name in method_names() if f"(`{name}`)" not in methods] == []
    assert "More" not in api  # a new name belongs to a group


def test_every_how_to_is_listed() -> None:
    index = (DOCS / "index.md").read_text()
    scripts = [*(DOCS / "howto").glob("*.py"), *(DOCS / "howto").glob("*.ipynb")]
    assert [path.stem for path in scripts if f"howto/{path.stem}" not in index] == []


def test_diagrams_are_those_of_the_script() -> None:
    figures = load("figures")
    drawings = {name: str(draw()) for name, draw in figures.DRAWINGS.items()}
    assert drawings == {path.stem: path.read_text() for path in (DOCS / "figures").glob("*.svg")}


@pytest.mark.parametrize("link", ["howto/own_method.py", "../CONTRIBUTING.md", "metrics.md#gaps"])
def test_links_to_files_of_the_repository_lead_to_their_pages(link: str, tmp_path: Path) -> None:
    pages = load("site_pages")
    pages.write_pages(DOCS)
    source = [f"[text]({link})"]
    pages.rewrite_links(type("App", (), {"srcdir": str(DOCS)}), "studies", source)
    target = re.fullmatch(r"\[text\]\(([^#)]+)(#\w+)?\)", source[0])
    assert target is not None
    assert (DOCS / target[1]).suffix == ".md"
    assert (DOCS / target[1]).exists()


def test_the_first_steps_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "start.md").read_text(), re.DOTALL)
    names: dict[str, object] = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in blocks:
            exec(compile(block, "start.md", "exec"), names)
    assert len(blocks) == 3
    assert (tmp_path / "deletions").is_dir()
    assert "receipt.html" in capsys.readouterr().out
