"""Tables of the page: the sortable one, every number, the overview of several requests, and the glossary they share."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from regun.evaluate import Metric, describe
from regun.evaluate.floor import Verdict
from regun.page.frame import scroll
from regun.page.markup import Html, join, tag
from regun.study.report.numbers import (
    Cell,
    attack_parts,
    cell,
    cost,
    diverged,
    fixed,
    floor,
    judged,
    main_attack,
    main_gap,
    methods,
    of_kind,
    ranked,
    share,
)
from regun.study.results import Block, Entry, Results

COSTS = {
    "steps": Metric("steps", "Steps", "updates", "how often the weights were changed to unlearn", "few"),
    "seconds": Metric("seconds", "Seconds", "s", "time spent unlearning, on the machine that ran it", "few"),
    "share": Metric("share", "Time share", "%", "seconds in percent of those retraining took", "well below 100"),
}
VERDICT = Metric(
    "verdict",
    "From retraining",
    "",
    "the main gap, judged by how far retrained models are from each other: inside the largest difference of any pair, "
    "at the edge (beyond it, but within what one more retrained model could show), or outside",
    "inside the noise floor",
)
_CHIPS: dict[Verdict, tuple[str, str]] = {
    "indistinguishable": ("in", "inside noise"),
    "borderline": ("edge", "at the edge"),
    "distinguishable": ("out", "outside"),
}
_RANK: dict[Verdict, int] = {"indistinguishable": 0, "borderline": 1, "distinguishable": 2}
NONE = tag("span", "–", class_="none")


@dataclass
class Glossary:
    """Explanations that the page's tables point to; those of the main tables come first, the others are folded."""

    main: dict[str, Metric] = field(default_factory=dict[str, Metric])
    others: dict[str, Metric] = field(default_factory=dict[str, Metric])
    keys: dict[str, str] = field(default_factory=dict[str, str])

    def explain(self, metric: Metric, main: bool = True) -> str:
        """The id of the element that explains this number."""
        (self.main if main else self.others)[metric.name] = metric
        return self.keys.setdefault(metric.name, f"m{len(self.keys)}")

    def html(self) -> Html:
        rest = [metric for name, metric in self.others.items() if name not in self.main]
        folded = tag("details", tag("summary", tag("span", "All other numbers", class_="name")), self._list(rest))
        return join([self._list(self.main.values()), folded if rest else Html("")])

    def _list(self, metrics: Iterable[Metric]) -> Html:
        rows = [join([tag("dt", m.label), _meaning(self.keys[m.name], m)]) for m in metrics]
        return tag("dl", rows, class_="glossary")


def _meaning(key: str, metric: Metric) -> Html:
    unit = f" ({metric.unit})" if metric.unit else ""
    return tag(
        "dd",
        tag("span", f"{metric.meaning[:1].upper()}{metric.meaning[1:]}{unit}."),
        " ",
        tag("span", f"Good: {metric.good}.", class_="good"),
        id=key,
    )


def columns(block: Block) -> list[str]:
    """The numbers of the main table that this request has, in reading order."""
    stem, suffix = attack_parts(main_attack(block) or "rmia")
    wanted = ["gap_rftp", "gap_tp", "retain_acc", "forget_acc", "test_acc", f"{stem}_auc{suffix}"]
    wanted += [f"{stem}_tpr1{suffix}", "forget_div"]
    wanted[2:2] = [name for name in ("gap_rfvp", "gap_vp") if not _has(block, "gap_rftp")]
    wanted += [name for name in ("val_acc",) if not _has(block, "test_acc")]
    return [name for name in wanted if _has(block, name)]


def _has(block: Block, name: str) -> bool:
    return any(cell(block, entry, name) is not None for entry in block.entries)


