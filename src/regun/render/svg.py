"""A matplotlib figure as markup inside the page: real text, the page's fonts and colours, no styles of its own."""

import io
import re
from dataclasses import dataclass, field
from xml.etree import ElementTree

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from regun.render.figure_style import colour_names, look

_NUMBER = re.compile(r"-?\d+\.\d+")
_HREF = "{http://www.w3.org/1999/xlink}href"
_COORDINATES = {"d", "x", "y", "transform", "points", "width", "height"}
_DROPPED = {"metadata", "style"}
_DEFAULTS = {"font-family", "font", "stroke-linejoin", "stroke-miterlimit"}


@dataclass
class Gallery:
    """All figures of one page: gives every figure its own ids and collects their styles as classes.

    Inline styles would need a content policy that allows any, and would not follow the page into dark mode.
    """

    classes: dict[str, str] = field(default_factory=dict[str, str])
    figures: int = 0

    def embed(self, figure: Figure, label: str) -> Markup:
        """The figure as an `svg` element that scales with its column and says `label` to those who cannot see it."""
        self.figures += 1
        out = io.StringIO()
        with look():
            figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        root = ElementTree.fromstring(out.getvalue())
        _make_ids_unique(root, f"f{self.figures}-")
        body = "".join(self._element(child) for child in root)
        name = escape(label)
        opening = f'<svg class="chart" viewBox="{root.get("viewBox")}" role="img" aria-label="{name}">'
        return Markup(f"{opening}<title>{name}</title>{body}</svg>")

    def style(self, rule: str) -> str:
        """The class that stands for this rule."""
        return self.classes.setdefault(rule, f"g{len(self.classes)}")

    def css(self) -> str:
        """The rules of all classes handed out so far."""
        return "".join(f".{name}{{{rule}}}" for rule, name in self.classes.items())

    def _element(self, element: ElementTree.Element) -> str:
        name = element.tag.rpartition("}")[2]
        if name in _DROPPED:
            return ""
        inner = "".join(self._element(child) for child in element)
        attributes = dict(element.attrib)
        if name == "g" and not attributes:
            return inner
        if name in ("g", "defs") and not inner:
            return ""
        style = attributes.pop("style", "")
        if rule := _rule(style):
            attributes["class"] = self.style(rule)
        written = ""
        for key, value in attributes.items():
            plain = "href" if key == _HREF else key.rpartition("}")[2]
            if key in _COORDINATES:  # to a hundredth of a pixel
                value = " ".join(
                    _NUMBER.sub(lambda m: f"{float(m.group()):.2f}".rstrip("0").rstrip("."), value).split()
                )
            written += f' {plain}="{escape(value)}"'
        text = escape(element.text or "") if name in ("text", "tspan") else ""
        return f"<{name}{written}>{text}{inner}</{name}>" if text or inner else f"<{name}{written}/>"


def _make_ids_unique(root: ElementTree.Element, prefix: str) -> None:
    """Keep only ids that something refers to, and make those unique on the page."""
    used: set[str] = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == _HREF:
                used.add(value[1:])
                element.set(key, f"#{prefix}{value[1:]}")
            elif value.startswith("url(#"):
                used.add(value[5:-1])
                element.set(key, f"url(#{prefix}{value[5:-1]})")
    for element in root.iter():
        name = element.attrib.pop("id", None)
        if name in used:
            element.set("id", f"{prefix}{name}")


def _rule(style: str) -> str:
    """A style without fonts (the page's are used), with the page's names for colours."""
    names = colour_names()
    rules: list[str] = []
    for part in style.split(";"):
        key, _, value = (piece.strip() for piece in part.partition(":"))
        if key == "font":  # a shorthand such as `10px 'DejaVu Sans', sans-serif`
            size = re.search(r"[\d.]+px", value)
            rules.append(f"font-size:{size.group()}" if size else "")
        elif value and key not in _DEFAULTS:
            rules.append(f"{key}:{f'var(--{names[value]})' if value in names else value}")
    return ";".join(rules)
