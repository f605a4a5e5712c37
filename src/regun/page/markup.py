"""HTML as values: text is escaped unless it is `Html` already, so nothing from data can become markup by accident."""

import html
from collections.abc import Iterable

from regun.page.look import clean

_VOID = {"meta", "br", "hr", "col"}

Attribute = str | int | float | bool | None


class Html(str):
    """Text that is markup; only this module and page parts shipped with the package make it from plain strings."""

    __slots__ = ()


def escape(text: str) -> Html:
    """Markup that shows `text`; markup stays as it is.

    >>> escape("a < b")
    'a &lt; b'
    """
    return text if isinstance(text, Html) else Html(html.escape(clean(text)))


def join(parts: Iterable[str], between: str = "") -> Html:
    """The parts one after another, each escaped unless it is markup."""
    return Html(escape(between).join(escape(part) for part in parts))


def tag(name: str, /, *children: str | Iterable[str] | None, **attributes: Attribute) -> Html:
    """An element; None and False leave an attribute out, `class_` and `aria_sort` are `class` and `aria-sort`.

    >>> tag("td", "1 < 2", class_="number")
    '<td class="number">1 &lt; 2</td>'
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in _VOID:
        return Html(f"<{name}{given}>")
    inner = "".join(escape(c) if isinstance(c, str) else join(c) for c in children if c is not None)
    return Html(f"<{name}{given}>{inner}</{name}>")


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
