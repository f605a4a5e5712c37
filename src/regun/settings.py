"""Settings as frozen dataclasses: declared with one line of help and limits, read from text, validated together."""

import dataclasses
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar, cast, get_args, get_type_hints

from regun.errors import RegunError, SettingsError, unknown


class Settings(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


S = TypeVar("S", bound=Settings)

LIMIT = 2**63
"""Integers must be smaller than this, so that they fit in every array and file."""

BOOLEANS = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False, "1": True, "0": False}
KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "text"),
}


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: Sequence[Any] | None = None,
) -> Any:
    """Return a dataclass field with one line of help and limits (`low` and `high` inclusive, `above` exclusive)."""
    limits = {"help": help, "low": low, "high": high, "above": above, "choices": choices}
    return dataclasses.field(default=default, metadata=limits)


def noun_of(settings: Settings) -> str:
    """Return the name of settings in messages: a method's `Config` by its module, others by their class."""
    kind = type(settings)
    return kind.__module__.rsplit(".", 1)[-1] if kind.__name__ == "Config" else kind.__name__.lower()


def check(settings: Settings, name: str) -> None:
    """Raise one SettingsError that lists every field with a wrong type or a value outside its limits."""
    problems: list[str] = []
    hints = get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        problem = _problem(value, hints[field.name], field.metadata)
        if problem:
            problems.append(f"{name}.{field.name} is {shown(value)}; {problem}. ({field.metadata.get('help', '')})")
    if problems:
        raise SettingsError(problems)


def bind(cls: type[S], values: Mapping[str, Any], name: str, base: S | None = None) -> S:
    """Build `cls` from text or JSON values over `base` (or the defaults); the error lists all that is wrong.

    The limits of a `setting` hold whether or not the class checks itself.
    """
    hints = get_type_hints(cls)
    fields = {f.name: f.metadata for f in dataclasses.fields(cls)}
    problems = [unknown(f"setting of {name}", key, fields) for key in values if key not in fields]
    parsed: dict[str, Any] = {}
    for key, value in values.items():
        try:
            if key in fields:
                parsed[key] = _parse(value, hints[key])
        except ValueError as error:
            problems.append(f"{name}.{key} is {shown(value)}; {error}.")
    try:
        settings = dataclasses.replace(base, **parsed) if base is not None else cls(**parsed)
    except SettingsError as error:
        raise SettingsError([*problems, *error.problems]) from None
    except TypeError as error:
        raise SettingsError([*problems, f"{name}: {error}"]) from None
    for key, value in parsed.items():
        problem = _problem(value, hints[key], fields[key]) if "help" in fields[key] else None
        if problem:
            problems.append(f"{name}.{key} is {shown(value)}; {problem}. ({fields[key]['help']})")
    if problems:
        raise SettingsError(problems)
    return settings


def parse_spec(text: str) -> tuple[str, dict[str, str]]:
    """Split `name,key=value,key=value` into the name and its settings.

    >>> parse_spec("resnet18,width=16")
    ('resnet18', {'width': '16'})
    """
    name, *pairs = [part.strip() for part in text.split(",")]
    faults = [p for p in pairs if "=" not in p or not p.split("=", 1)[0].strip()]
    if not name or "=" in name or faults:
        at_fault = shown(faults or [name])
        raise SettingsError([f"{shown(text)} is not of the form name,key=value,key=value (at fault: {at_fault})."])
    settings = [(k.strip(), v.strip()) for k, v in (p.split("=", 1) for p in pairs)]
    names = [k for k, _ in settings]
    twice = sorted({k for k in names if names.count(k) > 1})
    if twice:
        raise SettingsError([f"{shown(text)} gives {', '.join(twice)} more than once; give each setting once."])
    return name, dict(settings)


def to_json(settings: Settings) -> dict[str, Any]:
    """Return the settings as plain JSON values (tuples become lists), to be stored and hashed."""
    values = dataclasses.asdict(settings)
    try:
        return json.loads(json.dumps(values, allow_nan=False))
    except ValueError:
        raise SettingsError(
            [f"{noun_of(settings)} has a value that is not finite, so it cannot be stored: {values}."]
        ) from None


