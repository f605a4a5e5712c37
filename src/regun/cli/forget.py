"""`regun forget`."""

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from regun.artifacts.setup import family_of
from regun.auditing import describe
from regun.cli.arguments import BAD_INPUT, FAILED, INCONCLUSIVE, for_shell
from regun.cli.display import Display, open_display, show_notes
from regun.cli.options import find_base, load, open_store, setup_of, use_threads
from regun.cli.terminal import emit, print_table
from regun.deletion import (
    DeletionRequest,
    DeletionResult,
    Forecast,
    Options,
    Plan,
    Project,
    check_unknown,
    forget,
    load_project,
    make_forecast,
    plan_request,
    read_pseudonyms,
    read_request_file,
    stored_project,
)
from regun.deletion.plan import few
from regun.deletion.receipt_text import how_to_read
from regun.devices import as_device
from regun.errors import Problems, SettingsError
from regun.render.numbers import duration, fixed, interval, many
from regun.render.tables import plain

SCOPES = {"all": "all forgotten", "new": "this request"}
SHOWN = ("retain_acc", "forget_acc", "val_acc", "heldout_acc", "test_acc")
MARKS = {"passed": "passed      ", "failed": "FAILED      ", "inconclusive": "INCONCLUSIVE"}
OUTCOMES = {
    "accepted": "accepted: request {number} is done and its model is the current one",
    "accepted inconclusive": (
        "accepted, inconclusive: request {number} has no evidence; its model is the current one, as you chose"
    ),
    "rejected": "REJECTED: request {number} failed; its model is stored apart, the previous one stays current",
    "inconclusive": (
        "INCONCLUSIVE: request {number} has no evidence; its model is stored apart, the previous one stays current"
    ),
}
RETRAIN = "--fallback retrain trains from scratch without the records, by the project's retrain=..."
ACCEPT = "--accept-inconclusive accepts the model"


def run(args: argparse.Namespace) -> int:
    problems = Problems()
    texts = [text or "" for text in (args.reason, args.requester, args.received, args.due)]
    request = problems.attempt(lambda: read_request_file(Path(args.ids)).with_defaults(*texts))
    options = problems.attempt(lambda: _options(args))
    problems.attempt(lambda: use_threads(args.threads))
    display = open_display(args, "forget")
    project = problems.attempt(lambda: read_project(args, display))
    problems.stop_if_any()
    if request is None or options is None or project is None:
        return BAD_INPUT
    if args.prepared is not None:
        project = replace(project, prepared=Path(args.prepared))
    if args.dry_run:
        plan = plan_request(project, request, Path(args.out), options)
        forecast = make_forecast(plan, Path(args.out))
        if args.json:
            emit({**_plan_json(plan), "judging": plan.judging, "forecast": forecast and asdict(forecast)})
        else:
            _print_dry(plan, request, forecast)
        check_unknown(plan, request)
        return 0
    with show_notes(display):
        done = forget(
            project,
            request,
            Path(args.out),
            options,
            on_plan=lambda plan: _print_plan(plan, request, args),
            on_note=lambda note: display.note(note, always=True),
            on_stage=display.note,
            on_epoch=display.epoch,
        )
    display.close()
    emit(_json(done)) if args.json else _print(done, args)
    return 0 if done.accepted else FAILED if done.status == "rejected" else INCONCLUSIVE


def read_project(args: argparse.Namespace, display: Display) -> Project:
    """Return the project of --project, or of the stored model of --base."""
    if (args.project is None) == (args.base is None):
        raise SettingsError(["give either --project FILE.py:FUNCTION or --base KEY (a model of the store)."])
    if args.project is not None:
        project = load_project(args.project)
        return project if args.device == "auto" else replace(project, device=as_device(args.device))
    store = open_store(args)
    base = find_base(args.base, store)
    setup = setup_of(base, args)
    data, reserved = load(setup, display)
    return stored_project(base, data, reserved, store, as_device(args.device), family_of(setup.model.name))


def path_of(text: str | None) -> Path | None:
    """Return the path or None; an empty name stays a path, so that `--sign "$UNSET"` is an error where it is read."""
    return None if text is None else Path(text)


