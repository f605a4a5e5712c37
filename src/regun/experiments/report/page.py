"""The report of a study: one HTML file that explains itself, offline, on any screen and on paper."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regun.auditing import UNSEEN, VERDICTS, Estimate, Exposed, Metric, Verdict
from regun.auditing.attack_results import number_name
from regun.experiments.report import panels
from regun.experiments.report.layout import LEFT, RUNS, SHARE, VERDICT, Sheet, cost, label, lay_out, unfinished
from regun.experiments.report.notes import run_name, spread, unmarked
from regun.experiments.report.search_page import searches_view
from regun.experiments.report.summary import attack_label, summarise
from regun.experiments.search.trials import SearchResult
from regun.experiments.study.details import RiskTable, RowDetails, attack_of, risky
from regun.experiments.study.results import PAPER_COLUMNS, Block, Results, Row
from regun.experiments.study.tradeoff import TradeOff
from regun.render.numbers import names
from regun.render.svg import Gallery
from regun.render.template import render

EXPLAINED = (
    Metric(RUNS, "Runs", "", "how many of the planned runs have been judged", "all of them"),
    Metric(
        VERDICT,
        "Verdict",
        "",
        "whether a run can be told from a retrained model by any part of its main gap (an accuracy, the attack, the "
        "forgotten examples one by one): " + "; ".join(f"{name}, {text.meaning}" for name, text in VERDICTS.items()),
        VERDICTS["inside"].phrase,
    ),
    Metric("steps", "Steps", "updates", "how often the weights were changed to unlearn", "few"),
    Metric("seconds", "Seconds", "s", "time spent unlearning, on the machine that ran it", "few"),
    Metric(SHARE, "Time share", "%", "seconds in percent of those retraining took", "well below 100"),
)
"""The columns of the main table that are no metrics."""
CHIPS: dict[Verdict | None, str] = {"inside": "in", "inconclusive": "open", "outside": "out", None: "open"}
"""The style class of a verdict; None is that of runs which disagree."""
_FIRST = ("gap_rftp", "gap_tp", "gap_rfvp", "gap_vp", "retain_acc", "forget_acc", "test_acc", "val_acc")
_INSTEAD = {"gap_rfvp": "gap_rftp", "gap_vp": "gap_tp", "val_acc": "test_acc"}
"""Numbers that stand in for one on the test split, where that is missing."""
_RETAINED = tuple(number_name("retain", "auc", split) for split in UNSEEN)
_SIZES = {
    "forget": "{:,} to forget",
    "retain": "{:,} retained",
    "heldout": "{:,} held out",
    "val": "{:,} for validation",
    "test": "{:,} for testing",
}


@dataclass(frozen=True)
class Stay:
    """What unlearning did to those who stay, in one run: the loss attack's AUC on retained examples before and after,
    and the examples that were exposed most."""

    title: str
    before: Estimate
    after: Estimate
    exposed: tuple[Exposed, ...]


def build_report(
    results: Results,
    closeups: Sequence[RowDetails] = (),
    tradeoffs: Sequence[TradeOff] = (),
    searches: Sequence[tuple[str, Mapping[str, SearchResult]]] = (),
) -> str:
    """One HTML page that holds everything it needs and asks no network for anything.

    `closeups` add ROC curves, confidences and risky examples to the request of the same `forget`, `tradeoffs` the sweep
    of w; `searches` are how settings were found: a request's label, and its searches by the method's title.
    """
    gallery = Gallery()
    known = {block.forget for block in results.blocks}
    requests = [_request(results, k, closeups, tradeoffs, gallery) for k in range(len(results.blocks))]
    searched = [
        searches_view(found, gallery, title=f"Search of settings, {asked}", link=f"search-{k + 1}")
        for k, (asked, found) in enumerate(searches)
    ]
    others = [panels.tradeoff(found, gallery) for found in tradeoffs if found.forget not in known]
    overview = _overview(results)
    shown = {name for request in requests for name in request["main"].columns}
    explained = [metric for metric in (*results.metrics.values(), *EXPLAINED) if metric.name in shown]
    also = [metric for metric in results.metrics.values() if metric.name not in shown]
    return render(
        "report.html",
        "regun.experiments.report",
        title=results.title,
        links=_links(overview, requests, searched),
        figures=gallery.css(),
        results=results,
        made_on=_made_on(results.machine),
        overview=overview,
        requests=requests,
        other_tradeoffs=others,
        searches=searched,
        claims=_claims(results),
        explained=explained,
        also_explained=also,
        keys={metric.name: f"m{k}" for k, metric in enumerate((*explained, *also))},
        CHIPS=CHIPS,
        cost=cost,
        label=label,
        run_name=run_name,
    )


def _request(
    results: Results, number: int, closeups: Sequence[RowDetails], tradeoffs: Sequence[TradeOff], gallery: Gallery
) -> dict[str, Any]:
    """What the page shows of one forget request."""
    block = results.blocks[number]
    closeup = next((c for c in closeups if c.forget == block.forget and c.signals), None)
    main = _sheet(results, block, _columns(results, block))
    return {
        "link": f"request-{number + 1}",
        "block": block,
        "sizes": names(text.format(block.sizes[name]) for name, text in _SIZES.items() if name in block.sizes),
        "main": main,
        "unmarked": list(unmarked(block, dict(zip(main.columns, main.heads, strict=True)))),
        "every": _sheet(results, block, list(block.rankings)),
        "summary": summarise(results, block),
        "gaps": panels.gaps(results, block, gallery),
        "swept": [panels.tradeoff(found, gallery) for found in tradeoffs if found.forget == block.forget],
        "close": list(_close(block, closeup, gallery)) if closeup else [],
        "learning": panels.learning(block, gallery),
        "attack": attack_label(attack_of(closeup)) if closeup else "",
        "risks": list(_risks(block, closeup)) if closeup else [],
        "flags": list(_flags(block.rows)),
        "stays": list(_stays(block.rows)),
    }


def _close(block: Block, closeup: RowDetails, gallery: Gallery) -> Iterator[panels.Panels]:
    """What one run of every method shows: relearning, where it was checked, confidences, ROC curves."""
    again = panels.relearning(block, closeup, gallery)
    if again is not None:
        yield again
    yield panels.confidence(block, closeup, gallery)
    yield panels.roc(block, closeup, gallery)


def _sheet(results: Results, block: Block, columns: Sequence[str]) -> Sheet:
    """The table of one request, its methods by the main gap."""
    (sheet,) = lay_out(replace(results, blocks=(block,), paper=None), columns=columns).sheets
    order = {row.name: place for place, row in enumerate(block.by_gap)}
    return replace(sheet, lines=tuple(sorted(sheet.lines, key=lambda line: order.get(line.name, -1))))


def _overview(results: Results) -> Sheet | None:
    """The main gap on all requests, where there are several."""
    gap = next((block.main_gap for block in results.blocks if block.main_gap), None)
    if gap is None or len(results.blocks) < 2:
        return None
    return lay_out(replace(results, paper=None), columns=[gap], layout="fractions").sheets[0]


def _columns(results: Results, block: Block) -> list[str]:
    """What the main table shows of this request: gaps, accuracies, an attack, the study's own numbers, costs."""
    suffixes = ["", *(f"_{split}" for split in UNSEEN[1:])]
    attacks = [(attack, suffix) for attack in ("rmia", "rmia_offline", "lira", "smia") for suffix in suffixes]
    found = next(((a, s) for a, s in attacks if f"{a}_auc{s}" in block.rankings), None)
    leaks = [f"{found[0]}_{statistic}{found[1]}" for statistic in ("auc", "tpr1")] if found else []
    first = [name for name in _FIRST if _INSTEAD.get(name) not in block.rankings]
    own = [name for name in results.columns if name not in PAPER_COLUMNS]
    numbers = [name for name in dict.fromkeys([LEFT, *first, *leaks, "forget_div", *own]) if name in block.rankings]
    return [*unfinished([block]), *([VERDICT] if block.floors else []), *numbers, "steps", "seconds", SHARE]


