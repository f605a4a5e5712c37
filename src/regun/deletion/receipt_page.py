"""The receipt of a deletion request as a page of HTML, to read, print or save as PDF; made of receipt.json alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from regun.auditing import describe
from regun.render.numbers import duration, fixed, interval, many, names, shortened
from regun.render.template import render

ACCURACIES = ("retain_acc", "forget_acc", "val_acc", "test_acc", "heldout_acc")
ATTACKS = ("smia_auc", "rmia_auc", "lira_auc")
SETTINGS = ("epochs", "batch_size", "optimizer", "lr", "w", "alpha", "retain_batch")
"""Settings the page shows; the receipt has them all."""
TAKEN = ("accepted", "accepted untestable")
"""Of a request whose model is the current one."""
LISTED = 4
"""Entries of a list that are shown, so that the receipt stays two pages."""
BADGES = {
    "accepted": "accepted",
    "accepted untestable": "accepted, untestable",
    "rejected": "rejected",
    "inconclusive": "inconclusive",
}
MARKS = {"passed": "met", "failed": "not met", "inconclusive": "inconclusive"}
CLAIMS = {
    "retrained": "retrained: the model was trained anew without the records",
    "certified": "certified: a mathematical bound holds under the stated assumptions",
    "empirical": "empirical: tests, no proof",
    "none": "none: there was nothing to unlearn",
}
SCOPES = {"all": "all forgotten", "new": "this request"}
OUTCOMES = {
    "accepted": "The new model meets the acceptance rule and is the current model.",
    "accepted untestable": (
        "The tests that were made cannot tell whether the new model has forgotten; the operator has accepted that, and "
        "it is the current model."
    ),
    "rejected": "What came out does not meet the acceptance rule; the model before stays the current one.",
    "inconclusive": (
        "The tests that were made cannot tell whether the new model has forgotten; the model before it stays the "
        "current one."
    ),
}
ACCURATE = (
    "Acc. (accuracy): the share of right answers, on records that stay (retain), on forgotten ones (forget) and on "
    "ones that the model never learned from (val, test, heldout). "
)
GOOD = "Good: near 50, or the retrained model's value; well above: still remembered; well below: leaks too."
STAY = "Retain AUC: the same for the records that stay, whom unlearning should not expose; good: not above before. "

Rows = list[tuple[str, str]]


def page(receipt: Mapping[str, Any]) -> str:
    """The page; it loads nothing and runs nothing."""
    attempt, acceptance = receipt["method"]["attempts"][-1], receipt["acceptance"]
    return render(
        "receipt.html",
        number=receipt["request"]["number"],
        status=BADGES[acceptance["status"]],
        colour=acceptance["status"].replace(" ", "-"),
        summary=_summary(receipt, attempt),
        letter=receipt["letter"]["text"],
        asked=_filled(_asked(receipt["request"], acceptance["status"] in TAKEN)),
        done=_filled(_done(receipt, attempt)),
        warnings=[text for one in receipt["method"]["attempts"] for text in one["warnings"]],
        rule=acceptance["rule"],
        findings=_findings(receipt),
        why_no_audit="The run diverged" if attempt["diverged"] else "Nothing was unlearned",
        audit=_audit(receipt["audit"]["scopes"]),
        tried=receipt["audit"]["tried"],
        not_tried=receipt["audit"]["not_tried"],
        others=_other_models(receipt["model"]),
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
    return f"{what}{also}. {OUTCOMES[receipt['acceptance']['status']]}"


def _asked(request: Mapping[str, Any], taken: bool) -> Rows:
    first, more, dates = request["first_ids"][:LISTED], request["records"] - LISTED, request["dates"]
    left = [f"{count:,} {name.replace('_', ' ')}" for name, count in request["left_out"].items() if count]
    left += [f"{count:,} only in {name}" for name, count in request["never_trained_on"].items()]
    clear = f"; {names(request['in_the_clear'])} in the clear" if request["in_the_clear"] else ""
    written = "in the clear, as they were given" if request["naming"] == "plain" else f"{request['naming']}{clear}"
    late = f" ({many(dates['days_late'], 'day')} late)" if dates["days_late"] else ""
    return [
        ("received", dates["received"]),
        ("due", dates["due"]),
        ("done" if taken else "tried", f"{str(request['created']).replace('T', ' ').replace('+00:00', ' UTC')}{late}"),
        ("responsible", request["role"] or "not named"),
        ("ids", ", ".join(shortened(one, 24) for one in first) + (f" and {more:,} more" if more > 0 else "")),
        ("reason", _tally(request["reasons"])),
        ("requester", _tally(request["requesters"])),
        ("left out", "; ".join(left)),
        ("ids are written", written),
        ("tried before", "; ".join(f"{many(n, 'time')}: {status}" for status, n in request["tried_before"].items())),
    ]


def _done(receipt: Mapping[str, Any], attempt: Mapping[str, Any]) -> Rows:
    cost, model = attempt["cost"], receipt["model"]
    settings = {name: value for name, value in attempt["settings"].items() if value is not None}
    shown = [(k, v) for k, v in settings.items() if k in SETTINGS] or list(settings.items())[:LISTED]
    return [
        ("kind of claim", _claim(receipt)),
        ("method", ", then ".join(shortened(one["spec"], 60) for one in receipt["method"]["attempts"])),
        ("settings", ", ".join(f"{shortened(k, 20)}={shortened(v, 20)}" for k, v in shown)),
        ("plan", str(attempt["notes"].get("plan", ""))),
        ("what it did", attempt["done"]),
        ("work", f"{cost['backward']:,} samples, {duration(cost['seconds'])}" if cost["backward"] else ""),
        ("judged with", _outs(receipt["audit"]["outs"])),
        ("model", f"{shortened(model['class'], 60)}, {model['parameters']:,} parameters"),
        ("records", _sets(receipt["data"]["sets"])),
        ("software", ", ".join(f"{name} {shortened(text, 20)}" for name, text in receipt["software"].items())),
    ]


def _sets(sets: Mapping[str, Any]) -> str:
    """How many records play which part."""
    sizes = {name: f"{some['examples']:,}" for name, some in sets.items()}
    unseen = ", ".join(f"{sizes[name]} {name}" for name in sizes if name not in ("train", "retain", "forget"))
    return f"{sizes['forget']} to be forgotten, {sizes['retain']} that stay (retain); never learned from: {unseen}"


def _claim(receipt: Mapping[str, Any]) -> str:
    made, kind = receipt["acceptance"]["status"] in TAKEN, receipt["method"]["claim"]
    copies: dict[str, int] = receipt["data"].get("copies_that_stay") or {"all": 0}
    stay = copies["all"]
    but = f", but on {many(stay, 'identical one')} under other ids" if stay and kind == "retrained" else ""
    return f"{CLAIMS[kind]}{but}" if made else f"none is made (it would be {CLAIMS[kind]}{but})"


def _outs(outs: Mapping[str, Any]) -> str:
    """The models that never saw the records, and what they cost."""
    if not outs["models"]:
        return shortened(outs["why"], 120)
    if outs["kind"] == "retrained":
        return many(outs["models"], "retrained model")
    spent = f"{outs['cost']['steps']:,} steps, {duration(outs['cost']['seconds'])}"
    return f"{many(outs['models'], 'short training')} without the records ({spent})"


def _other_models(model: Mapping[str, Any]) -> list[str]:
    """Models that are known to come from the one forgotten from; none of them is covered."""
    known = model["in_this_folder"]
    own = [f"that of request {one['request']} ({one['status']})" for one in known if one["weights"] != model["before"]]
    first = [f"the first model ({str(model['base'])[:12]})"] if model["base"] != model["before"] else []
    found = [f"the model before this request ({str(model['before'])[:12]})", *first, *own, *model["derived"]]
    shown = [shortened(one, 60) for one in found[: 2 * LISTED]]
    return [*shown, f"and {len(found) - len(shown):,} more"] if len(found) > len(shown) else shown


def _findings(receipt: Mapping[str, Any]) -> list[dict[str, Any]]:
    several = len(receipt["audit"]["scopes"]) > 1
    found: list[dict[str, Any]] = receipt["acceptance"]["findings"]
    words = {name: SCOPES.get(name, "") if several else "" for name in (*SCOPES, "utility")}
    return [{**one, "scope": words.get(one["scope"], ""), "mark": MARKS[one["answer"]]} for one in found]


def _audit(scopes: Mapping[str, Any]) -> dict[str, Any] | None:
    """Head, rows and notes of the table of numbers; None where nothing was audited."""
    if not scopes:
        return None
    after = scopes["all"]["after"]
    head = ["number (%)", "before", "after", "95 % interval", *(["this request alone"] if "new" in scopes else [])]
    head += ["retrained", "noise floor"] if after["retrain"] else []
    shown = [name for name in ACCURACIES if name in after["numbers"]]
    shown += [name for name in after["numbers"] if name in ATTACKS or name.startswith("smia_auc_")]
    shown += [name for name in ("retain_auc", "retain_auc_heldout", "retain_auc_val") if name in after["numbers"]][:1]
    stay = STAY if any(name.startswith("retain_auc") for name in shown) else ""
    notes = f"{ACCURATE}{how_to_read(shown)} {stay}{shortened(' '.join(after['flags'][:1]), 300)}"
    return {"head": head, "rows": [_row(name, scopes) for name in shown], "notes": notes.strip()}


def how_to_read(numbers: Sequence[str]) -> str:
    """What the first of these numbers that is an attack's means, and which value is good."""
    attack = next((describe(name) for name in numbers if "auc" in name), None)
    meaning = f"{attack.label}: {attack.meaning.removeprefix('loss attack: ')} (member: trained on). " if attack else ""
    return f"{meaning}{GOOD}"


