"""Model card of an unlearned model, as Markdown: what was forgotten, how, and the results of the audit."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from regun.auditing import Evaluation, describe
from regun.auditing.text import tests, value_before
from regun.render.numbers import duration, fixed, interval, many
from regun.render.tables import markdown_table, one_line
from regun.unlearning import Outcome

_MAIN = ("retain_acc", "test_acc", "forget_acc", "smia_auc", "rmia_auc", "forget_div", "gap_rftp")


def model_card(
    outcome: Outcome,
    evaluation: Evaluation,
    *,
    name: str = "",
    library_name: str = "",
    before: Evaluation | None = None,
) -> str:
    """Return a model card for the `README.md` next to the weights: Markdown with the header that model hubs read.

    `library_name` is the library that loads the model, such as `transformers`. `before` is an audit of the model before
    unlearning; it is needed only if `evaluation` was made without that model. The card holds the number of forgotten
    records, not their ids.

    >>> Path("model/README.md").write_text(regun.model_card(outcome, evidence, name="reviews"))  # doctest: +SKIP
    """
    library = f"library_name: {one_line(library_name)}\n" if library_name else ""
    values = {key: value_before(evaluation, key) for key in evaluation.numbers} if before is None else before.values()
    members = {attack.members for attack in evaluation.attacks.values()}
    records, cost = many(max(members), "training record") if members else "Training records", outcome.cost
    parts = [
        f"---\n{library}tags:\n- machine-unlearning\n- regun\n---",
        f"# {one_line(name)}: unlearned" if name else "# An unlearned model",
        "## What was forgotten",
        f"The influence of {records} was to be removed after training, by the method `{one_line(outcome.method)}` of "
        f"regun: {cost.steps:,} optimizer steps, {cost.backward:,} samples trained on, {duration(cost.seconds)}.",
        "## How it was made",
        _training(outcome),
        "## Results",
        f"**{(evaluation.verdict or 'none').capitalize()}.** {one_line(evaluation.summary)}",
        _list(tests(evaluation)),
        _table(evaluation, {key: value for key, value in values.items() if value is not None}),
        "## Limits" if evaluation.limits else "",
        _list(evaluation.limits),
    ]
    remarks = [*outcome.warnings, *evaluation.warnings]
    if remarks:
        parts += ["## Warnings", _list(remarks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _list(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {one_line(sentence)}" for sentence in sentences)


def _training(outcome: Outcome) -> str:
    """Return whether the model was retrained or updated, by which settings, and the cost next to a retraining."""
    price, trained_by = outcome.price, outcome.notes.get("trained_by")
    if outcome.from_scratch:
        how = "The model was retrained from scratch on the retained records, with these settings:"
    else:
        how = f"The trained model was updated by `{one_line(outcome.method)}`, with these settings:"
    settings = cast("dict[str, Any]", trained_by) if outcome.from_scratch and trained_by else outcome.config
    listed = ", ".join(f"{one_line(key)}={one_line(str(value))}" for key, value in settings.items())
    parts = [f"{how} {listed or 'none'}."]
    if price.branch is not None:
        parts.append(f"Why {one_line(price.branch)}: {one_line(price.reason or '')}.")
    if price.share is not None and not outcome.from_scratch:
        kind = "an estimated" if price.estimated else "a"
        parts.append(f"It took {price.share:.0%} of the samples of {kind} retraining ({price.retraining:,}).")
    return "\n\n".join(parts)


def _table(evaluation: Evaluation, before: Mapping[str, float]) -> str:
    """Return the main numbers before and after, those of a retrained model if there is one, and their meanings."""
    rows = {name: describe(name, evaluation) for name in _MAIN if name in evaluation.numbers}
    numbers, retrain = evaluation.numbers, evaluation.retrain
    columns = {"number": [f"{about.label} ({about.unit})" for about in rows.values()]}
    if before:
        columns["before"] = [fixed(before[n], 1) if n in before else "" for n in rows]
    columns["after"] = [fixed(numbers[n].value, 1) for n in rows]
    columns["interval"] = [interval(numbers[n].low, numbers[n].high) for n in rows]
    if retrain:
        columns["retrained"] = [fixed(retrain[n], 1) if n in retrain else "" for n in rows]
    meanings = "\n".join(f"- {about.label}: {about.meaning}." for about in rows.values())
    return markdown_table(list(columns), list(zip(*columns.values(), strict=True))) + f"\n\n{meanings}"
