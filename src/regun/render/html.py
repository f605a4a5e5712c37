"""Pages: templates filled in with every text escaped, in a frame that loads nothing and runs only its own script."""

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from regun.render import numbers

_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def render(template: str, **values: Any) -> str:
    """The page of a template; whatever is not `Markup` made by this room is escaped, a missing value is an error."""
    return clean(_environment().get_template(template).render(**values)) + "\n"


def clean(text: str) -> str:
    """The text with characters that no page and no SVG may hold replaced by the replacement character."""
    return _UNFIT.sub("\ufffd", text)


def asset(name: str) -> Markup:
    """A style sheet or script of this package, as it is."""
    return Markup((files(__package__ or __name__) / name).read_text("utf-8"))


def policy(style: str, script: str = "") -> str:
    """A content policy under which the page may use this style sheet and this script, and nothing else."""
    allowed = [f"style-src {_hash(style)}", *([f"script-src {_hash(script)}"] if script else [])]
    return f"default-src 'none'; {'; '.join(allowed)}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _environment() -> Environment:
    loader = PackageLoader("regun.render", "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    filters: dict[str, Any] = {
        "fixed": numbers.fixed,
        "duration": numbers.duration,
        "percent": numbers.percent,
        "short": numbers.shortened,
        "names": numbers.names,
        "pairs": numbers.pairs,
    }
    tools: dict[str, Any] = {"many": numbers.many, "brackets": numbers.brackets, "asset": asset, "policy": policy}
    made.filters.update(filters)
    made.globals.update(tools)
    return made
