"""The figures of one request with their captions, keys and explanations."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import regun.study.report.charts as charts
from regun.evaluate import describe
from regun.page.frame import scroll
from regun.page.look import colour_names
from regun.page.markup import Html, join, tag
from regun.page.svg import Gallery
from regun.study.figure import tradeoff_figure
from regun.study.report.charts import Bar, gap_figure, histogram_figure, learning_figure, roc_figure
from regun.study.report.closeup import Curve, against, attack_of, common_limits, curves, logits
from regun.study.report.numbers import (
    attack_label,
    cost,
    fixed,
    floor,
    judged,
    main_gap,
    many,
    methods,
    of_kind,
    ranked,
    seconds,
)
from regun.study.results import Block, Closeup, Entry, TradeOff

_WORDS = {"forget": "forgotten", "heldout": "held out", "test": "test", "val": "validation"}


def gaps(block: Block, gallery: Gallery) -> Html | None:
    """How far every method is from Retrain, next to the noise floor."""
    gap = main_gap(block)
    if gap is None:
        return None
    base = of_kind(block, "base")
    rows = ranked(block, gap, [*([base] if base else []), *methods(block)])
    bars = [
        Bar(entry.title, found.value, [e.numbers[gap].value for e in judged(entry)], entry.kind == "method")
        for entry, found in rows
    ]
    noise, label = floor(block, gap), describe(gap).label
    figure = gap_figure(bars, noise, f"{label}: distance to Retrain")
    says = f"{label} of {many(len(bars), 'model')}: " + ", ".join(f"{b.title} {fixed(b.value)}" for b in bars)
    caption = "Left is better. "
    if noise is not None:
        caption += f"Green: as far as two retrained models are apart ({fixed(noise.mean)} on average, dashed; "
        caption += f"up to {fixed(noise.largest)}); paler, what one more could show."
    return _figure(gallery.embed(figure, says), caption, "hero")


def tradeoff(found: TradeOff, gallery: Gallery) -> Html:
    """Utility against forgetting over w."""
    figure = tradeoff_figure(found)
    swept = f"{many(len(found.curves), 'method')} over w, {many(len(found.fixed), 'fixed method')}"
    drawing = gallery.embed(figure, f"Test accuracy against RMIA AUC, forget {found.label}: {swept}, Base and Retrain")
    caption = (
        "The star is the target: the nearer, the better. Along a curve markers grow with w, the weight on keeping "
        "what was learned against forgetting."
    )
    return _figure(scroll(drawing, "Trade-off figure") if figure.get_figwidth() > 9 else drawing, caption, "plot")


def roc(block: Block, closeup: Closeup, gallery: Gallery) -> Html:
    """ROC curves of every method next to Retrain and Base."""
    found = curves(closeup)
    split = against(closeup) or "test"
    size = len(next(iter(closeup.signals.values()))[split]) if closeup.signals else 0
    fixed_ones = {
        name: found[e.name] for name in ("retrain", "base") if (e := of_kind(block, name)) and e.name in found
    }

    def panel(entry: Entry) -> Html:
        own = found[entry.name]
        shown = {name: (c.fpr, c.tpr) for name, c in (fixed_ones | {entry.name: own}).items()}
        says = f"ROC curve of {entry.title}: AUC {fixed(own.auc)} %, {fixed(own.tpr1)} % found at 1 % false alarms"
        return _panel(gallery.embed(roc_figure(shown, size), says), entry.title, _auc_text(own))

    label, word = attack_label(attack_of(closeup)), _WORDS[split]
    text = (
        f"How many forgotten examples the {label} attack finds (up) when so many {word} examples are wrongly accused "
        "(right), on log axes. Good is Retrain's curve; guessing is the diagonal. Only the left end shows examples "
        "that give themselves away for certain."
    )
    used: dict[str, tuple[str, Any]] = {"this method": charts.ROLES_METHOD, "Retrain": charts.ROLES["retrain"]}
    used |= {"Base": charts.ROLES["base"], "guessing": charts.ROLES["diagonal"]}
    shown = [entry for entry in methods(block) if entry.name in found]
    return join([_lead(text), _key(used, gallery), _grid(shown, panel)])


def _auc_text(curve: Curve) -> str:
    return f"AUC {fixed(curve.auc, 1)} %"


def confidence(block: Block, closeup: Closeup, gallery: Gallery) -> Html:
    """Histograms of the confidence in the true label for Base, Retrain and every method."""
    entries = [entry for entry in block.entries if entry.name in closeup.signals]
    groups = {entry.name: logits(closeup.signals[entry.name]) for entry in entries}
    limits = common_limits(list(groups.values()))
    top = max(float(charts.shares(v, limits).max()) for group in groups.values() for v in group.values())

    def panel(entry: Entry) -> Html:
        medians = {split: _median(values) for split, values in groups[entry.name].items()}
        says = f"True-label confidence of {entry.title}: median " + ", ".join(
            f"{value} on {_WORDS[split]} examples" for split, value in medians.items()
        )
        drawn = gallery.embed(histogram_figure(groups[entry.name], limits, top), says)
        return _panel(drawn, entry.title, f"median {medians['forget']}")

    text = (
        "How sure each model is of the true label. A model that forgot treats forgotten examples as ones it never saw: "
        "the filled shape then follows the two lines as it does for Retrain. The axis is stretched towards 0 and "
        "100 %; the median is that of forgotten examples."
    )
    used: dict[str, tuple[str, Any]] = {_WORDS[name]: look for name, look in charts.SPLITS.items()}
    return join([_lead(text), _key(used, gallery), _grid(entries, panel)])


def _median(values: Any) -> str:
    value = float(sorted(values)[len(values) // 2])
    share = 100.0 / (1.0 + math.exp(-value))
    return f"{share:.4g} %" if share < 99.995 else "over 99.99 %"


def learning(block: Block, gallery: Gallery) -> Html | None:
    """The loss over epochs of every model that was trained step by step."""

    def panel(entry: Entry) -> Html:
        time = cost(entry, "seconds")
        says = f"Loss of {entry.title} over {many(max(len(run.epochs) for run in entry.runs), 'epoch')}"
        return _panel(
            gallery.embed(learning_figure(_losses(entry)), says), entry.title, seconds(time.value) if time else ""
        )

    shown = [entry for entry in block.entries if any(_losses(entry))]
    if not shown:
        return None
    text = "The loss each method lowers is its own, so compare shapes and not heights. One line a seed."
    return join([_lead(text), _grid(shown, panel)])


def _losses(entry: Entry) -> list[tuple[list[float], list[float]]]:
    runs = [[e for e in run.epochs if "loss" in e] for run in entry.runs]
    return [
        ([float(e.get("number", k + 1)) for k, e in enumerate(epochs)], [float(e["loss"]) for e in epochs])
        for epochs in runs
        if epochs
    ]


def _figure(drawing: Html, caption: str, kind: str) -> Html:
    return tag("figure", drawing, tag("figcaption", caption), class_=kind)


def _panel(drawing: Html, title: str, remark: str) -> Html:
    caption = tag("figcaption", tag("span", title, class_="name"), tag("small", remark))
    return tag("figure", caption, drawing, class_="panel")


def _grid(entries: Sequence[Entry], panel: Callable[[Entry], Html]) -> Html:
    return tag("div", [panel(entry) for entry in entries], class_="grid")


def _lead(text: str) -> Html:
    return tag("p", text, class_="explain")


def _key(used: Mapping[str, tuple[str, Any]], gallery: Gallery) -> Html:
    """Which line is which: a swatch with its word."""

    def items() -> Iterator[Html]:
        for word, (colour, dashes) in used.items():
            stroke = f"stroke:var(--{colour_names()[colour]})"
            dotted = "" if isinstance(dashes, str) else ";stroke-dasharray:" + " ".join(str(1.5 * d) for d in dashes[1])
            line = tag("line", x1=1, y1=5, x2=27, y2=5, class_=gallery.style(f"{stroke}{dotted};stroke-width:2.2"))
            yield tag("li", tag("svg", line, viewBox="0 0 28 10", class_="swatch", aria_hidden="true"), word)

    return tag("ul", items(), class_="key")
