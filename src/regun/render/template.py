"""Templates filled in with numbers: texts, and pages that escape all text, load nothing and run only their own script.

A package has its templates in its folder `templates/`; `base.html`, its style sheet and its script are here.
"""

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from regun.render import numbers, tables

SHARED = "regun.render"
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def render(template: str, package: str = SHARED, **values: Any) -> str:
    """Fill in a template of a package, or a shared one; in HTML all text but `Markup` is escaped."""
    return clean(environment(package).get_template(template).render(**values)).rstrip("\n") + "\n"


def clean(text: str) -> str:
    """Replace characters that no page and no SVG may hold."""
    return _UNFIT.sub("\ufffd", text)


def asset(name: str, package: str = SHARED) -> Markup:
    """Return a style sheet or script of a package, as it is."""
    return Markup((files(package) / name).read_text("utf-8"))


def policy(style: str, script: str = "") -> str:
    """Return a content policy under which a page may use this style sheet and this script, and nothing else."""
    allowed = [f"style-src {_hash(style)}", *([f"script-src {_hash(script)}"] if script else [])]
    return f"default-src 'none'; {'; '.join(allowed)}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def environment(package: str = SHARED) -> Environment:
    """Return the environment of a package's templates, which may extend and import the shared ones."""
    loaders = [PackageLoader(name, "templates") for name in dict.fromkeys((package, SHARED))]
    made = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "fixed": numbers.fixed,
        "duration": numbers.duration,
        "percent": numbers.percent,
        "short": numbers.shortened,
        "names": numbers.names,
        "pairs": numbers.pairs,
        "line": tables.one_line,
        "markdown": tables.markdown_text,
    }
    tools: dict[str, Any] = {"many": numbers.many, "brackets": numbers.brackets, "asset": asset, "policy": policy}
    made.filters.update(filters)
    made.globals.update(tools)
    return made
