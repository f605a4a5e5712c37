"""The receipt of a deletion request as one page of HTML, to read, print or save as PDF; made of receipt.json alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from regun.evaluate import describe
from regun.show.numbers import duration, fixed, interval, many, names, shortened
from regun.show.page import render

ACCURACIES = ("retain_acc", "forget_acc", "val_acc", "test_acc", "heldout_acc")
ATTACKS = ("smia_auc", "rmia_auc", "lira_auc")
SETTINGS = ("epochs", "batch_size", "optimizer", "lr", "w", "alpha", "retain_batch")
"""Settings the page shows; the receipt has them all."""
LISTED = 4
"""Entries of a list that are shown, so that the receipt stays one page."""
SCOPES = {"all": "all forgotten", "new": "this request"}
GOOD = "Good: near 50, or the retrained model's value; well above: still remembered; well below: leaks too."

Rows = list[tuple[str, str]]


def page(receipt: Mapping[str, Any]) -> str:
    """The page; it loads nothing and runs nothing."""
    attempt = receipt["method"]["attempts"][-1]
    return render(
        "receipt.html",
        number=receipt["request"]["number"],
        status="accepted" if receipt["acceptance"]["accepted"] else "rejected",
        summary=_summary(receipt, attempt),
        asked=_filled(_asked(receipt["request"])),
        done=_filled(_done(receipt, attempt)),
        rule=receipt["acceptance"]["rule"],
        findings=_findings(receipt),
        why_no_audit="The run diverged" if attempt["diverged"] else "Nothing was unlearned",
        audit=_audit(receipt["audit"]["scopes"]),
        limits=receipt["limits"],
        fingerprints=_fingerprints(receipt),
        check=f"regun verify requests/{int(receipt['ledger']['number']):04d}/receipt.json",
    )


def _summary(receipt: Mapping[str, Any], attempt: Mapping[str, Any]) -> str:
    request, data = receipt["request"], receipt["data"]
    new, total = data["newly_forgotten_examples"], data["sets"]["forget"]["examples"]
    if not request["records"]:
        return (
            f"Asked for: {many(sum(request['never_trained_on'].values()), 'id')} of unseen sets. The model was never "
            f"trained on them and stays as it is; they are left out of these sets from now on."
        )
    what = f"To be forgotten: {many(request['records'], 'id')} ({many(new, 'training example')})"
    also = f", with {total - new:,} of earlier requests" if total > new else ""
    anew = attempt["method"] == "retrain"
    done = "was trained anew without them" if anew else f"was changed by {shortened(attempt['method'], 60)}"
    if receipt["acceptance"]["accepted"]:
        return f"{what}{also}. The model {done} and meets the acceptance rule; it is the current model."
    return f"{what}{also}. The model {done} and does not meet the acceptance rule; the model before it stays in use."


def _asked(request: Mapping[str, Any]) -> Rows:
    first, more = request["first_ids"][:LISTED], request["records"] - LISTED
    left = [f"{count:,} {name.replace('_', ' ')}" for name, count in request["left_out"].items() if count]
    left += [f"{count:,} only in {name}" for name, count in request["never_trained_on"].items()]
    clear = f"; {names(request['in_the_clear'])} in the clear" if request["in_the_clear"] else ""
    written = "in the clear" if request["naming"] == "plain" else f"{request['naming']}{clear}"
    return [
        ("ids", ", ".join(shortened(one, 24) for one in first) + (f" and {more:,} more" if more > 0 else "")),
        ("reason", _tally(request["reasons"])),
        ("requester", _tally(request["requesters"])),
        ("asked on", _tally(request["dates"])),
        ("left out", "; ".join(left)),
        ("ids are", written),
        ("rejected before", many(request["rejected_before"], "time") if request["rejected_before"] else ""),
        ("carried out", str(request["created"]).replace("T", " ").replace("+00:00", " UTC")),
    ]


def _done(receipt: Mapping[str, Any], attempt: Mapping[str, Any]) -> Rows:
    cost, settings, model, sets = attempt["cost"], attempt["settings"], receipt["model"], receipt["data"]["sets"]
    shown = [(k, v) for k, v in settings.items() if k in SETTINGS] or list(settings.items())[:LISTED]
    work = f"{cost['steps']:,} steps, {cost['backward']:,} samples, {duration(cost['seconds'])}"
    return [
        ("method", ", then ".join(shortened(one["spec"], 60) for one in receipt["method"]["attempts"])),
        ("settings", ", ".join(f"{shortened(k, 20)}={shortened(v, 20)}" for k, v in shown)),
        ("work", work if cost["steps"] else ""),
        ("model", f"{shortened(model['class'], 60)}, {model['parameters']:,} parameters"),
        ("examples", ", ".join(f"{name} {some['examples']:,}" for name, some in sets.items() if name != "train")),
        ("software", ", ".join(f"{name} {shortened(text, 20)}" for name, text in receipt["software"].items())),
    ]


def _findings(receipt: Mapping[str, Any]) -> list[dict[str, Any]]:
    several = len(receipt["audit"]["scopes"]) > 1
    found: list[dict[str, Any]] = receipt["acceptance"]["findings"]
    return [{**one, "scope": SCOPES.get(one["scope"], "") if several else ""} for one in found]


def _audit(scopes: Mapping[str, Any]) -> dict[str, Any] | None:
    """Head, rows and notes of the table of numbers; None where nothing was audited."""
    if not scopes:
        return None
    after = scopes["all"]["after"]
    head = ["number (%)", "before", "after", "95 % interval", *(["this request"] if "new" in scopes else [])]
    head += ["retrained", "noise floor"] if after["retrain"] else []
    shown = [name for name in ACCURACIES if name in after["numbers"]]
    shown += [name for name in after["numbers"] if name in ATTACKS or name.startswith("smia_auc_")]
    attack = next((describe(name) for name in shown if "auc" in name), None)
    meaning = f"{attack.label}: {attack.meaning}. " if attack else ""
    notes = f"{meaning}{GOOD} {shortened(' '.join(after['flags'][:1]), 300)}"
    return {"head": head, "rows": [_row(name, scopes) for name in shown], "notes": notes.strip()}


def _row(name: str, scopes: Mapping[str, Any]) -> list[str]:
    before, after = scopes["all"]["before"], scopes["all"]["after"]
    value, low, high = after["numbers"][name]
    cells = [describe(name).label, _figure(before["numbers"].get(name, [None])[0]), _figure(value), interval(low, high)]
    if "new" in scopes:
        own = name == "forget_acc" or not name.endswith("_acc")
        cells.append(_with_interval(scopes["new"]["after"]["numbers"].get(name)) if own else "")
    if after["retrain"]:
        cells += [_figure(after["retrain"].get(name)), _figure(after["gaps"].get(name, {}).get("floor_mean"))]
    return cells


def _fingerprints(receipt: Mapping[str, Any]) -> Rows:
    model, ledger, sets, signer = (receipt[name] for name in ("model", "ledger", "data", "signer"))
    sets = sets["sets"]
    first = "this is its first line" if set(ledger["previous"]) == {"0"} else ledger["previous"]
    return [
        ("model before", model["before"]),
        ("model after", model["after"]),
        ("training data", sets["train"]["digest"]),
        *(("heldout set", some["digest"]) for name, some in sets.items() if name == "heldout"),
        ("request", receipt["request"]["digest"]),
        ("ledger before", first),
        ("this receipt", receipt["seal"]),
        ("signed by", signer["public_key"] if signer else "nobody"),
    ]


def _filled(rows: Rows) -> Rows:
    return [(name, shortened(text, 200)) for name, text in rows if text]


def _tally(counted: Mapping[str, Any]) -> str:
    shown = [f"{shortened(text, 40)} ({count:,})" for text, count in counted["most_common"][:2]]
    more = int(counted["different"]) - len(shown)
    return ", ".join(shown) + (f" and {many(more, 'other')}" if more > 0 else "")


def _figure(value: float | None) -> str:
    return "" if value is None else fixed(value, 1)


def _with_interval(number: Sequence[float | None] | None) -> str:
    if number is None or number[0] is None:
        return ""
    ends = interval(number[1], number[2])
    return fixed(number[0], 1) + (f" ({ends})" if ends else "")
