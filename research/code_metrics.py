"""Print size and shape of the source tree: lines, classes, function lengths, names used twice, tests that pin text.

python research/code_metrics.py [ROOT]          # ROOT holds src/regun and tests; default: this repository
"""

import ast
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Shape:
    """Counts over the files of one tree."""

    lines: int = 0
    files: Counter[str] = field(default_factory=Counter[str])
    classes: int = 0
    raises: int = 0
    tests: int = 0
    lengths: list[int] = field(default_factory=list[int])
    private_uses: list[int] = field(default_factory=list[int])
    module_names: Counter[str] = field(default_factory=Counter[str])


def shape_of(folder: Path) -> Shape:
    """Count over all Python files below a folder."""
    shape = Shape()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        functions = [node for node in nodes if isinstance(node, Function)]
        private = {f.name for f in functions if f.name.startswith("_") and not f.name.startswith("__")}
        shape.lines += text.count("\n")
        shape.files[path.name] += 1
        shape.classes += sum(isinstance(node, ast.ClassDef) for node in nodes)
        shape.raises += sum(isinstance(node, ast.Raise) for node in nodes)
        shape.tests += sum(f.name.startswith("test_") for f in functions)
        shape.lengths += [(f.end_lineno or f.lineno) - f.lineno + 1 for f in functions]
        shape.private_uses += [len(re.findall(rf"\b{name}\b", text)) - 1 for name in private]
        shape.module_names.update(set(names_defined(tree)))
    return shape


def names_defined(tree: ast.Module) -> list[str]:
    """Return the functions, classes and variables that a module defines, without dunder names."""
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("__")]


def text_pins(folder: Path) -> int:
    """Count `pytest.raises(..., match=...)` and the like: tests that break when a sentence is reworded."""
    calls = (
        node
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    )
    return sum(any(keyword.arg == "match" for keyword in call.keywords) for call in calls)


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    source, tests = shape_of(root / "src" / "regun"), shape_of(root / "tests")
    repeated = sum(n > 1 for name, n in source.files.items() if name != "__init__.py")
    rows = {
        "lines": source.lines,
        "files": source.files.total(),
        "file names used twice": repeated,
        "classes": source.classes,
        "functions": len(source.lengths),
        "mean function length": round(sum(source.lengths) / len(source.lengths), 1),
        "private functions": len(source.private_uses),
        "private functions called once": sum(uses == 1 for uses in source.private_uses),
        "raises per 1,000 lines": round(1000 * source.raises / source.lines, 1),
        "duplicate module-level names": sum(n > 1 for n in source.module_names.values()),
        "lines of tests": tests.lines,
        "test functions": tests.tests,
        "text-pinning tests (match=)": text_pins(root / "tests"),
    }
    for name, value in rows.items():
        print(f"{name:32} {value:>8,}")


if __name__ == "__main__":
    main()
