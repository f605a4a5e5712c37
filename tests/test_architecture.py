"""The map of the code names what is there: every file, and every function, class or constant behind a file."""

import ast
import re
from pathlib import Path

import pytest

import regun

ROOT = Path(regun.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
FILE = r"(?:[a-z_]+/)*_?[a-z_]+\.(?:py|toml|html)"


def places(text: str) -> list[tuple[str, str]]:
    """Files, each with a name in it: `cli/train.py: run`, and, behind it, `other` of the same file."""
    found: list[tuple[str, str]] = []
    for cell in re.split(r"\||\n\n|->|;|\.\s", text):
        file = ""
        for quoted in re.findall(r"`([^`]+)`", cell):
            whole = re.fullmatch(rf"({FILE})(?:: (\w+))?", quoted)
            if whole:
                file = whole[1]
                found.append((file, whole[2] or ""))
            elif file.endswith(".py") and found[-1][1] and re.fullmatch(r"[A-Za-z_]\w*", quoted):
                found.append((file, quoted))
    return [(file, name) for file, name in found if not file.startswith("tests/")]


def names_in(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


@pytest.mark.parametrize(("file", "name"), sorted(set(places(PAGE.read_text()))))
def test_what_the_map_names_is_there(file: str, name: str) -> None:
    assert (ROOT / file).is_file(), f"docs/architecture.md names {file}"
    assert not name or name in names_in(ROOT / file), f"docs/architecture.md names {name} in {file}"


def test_the_map_names_every_package_and_many_places() -> None:
    text = PAGE.read_text()
    packages = {f"`{path.name}/`" for path in ROOT.iterdir() if (path / "__init__.py").is_file()}
    assert {name for name in packages if name not in text} == set()
    assert len(set(places(text))) > 40
    assert len(text.splitlines()) <= 120


def test_the_check_sees_names_that_are_not_there() -> None:
    text = "| `cli/train.py: run`, `nothing` -> `no/such.py` | `Signals` |"
    assert places(text) == [("cli/train.py", "run"), ("cli/train.py", "nothing"), ("no/such.py", "")]
    assert "nothing" not in names_in(ROOT / "cli" / "train.py")
