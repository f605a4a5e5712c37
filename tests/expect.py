"""How tests look at errors: by type, by the argument they name and by the values they allow, never by a sentence."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def error(kind: type[BaseException], *names: object) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Expect an error of `kind` whose message names each of `names`: an argument, a value, a file, an allowed choice."""
    with pytest.raises(kind) as caught:
        yield caught
    assert_names(str(caught.value), *names)


def assert_names(text: str, *names: object) -> None:
    """Each name stands in the text as a word of its own. Names hold no spaces: a sentence cannot be pinned."""
    for name in map(str, names):
        assert re.fullmatch(r"\S+", name), f"{name!r} is not a name"
        assert re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text), f"{name!r} is not in: {text}"
