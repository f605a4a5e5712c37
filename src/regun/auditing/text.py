"""An evaluation for people: a short report as text and HTML, and the long one of the command line."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from regun.auditing.attack_results import METRICS, AttackResult, number_name
from regun.auditing.estimates import Metric
from regun.auditing.gaps import ALL_NUMBERS, PART_LABELS
from regun.auditing.predictions import UNSEEN
from regun.auditing.verdict import Verdict
from regun.errors import AuditError, see, unknown
from regun.render.numbers import fixed, many, names, with_interval
from regun.render.tables import folded, table

if TYPE_CHECKING:
    from regun.auditing.durability import Relearned
    from regun.auditing.evaluation import Evaluation

SHORT = ("forget_acc", "retain_acc", "{unseen}_acc", "smia_auc", "rmia_auc", "influence_left", "gap_rftp")
"""Numbers of the short report; accuracies and attacks are against another unseen set where there is no test set."""
MAIN = (
    *("retain_acc", "forget_acc", "test_acc", "retain_div", "test_div"),
    *("smia_auc", "rmia_auc", "rmia_offline_auc", "lira_auc", "lira_tpr1"),
    *("forget_entropy", "retain_auc", "gap_rftp", "gap_tp"),
)
ALONE = (
    *("retain_acc", "forget_acc", "test_acc", "val_acc", "heldout_acc"),
    *("smia_auc", "smia_auc_val", "smia_auc_heldout", "retain_auc"),
)
"""Numbers of the long report, with and without a retrained model; those of the user are shown as well."""
HEAD = ("number", "before", "now", "retrained", "noise floor")
COLOURS: dict[Verdict | None, str] = {"passed": "#1a7f37", "inconclusive": "#9a6700", "failed": "#cf222e", None: "#888"}


def report_text(evaluation: Evaluation, shown: Sequence[str] | None = None) -> str:
    """Return the short report: a table, the verdict with its reason and its tests, warnings, and limits."""
    head, rows = report_rows(evaluation, shown)
    advice = " " + see("An inconclusive verdict") if evaluation.verdict == "inconclusive" else ""
    parts = [
        report_title(evaluation),
        table(head, rows),
        folded(outside_note(evaluation)),
        folded(f"Verdict: {(evaluation.verdict or 'none').upper()}. {evaluation.summary}{advice}"),
        _list(_tests_title(evaluation), tests(evaluation)),
        _list("Warnings:", evaluation.warnings),
        _list("Limits:", evaluation.limits),
    ]
    return "\n\n".join(part for part in parts if part)


def report_html(evaluation: Evaluation) -> str:
    """Return the short report for a notebook; it takes colours and fonts from the page."""
    head, rows = report_rows(evaluation, None)
    escape = html.escape
    cell = 'style="padding:.15em .7em;text-align:right;white-space:nowrap"'
    first = cell.replace("right", "left")
    lines = [("th", head), *(("td", row) for row in rows)]
    body = "".join(
        "<tr>"
        + "".join(f"<{tag} {cell if k else first}>{escape(text)}</{tag}>" for k, text in enumerate(row))
        + "</tr>"
        for tag, row in lines
    )
    colour = COLOURS[evaluation.verdict]
    badge = f'<b style="color:#fff;background:{colour};padding:.1em .5em;border-radius:.3em">{evaluation.verdict}</b>'
    lists = "".join(
        f"<details open><summary>{escape(title.rstrip(':'))}</summary><ul>"
        + "".join(f"<li>{escape(line)}</li>" for line in items)
        + "</ul></details>"
        for title, items in (
            (_tests_title(evaluation), list(tests(evaluation))),  # also what seems to contradict the verdict
            ("Warnings", evaluation.warnings),
            ("Limits", evaluation.limits),
        )
        if items
    )
    return (
        f'<div style="max-width:60em;overflow-wrap:anywhere"><p>{escape(report_title(evaluation))}</p>'
        f'<div style="overflow-x:auto"><table style="border-collapse:collapse">{body}</table></div>'
        f"{f'<p><small>{escape(note)}</small></p>' if (note := outside_note(evaluation)) else ''}"
        f"<p>{badge} {escape(evaluation.summary).replace('-&gt;', '&rarr;')}</p>{lists}</div>"
    )


def report_title(evaluation: Evaluation) -> str:
    """Return what was compared: how many forgotten records, against which unseen ones."""
    attacks = {one.against: one for one in evaluation.attacks.values() if one.against in evaluation.settings["unseen"]}
    if not attacks:
        return "Audit"
    sets = names(f"{one.nonmembers:,} {against}" for against, one in attacks.items())
    members = next(iter(attacks.values())).members
    return f"Audit of {many(members, 'forgotten record')} against {sets} records. Intervals: 95 %."


def report_rows(evaluation: Evaluation, shown: Sequence[str] | None) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of numbers, without empty columns."""
    if shown is None:
        judged = evaluation.settings.get("unseen", UNSEEN)
        first = next((s for s in judged if number_name("smia", "auc", s) in evaluation.numbers), judged[0])
        short = [name.format(unseen=first) for name in SHORT]
        main = [
            number_name(name.removesuffix("_auc"), "auc", first) if name.endswith("_auc") else name for name in short
        ]
        shown = [name for name in (*main, *evaluation.metrics) if name in evaluation.numbers]
    parts = evaluation.judgement.parts if evaluation.judgement else ()
    limits = {part.name: part.limit for part in parts if part.limit is not None}  # those that decide the verdict
    apart = outside_alone(evaluation)
    rows: list[list[str]] = []
    for name in shown:
        number, gap = evaluation.numbers[name], evaluation.gaps.get(name)
        was = evaluation.before.get(name)
        before = with_interval(was.value, was.low, was.high) if was is not None else ""
        if was is None and gap is not None and gap.before is not None:
            before = fixed(gap.before, 1)
        floor = ""
        if gap is not None and gap.floor_mean is not None and gap.floor_limit is not None:
            limit = limits.get(name, gap.floor_limit)
            floor = f"{fixed(gap.floor_mean, 1)}, up to {fixed(limit, 1)}{' *' if name in apart else ''}"
        retrained = fixed(evaluation.retrain[name], 1) if name in evaluation.retrain else ""
        label = describe(name, evaluation).label
        rows.append([label, before, with_interval(number.value, number.low, number.high), retrained, floor])
    filled = [k for k in range(len(HEAD)) if k in (0, 2) or any(row[k] for row in rows)]
    return [HEAD[k] for k in filled], [[row[k] for k in filled] for row in rows]


