"""Attacks and metrics of the user's own: what they are called, and running them so that their faults name them."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from contextlib import contextmanager

from regun.errors import AuditError, RegunError
from regun.rng import isolated


@contextmanager
def at_the_border(what: str) -> Generator[None]:
    """Run the user's code inside: its faults become errors that name it, and its draws are the same every time."""
    try:
        with isolated(0):
            yield
    except RegunError:
        raise
    except (Exception, SystemExit) as fault:
        raise AuditError(f"{what} failed: {type(fault).__name__}: {fault}") from fault


def name_of(function: object) -> str:
    """Return the function's own name, as numbers carry it."""
    return str(getattr(function, "__name__", type(function).__name__)).strip("<>")


def check_name(name: str, kind: str) -> None:
    """Raise unless tables, rules and files can carry the name."""
    if not (name.isascii() and name.isidentifier()):
        raise AuditError(f"the {kind} is named {name!r}; use letters, digits and _ only.")


def first_line(function: object) -> str:
    """Return the first line of the function's docstring, without its full stop."""
    return (inspect.getdoc(function) or "" if function is not None else "").partition("\n")[0].strip().removesuffix(".")
