"""The folded parts of a request: risky examples, settings, costs and keys; and how the study was run."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regun.page.frame import scroll
from regun.page.markup import Html, join, tag
from regun.study.report.closeup import RiskTable, RiskyExample, attack_of, risky
from regun.study.report.numbers import attack_label, fixed, judged, many
from regun.study.report.tables import NONE
from regun.study.results import Block, Closeup, Entry, Results, Run

_LONGEST = 240


def risks(block: Block, closeup: Closeup) -> Html:
    """For every model, the forgotten examples that look most like members."""
    label = attack_label(attack_of(closeup))
    shown = [entry for entry in block.entries if entry.name in closeup.signals]
    listed = [_risk_details(entry, risky(closeup, entry.name), label, bool(closeup.references)) for entry in shown]
    return tag("div", listed, class_="risks")


def _risk_details(entry: Entry, table: RiskTable, label: str, referenced: bool) -> Html:
    expected = fixed(table.forgotten / 100, 1)
    count = f"{table.above} of {table.forgotten:,} above 99 % of unseen examples; by chance about {expected}"
    heads = ["Example", "Class", f"{label} score", "Above unseen", "Confidence"] + (["Expected"] if referenced else [])
    body = tag("tbody", [_risk_row(row, rank) for rank, row in enumerate(table.rows, start=1)])
    head = tag("thead", tag("tr", tag("th", "#", scope="col"), [tag("th", text, scope="col") for text in heads]))
    summary = tag("summary", tag("span", entry.title, class_="name"), " ", tag("small", count))
    return tag("details", summary, scroll(tag("table", head, body, class_="dense"), f"Risky examples: {entry.title}"))


def _risk_row(row: RiskyExample, rank: int) -> Html:
    risk = row.risk
    cells = [f"{risk.index}{f' ({risk.name})' if risk.name else ''}", str(risk.label), fixed(risk.score)]
    cells += [f"{fixed(risk.percentile, 1)} %", f"{fixed(100 * row.confidence, 1)} %"]
    cells += [] if row.expected is None else [f"{fixed(100 * row.expected, 1)} %"]
    return tag("tr", tag("th", str(rank), scope="row"), [tag("td", text) for text in cells])


def settings(block: Block) -> Html:
    """What every model was made with, what it cost, and the key under which the store has it."""
    heads = ["Model", "Settings", "Steps", "Forward", "Backward", "Seconds", "Seed and key"]
    rows = [_settings_row(entry) for entry in block.entries]
    table = tag("table", tag("thead", tag("tr", [tag("th", h, scope="col") for h in heads])), tag("tbody", rows))
    return scroll(table, f"Settings, costs and keys for the request to forget {block.label}")


def _settings_row(entry: Entry) -> Html:
    said = list(dict.fromkeys(_pairs(run.settings) for run in entry.runs))
    notes = list(dict.fromkeys(_pairs(run.notes) for run in entry.runs if run.notes))
    about = [tag("div", text or NONE) for text in said] + [tag("div", text, class_="quiet") for text in notes]
    keys = [tag("div", f"{run.seed}: ", tag("code", run.key)) for run in entry.runs]
    costs = [_cost(entry.runs, name) for name in ("steps", "forward", "backward", "seconds")]
    return tag(
        "tr",
        tag("th", entry.title, scope="row"),
        tag("td", about, class_="wide"),
        costs,
        tag("td", keys, class_="wide"),
    )


def _cost(runs: Sequence[Run], name: str) -> Html:
    digits = 1 if name == "seconds" else 0
    return tag("td", [tag("div", fixed(float(run.cost[name]), digits)) for run in runs if name in run.cost] or NONE)


def _pairs(values: Mapping[str, Any]) -> Html:
    """`lr = 0.05`, each pair unbroken."""
    return join((tag("code", f"{key} = {_text(value)}") for key, value in values.items()), " ")


def _text(value: Any) -> str:
    if isinstance(value, str | int | float | bool) or value is None:
        text = str(value)
    else:
        text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def definitions(pairs: Mapping[str, str]) -> Html:
    return tag("dl", [join([tag("dt", key), tag("dd", value)]) for key, value in pairs.items()], class_="facts")


def claims(results: Results) -> Html:
    """What the audits can and cannot claim, each sentence once."""
    audits = [
        e for block in results.blocks for entry in block.entries if entry.kind != "retrain" for e in judged(entry)
    ]
    sentences = dict.fromkeys(sentence for audit in audits for sentence in audit.claims)
    levels = sorted({f"{100 * a.settings['level']:g} %" for a in audits if "level" in a.settings})
    extra = [
        "“Inside the noise floor” is a statement about these numbers and this many retrained models, not a proof "
        "that nothing is left."
    ]
    if len(results.seeds) > 1:
        extra.append(f"Numbers are means over {len(results.seeds)} seeds, ± their sample standard deviation.")
    elif levels:
        extra.append(
            f"One seed: small ranges are {' and '.join(levels)} intervals over examples; they say nothing about "
            "what another training run would give. The noise floor does."
        )
    return bullets([*sentences, *extra])


def bullets(sentences: Iterable[str]) -> Html:
    return tag("ul", [tag("li", sentence) for sentence in sentences], class_="notes")


def over_forgetting(block: Block) -> Html | None:
    """Every flag the audits raised, by model and seed."""
    found: list[str] = []
    for entry in (e for e in block.entries if e.kind != "retrain"):
        for run in entry.runs:
            seed = f", seed {run.seed}" if len(entry.runs) > 1 else ""
            found += [f"{entry.title}{seed}: {flag}" for flag in (run.evaluation.flags if run.evaluation else ())]
    if not found:
        return None
    summary = tag(
        "summary", tag("span", "Signs of over-forgetting", class_="name"), " ", tag("small", many(len(found), "flag"))
    )
    return tag("details", summary, bullets(found))