def read_toml(text: str, source: str) -> dict[str, Any]:
    """Parse TOML. Syntax errors and repeated keys raise a RegunError that names `source`."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise RegunError(f"{source} is not valid TOML: {error}.") from None


def read_json(text: str | bytes, source: str) -> Any:
    """Parse JSON. Syntax errors, repeated keys, NaN and Infinity raise a RegunError that names `source`."""

    def reject_constant(name: str) -> Any:
        raise ValueError(f"{name} is not a JSON number")

    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        repeated = next((key for key in keys if keys.count(key) > 1), None) if len(set(keys)) < len(keys) else None
        if repeated is not None:
            raise ValueError(f"the key {shown(repeated)} occurs more than once in one object; write it once")
        return dict(pairs)

    try:
        return json.loads(text, parse_constant=reject_constant, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise RegunError(f"{source} is not valid JSON: {error}.") from None


def shown(value: object) -> str:
    """Return a value as messages show it, at most about 200 characters.

    >>> shown("abc"), shown("9" * 500)
    ("'abc'", "'99999999999999999999...' (500 characters)")
    """
    text = repr(value)
    if len(text) <= 200:
        return text
    return f"{value[:20]!r:.21}...' ({len(value)} characters)" if isinstance(value, str) else f"{text[:100]}..."


def _parse(value: Any, hint: Any) -> Any:
    """Return a text or JSON value as the type of its setting; raise a ValueError that says what is allowed."""
    options = get_args(hint)
    if type(None) in options:
        if value is None or value == "none":
            return None
        return _parse(value, next(o for o in options if o is not type(None)))
    if hint is bool:
        word = str(value).lower()
        if word not in BOOLEANS:
            raise ValueError("give true or false")
        return BOOLEANS[word]
    if hint is int:
        return _parse_int(value)
    if hint is float:
        return _parse_float(value)
    if hint is str:
        return str(value)
    if options and isinstance(value, list):  # a tuple from JSON or TOML
        return tuple(_parse(v, options[0]) for v in value)  # type: ignore[reportUnknownVariableType]
    if options and isinstance(value, str):  # a tuple from the command line: a/b/c
        return tuple(_parse(v, options[0]) for v in value.split("/"))
    return value


def _parse_float(value: Any) -> float:
    """Return a finite number."""
    if isinstance(value, bool):
        raise ValueError("give a number")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("give a number") from None
    if not math.isfinite(number):
        raise ValueError("give a finite number")
    return number


def _parse_int(value: Any) -> int:
    """Return an integer, also of 1e3 and 3.0; digits are not read by way of a float, which is exact up to 2**53."""
    if isinstance(value, bool):
        raise ValueError("give a whole number")
    if isinstance(value, int) or (isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value)):
        number = int(value)
    else:
        real = _parse_float(value)
        if not real.is_integer():
            raise ValueError("give a whole number")
        number = int(real)
    if abs(number) >= LIMIT:
        raise ValueError("give a whole number below 2**63")
    return number


def _problem(value: Any, hint: Any, limits: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a value, as what is allowed; None if nothing is."""
    choices = limits.get("choices")
    if choices is not None and value not in choices:
        return f"give one of {', '.join(map(str, choices))}"
    options = get_args(hint)
    if value is None:
        return None if type(None) in options else "give a value"
    kind = next(o for o in options if o is not type(None)) if type(None) in options else hint
    if kind in KINDS:
        allowed, text = KINDS[kind]
        if not isinstance(value, allowed) or isinstance(value, bool) != (kind is bool):
            return f"give {text}"
    numbers: tuple[Any, ...] = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)
    if any(isinstance(number, int) and abs(number) >= LIMIT for number in numbers):
        return "give a whole number below 2**63"
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    low, high, above = limits.get("low"), limits.get("high"), limits.get("above")
    if math.isnan(value):
        return "it is not a number"
    if low is not None and value < low:
        return f"the least allowed is {low}"
    if above is not None and value <= above:
        return f"it must be above {above}"
    if high is not None and value > high:
        return f"the most allowed is {high}"
    return None
