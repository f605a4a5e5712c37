"""Digests of values and of code. Artifacts are named by both, so that a cached result cannot be stale.

A digest of code covers modules and all of regun that they import, however indirectly, without comments, docstrings
and layout. Modules that decide messages only are left out.
"""

import ast
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).parent
_SOURCES = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}
"""Source of the package when this process began; later edits do not run in it."""
MESSAGES_ONLY = {"regun.errors", "regun.settings", "regun.plugins", "regun.hashing"}


def canonical_json(value: Any) -> str:
    """Return JSON text that is the same for the same content, also after storage: sorted keys, no spaces, no NaN."""
    stored = json.loads(json.dumps(value, allow_nan=False))  # keys become text first, and sort as text
    return json.dumps(stored, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any) -> str:
    """Return the SHA-256 (hex) of a JSON value, of an array's dtype, shape and bytes, or of raw bytes."""
    if isinstance(value, np.ndarray):
        array = cast("npt.NDArray[Any]", value)
        sha = hashlib.sha256(canonical_json([str(array.dtype), list(array.shape)]).encode())
        sha.update(np.ascontiguousarray(array).data if array.size else b"")
        return sha.hexdigest()
    return hashlib.sha256(value if isinstance(value, bytes) else canonical_json(value).encode()).hexdigest()


@cache
def code_digest(*modules: str) -> str:
    """Return the SHA-256 of these modules of regun and of all of regun that they import.

    >>> code_digest("regun.splits") == code_digest("regun.splits", "regun.rng")  # splits imports seeds
    True
    """
    covered: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in covered and name not in MESSAGES_ONLY:
            covered.add(name)
            waiting += _module(name)[1]
    return digest(sorted((name, _module(name)[0]) for name in covered))


@cache
def _module(name: str) -> tuple[str, tuple[str, ...]]:
    """Return a module's code in a normal form without docstrings, and the modules of regun that it imports."""
    path = _path(name)
    if path is None:
        raise ModuleNotFoundError(f"regun has no module {name!r}")
    tree, imported = ast.parse(_SOURCES[path]), list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names if alias.name.startswith("regun.")]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "regun":
            # `from regun.a import b` may mean regun.a.b too
            imported += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [part for part in node.body if not _is_docstring(part)] or [ast.Pass()]
    return ast.unparse(tree), tuple(module for module in imported if module != "regun" and _path(module) is not None)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _path(module: str) -> Path | None:
    """Return the file of a module of regun; None if there is none."""
    place = Path(*module.split(".")[1:])
    return next((p for p in (place.with_suffix(".py"), place / "__init__.py") if p in _SOURCES), None)