def summary(evaluation: Evaluation) -> str:
    """Return the reason of the verdict, then accuracy on unseen records before and after."""
    reason = evaluation.judgement.reason if evaluation.judgement else ""
    name = next((f"{s}_acc" for s in UNSEEN if f"{s}_acc" in evaluation.numbers), None)
    if name is None:
        return reason
    now, was = fixed(evaluation.numbers[name].value, 1), evaluation.before.get(name)
    change = f"{fixed(was.value, 1)} -> {now}" if was is not None else now
    retrained = f" (retrained {fixed(evaluation.retrain[name], 1)})" if name in evaluation.retrain else ""
    return f"{reason} {name.removesuffix('_acc').capitalize()} accuracy {change}{retrained}.".strip()


def tests(evaluation: Evaluation) -> Iterator[str]:
    """Yield a line for each test behind the verdict, then a loss attack that seems to contradict it."""
    judgement = evaluation.judgement
    if judgement is None:
        return
    if len(judgement.parts) > 1:
        for part in judgement.parts:
            yield f"{part.verdict}: {part.text}"
    if judgement.test == "loss attack" or judgement.verdict == "failed":
        return
    loss = evaluation.numbers.get("smia_auc")
    if loss is not None and loss.low is not None and loss.high is not None and not loss.low <= 50 <= loss.high:
        yield (
            f"not counted: the loss attack's AUC of {with_interval(loss.value, loss.low, loss.high)} is not 50. That "
            f"attack does not know which records are easy; the tests of the verdict do."
        )


def outside_alone(evaluation: Evaluation) -> list[str]:
    """Return the numbers that are outside the noise floor alone and no test of the verdict; none if it failed."""
    judgement = evaluation.judgement
    if judgement is None or judgement.verdict == "failed":
        return []
    counted = {part.name for part in judgement.parts}
    return [n for n, gap in evaluation.gaps.items() if gap.verdict == "failed" and not gap.worst and n not in counted]


def outside_note(evaluation: Evaluation) -> str:
    """Return why numbers outside their own noise floor do not contradict the verdict; empty if there are none."""
    apart = outside_alone(evaluation)
    if not apart or evaluation.judgement is None:
        return ""
    total = sum(gap.floor_limit is not None and not gap.worst for gap in evaluation.gaps.values())
    together = any(part.name == ALL_NUMBERS for part in evaluation.judgement.parts)
    weight = "counts them as one test" if together else "does not count them"
    labels = [describe(name, evaluation).label for name in apart[:4]] + ["others"] * (len(apart) > 4)
    return (
        f"* {len(apart)} of {total} numbers {'are' if len(apart) > 1 else 'is'} outside the noise floor when tested "
        f"alone, at an error rate of 5 % each: {names(labels)}. All come from the same predictions and move together, "
        f"so the verdict {weight}."
    )


