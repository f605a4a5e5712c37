"""Errors that a caller can correct."""

import difflib
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class RegunError(Exception):
    """An error that the caller can correct; it says what is wrong, the value, what is allowed and what to do."""


class SettingsError(RegunError):
    """One or more settings are wrong; `problems` lists every one of them."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


class Problems:
    """Collects problems, to report all of them at once."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, *texts: str) -> None:
        self.texts += texts

    @contextmanager
    def collect(self) -> Generator[None]:
        """Add the problems of an error that is raised inside."""
        try:
            yield
        except SettingsError as fault:
            self.texts += fault.problems
        except RegunError as fault:
            self.texts.append(str(fault))

    def attempt(self, function: Callable[[], T]) -> T | None:
        """Return the result of a function; None if it raises an error, whose problems are added."""
        with self.collect():
            return function()
        return None

    def stop_if_any(self) -> None:
        if self.texts:
            raise SettingsError(dict.fromkeys(self.texts))


class SplitError(RegunError):
    """Index sets that overlap, are empty, or do not fit the data."""


class DataError(RegunError):
    """A data set that is missing, malformed or unsafe to read."""


class LabelError(DataError):
    """Labels that are not class numbers of the model."""


class StoreError(RegunError):
    """A store that cannot be written, or an artifact that is missing or corrupt."""


class ProcessError(RegunError):
    """Another process of the same run has ended or cannot be reached."""


class DivergedError(RegunError):
    """Training met a loss or a gradient that is not finite."""


class AuditError(RegunError):
    """Predictions or references from which a number cannot be computed."""


class NotFiniteError(AuditError):
    """A model whose outputs are not finite, so that it cannot be audited."""


def unknown(what: str, got: str, allowed: Iterable[str]) -> str:
    """Return the message for an unknown name, with the nearest allowed one as a suggestion."""
    names = sorted(allowed)
    near = difflib.get_close_matches(got.lower(), [n.lower() for n in names], n=1, cutoff=0.5)
    hint = next((f" Did you mean {n!r}?" for n in names if near and n.lower() == near[0]), "")
    return f"unknown {what} {got!r}.{hint} Known: {', '.join(names)}."


def see(section: str) -> str:
    """Return where the documentation explains a mistake: a section of docs/troubleshooting.md.

    >>> see("Sets that overlap")
    'See docs/troubleshooting.md, "Sets that overlap".'
    """
    return f'See docs/troubleshooting.md, "{section}".'


def not_installed(what: str, package: str, extra: str) -> str:
    """Return the sentence for an optional package that is missing.

    >>> not_installed("a data frame", "pandas", "frames").partition(" See")[0]
    'a data frame needs the package pandas: pip install pandas (extra: frames).'
    """
    fix = f"pip install {package.lower()} (extra: {extra})"
    return f"{what} needs the package {package}: {fix}. {see('A missing extra')}"
