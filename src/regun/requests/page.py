"""The receipt as one page of HTML, to read, print or save as PDF."""

from collections.abc import Mapping, Sequence
from typing import Any

from regun.evaluate import describe
from regun.page.markup import Html, escape, join, tag
from regun.requests.attempt import NOTHING_TO_UNLEARN
from regun.requests.style import STYLE

MAIN = ("retain_acc", "forget_acc", "val_acc", "test_acc", "heldout_acc")
ATTACKS = ("smia_auc", "rmia_auc", "lira_auc")
SETTINGS = ("epochs", "batch_size", "optimizer", "lr", "w", "alpha", "retain_batch")
"""Settings the page shows; the receipt has them all."""
LONGEST, FEW = 60, 4
"""Characters of a text and entries of a list that are shown, so that the receipt stays one page."""
NAMING = {"plain": "in the clear"}
SCOPES = {"all": "all forgotten", "new": "this request"}
GOOD = "Good: near 50, or the retrained model's value; well above: still remembered; well below: leaks too."


def page(receipt: Mapping[str, Any]) -> str:
    """The page; it loads nothing and runs nothing."""
    number, status = receipt["request"]["number"], "accepted" if receipt["acceptance"]["accepted"] else "rejected"
    title = f"Deletion receipt {_short(number)}"
    body = [
        tag("h1", f"{title} ", tag("span", status, class_=status)),
        tag("p", _summary(receipt), class_="lead"),
        tag("div", tag("section", _asked(receipt)), tag("section", _done(receipt)), class_="two"),
        _findings(receipt),
        _numbers(receipt),
        _limits(receipt),
        _fingerprints(receipt),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("title", title),
        Html(f"<style>{STYLE}</style>"),
    ]
    whole = tag("html", tag("head", head), tag("body", join(body, "\n")), lang="en")
    return f"<!doctype html>\n{escape(whole)}\n"


def _summary(receipt: Mapping[str, Any]) -> str:
    request, last = receipt["request"], receipt["method"]["attempts"][-1]
    new, total = receipt["data"]["newly_forgotten_examples"], receipt["data"]["sets"]["forget"]["examples"]
    if last["method"] == NOTHING_TO_UNLEARN:
        return (
            f"{_count(sum(request['never_trained_on'].values()), 'id')} of unseen sets were asked for. The model was "
            f"never trained on them and stays as it is; they are left out of these sets from now on."
        )
    what = f"{_count(request['records'], 'id')} ({_count(new, 'training example')}) were to be forgotten"
    also = f", with {total - new:,} of earlier requests" if total > new else ""
    anew = last["method"] == "retrain"
    done = "The model was trained anew without them" if anew else f"The model was changed by {_short(last['method'])}"
    if receipt["acceptance"]["accepted"]:
        return f"{what}{also}. {done} and meets the acceptance rule; it is the current model."
    return f"{what}{also}. {done} and does not meet the acceptance rule; the model before it stays in use."


def _asked(receipt: Mapping[str, Any]) -> Html:
    request = receipt["request"]
    left = [f"{count:,} {name.replace('_', ' ')}" for name, count in request["left_out"].items() if count]
    left += [f"{count:,} only in {name}" for name, count in request["never_trained_on"].items()]
    rows = [
        ("ids", _some(request["first_ids"], request["records"])),
        ("reason", _tally(request["reasons"])),
        ("requester", _tally(request["requesters"])),
        ("asked on", _tally(request["dates"])),
        ("left out", _short("; ".join(left), 160)),
        ("ids are", _short(NAMING.get(request["naming"], request["naming"]))),
        ("rejected before", f"{_count(request['rejected_before'], 'time')}" if request["rejected_before"] else ""),
        ("carried out", _short(str(request["created"]).replace("T", " ").replace("+00:00", " UTC"))),
    ]
    return join([tag("h2", "What was asked"), _rows(rows)])


def _done(receipt: Mapping[str, Any]) -> Html:
    attempts, sets = receipt["method"]["attempts"], receipt["data"]["sets"]
    cost, model = attempts[-1]["cost"], receipt["model"]
    rows = [
        ("method", ", then ".join(_short(attempt["spec"]) for attempt in attempts)),
        ("settings", _settings(attempts[-1]["settings"])),
        ("work", f"{cost['steps']:,} steps, {cost['backward']:,} samples, {cost['seconds']:.1f} s"),
        ("model", f"{_short(model['class'])}, {model['parameters']:,} parameters"),
        ("examples", ", ".join(f"{n} {some['examples']:,}" for n, some in sets.items() if n != "train")),
        ("software", ", ".join(f"{_short(name)} {_short(text)}" for name, text in receipt["software"].items())),
    ]
    return join([tag("h2", "What was done"), _rows(rows)])


def _findings(receipt: Mapping[str, Any]) -> Html:
    rule = receipt["acceptance"]
    several = len(receipt["audit"]["scopes"]) > 1
    rows: list[Html] = []
    for found in rule["findings"]:
        asked = join([tag("code", _short(found["condition"])), f" {_short(found['meaning'], 120)}"])
        scope = SCOPES.get(found["scope"], "") if several else ""
        verdict = "met" if found["passed"] else tag("b", "not met")
        rows.append(_row([asked, scope, _short(found["why"], 200), verdict]))
    title = tag("h2", "Acceptance rule: ", tag("code", _short(rule["rule"], 200)))
    return join([title, tag("table", rows, class_="wide rule")])


