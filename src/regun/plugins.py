"""Code of the user's, by name: `module`, `path/to/file.py`, and functions in either."""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from regun.errors import RegunError, unknown


def find_function(name: str, what: str) -> Callable[..., Any]:
    """The function of `module:function` or `path/to/file.py:function`; `what` it should do is for the messages."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute.isidentifier():
        raise RegunError(f"{name!r} is not of the form module:function or path/to/file.py:function.")
    module = find_module(place)
    if attribute not in vars(module):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise RegunError(unknown(f"function of {place}", attribute, names))
    function = vars(module)[attribute]
    if not callable(function):
        raise RegunError(f"{name} is a {type(function).__name__}, not a function that {what}.")
    return function


def find_module(place: str) -> ModuleType:
    """A module by its dotted name, or a Python file by its path."""
    return _run_file(Path(place).expanduser()) if place.endswith(".py") else _import(place)


def _import(place: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as fault:
        if fault.name is None or not (place == fault.name or place.startswith(fault.name + ".")):
            raise RegunError(f"importing {place} failed: {type(fault).__name__}: {fault}") from fault
        raise RegunError(
            f"there is no module {place!r} on Python's path, and no built-in of that name. "
            f"For a file, write its path: {place.replace('.', '/')}.py:function"
        ) from fault
    except Exception as fault:
        raise RegunError(f"importing {place} failed: {type(fault).__name__}: {fault}") from fault


def _run_file(path: Path) -> ModuleType:
    """The file as a module; its name holds the digest of its text, so an edited file is run anew."""
    if not path.is_file():
        raise RegunError(f"there is no file {str(path)!r}; looked in {Path.cwd()}.")
    name = f"{path.stem}_{hashlib.sha256(bytes(path.resolve()) + path.read_bytes()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise RegunError(f"{path} cannot be run as Python code.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look a class's module up there
    try:
        spec.loader.exec_module(module)
    except Exception as fault:
        del sys.modules[name]
        raise RegunError(f"running {path} failed: {type(fault).__name__}: {fault}") from fault
    return module