def main_table(block: Block, glossary: Glossary) -> Html:
    """One row a method, sortable; Retrain, the noise floor and Base stay on top."""
    shown, gap = columns(block), main_gap(block)
    metrics = [describe(name) for name in shown]
    judges = gap is not None and floor(block, gap) is not None
    heads = [_head("Method", None, "text")]
    heads += [_head(VERDICT.label, glossary.explain(VERDICT), "number")] if judges else []
    heads += [_head(m.label, glossary.explain(m), "number", m.name == gap) for m in metrics]
    heads += [_head(m.label, glossary.explain(m), "number") for m in COSTS.values()]
    anchors = [_row(block, e, shown, gap, judges) for e in (of_kind(block, "retrain"),) if e]
    anchors += [_floor_row(block, shown)] if judges else []
    anchors += [_row(block, e, shown, gap, judges) for e in (of_kind(block, "base"),) if e]
    rows = [_row(block, entry, shown, gap, judges) for entry in in_order(block)]
    table = tag(
        "table",
        tag("caption", f"All methods on the request to forget {block.label}", class_="unseen"),
        tag("thead", tag("tr", heads)),
        tag("tbody", anchors, class_="anchors"),
        tag("tbody", rows, class_="methods"),
        class_="sortable",
    )
    return scroll(table, f"Results for the request to forget {block.label}")


def in_order(block: Block) -> list[Entry]:
    """Methods by the main gap, the closest first; those without one last."""
    gap = main_gap(block)
    known = [entry for entry, _ in ranked(block, gap, methods(block))] if gap else []
    known = [e for e in known if not lost(e)] + [e for e in known if lost(e)]
    return known + [entry for entry in methods(block) if entry not in known]


def lost(entry: Entry) -> bool:
    """Whether every run of it diverged."""
    return bool(entry.runs) and len(diverged(entry)) == len(entry.runs)


def _head(label: str, key: str | None, kind: str, sorted_: bool = False) -> Html:
    button = tag("button", label, type="button", aria_describedby=key, data_tip=key)
    return tag("th", button, scope="col", data_kind=kind, aria_sort="ascending" if sorted_ else "none")


def _row(block: Block, entry: Entry, shown: Sequence[str], gap: str | None, judges: bool) -> Html:
    marks = tag("span", "diverged", class_="chip bad") if diverged(entry) else None
    cells = [tag("th", tag("span", entry.title, class_="name"), marks, scope="row")]
    if judges:
        cells.append(_verdict_cell(entry, cell(block, entry, gap) if gap else None))
    cells += [number_cell(cell(block, entry, name), len(entry.runs)) for name in shown]
    cells += list(_cost_cells(block, entry))
    return tag("tr", cells, class_=entry.kind, data_last=lost(entry))


def _verdict_cell(entry: Entry, found: Cell | None) -> Html:
    if entry.kind == "retrain":
        return tag("td", "target", class_="quiet")
    if found is None or not found.verdicts:
        return tag("td", "not judged" if not judged(entry) else NONE, class_="quiet")
    return tag("td", chip(found.verdicts), data_v=sum(_RANK[v] for v in found.verdicts) / len(found.verdicts))


def chip(verdicts: Sequence[Verdict]) -> Html:
    """The verdict as a word with a mark; over seeds that disagree, how many have the best of them."""
    if len(set(verdicts)) == 1:
        kind, text = _CHIPS[verdicts[0]]
        return tag("span", text, class_=f"chip {kind}")
    best = min(verdicts, key=lambda verdict: _RANK[verdict])
    where = "inside" if best == "indistinguishable" else "at edge"
    return tag("span", f"{verdicts.count(best)} of {len(verdicts)} {where}", class_="chip edge")


def number_cell(found: Cell | None, runs: int) -> Html:
    """A number with its interval or deviation; tinted where it is inside the noise floor."""
    if found is None:
        return tag("td", NONE)
    inside = bool(found.verdicts) and set(found.verdicts) == {"indistinguishable"}
    parts = [tag("span", fixed(found.value), class_="v"), _reach(found)]
    if inside:
        parts.append(tag("span", " (inside the noise floor)", class_="unseen"))
    if found.seeds < runs:
        parts.append(tag("small", f"of {found.seeds} seeds"))
    value = found.value if math.isfinite(found.value) else None
    return tag("td", parts, class_="in" if inside else None, data_v=value)


