"""An evaluation as text for a terminal: the answers first, then the numbers, then what they can and cannot say."""

from collections.abc import Iterator

from regun.auditing import UNSEEN, VERDICTS, AttackResult, Evaluation, describe
from regun.auditing.attack_results import number_name
from regun.auditing.durability import Relearned, RelearningPoint
from regun.auditing.gaps import INFLUENCE
from regun.render.numbers import fixed, interval, many, names
from regun.render.tables import table

MAIN = (
    *("retain_acc", "forget_acc", "test_acc", "retain_div", "test_div"),
    *("smia_auc", "rmia_auc", "rmia_offline_auc", "lira_auc", "lira_tpr1"),
    *("forget_entropy", "retain_auc", "gap_rftp", "gap_tp"),
)
ALONE = (
    *("retain_acc", "forget_acc", "test_acc", "val_acc", "heldout_acc"),
    *("smia_auc", "smia_auc_val", "smia_auc_heldout", "retain_auc"),
)
"""Numbers shown by default, with and without a retrained model; those of the user are shown as well."""


def audit_text(evaluation: Evaluation, title: str, forgotten: int, *, everything: bool = False) -> str:
    """Return the results of an audit as text."""
    wanted = (*(MAIN if evaluation.retrain else ALONE), *evaluation.metrics)
    shown = [n for n in (evaluation.numbers if everything else dict.fromkeys(wanted)) if n in evaluation.numbers]
    records = [describe(name, evaluation) for name in shown]
    warnings = list(evaluation.flags if everything else evaluation.flags[:2])
    if len(warnings) < len(evaluation.flags):
        warnings.append(f"... and {len(evaluation.flags) - len(warnings)} more of this kind; --all shows them.")
    exposed = (
        f"{one.name or one.index} (label {one.label}): looks more like a member than {fixed(one.after, 1)} % of "
        f"unseen examples, before {fixed(one.before, 1)} %"
        for one in evaluation.exposed[: 25 if everything else 5]
    )
    parts = [
        f"{title}: {many(forgotten, 'example')} to forget",
        "\n".join(answers(evaluation, forgotten)),
        _numbers(evaluation, shown),
        _list("What the numbers mean:", (f"{m.label}: {m.meaning}. Good: {m.good}." for m in records)),
        _list("Warnings:", iter(warnings)),
        _list("Retained examples that unlearning exposed most:", exposed),
        _list("Other findings:", (one.text for one in evaluation.findings if one.about != "influence")),
        _list("What this audit can and cannot claim:", iter(evaluation.claims)),
    ]
    return "\n\n".join(part for part in parts if part)


def answers(evaluation: Evaluation, forgotten: int) -> Iterator[str]:
    """Yield the answers of an audit, a line each.

    They are: influence left, the rank of a single example among unseen ones, and whether the model is like a retrained
    one.
    """
    if evaluation.influence is not None:
        yield f"Influence left: {evaluation.influence.verdict.upper()}. {evaluation.influence.why}"
    if forgotten == 1:
        places = {s: n for s in UNSEEN if (n := number_name("smia", "auc", s)) in evaluation.numbers}
        now = names(f"{fixed(evaluation.numbers[name].value, 1)} % of {split}" for split, name in places.items())
        was = names(fixed(evaluation.before[name].value, 1) for name in places.values() if name in evaluation.before)
        before = f", before unlearning {was}" if was else ""
        if now:
            rank = f"the example looks more like a member than {now} examples{before}"
            yield f"Rank: {rank}. Unseen examples have any rank."
    if evaluation.verdict is not None:
        worst = part_name(evaluation.worst, evaluation).removesuffix(".") if evaluation.worst else ""
        farthest = f" Farthest off: {worst}." if worst else ""
        meaning = VERDICTS[evaluation.verdict].meaning
        yield f"Like a retrained model: {evaluation.verdict.upper()} ({meaning}).{farthest}"


def shadows_text(result: AttackResult, shadows: int) -> str:
    """Return the result of U-LiRA as text."""
    ends = interval(result.auc.low, result.auc.high, 2)
    shown = fixed(result.auc.value) + (f" ({ends})" if ends else "")
    return (
        f"U-LiRA AUC against validation, {many(shadows, 'shadow run')}: {shown}. Good: 50.\n"
        "  This attacker knows the method, its settings, and how it leaves the examples it has unlearned."
    )


def relearning_text(check: Relearned) -> str:
    """Return what came back step by step; the numbers at the end are among those of the evaluation."""
    curves = {who: curve for who, curve in (("model", check.curve), ("Retrain", check.retrain_curve)) if curve}
    head = ["after steps", *(f"{what}, {who}" for who in curves for what in ("forget acc.", "AUC"))]
    rows: list[list[str]] = []
    for points in zip(*curves.values(), strict=True):
        values = [value for point in points for value in (point.forget_acc, attack_auc(point))]
        rows.append([f"{points[0].steps:,}", *map(fixed, values)])
    return f"Relearning: {check.curve[-1].steps:,} small steps on retained examples alone\n{table(head, rows)}"


def attack_auc(point: RelearningPoint) -> float:
    """Return RMIA's AUC, or the loss attack's where there are no reference models."""
    return point.smia_auc if point.rmia_auc is None else point.rmia_auc


def part_name(name: str, *evaluations: Evaluation) -> str:
    """Return a part of the verdict for people."""
    return "influence, record by record" if name == INFLUENCE else describe(name, *evaluations).label


def value_before(evaluation: Evaluation, name: str) -> float | None:
    """Return a number of the model before unlearning, where that is known."""
    if name in evaluation.before:
        return evaluation.before[name].value
    return evaluation.gaps[name].before if name in evaluation.gaps else None


def _numbers(evaluation: Evaluation, shown: list[str]) -> str:
    """Return the table of numbers, without empty columns."""
    head = ["number", "value", "95 % interval", "before", "Retrain", "distance", "noise floor", "verdict"]
    rows: list[list[str]] = []
    for name in shown:
        number, gap, before = evaluation.numbers[name], evaluation.gaps.get(name), value_before(evaluation, name)
        floor = ""
        if gap and gap.floor_mean is not None and gap.floor_limit is not None:
            floor = f"{fixed(gap.floor_mean)} (up to {fixed(gap.floor_limit)})"
        cells = [
            describe(name, evaluation).label,
            fixed(number.value),
            interval(number.low, number.high, 2),
            "" if before is None else fixed(before),
            fixed(evaluation.retrain[name]) if name in evaluation.retrain else "",
            fixed(gap.value) if gap else "",
            floor,
            gap.verdict or "" if gap else "",
        ]
        rows.append(cells)
    filled = [k for k in range(len(head)) if k < 2 or any(row[k] for row in rows)]
    return table([head[k] for k in filled], [[row[k] for k in filled] for row in rows])


def _list(title: str, lines: Iterator[str]) -> str:
    items = [f"  {line}" for line in lines]
    return "\n".join([title, *items]) if items else ""
