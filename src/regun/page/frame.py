"""The frame of a page: its styles and script, the policy that lets it load nothing else, sections and extra ones."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from matplotlib.figure import Figure

from regun.page.markup import Html, escape, join, tag
from regun.page.svg import Gallery


@dataclass(frozen=True)
class Extra:
    """A further section, such as how settings were searched: a figure, a table, both or only text."""

    title: str
    text: str = ""
    figure: Figure | None = None
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def extra_section(extra: Extra, link: str, gallery: Gallery) -> Html:
    parts: list[Html] = [tag("p", extra.text, class_="explain")] if extra.text else []
    if extra.figure is not None:
        parts.append(tag("figure", scroll(gallery.embed(extra.figure, extra.title), extra.title), class_="plot"))
    if extra.rows:
        head = tag("thead", tag("tr", [tag("th", text, scope="col") for text in extra.columns]))
        body = tag("tbody", [tag("tr", [tag("td", text) for text in row]) for row in extra.rows])
        parts.append(scroll(tag("table", head, body), extra.title))
    return section(extra.title, link, join(parts))


def scroll(content: Html, label: str) -> Html:
    """A box of its own to scroll in, which the keyboard can reach."""
    return tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=label)


def section(title: str, link: str, body: Html) -> Html:
    return tag("section", tag("h2", title, id=f"{link}-title"), body, id=link, aria_labelledby=f"{link}-title")


def part(title: str, body: Html) -> Html:
    return tag("div", tag("h3", title), body, class_="part")


def nav(links: Iterable[tuple[str, str]]) -> Html:
    items = [tag("li", tag("a", text, href=f"#{link}")) for link, text in links]
    return tag("nav", tag("ul", items), aria_label="On this page")


def frame(title: str, body: Html, figures: str) -> str:
    here = files(__package__ or __name__)
    css = here.joinpath("page.css").read_text("utf-8") + figures
    script = here.joinpath("page.js").read_text("utf-8")
    policy = (
        f"default-src 'none'; style-src {_hash(css)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    head = join(
        [
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", title),
            Html(f"<style>{css}</style>"),
        ]
    )
    tip = Html('<div id="tip" role="tooltip" hidden></div><div id="said" class="unseen" aria-live="polite"></div>')
    skip = tag("a", "Skip to the report", href="#top", class_="skip")
    whole = tag("html", tag("head", head), tag("body", skip, body, tip, Html(f"<script>{script}</script>")), lang="en")
    return f"<!doctype html>\n{escape(whole)}\n"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
