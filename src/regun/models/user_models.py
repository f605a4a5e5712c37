"""User-defined models: `module:function` or `path/to/file.py:function`."""

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from torch import nn

from regun.errors import RegunError, SettingsError, unknown
from regun.models.architecture import Defaults, ImageSize
from regun.plugins import UserFunction, find_function, find_user_function, parameters_of

WHAT = "builds a model"
RESERVED = ("num_classes", "image_size")
FAMILIES = ("resnet", "swin")


def find_user_model(name: str, settings: Mapping[str, Any]) -> UserFunction:
    """Import the function `name` and parse `settings` by its signature."""
    user = find_user_function(name, settings, WHAT, RESERVED)
    parameters = parameters_of(name, user.function)
    if not user.takes("num_classes") and not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        raise RegunError(f"{name} takes ({', '.join(parameters)}); it must take num_classes.")
    return user


def build_user_model(user: UserFunction, num_classes: int, image_size: ImageSize | None) -> nn.Module:
    """Call the function with num_classes, its settings and, if it has such a parameter, image_size."""
    sized = {"image_size": image_size} if user.takes("image_size") else {}
    model = user.call(num_classes=num_classes, **sized)
    if not isinstance(model, nn.Module):
        raise RegunError(f"{user.name} returned a {type(model).__name__}; it must return a torch.nn.Module.")
    return model


def user_defaults(name: str) -> Defaults:
    """Return the defaults of a model: FAMILY, RECIPE and PIPELINE, attributes of the function or else of its file."""
    function = find_function(name, WHAT)
    attributes = {**vars(sys.modules[function.__module__]), **vars(function)}
    defaults = {key: attributes[key.upper()] for key in ("family", "recipe", "pipeline") if key.upper() in attributes}
    wrong = [f"{name}: {k.upper()} is {v!r}; give text." for k, v in defaults.items() if not isinstance(v, str)]
    if not wrong and defaults.get("family", "resnet") not in FAMILIES:
        wrong = [f"{name}: {unknown('FAMILY', defaults['family'], FAMILIES)}"]
    if wrong:
        raise SettingsError(wrong)
    return Defaults(**defaults)
