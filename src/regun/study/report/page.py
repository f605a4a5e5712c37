"""The report of a study: its parts in order."""

from collections.abc import Sequence

import regun.study.report.panels as panels
from regun.page.frame import Extra, extra_section, frame, nav, part, section
from regun.page.markup import Html, join, tag
from regun.page.svg import Gallery
from regun.study.report.details import bullets, claims, definitions, over_forgetting, risks, settings
from regun.study.report.numbers import many, names
from regun.study.report.summary import Summary, summarise
from regun.study.report.tables import Glossary, every_number, main_table, overview
from regun.study.results import Block, Closeup, Results, TradeOff

_SIZES = {
    "forget": "{} to forget",
    "retain": "{} retained",
    "heldout": "{} held out",
    "val": "{} for validation",
    "test": "{} for testing",
}


def build_report(
    results: Results,
    closeups: Sequence[Closeup] = (),
    tradeoffs: Sequence[TradeOff] = (),
    tuning: Sequence[Extra] = (),
) -> str:
    """One HTML page that holds everything it needs and asks no network for anything.

    `closeups` add ROC curves, confidences and risky examples to the request of the same `forget`, `tradeoffs` the sweep
    of w; `tuning` are further sections. All text from data is escaped.
    """
    gallery, glossary = Gallery(), Glossary()
    links = [f"request-{k + 1}" for k in range(len(results.blocks))]
    several = len(results.blocks) > 1
    parts = [_header(results)]
    if several:
        parts.append(_overview(results, links))
    for block, link in zip(results.blocks, links, strict=True):
        close = next((c for c in closeups if c.forget == block.forget), None)
        swept = [t for t in tradeoffs if t.forget == block.forget]
        parts.append(_request(results, block, link, close, swept, gallery, glossary))
    known = {block.forget for block in results.blocks}
    parts += [
        section("Trade-off", f"tradeoff-{k}", _swept(t, gallery))
        for k, t in enumerate(tradeoffs)
        if t.forget not in known
    ]
    parts += [extra_section(extra, f"extra-{k + 1}", gallery) for k, extra in enumerate(tuning)]
    parts += _closing(results, glossary)
    links_to = [("overview", "Overview")] if several else []
    links_to += [(link, f"Forget {block.label}") for block, link in zip(results.blocks, links, strict=True)]
    links_to += [(f"extra-{k + 1}", extra.title) for k, extra in enumerate(tuning)]
    links_to += [("method", "How it was run"), ("claims", "What it can say"), ("numbers", "Numbers explained")]
    return frame(results.title, join([nav(links_to), tag("main", parts, id="top")]), gallery.css())


def _header(results: Results) -> Html:
    requests = names(block.label for block in results.blocks)
    asked = f"What is left of forgotten examples, and what forgetting cost. Requests: {requests}." if requests else ""
    missing = None
    if results.missing:
        title = tag("p", tag("strong", f"Not finished: {many(len(results.missing), 'part')} missing"), " or failed.")
        missing = tag("div", title, bullets(results.missing), class_="alert", role="note")
    return tag(
        "header",
        tag("p", f"Unlearning study · {results.name}", class_="over"),
        tag("h1", results.title),
        tag("p", asked or "Nothing has been made yet.", class_="sub"),
        missing,
    )


def _overview(results: Results, links: Sequence[str]) -> Html:
    text = tag(
        "p",
        "The mean distance to Retrain on every request; tinted where it is inside the noise floor.",
        class_="explain",
    )
    return section("Overview", "overview", join([text, overview(results, links)]))


def _request(
    results: Results,
    block: Block,
    link: str,
    closeup: Closeup | None,
    swept: Sequence[TradeOff],
    gallery: Gallery,
    glossary: Glossary,
) -> Html:
    sizes = names(_SIZES[name].format(f"{block.sizes[name]:,}") for name in _SIZES if name in block.sizes)
    parts: list[Html] = [tag("p", f"Examples: {sizes}.", class_="sub")] if sizes else []
    parts.append(_summary(summarise(results, block), panels.gaps(block, gallery)))
    hint = (
        "Choose a column's name to sort by it; rest on it to read what it means. Good is Retrain's value. "
        "Tinted: no farther from Retrain than two retrained models are from each other."
    )
    parts.append(part("All methods", join([tag("p", hint, class_="explain"), main_table(block, glossary)])))
    parts += [part("Trade-off between utility and forgetting", _swept(t, gallery)) for t in swept]
    parts += _close(block, closeup, gallery) if closeup is not None and closeup.signals else []
    parts.append(_folded(block, closeup, gallery, glossary))
    return section(f"Forget {block.label}", link, join(parts))


def _summary(summary: Summary, figure: Html | None) -> Html:
    facts = [
        tag("div", tag("dt", name), tag("dd", value, tag("small", remark))) for name, value, remark in summary.facts
    ]
    words = [tag("p", summary.lead, class_="lead")]
    words += [tag("dl", facts, class_="tiles")] if facts else []
    words += [bullets(summary.notes)] if summary.notes else []
    return tag("div", tag("div", words), figure, class_="summary")


def _swept(found: TradeOff, gallery: Gallery) -> Html:
    return panels.tradeoff(found, gallery)


def _close(block: Block, closeup: Closeup, gallery: Gallery) -> list[Html]:
    seed = f" (seed {closeup.seed})"
    return [
        part(f"Confidence in the true label{seed}", panels.confidence(block, closeup, gallery)),
        part(f"ROC curves{seed}", panels.roc(block, closeup, gallery)),
    ]


def _folded(block: Block, closeup: Closeup | None, gallery: Gallery, glossary: Glossary) -> Html:
    parts: list[tuple[str, str, Html | None]] = []
    if closeup is not None and closeup.signals:
        text = (
            "Forgotten examples, the most member-like first. “Above unseen” is the share of unseen examples that score "
            "lower; “expected” is what models that never saw the example give its true label."
        )
        listed = join([tag("p", text, class_="explain"), risks(block, closeup)])
        parts.append(("Examples at risk", "who still looks like a member", listed))
    parts.append(("Learning curves", "loss over epochs", panels.learning(block, gallery)))
    parts.append(("Every number", "all metrics of all models", every_number(block, glossary)))
    parts.append(("Settings, costs and keys", "how each model was made", settings(block)))
    shown = [tag("details", _opener(name, what), tag("div", body)) for name, what, body in parts if body is not None]
    flags = over_forgetting(block)
    return tag("div", shown, [flags] if flags else [], class_="folds")


def _opener(name: str, what: str) -> Html:
    return tag("summary", tag("span", name, class_="name"), " ", tag("small", what))


def _closing(results: Results, glossary: Glossary) -> list[Html]:
    method = [definitions(results.about)] if results.about else []
    if results.versions:
        method += [tag("h3", "Software"), definitions(results.versions)]
    return [
        section("How it was run", "method", join(method) or tag("p", "Nothing is known about how it was run.")),
        section("What this report can and cannot say", "claims", claims(results)),
        section("What the numbers mean", "numbers", glossary.html()),
    ]