def _numbers(receipt: Mapping[str, Any]) -> Html:
    scopes: Mapping[str, Any] = receipt["audit"]["scopes"]
    if not scopes:
        why = "The run diverged" if receipt["method"]["attempts"][-1]["diverged"] else "Nothing was unlearned"
        return join([tag("h2", "Audit"), tag("p", f"{why}; there was no new model to audit.")])
    after: Mapping[str, Any] = scopes["all"]["after"]
    head = ["number (%)", "before", "after", "95 % interval"] + (["this request"] if "new" in scopes else [])
    head += ["retrained", "noise floor"] if after["retrain"] else []
    names = [name for name in MAIN if name in after["numbers"]]
    names += [name for name in after["numbers"] if name in ATTACKS or name.startswith("smia_auc_")]
    rows = [tag("tr", [tag("th", cell) for cell in head]), *(_number_row(name, scopes) for name in names)]
    attack = next((name for name in names if "auc" in name), None)
    meaning = f"{describe(attack).label}: {describe(attack).meaning}. " if attack else ""
    notes = tag("p", f"{meaning}{GOOD} ", _short(" ".join(after["flags"][:1]), 300), class_="small")
    return join([tag("h2", "Audit"), tag("table", rows, class_="wide figures"), notes])


def _number_row(name: str, scopes: Mapping[str, Any]) -> Html:
    before, after = scopes["all"]["before"], scopes["all"]["after"]
    value, low, high = after["numbers"][name]
    cells = [_figure(before["numbers"].get(name, [None])[0]), _figure(value)]
    cells.append(f"{low:.1f} to {high:.1f}" if low is not None and high is not None else "")
    if "new" in scopes:
        own = name == "forget_acc" or not name.endswith("_acc")
        cells.append(_interval(scopes["new"]["after"]["numbers"].get(name)) if own else "")
    if after["retrain"]:
        gap = after["gaps"].get(name, {})
        cells += [_figure(after["retrain"].get(name)), _figure(gap.get("floor_mean"))]
    return _row([describe(name).label, *cells])


def _limits(receipt: Mapping[str, Any]) -> Html:
    items = [tag("li", _short(limit, 1000)) for limit in receipt["limits"]]
    return join([tag("h2", "What this receipt does not show"), tag("ul", items)])


def _fingerprints(receipt: Mapping[str, Any]) -> Html:
    model, ledger, sets = receipt["model"], receipt["ledger"], receipt["data"]["sets"]
    signature, first = receipt["signature"], set(ledger["previous"]) == {"0"}
    rows = [
        ("model before", _code(model["before"])),
        ("model after", _code(model["after"])),
        ("training data", _code(sets["train"]["digest"])),
        *((f"{name} set", _code(sets[name]["digest"])) for name in ("heldout",) if name in sets),
        ("request", _code(receipt["request"]["digest"])),
        ("ledger before", "this is its first line" if first else _code(ledger["previous"])),
        ("this receipt", _code(receipt["seal"])),
        ("signed by", _code(signature["public_key"]) if signature else "nobody"),
    ]
    check = tag("code", f"regun verify requests/{int(ledger['number']):04d}/receipt.json")
    return join([tag("h2", "Fingerprints (SHA-256)"), _rows(rows), tag("p", "To check: ", check, class_="small")])


def _rows(rows: Sequence[tuple[str, str]]) -> Html:
    """A table of names and values; those without a value are left out."""
    return tag("table", [tag("tr", tag("th", name), tag("td", value)) for name, value in rows if value])


def _row(cells: Sequence[str]) -> Html:
    return tag("tr", [tag("td", cell) for cell in cells])


def _settings(settings: Mapping[str, Any]) -> str:
    shown = [(k, v) for k, v in settings.items() if k in SETTINGS] or list(settings.items())[:FEW]
    return ", ".join(f"{_short(k)}={_short(v, 20)}" for k, v in shown)


def _some(items: Sequence[Any], total: int) -> str:
    shown = ", ".join(_short(item, 24) for item in items[:FEW])
    return f"{shown} and {total - FEW:,} more" if total > FEW else shown


def _tally(counted: Mapping[str, Any]) -> str:
    shown = [f"{_short(text, 40)} ({count:,})" for text, count in counted["most_common"][:2]]
    more = int(counted["different"]) - len(shown)
    return ", ".join(shown) + (f" and {more:,} others" if more > 0 else "")


def _interval(number: Sequence[float | None] | None) -> str:
    if number is None or number[0] is None:
        return ""
    low, high = (number[1], number[2]) if len(number) == 3 else (None, None)
    return f"{number[0]:.1f}" + (f" ({low:.1f} to {high:.1f})" if low is not None and high is not None else "")


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _code(text: Any) -> Html:
    return tag("code", _short(text, 64))


def _short(value: Any, longest: int = LONGEST) -> str:
    """Any value as text of bounded length; what shows it escapes it."""
    text = str(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"