def _reach(found: Cell) -> Html:
    if found.deviation is not None:
        return tag("small", f"± {fixed(found.deviation)}")
    if found.low is not None and found.high is not None:
        return tag("small", f"{fixed(found.low, 1)} – {fixed(found.high, 1)}")
    return Html("")


def _cost_cells(block: Block, entry: Entry) -> Iterator[Html]:
    if entry.kind == "base":
        yield from (tag("td", NONE) for _ in COSTS)
        return
    for name, digits in (("steps", 0), ("seconds", 1)):
        found = cost(entry, name)
        text = fixed(found.value, digits if found.value < 1000 else 0) if found else NONE
        yield tag("td", tag("span", text, class_="v"), data_v=found.value if found else None)
    part = share(block, entry, "seconds")
    yield tag("td", NONE if part is None else tag("span", f"{fixed(part, 0)} %", class_="v"), data_v=part)


def _floor_row(block: Block, shown: Sequence[str]) -> Html:
    label = tag("th", tag("span", "Noise floor", class_="name"), tag("small", "two retrained models"), scope="row")
    cells = [label, tag("td", NONE)]
    for name in shown:
        noise = floor(block, name)
        if noise is None:
            cells.append(tag("td", NONE))
        else:
            largest = tag("span", f"≤ {fixed(noise.largest)}", class_="v")
            cells.append(tag("td", largest, tag("small", f"mean {fixed(noise.mean)}")))
    return tag("tr", cells, [tag("td", NONE) for _ in COSTS], class_="floor")


def every_number(block: Block, glossary: Glossary) -> Html:
    """All numbers of all models, one row a number."""
    entries = [e for e in block.entries if e.kind == "retrain" or judged(e)]
    found = dict.fromkeys(name for entry in entries for e in judged(entry) for name in e.numbers)
    heads = [tag("th", "Number", scope="col"), *(tag("th", e.title, scope="col") for e in entries)]
    rows: list[Html] = []
    for name in found:
        metric = describe(name)
        key = glossary.explain(metric, main=False)
        label = tag("button", metric.label, type="button", class_="word", aria_describedby=key, data_tip=key)
        cells = [number_cell(cell(block, entry, name), len(entry.runs)) for entry in entries]
        rows.append(tag("tr", tag("th", label, scope="row"), cells))
    table = tag("table", tag("thead", tag("tr", heads)), tag("tbody", rows), class_="dense")
    return scroll(table, f"Every number for the request to forget {block.label}")


def overview(results: Results, links: Sequence[str]) -> Html:
    """The main gap of every method on every request."""
    titles = {e.name: e.title for block in results.blocks for e in (*_anchors(block), *in_order(block))}
    heads = [tag("th", "Method", scope="col")]
    for block, link in zip(results.blocks, links, strict=True):
        gap = main_gap(block)
        what = tag("small", describe(gap).label) if gap else None
        heads.append(tag("th", tag("a", f"forget {block.label}", href=f"#{link}"), what, scope="col"))
    rows = [tag("tr", tag("th", title, scope="row"), _across(results, name)) for name, title in titles.items()]
    table = tag("table", tag("thead", tag("tr", heads)), tag("tbody", rows))
    return tag("div", scroll(table, "Every method on every request"), class_="table-small")


def _anchors(block: Block) -> list[Entry]:
    return [e for e in (of_kind(block, "base"),) if e]


def _across(results: Results, name: str) -> Iterator[Html]:
    for block in results.blocks:
        entry, gap = next((e for e in block.entries if e.name == name), None), main_gap(block)
        found = cell(block, entry, gap) if entry and gap else None
        if entry and found is None and diverged(entry):
            yield tag("td", tag("span", "diverged", class_="chip bad"))
        else:
            yield number_cell(found, len(entry.runs) if entry else 1)
