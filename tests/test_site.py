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
ROOT = DOCS.parent
GENERATED = ("reference", "develop", "howto", "tables")
"""Folders whose Markdown `make docs` writes."""
WRITTEN = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
WRITTEN += sorted(path for path in DOCS.rglob("*.md") if path.parent.name not in GENERATED)


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


def test_pages_are_short_and_lines_can_be_read() -> None:
    """At most 300 lines a page and 120 characters a line; Markdown cannot break a row of a table, which gets 250."""
    texts = {path.relative_to(ROOT): path.read_text(encoding="utf-8").splitlines() for path in WRITTEN}
    assert len(texts) > 40
    assert {str(path): len(lines) for path, lines in texts.items() if len(lines) > 300} == {}
    assert len(texts[Path("README.md")]) <= 120
    long = [
        f"{path}:{number}"
        for path, lines in texts.items()
        for number, line in enumerate(lines, 1)
        if len(line) > (250 if line.startswith("|") else 120)
    ]
    assert long == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda path: path.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for target, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)", text):
        path = (page.parent / target).resolve() if target else page
        if not path.exists():
            broken.append(target)
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            broken.append(f"{target}#{anchor}")
    assert broken == []


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