def _row(name: str, scopes: Mapping[str, Any]) -> list[str]:
    before, after = scopes["all"]["before"], scopes["all"]["after"]
    value, low, high = after["numbers"][name]
    cells = [describe(name).label, _figure(before["numbers"].get(name, [None])[0]), _figure(value), interval(low, high)]
    if "new" in scopes:
        own = name == "forget_acc" or (not name.endswith("_acc") and not name.startswith("retain_"))
        cells.append(_with_interval(scopes["new"]["after"]["numbers"].get(name)) if own else "")
    if after["retrain"]:
        cells += [_figure(after["retrain"].get(name)), _figure(after["gaps"].get(name, {}).get("floor_mean"))]
    return cells


def _fingerprints(receipt: Mapping[str, Any]) -> Rows:
    model, ledger, sets, signer = (receipt[name] for name in ("model", "ledger", "data", "signer"))
    sets = sets["sets"]
    first = "none: this is the ledger's first" if set(ledger["previous"]) == {"0"} else ledger["previous"]
    return [
        ("model before", model["before"]),
        ("model after", model["after"]),
        ("training data", sets["train"]["digest"]),
        *(("heldout set", some["digest"]) for name, some in sets.items() if name == "heldout"),
        ("request", receipt["request"]["digest"]),
        ("line before", first),
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
