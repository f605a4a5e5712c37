"""The sentences of a receipt and its page: templates filled in with the receipt's facts, nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

from regun.auditing import describe
from regun.deletion.ledger import STATUSES
from regun.render.numbers import fixed, interval, shortened, with_interval
from regun.render.template import render

PACKAGE = "regun.deletion"
ACCURACIES = ("retain_acc", "forget_acc", "val_acc", "test_acc", "heldout_acc")
ATTACKS = ("smia_auc", "rmia_auc", "lira_auc")
SETTINGS = ("epochs", "batch_size", "optimizer", "lr", "w", "alpha", "retain_batch")
"""Settings the page shows; the receipt has them all."""
LISTED = 4
"""Entries of a list that the page shows, so that it prints on two sheets."""
ENOUGH = 30
"""Forgotten examples below which group attacks have too wide intervals to find a weak memory."""


def description(attempt: Mapping[str, Any]) -> str:
    """Return what a run did to the model, as one phrase."""
    return _text("description.txt", attempt=attempt)


def letter(receipt: Mapping[str, Any]) -> str:
    """Return one paragraph to the person concerned."""
    return _text("letter.txt", **receipt)


def limits(receipt: Mapping[str, Any]) -> list[str]:
    """Return what the receipt does not show, the most important limit first."""
    text = render("limits.txt", PACKAGE, enough=ENOUGH, attempt=receipt["method"]["attempts"][-1], **receipt)
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def page(receipt: Mapping[str, Any]) -> str:
    """Return the receipt as an HTML page that loads nothing and runs nothing."""
    attempt = receipt["method"]["attempts"][-1]
    settings = {name: value for name, value in attempt["settings"].items() if value is not None}
    chosen = {name: value for name, value in settings.items() if name in SETTINGS}
    return render(
        "receipt.html",
        PACKAGE,
        attempt=attempt,
        settings=chosen or dict(list(settings.items())[:LISTED]),
        listed=LISTED,
        outcome=STATUSES[receipt["ledger"]["status"]],
        numbers=_numbers(receipt["audit"]["scopes"]),
        **receipt,
    )


def how_to_read(numbers: Sequence[str]) -> str:
    """Return what the first attack among these numbers means, and which value is good."""
    attack = next((describe(name) for name in numbers if "auc" in name), None)
    meaning = f"{attack.label}: {attack.meaning.removeprefix('loss attack: ')} (member: trained on). " if attack else ""
    return f"{meaning}Good: near 50, or the retrained model's value; well above or well below: an attack works."


def _text(template: str, **values: Any) -> str:
    return " ".join(render(template, PACKAGE, **values).split())


def _numbers(scopes: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return head, rows and notes of the table of numbers; None where nothing was audited."""
    if not scopes:
        return None
    before, after = scopes["all"]["before"], scopes["all"]["after"]
    shown = [name for name in ACCURACIES if name in after["numbers"]]
    shown += [name for name in after["numbers"] if name in ATTACKS or name.startswith("smia_auc_")]
    shown += [name for name in ("retain_auc", "retain_auc_heldout", "retain_auc_val") if name in after["numbers"]][:1]
    head = ["number (%)", "before", "after", "95 % interval", *(["this request alone"] if "new" in scopes else [])]
    head += ["retrained", "noise floor"] if after["retrain"] else []
    rows: list[list[str]] = []
    for name in shown:
        value, low, high = after["numbers"][name]
        row = [describe(name).label, _cell(before["numbers"].get(name, [None])[0]), _cell(value), interval(low, high)]
        if "new" in scopes:
            about_forgetting = name == "forget_acc" or not (name.endswith("_acc") or name.startswith("retain_"))
            alone = scopes["new"]["after"]["numbers"].get(name)
            row.append(with_interval(*alone) if about_forgetting and alone is not None else "")
        if after["retrain"]:
            row += [_cell(after["retrain"].get(name)), _cell(after["gaps"].get(name, {}).get("floor_mean"))]
        rows.append(row)
    warnings = shortened(" ".join(after["warnings"][:1]), 300)
    judged = {name: after["judgement"][name] for name in ("verdict", "reason")}
    return {"head": head, "rows": rows, "how_to_read": how_to_read(shown), "warnings": warnings, **judged}


def _cell(value: float | None) -> str:
    return "" if value is None else fixed(value, 1)
