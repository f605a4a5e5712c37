"""The model card of an unlearned model: what was forgotten, how, and what the evidence says, as Markdown."""

from collections.abc import Iterable, Mapping

from regun.auditing import VERDICTS, Evaluation, describe
from regun.render.audit_text import value_before
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
    """A model card for `README.md` beside the weights.

    Markdown with the header that model hubs read; `library_name` is what they load the model with, `transformers`, say.
    `before` is an audit of the model before unlearning, needed only where the evaluation knows nothing of it. Which
    records were forgotten is not in the card, only how many.

    >>> Path("model/README.md").write_text(regun.model_card(outcome, evidence, name="reviews"))  # doctest: +SKIP
    """
    title = f"{one_line(name)}: unlearned" if name else "An unlearned model"
    parts = [
        _header(library_name),
        f"# {title}",
        "## What was forgotten",
        _forgotten(outcome, evaluation),
        "## What was found",
        _list([finding.text for finding in evaluation.findings]),
        _verdict(evaluation),
        _table(evaluation, before.values() if before else _known_before(evaluation)),
        "## What this shows and what it does not",
        _list(evaluation.claims),
    ]
    remarks = [*outcome.warnings, *evaluation.flags]
    if remarks:
        parts += ["## Warnings", _list(remarks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _header(library_name: str) -> str:
    library = f"library_name: {one_line(library_name)}\n" if library_name else ""
    return f"---\n{library}tags:\n- machine-unlearning\n- regun\n---"


def _list(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {one_line(sentence)}" for sentence in sentences)


def _forgotten(outcome: Outcome, evaluation: Evaluation) -> str:
    members = {found.members for found in evaluation.attacks.values()}
    what = many(max(members), "training record") if members else "Training records"
    settings = ", ".join(f"{one_line(key)}={one_line(str(value))}" for key, value in outcome.config.items())
    cost = outcome.cost
    return (
        f"The influence of {what} was to be removed after training, by the method `{one_line(outcome.method)}` of "
        f"regun: {cost.steps:,} optimizer steps, {cost.backward:,} samples trained on, {duration(cost.seconds)}.\n\n"
        f"Settings: {settings or 'none'}."
    )


def _known_before(evaluation: Evaluation) -> dict[str, float]:
    found = {name: value_before(evaluation, name) for name in evaluation.numbers}
    return {name: value for name, value in found.items() if value is not None}


def _table(evaluation: Evaluation, before: Mapping[str, float]) -> str:
    """The main numbers before and after, next to a retrained model's where there is one, and what they mean."""
    held = {name: describe(name, evaluation) for name in _MAIN if name in evaluation.numbers}
    numbers, retrain = evaluation.numbers, evaluation.retrain
    columns = {"number": [f"{known.label} ({known.unit})" for known in held.values()]}
    if before:
        columns["before"] = [fixed(before[n], 1) if n in before else "" for n in held]
    columns["after"] = [fixed(numbers[n].value, 1) for n in held]
    columns["interval"] = [interval(numbers[n].low, numbers[n].high) for n in held]
    if retrain:
        columns["retrained"] = [fixed(retrain[n], 1) if n in retrain else "" for n in held]
    meanings = "\n".join(f"- {known.label}: {known.meaning}." for known in held.values())
    return markdown_table(list(columns), list(zip(*columns.values(), strict=True))) + f"\n\n{meanings}"


def _verdict(evaluation: Evaluation) -> str:
    if evaluation.verdict is None:
        return ""
    words = VERDICTS[evaluation.verdict]
    return f"The distance to a retrained model is {words.phrase}: {words.meaning}."
