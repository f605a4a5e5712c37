"""A user's own model: `module:function` or `path/to/file.py:function`."""

import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from torch import nn

from regun.errors import RegunError
from regun.models.shapes import ImageSize
from regun.plugins import find_function
from regun.settings import bind

GIVEN = ("num_classes", "image_size")
READABLE = (bool, int, float, str)
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class UserModel:
    """A user's function and the settings it was given, read by its signature."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]

    def build(self, num_classes: int, image_size: ImageSize | None) -> nn.Module:
        """Call the function with num_classes, the settings and, if it has such a parameter, image_size."""
        given: dict[str, Any] = {"num_classes": num_classes, **self.arguments}
        if "image_size" in _parameters(self.function):
            given["image_size"] = image_size
        try:
            model = self.function(**given)
        except Exception as fault:
            shown = ", ".join(f"{key}={value!r}" for key, value in given.items())
            raise RegunError(f"{self.name}({shown}) failed: {type(fault).__name__}: {fault}") from fault
        if not isinstance(model, nn.Module):
            raise RegunError(f"{self.name} returned a {type(model).__name__}; it must return a torch.nn.Module.")
        return model

    def digest(self) -> str:
        """SHA-256 of the file that defines the function (what that file imports is not covered)."""
        try:
            source = inspect.getsourcefile(inspect.unwrap(self.function))
        except TypeError:
            source = None
        if source is None or not Path(source).is_file():
            raise RegunError(
                f"{self.name} has no Python source file, so a change of it could not be noticed. "
                "Write a function in a file."
            )
        return hashlib.sha256(Path(source).read_bytes()).hexdigest()


def find_user_model(name: str, settings: Mapping[str, Any]) -> UserModel:
    """The function called `name`, imported, with `settings` read as its signature says."""
    function = find_function(name, "builds a model")
    return UserModel(name, function, _read(name, function, settings))


def _read(name: str, function: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings, read as the types in the function's signature say; unknown ones are refused."""
    parameters = _parameters(function)
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        free = {key: value for key, value in settings.items() if key not in parameters}
    else:
        free = {}
        if "num_classes" not in parameters:
            raise RegunError(f"{name} takes ({', '.join(parameters)}); it must take num_classes.")
    fields = [_field(p, _hints(function)) for p in parameters.values() if p.name not in GIVEN and p.kind in NAMED]
    shape: Any = dataclasses.make_dataclass("Settings", fields, kw_only=True, frozen=True)
    read: Any = bind(shape, {key: value for key, value in settings.items() if key not in free}, name)
    return {key: free[key] if key in free else vars(read)[key] for key in settings}


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function.__init__ if inspect.isclass(function) else function
    try:
        return get_type_hints(target)
    except (NameError, TypeError):
        return {}


def _field(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> tuple[str, Any, Any]:
    default = parameter.default
    plain = type(default) if isinstance(default, READABLE) else Any
    hint = hints.get(parameter.name, plain)
    others = [option for option in get_args(hint) if option not in READABLE]
    simple = hint in READABLE or get_origin(hint) is tuple or others == [type(None)]
    # a default may be of any kind and stays the function's own: here only its presence counts
    required = default is inspect.Parameter.empty
    return parameter.name, hint if simple else Any, dataclasses.field() if required else dataclasses.field(default=None)
