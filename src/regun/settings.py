"""Settings as frozen dataclasses: declared with a line of explanation and bounds, read from text, checked at once."""

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
"""Whole numbers are below it, in size: they fit in every array and every file."""
_TOO_LARGE = "give a whole number below 2**63"

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
    """A dataclass field with one line of explanation and its limits (`low` and `high` inclusive, `above` exclusive)."""
    limits = {"help": help, "low": low, "high": high, "above": above, "choices": choices}
    return dataclasses.field(default=default, metadata=limits)


def noun_of(settings: Settings) -> str:
    """What messages call these settings: a method's `Config` by its file's name, others by their class."""
    kind = type(settings)
    return kind.__module__.rsplit(".", 1)[-1] if kind.__name__ == "Config" else kind.__name__.lower()


def check(settings: Settings, name: str) -> None:
    """Raise one SettingsError that lists every field of `settings` outside its type or limits."""
    problems: list[str] = []
    hints = get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        fault = _fault(value, hints[field.name], field.metadata)
        if fault:
            problems.append(f"{name}.{field.name} is {shown(value)}; {fault}. ({field.metadata.get('help', '')})")
    if problems:
        raise SettingsError(problems)


def bind(cls: type[S], values: Mapping[str, Any], name: str, base: S | None = None) -> S:
    """Build `cls` from text or JSON values over `base` (or the defaults); all unknown keys and bad values at once.

    The limits of a `setting` hold whether or not the class checks itself.
    """
    hints = get_type_hints(cls)
    known = {f.name: f.metadata for f in dataclasses.fields(cls)}
    problems = [unknown(f"setting of {name}", key, known) for key in values if key not in known]
    read: dict[str, Any] = {}
    for key, value in values.items():
        try:
            if key in known:
                read[key] = _read(value, hints[key])
        except ValueError as fault:
            problems.append(f"{name}.{key} is {shown(value)}; {fault}.")
    try:
        made = dataclasses.replace(base, **read) if base is not None else cls(**read)
    except SettingsError as fault:
        raise SettingsError([*problems, *fault.problems]) from None
    except TypeError as fault:
        raise SettingsError([*problems, f"{name}: {fault}"]) from None
    for key, value in read.items():
        wrong = _fault(value, hints[key], known[key]) if "help" in known[key] else None
        if wrong:
            problems.append(f"{name}.{key} is {shown(value)}; {wrong}. ({known[key]['help']})")
    if problems:
        raise SettingsError(problems)
    return made


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
    """The settings as plain JSON values (tuples become lists), to be stored and hashed."""
    values = dataclasses.asdict(settings)
    try:
        return json.loads(json.dumps(values, allow_nan=False))
    except ValueError:
        raise SettingsError(
            [f"{noun_of(settings)} holds a number that is not finite: {values}. Such settings cannot be stored."]
        ) from None


def read_toml(text: str, source: str) -> dict[str, Any]:
    """Parse TOML. Syntax errors and repeated keys raise a RegunError that names `source`."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise RegunError(f"{source} is not valid TOML: {error}.") from None


def read_json(text: str | bytes, source: str) -> Any:
    """Parse JSON. Syntax errors, repeated keys, NaN and Infinity raise a RegunError that names `source`."""
    try:
        return json.loads(text, parse_constant=_check_constant, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise RegunError(f"{source} is not valid JSON: {error}.") from None


def shown(value: object) -> str:
    """A value as a message shows it, at a bearable length.

    >>> shown("abc"), shown("9" * 500)
    ("'abc'", "'99999999999999999999...' (500 characters)")
    """
    try:
        text = repr(value)
    except ValueError:  # a number of more digits than Python writes
        return "a number of thousands of digits"
    if len(text) <= 200:
        return text
    return f"{value[:20]!r:.21}...' ({len(value)} characters)" if isinstance(value, str) else f"{text[:100]}..."


def _check_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {shown(repeated)} occurs more than once in one object; keep one")
    return unique


def _read(value: Any, hint: Any) -> Any:
    options = get_args(hint)
    if type(None) in options:
        if value is None or value == "none":
            return None
        return _read(value, next(o for o in options if o is not type(None)))
    if hint is bool:
        return _read_bool(value)
    if hint is int:
        return _read_int(value)
    if hint is float:
        return _read_float(value)
    if hint is str:
        return str(value)
    if options and isinstance(value, list):  # a tuple from JSON or TOML
        return tuple(_read(v, options[0]) for v in value)  # type: ignore[reportUnknownVariableType]
    if options and isinstance(value, str):  # a tuple from the command line: a/b/c
        return tuple(_read(v, options[0]) for v in value.split("/"))
    return value


def _read_bool(value: Any) -> bool:
    words = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False, "1": True, "0": False}
    if isinstance(value, bool):
        return value
    if str(value).lower() not in words:
        raise ValueError("give true or false")
    return words[str(value).lower()]


def _read_float(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError("give a number")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("give a number") from None
    if not math.isfinite(number):
        raise ValueError("give a finite number")
    return number


def _read_int(value: Any) -> int:
    number = _whole(value)
    if abs(number) >= LIMIT:
        raise ValueError(_TOO_LARGE)
    return number


def _whole(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value):
        return int(value) if len(value) <= 20 else LIMIT  # not by way of a float, which is exact up to 2**53 only
    try:
        number = _read_float(value)
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise ValueError("give a whole number")
    return int(number)


def _fault(value: Any, hint: Any, limits: Mapping[str, Any]) -> str | None:
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
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number_fault(value, limits)
    if isinstance(value, tuple) and any(isinstance(v, int) and abs(v) >= LIMIT for v in cast("tuple[Any, ...]", value)):
        return _TOO_LARGE
    return None


def _number_fault(value: float, limits: Mapping[str, Any]) -> str | None:
    low, high, above = limits.get("low"), limits.get("high"), limits.get("above")
    if isinstance(value, int) and abs(value) >= LIMIT:
        return _TOO_LARGE
    if math.isnan(value):
        return "it is not a number"
    if low is not None and value < low:
        return f"the least allowed is {low}"
    if above is not None and value <= above:
        return f"it must be above {above}"
    if high is not None and value > high:
        return f"the most allowed is {high}"
    return None
