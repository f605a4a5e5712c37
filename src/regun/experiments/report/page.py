"""The report of a study: one HTML file that explains itself, offline, on any screen and on paper."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from regun.auditing import UNSEEN, VERDICTS, Estimate, Exposed, Metric, Verdict
from regun.auditing.attack_results import number_name
from regun.experiments.report import panels
from regun.experiments.report.formats import FACTS, PACKAGE, notes
from regun.experiments.report.search_page import searches_view
from regun.experiments.report.table import (
    LEFT,
    ONCE,
    REQUEST,
    RUNS,
    SHARE,
    VERDICT,
    Table,
    cost_columns,
    cost_text,
    label,
    spread_text,
    tables_of,
    unfinished,
)
from regun.experiments.search.trials import SearchResult
from regun.experiments.study.details import RequestDetails, risky
from regun.experiments.study.results import PAPER_COLUMNS, Block, Results, Row
from regun.experiments.study.summary import attack_label, limits
from regun.experiments.study.tradeoff import TradeOff
from regun.render.svg import Gallery
from regun.render.template import render

EXPLAINED = (
    Metric(RUNS, "Runs", "", "how many of the planned runs have been evaluated", "all of them"),
    Metric(
        VERDICT,
        "Verdict",
        "",
        "the audit's verdict, by its worst test (an accuracy, the attack, or the forgotten examples one by one), at an "
        "error rate of 5 % over all tests; a tinted cell is one number alone at 5 %: "
        + "; ".join(f"{name} = {text.meaning}" for name, text in VERDICTS.items()),
        "passed",
    ),
    Metric("steps", "Steps", "updates", "how often unlearning changed the weights", "few"),
    Metric("seconds", "Seconds", "s", "time spent unlearning, on the machine that ran it", "few"),
    Metric(REQUEST, "Request share", "%", "samples of one request in percent of those of retraining", "well below 100"),
    Metric(ONCE, "Once share", "%", "samples of the prepared table, paid once, in percent of a retraining", "few"),
    Metric(SHARE, "Time share", "%", "seconds in percent of those of retraining", "well below 100"),
)
"""The columns of the main table that are no metrics."""
CHIPS: dict[Verdict | None, str] = {"passed": "in", "inconclusive": "open", "failed": "out", None: "open"}
"""The style class of a verdict; None is that of runs which disagree."""
_FIRST = ("gap_rftp", "gap_tp", "gap_rfvp", "gap_vp", "retain_acc", "forget_acc", "test_acc", "val_acc")
_INSTEAD = {"gap_rfvp": "gap_rftp", "gap_vp": "gap_tp", "val_acc": "test_acc"}
"""Numbers that stand in for one on the test split, where that is missing."""
_RETAINED = tuple(number_name("retain", "auc", split) for split in UNSEEN)


def build_report(
    results: Results,
    details: Sequence[RequestDetails] = (),
    tradeoffs: Sequence[TradeOff] = (),
    searches: Sequence[tuple[str, Mapping[str, SearchResult]]] = (),
) -> str:
    """Return one HTML page that holds everything it needs and loads nothing.

    `details` add ROC curves, confidences and risky examples to the request of the same `forget`, `tradeoffs` the sweep
    of w; `searches` are how settings were searched: a request's label, and its searches by the method's title.
    """
    gallery = Gallery()
    requests = [_request(results, block, details, tradeoffs, gallery) for block in results.blocks]
    evaluated = {block.forget for block in results.blocks}
    gap = next((block.main_gap for block in results.blocks if block.main_gap), None)
    overview = None
    if gap is not None and len(results.blocks) > 1:
        (overview,) = tables_of(replace(results, paper=None), columns=[gap], layout="fractions")
    shown = {name for request in requests for name in request["main"].columns}
    explained = [metric for metric in (*results.metrics.values(), *EXPLAINED) if metric.name in shown]
    also = [metric for metric in results.metrics.values() if metric.name not in shown]
    views = [
        searches_view(by_method, gallery, title=f"Search of settings, {request}", link=f"search-{k + 1}")
        for k, (request, by_method) in enumerate(searches)
    ]
    more_tradeoffs = [(one, panels.tradeoff(one, gallery)) for one in tradeoffs if one.forget not in evaluated]
    return render(
        "report.html",
        PACKAGE,
        figures=gallery.css(),  # after all figures have been drawn
        results=results,
        overview=overview,
        requests=requests,
        other_tradeoffs=more_tradeoffs,
        searches=views,
        limits=limits(results),
        explained=explained,
        also_explained=also,
        keys={metric.name: f"m{k}" for k, metric in enumerate((*explained, *also))},
        CHIPS=CHIPS,
        cost_text=cost_text,
        spread_text=spread_text,
        label=label,
        notes=notes,
        **FACTS,
    )


def _request(
    results: Results, block: Block, details: Sequence[RequestDetails], tradeoffs: Sequence[TradeOff], gallery: Gallery
) -> dict[str, Any]:
    """Tables and figures of one forget request."""
    close = next((one for one in details if one.forget == block.forget and one.predictions), None)
    request: dict[str, Any] = {
        "block": block,
        "main": _table(results, block, _columns(results, block)),
        "every": _table(results, block, list(block.rankings)),
        "gaps": panels.gaps(results, block, gallery),
        "tradeoffs": [(one, panels.tradeoff(one, gallery)) for one in tradeoffs if one.forget == block.forget],
        "costs": panels.costs(results, block, gallery),
        "details": close,
        "learning": panels.learning(block, gallery),
        "stays": list(_stays(block)),
    }
    if close:
        request |= {
            "relearning": panels.relearning(block, close, gallery),
            "confidence": panels.confidence(block, close, gallery),
            "roc": panels.roc(block, close, gallery),
            "attack": attack_label(close.attack),
            "risks": [(row.title, risky(close, row.name)) for row in block.rows if row.name in close.predictions],
        }
    return request


def _table(results: Results, block: Block, columns: Sequence[str]) -> Table:
    """The table of one request, its methods by the main gap."""
    (made,) = tables_of(replace(results, blocks=(block,), paper=None), columns=columns)
    order = {row.name: place for place, row in enumerate(block.by_gap)}
    return replace(made, rows=tuple(sorted(made.rows, key=lambda row: order.get(row.name, -1))))


def _columns(results: Results, block: Block) -> list[str]:
    """The columns of the main table: gaps, accuracies, one attack, the study's own numbers, costs."""
    suffixes = ["", *(f"_{split}" for split in UNSEEN[1:])]
    attacks = [(attack, suffix) for attack in ("rmia", "rmia_offline", "lira", "smia") for suffix in suffixes]
    attack = next(((a, s) for a, s in attacks if f"{a}_auc{s}" in block.rankings), None)
    leaks = [f"{attack[0]}_{statistic}{attack[1]}" for statistic in ("auc", "tpr1")] if attack else []
    first = [name for name in _FIRST if _INSTEAD.get(name) not in block.rankings]
    extra = [name for name in results.columns if name not in PAPER_COLUMNS]
    numbers = [name for name in dict.fromkeys([LEFT, *first, *leaks, "forget_div", *extra]) if name in block.rankings]
    return [
        *unfinished([block]),
        *([VERDICT] if block.floors else []),
        *numbers,
        "steps",
        "seconds",
        SHARE,
        *cost_columns([block]),
    ]


def _stays(block: Block) -> Iterator[tuple[Row, Estimate, Estimate, tuple[Exposed, ...]]]:
    """Retained examples in the first run of every method: AUC before and after unlearning, and the most exposed."""
    for row in block.methods:
        first = next((run.evaluation for run in row.runs if run.evaluation is not None), None)
        name = next((name for name in _RETAINED if first is not None and name in first.before), None)
        if first is not None and name is not None:
            yield row, first.before[name], first.numbers[name], tuple(first.exposed[:5])
