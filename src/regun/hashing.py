"""The code that decides a result, as a digest: part of the name of all that is made, so that nothing can be stale.

A digest covers the modules named and all of regun that they import, however indirectly, without comments, docstrings
and layout. Modules whose code decides words only are left out.
"""

import ast
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).parent
_SOURCES = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}
"""All of the package as it was when this process began: what is edited later is not what runs here."""
WORDS_ONLY = {"regun.errors", "regun.settings", "regun.plugins", "regun.hashing"}


def canonical_json(value: Any) -> str:
    """JSON text that is the same for the same content, also after it was stored: sorted keys, no spaces, no NaN."""
    stored = json.loads(json.dumps(value, allow_nan=False))  # keys become text, and sort as text, before anything else
    return json.dumps(stored, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any) -> str:
    """SHA-256 (hex) of a JSON value, of an array's dtype, shape and bytes, or of raw bytes."""
    if isinstance(value, np.ndarray):
        array = cast("npt.NDArray[Any]", value)
        sha = hashlib.sha256(canonical_json([str(array.dtype), list(array.shape)]).encode())
        sha.update(np.ascontiguousarray(array).data if array.size else b"")
        return sha.hexdigest()
    return hashlib.sha256(value if isinstance(value, bytes) else canonical_json(value).encode()).hexdigest()


@cache
def code_digest(*modules: str) -> str:
    """SHA-256 of these modules of regun and of all of regun that they import.

    >>> code_digest("regun.splits") == code_digest("regun.splits", "regun.rng")  # splits imports seeds
    True
    """
    return digest(sorted({name: _text(name) for name in _closure(modules)}.items()))


def _closure(modules: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found and name not in WORDS_ONLY:
            found.add(name)
            waiting += _imports(name)
    return found


@cache
def _imports(module: str) -> tuple[str, ...]:
    return tuple(name for name in _named(_tree(module)) if _path(name) is not None)


def _named(tree: ast.Module) -> Iterator[str]:
    """Every module of regun that is imported anywhere in the file; `from regun.a import b` may mean regun.a.b too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("regun."))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "regun":
            if node.module != "regun":
                yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def _text(module: str) -> str:
    """The module's code in one normal form, docstrings left out."""
    tree = _tree(module)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [part for part in node.body if not _is_text(part)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _tree(module: str) -> ast.Module:
    path = _path(module)
    if path is None:
        raise ModuleNotFoundError(f"regun has no module {module!r}")
    return ast.parse(_SOURCES[path])


def _path(module: str) -> Path | None:
    place = Path(*module.split(".")[1:])
    return next((p for p in (place.with_suffix(".py"), place / "__init__.py") if p in _SOURCES), None)
