"""Tuned settings as a file: the block that `regun tune` writes, and that studies and `regun unlearn --settings` read.

[settings."0.1".regun]          # [settings.<request>.<method text before its first comma>]
lr = 0.05
w = 0.97
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import tomli_w

from regun.errors import RegunError, SettingsError
from regun.methods import MethodSpec
from regun.render.tables import plain
from regun.settings import read_toml

Blocks = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Request text -> method text -> setting -> value."""


def read_settings(path: Path | str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the settings of a file, by request and method; the file may hold other tables besides `settings`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise RegunError(f"cannot read the settings file {path}: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise RegunError(f"{path} is not a TOML file: {error}. `regun tune --out DIR` writes one.") from None
    return parse_settings(read_toml(text, str(path)).get("settings"), str(path))


def parse_settings(value: Any, source: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the checked `settings` table of a parsed TOML file."""
    if not isinstance(value, dict):
        raise SettingsError([f'{source} has no table [settings."REQUEST".METHOD], for example [settings."0.1".regun].'])
    problems: list[str] = []
    blocks: dict[str, dict[str, dict[str, Any]]] = {}
    for request, methods in cast("dict[str, Any]", value).items():
        if isinstance(methods, dict) and all(isinstance(b, dict) for b in cast("dict[str, Any]", methods).values()):
            blocks[request] = {method: dict(block) for method, block in cast("dict[str, Any]", methods).items()}
        else:
            problems.append(f"{source}: settings.{request} must hold one table per method; got {methods!r}.")
    problems += _problems(blocks, source)
    if problems:
        raise SettingsError(problems)
    return blocks


def settings_for(blocks: Blocks, request: str, method: str, source: str = "the settings file") -> dict[str, Any]:
    """Return the settings of one request and method (its text up to the first comma)."""
    name = MethodSpec.parse(method).label
    if request not in blocks:
        requests = ", ".join(sorted(blocks)) or "none"
        raise SettingsError([f"{source} has no settings for the request {request!r}; it has requests: {requests}."])
    if name not in blocks[request]:
        methods = ", ".join(sorted(blocks[request])) or "none"
        raise SettingsError(
            [f"{source} has no settings for the method {name!r} and request {request!r}; it has methods: {methods}."]
        )
    return dict(blocks[request][name])


def format_settings(blocks: Blocks, remarks: Mapping[tuple[str, str], str] | None = None) -> str:
    """Return the blocks as TOML text; `remarks` are comments by request and method."""
    problems = _problems(blocks, "the settings")
    if problems:
        raise SettingsError(problems)
    parts: list[str] = []
    for request, methods in blocks.items():
        for method, values in methods.items():
            remark = (remarks or {}).get((request, method), "")
            comments = "".join(f"# {plain(line)}\n" for line in remark.splitlines())  # TOML: no control characters
            parts.append(comments + tomli_w.dumps({"settings": {request: {method: values}}}))
    return "\n".join(parts) or "[settings]\n"


def _problems(blocks: Blocks, source: str) -> list[str]:
    """Return an error for each value that a settings file cannot hold."""
    return [
        f"{source}: settings.{request}.{method}.{name} is {value!r}; give text, true or false, a finite number, or a "
        f"list of these."
        for request, methods in blocks.items()
        for method, block in methods.items()
        for name, value in block.items()
        if not _writable(value)
    ]


def _writable(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_writable(v) and not isinstance(v, list | tuple) for v in cast("list[Any]", value))
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))