def _risks(block: Block, closeup: RowDetails) -> Iterator[tuple[str, RiskTable]]:
    for row in block.rows:
        if row.name in closeup.signals:
            yield row.title, risky(closeup, row.name)


def _flags(rows: Iterable[Row]) -> Iterator[str]:
    """Every sign of over-forgetting that the audits saw, by model and run."""
    for row in rows:
        for run in row.runs:
            if row.kind != "retrain" and run.evaluation is not None:
                which = f", {run_name(row, run)}" if len(row.runs) > 1 else ""
                yield from (f"{row.title}{which}: {flag}" for flag in run.evaluation.flags)


def _stays(rows: Iterable[Row]) -> Iterator[Stay]:
    """Retained examples before and after, of the first run of every method."""
    for row in (row for row in rows if row.kind == "method"):
        found = next((run.evaluation for run in row.runs if run.evaluation is not None), None)
        name = next((n for n in _RETAINED if found is not None and n in found.before), None)
        if found is not None and name is not None:
            yield Stay(row.title, found.before[name], found.numbers[name], found.exposed[:5])


def _links(
    overview: Sheet | None, requests: Sequence[Mapping[str, Any]], searched: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str]]:
    links = [("overview", "Overview")] if overview else []
    links += [(request["link"], f"Forget {request['block'].label}") for request in requests]
    links += [(view["link"], view["title"]) for view in searched]
    return [*links, ("method", "How it was run"), ("claims", "What it can say"), ("numbers", "Numbers explained")]


def _claims(results: Results) -> list[str]:
    """What the audits can and cannot claim, each sentence once; of whom, where it is not said of all."""
    whose: dict[str, set[str]] = {}
    rows = [row for block in results.blocks for row in block.rows if row.kind != "retrain" and row.judged]
    for row in rows:
        for evaluation in (run.evaluation for run in row.runs if run.evaluation is not None):
            for sentence in evaluation.claims:
                whose.setdefault(sentence, set()).add(row.title)
    titles = list(dict.fromkeys(row.title for row in rows))
    said = [f"{_whom(titles, of)}{sentence}" for sentence, of in whose.items()]
    said.append(
        "“Inside the noise floor” is a statement about these numbers and this many retrained models, by a test that "
        "does tell the base model from them; it is no proof that nothing is left."
    )
    alone = "That says nothing about what another trained model would give; the noise floor does."
    return [*said, f"{spread(results)}." + (f" {alone}" if len(results.seeds) == 1 else "")]


def _whom(titles: Sequence[str], of: Collection[str]) -> str:
    """`A and B: `, `All but C: `, or nothing where it is all."""
    others = [title for title in titles if title not in of]
    if not others:
        return ""
    few = len(others) < len(of)
    return f"All but {names(others)}: " if few else f"{names(title for title in titles if title in of)}: "


def _made_on(machine: Mapping[str, Any]) -> str:
    """The kind of processor: on another one, sums are rounded differently and single runs end elsewhere."""
    words = [str(machine[name]) for name in ("processor", "instructions") if machine.get(name)]
    return f"Made on this kind of processor: {', '.join(words)}." if words else ""