def _options(args: argparse.Namespace) -> Options:
    if not args.out:
        raise SettingsError(["--out is empty; name a folder."])
    return Options(
        method=args.method,
        accept=args.accept,
        fallback=args.fallback,
        seed=args.seed,
        bootstrap=args.bootstrap,
        sign=path_of(args.sign),
        pseudonyms=read_pseudonyms(path_of(args.salt)),
        ignore_unknown=args.ignore_unknown,
        check_content=args.check_content,
        accept_inconclusive=args.accept_inconclusive,
        out_models=args.out_models,
        role=args.role,
    )


def _print_plan(plan: Plan, request: DeletionRequest, args: argparse.Namespace) -> None:
    """Print the plan before it is executed; on standard error if the result is JSON."""
    if not args.quiet:
        lines = [*_plan_lines(plan, request), *([f"  audited with {plan.judging}"] if plan.judging else [])]
        print("\n".join(lines), file=sys.stderr if args.json else sys.stdout, flush=True)


def _plan_lines(plan: Plan, request: DeletionRequest) -> list[str]:
    """Return what the request names, and what of it is left out."""
    matched = plan.matched
    ids = f"{many(len(plan.names), 'id')} to forget ({many(len(plan.new), 'training example')})"
    lines = [f"{many(len(request.records), 'line')}: {ids}"]
    for ids, state in (
        (matched.duplicate, "named twice; counted once"),
        (matched.already, "already forgotten by an earlier request; left out"),
        (matched.unknown, "unknown"),
        *((ids, f"in the {name} set, never trained on; removed from it") for name, ids in matched.unseen.items()),
    ):
        if ids:
            lines.append(f"  {len(ids):,} {state}: {few(ids)}")
    if request.ignored_columns:
        lines.append(f"  columns not read: {few(request.ignored_columns)}")
    if plan.gone:
        are = "is" if plan.gone == 1 else "are"
        lines.append(f"  {many(plan.gone, 'id')} of earlier requests {are} no longer in the data")
    return lines


def _print_dry(plan: Plan, request: DeletionRequest, forecast: Forecast | None) -> None:
    """Print what would happen, the main thing first."""
    if plan.empty:
        print("\n".join(["Nothing would be done.", *_plan_lines(plan, request)]))
        return
    if forecast is None:
        print(f"request {plan.number} would be recorded; the model was never trained on these and stays as it is")
    else:
        print("\n".join(_forecast_lines(plan, forecast)))
    print("\n".join(_plan_lines(plan, request)))
    for note in plan.notes:
        print(f"  {note}")
    unseen = ", ".join(f"{name} {len(rows):,}" for name, rows in plan.remaining.items())
    print(f"  then forgotten {len(plan.forget):,} in all, retained {len(plan.retain):,}; unseen: {unseen}")
    print("Nothing was written.")


def _forecast_lines(plan: Plan, forecast: Forecast) -> list[str]:
    """Return what is done and how long it takes, what is judged, and with which power."""
    first, *fallbacks = forecast.runs
    if first.from_scratch:
        does = "retrain the model from scratch without"
    else:
        does = f"update the current model{', or retrain it from scratch,' if first.may_retrain else ''} to forget"
    records = many(len(plan.new), "training example")
    lines = [f"request {plan.number} would {does} {records}: {_time(first.samples, forecast)}"]
    lines.append(f"method   {first.method}" + (f": {first.plan}" if first.plan else ""))
    if forecast.judging_samples:
        lines.append(f"judging  {plan.judging}: {_time(forecast.judging_samples, forecast)}")
    elif plan.judging and not first.from_scratch:
        lines.append(f"judging  {plan.judging}")
    lines += [f"fallback {one.method}, if not accepted: {_time(one.samples, forecast)}" for one in fallbacks]
    if forecast.samples_per_second is not None:
        lines.append(f"speed    {forecast.samples_per_second:,.0f} examples/s, measured on a few training steps")
    lines.append(f"accepted if {plan.rule.text}")
    if first.from_scratch:
        return [*lines, "         (a model retrained from scratch has forgotten by construction; accuracy decides)"]
    power = forecast.power
    sizes = f"{power.forgotten:,} forgotten and {power.unseen:,} {power.against} records"
    detected = f"an attack AUC of {power.smallest:.0f} or more" if power.smallest < 100 else "no attack AUC"
    value = f"{power.before.value:.0f} ({interval(power.before.low, power.before.high, 0)})"
    meaning = "a decision can be expected" if power.enough else "expect inconclusive; collect requests or retrain"
    return [*lines, f"power    {sizes} reveal {detected} in 80 % of cases; the current model has {value}: {meaning}"]