def _tests_title(evaluation: Evaluation) -> str:
    judgement = evaluation.judgement
    if judgement is None or len(judgement.parts) < 2:
        return "Tests:"
    level = 100 * judgement.level
    intervals = f"; intervals: {100 - level:.3g} %" if judgement.test == "loss attack" else ""
    return f"{many(len(judgement.parts), 'test')}, together at an error rate of 5 % ({level:.2g} % each{intervals}):"


def audit_text(evaluation: Evaluation, title: str, *, everything: bool = False) -> str:
    """Return the long report of the command line: the short one with more numbers, their meaning, exposed examples."""
    main = (*(MAIN if evaluation.retrain else ALONE), *evaluation.metrics)
    shown = [n for n in (evaluation.numbers if everything else dict.fromkeys(main)) if n in evaluation.numbers]
    records = [describe(name, evaluation) for name in shown]
    exposed = (
        f"{one.name or one.index} (label {one.label}): looks more like a member than {fixed(one.after, 1)} % of "
        f"unseen examples, before {fixed(one.before, 1)} %"
        for one in evaluation.exposed[: 25 if everything else 5]
    )
    parts = [
        title,
        report_text(evaluation, shown),
        _rank(evaluation),
        _list("Retained examples that unlearning exposed most:", exposed),
        _list("What the numbers mean:", (f"{m.label}: {m.meaning}. Good: {m.good}." for m in records)),
    ]
    return "\n\n".join(part for part in parts if part)


def _rank(evaluation: Evaluation) -> str:
    """Return the rank of a single forgotten example among unseen ones."""
    if {attack.members for attack in evaluation.attacks.values()} != {1}:
        return ""
    places = {s: n for s in UNSEEN if (n := number_name("smia", "auc", s)) in evaluation.numbers}
    now = names(f"{fixed(evaluation.numbers[name].value, 1)} % of {split}" for split, name in places.items())
    was = names(fixed(evaluation.before[name].value, 1) for name in places.values() if name in evaluation.before)
    before = f", before unlearning {was}" if was else ""
    rank = f"the example looks more like a member than {now} examples{before}"
    return f"Rank: {rank}. Unseen examples have any rank." if now else ""


def shadows_text(result: AttackResult, shadows: int) -> str:
    """Return the result of U-LiRA as text."""
    shown = with_interval(result.auc.value, result.auc.low, result.auc.high, 2)
    return (
        f"U-LiRA AUC against validation, {many(shadows, 'shadow run')}: {shown}. Good: 50.\n"
        "  This attacker knows the method, its settings, and how it leaves the examples it has unlearned."
    )


def relearning_text(check: Relearned) -> str:
    """Return what came back step by step: accuracy, and the AUC of RMIA (of the loss attack without references)."""
    curves = {who: curve for who, curve in (("model", check.curve), ("Retrain", check.retrain_curve)) if curve}
    head = ["after steps", *(f"{what}, {who}" for who in curves for what in ("forget acc.", "AUC"))]
    rows: list[list[str]] = []
    for points in zip(*curves.values(), strict=True):
        values: list[float] = []
        for point in points:
            values += [point.forget_acc, point.smia_auc if point.rmia_auc is None else point.rmia_auc]
        rows.append([f"{points[0].steps:,}", *map(fixed, values)])
    return f"Relearning: {check.curve[-1].steps:,} small steps on retained examples alone\n{table(head, rows)}"


def describe(name: str, *evaluations: Evaluation) -> Metric:
    """Return a number's label, unit, meaning and good value; for the user's metrics, from `evaluations`.

    >>> describe("rmia_auc").label
    'RMIA AUC'
    """
    for records in (METRICS, *(evaluation.metrics for evaluation in evaluations)):
        if name in records:
            return records[name]
    raise AuditError(unknown("metric", name, {*METRICS, *(n for e in evaluations for n in e.metrics)}))


def part_name(name: str, *evaluations: Evaluation) -> str:
    """Return a part of the verdict for people."""
    return PART_LABELS[name] if name in PART_LABELS else describe(name, *evaluations).label


def value_before(evaluation: Evaluation, name: str) -> float | None:
    """Return a number of the model before unlearning, where that is known."""
    if name in evaluation.before:
        return evaluation.before[name].value
    return evaluation.gaps[name].before if name in evaluation.gaps else None


def _list(title: str, lines: Sequence[str] | Iterator[str]) -> str:
    items = [folded(line, "  - ", "    ") for line in lines]
    return "\n".join([title, *items]) if items else ""
