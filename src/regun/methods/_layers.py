"""The last layers of a model, for methods that train those alone."""

import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import cast

from torch import nn

from regun.errors import RegunError, SettingsError

HELP = "layers to train: all, or last:K, the last K that have weight matrices and all registered after them"


def check_layers(text: str, noun: str) -> None:
    """Raise unless the text is `all` or `last:K`."""
    if text != "all" and not re.fullmatch(r"last:[1-9][0-9]*", text):
        raise SettingsError([f"{noun}.layers is {text!r}; give all, or last:K with K of at least 1, as in last:2."])


def chosen_layers(model: nn.Module, text: str) -> list[tuple[str, nn.Module]]:
    """Return the layers that `all` or `last:K` names, with everything after them, in the order of registration.

    >>> net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))
    >>> [name for name, _ in chosen_layers(net, "last:2")]
    ['0', '1', '2', '3']
    """
    every = list(cast("Iterable[tuple[str, nn.Module]]", model.named_modules()))
    if text == "all":
        return every
    count = int(text.removeprefix("last:"))
    heavy = [n for n, (_, layer) in enumerate(every) if any(p.ndim > 1 for p in layer.parameters(recurse=False))]
    if count > len(heavy):
        raise RegunError(
            f"layers is {text!r}, but this model has {len(heavy)} layers with weight matrices; name fewer."
        )
    return every[heavy[-count] :]


@contextmanager
def training_only(model: nn.Module, text: str) -> Generator[list[str]]:
    """Inside, only the chosen layers' weights are trainable (their names are given); afterwards as before."""
    chosen = {id(p) for _, layer in chosen_layers(model, text) for p in layer.parameters(recurse=False)}
    held = [p for p in model.parameters() if p.requires_grad and id(p) not in chosen]
    names = [name for name, p in model.named_parameters() if p.requires_grad and id(p) in chosen]
    if not names:
        raise RegunError(
            f"layers is {text!r}, but all of those layers' weights are frozen; unfreeze one, or name more."
        )
    for parameter in held:
        parameter.requires_grad_(False)
    try:
        yield names
    finally:
        for parameter in held:
            parameter.requires_grad_(True)


def copy_layers(source: nn.Module, into: nn.Module, text: str) -> None:
    """Copy weights and buffers of the chosen layers from one model into another of the same kind."""
    names = {name for name, _ in chosen_layers(into, text)}
    state = {k: v for k, v in source.state_dict().items() if k.rpartition(".")[0] in names}
    into.load_state_dict(state, strict=False)
