"""Tuned settings as a file: the block that `regun tune` writes, and that studies and `regun unlearn --settings` read.

[settings."0.1".regun]          # [settings.<request>.<method text before its first comma>]
lr = 0.05
w = 0.97
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from regun.errors import RegunError, SettingsError
from regun.methods import MethodSpec
from regun.settings import read_toml

Blocks = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Request text -> method text -> setting -> value."""


def read_settings(path: Path | str) -> dict[str, dict[str, dict[str, Any]]]:
    """The settings of a file, by request and method; the file may hold other tables besides `settings`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as fault:
        raise RegunError(f"cannot read the settings file {path}: {fault.strerror or fault}.") from None
    except UnicodeDecodeError as fault:
        raise RegunError(f"{path} is not a TOML file: {fault}. `regun tune --out DIR` writes one.") from None
    return parse_settings(read_toml(text, str(path)).get("settings"), str(path))


def parse_settings(value: Any, source: str) -> dict[str, dict[str, dict[str, Any]]]:
    """The `settings` table of a parsed TOML file, checked."""
    if not _is_table(value):
        raise SettingsError([f'{source} has no table [settings."REQUEST".METHOD], for example [settings."0.1".regun].'])
    problems: list[str] = []
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for request, methods in value.items():
        if not _is_table(methods) or not all(_is_table(block) for block in methods.values()):
            problems.append(f"{source}: settings.{request} must hold one table a method, got {methods!r}.")
            continue
        found[request] = {method: dict(block) for method, block in methods.items()}
        for method, block in methods.items():
            wrong = [name for name, v in block.items() if not _writable(v)]
            problems += [
                f"{source}: settings.{request}.{method}.{name} is {block[name]!r}; {ALLOWED}" for name in wrong
            ]
    if problems:
        raise SettingsError(problems)
    return found


def settings_for(blocks: Blocks, request: str, method: str, source: str = "the settings file") -> dict[str, Any]:
    """The settings of one request and method (its text up to the first comma); an error names what there is."""
    name = MethodSpec.parse(method).label
    if request not in blocks:
        known = ", ".join(sorted(blocks)) or "none"
        raise SettingsError([f"{source} has no settings for the request {request!r}; it has requests: {known}."])
    if name not in blocks[request]:
        known = ", ".join(sorted(blocks[request])) or "none"
        raise SettingsError(
            [f"{source} has no settings for the method {name!r} and request {request!r}; it has methods: {known}."]
        )
    return dict(blocks[request][name])


def format_settings(blocks: Blocks, remarks: Mapping[tuple[str, str], str] | None = None) -> str:
    """The blocks as TOML text; `remarks` are comments by request and method."""
    parts: list[str] = []
    for request, methods in blocks.items():
        for method, values in methods.items():
            remark = (remarks or {}).get((request, method), "")
            lines = [f"# {_printable(line)}" for line in remark.splitlines()]
            lines.append(f"[settings.{_key(request)}.{_key(method)}]")
            parts.append("\n".join([*lines, *(f"{_key(name)} = {_value(name, v)}" for name, v in values.items())]))
    return "\n\n".join(parts) + "\n" if parts else "[settings]\n"


def write_settings(path: Path | str, blocks: Blocks, remarks: Mapping[tuple[str, str], str] | None = None) -> None:
    """Write the blocks to a file; reading it gives them back."""
    text = format_settings(blocks, remarks)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as fault:
        raise RegunError(f"cannot write {path}: {fault.strerror or fault}. Name a file you may write.") from None


ALLOWED = "give text, true or false, a finite number, or a list of these."


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _writable(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_writable(v) and not isinstance(v, list | tuple) for v in cast("list[Any]", value))
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else _text(text)


def _value(name: str, value: Any) -> str:
    if not _writable(value):
        raise SettingsError([f"{name} is {value!r}, which a settings file cannot hold; {ALLOWED}"])
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(name, v) for v in cast('list[Any]', value))}]"
    return repr(value)


def _printable(line: str) -> str:
    """A comment may not hold control characters."""
    return "".join(c if c.isprintable() else " " for c in line)


def _text(text: str) -> str:
    """A TOML basic string; JSON's escapes are TOML's, but for the delete character, which TOML wants escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