def _time(samples: int | None, forecast: Forecast) -> str:
    if samples is None:
        return "it is a method of your own, so its length is unknown"
    seconds = forecast.seconds(samples)
    about = f"about {duration(seconds)}, " if seconds is not None else ""
    return f"{about}at most {samples:,} samples"


def _plan_json(plan: Plan) -> dict[str, Any]:
    matched = plan.matched
    return {
        "number": plan.number,
        "ids": len(plan.names),
        "new": len(plan.new),
        "forget": len(plan.forget),
        "retain": len(plan.retain),
        "unseen": {name: len(rows) for name, rows in plan.remaining.items()},
        "duplicate": list(matched.duplicate),
        "already": list(matched.already),
        "unknown": list(matched.unknown),
        "never_trained_on": {name: list(ids) for name, ids in matched.unseen.items()},
        "copies": list(plan.copies["new"]),
    }


def _json(done: DeletionResult) -> dict[str, Any]:
    plan, folder = _plan_json(done.plan), done.folder
    if folder is None or done.receipt is None:
        return {"done": False, "plan": plan, "ledger_hash": done.tip}
    audit, acceptance = done.receipt["audit"], done.receipt["acceptance"]
    return {
        "done": True,
        "status": done.status,
        "accepted": done.accepted,
        "plan": plan,
        "folder": str(folder),
        "model": str(folder / "model.safetensors"),
        "weights": done.receipt["ledger"]["after"],
        "acceptance": acceptance,
        "warnings": done.receipt["method"]["attempts"][-1]["warnings"],
        "influence": audit["influence"],
        "numbers": {scope: result["after"]["numbers"] for scope, result in audit["scopes"].items()},
        "ledger_hash": done.tip,
    }


def _print(done: DeletionResult, args: argparse.Namespace) -> None:
    folder, receipt = done.folder, done.receipt
    if folder is None or receipt is None:
        print("Nothing to do: every known id is already forgotten. Nothing was written.")
        return
    scopes = receipt["audit"]["scopes"]
    if scopes:
        before, after = scopes["all"]["before"]["numbers"], scopes["all"]["after"]["numbers"]
        metrics = {n: describe(n) for n in after if n in SHOWN or n.startswith(("smia_auc", "rmia_auc"))}
        rows = [
            [metric.label, fixed(before[n][0]), fixed(after[n][0]), interval(after[n][1], after[n][2], 2)]
            for n, metric in metrics.items()
        ]
        print_table(["%", "before", "after", "95 % interval"], rows)
        print(how_to_read(list(metrics)))
    for finding in receipt["acceptance"]["findings"]:
        scope = f" ({SCOPES[finding['scope']]})" if len(scopes) > 1 and finding["scope"] in SCOPES else ""
        print(f"{MARKS[finding['result']]} {finding['condition']}{scope}: {finding['why']}")
    for warning in receipt["method"]["attempts"][-1]["warnings"]:
        print(f"warning     {plain(for_shell(warning, args))}")
    if not len(done.plan.new):
        print(f"recorded: request {done.plan.number} names unseen records only; they are left out from now on, and the")
        print("model, which was never trained on them, stays as it is")
    else:
        print(OUTCOMES[done.status].format(number=done.plan.number))
        if not done.accepted:
            print(_next_step(done, receipt))
    print(f"model    {folder / 'model.safetensors'}\nreceipt  {folder / 'receipt.html'}")
    print(f"ledger   line {done.plan.number} has the hash {done.tip}")
    print(f"check    regun verify {folder / 'receipt.json'}")


def _next_step(done: DeletionResult, receipt: dict[str, Any]) -> str:
    """Return what to do about a model that was not accepted."""
    last, copies = receipt["method"]["attempts"][-1], done.plan.copies["all"]
    accept = "" if done.status == "rejected" else f"; {ACCEPT}"
    if copies and last["from_scratch"]:
        return f"add the ids of the copies (see the warning) to the request, or remove them from train{accept}"
    if accept:
        return f"{RETRAIN}{accept}"
    if last["from_scratch"]:
        return (
            "the model was retrained from scratch and forgot; train it better (--method retrain,epochs=...,lr=...), "
            "or set weaker conditions by --accept"
        )
    change = "a lower lr (--method NAME,lr=...)" if last["diverged"] else "other settings or another --method"
    return f"{RETRAIN}; or try {change}; --accept sets the conditions"
