"""`regun forget`."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from regun.cli.options import Problems, find_base, load, read_device, setup_of, use_threads
from regun.cli.terminal import Display, emit, table
from regun.errors import SettingsError
from regun.evaluate import describe
from regun.requests import (
    Asked,
    Done,
    Options,
    Plan,
    Prepared,
    Project,
    Watch,
    forget,
    load_project,
    prepare,
    read_asked,
    read_naming,
    refuse_unknown,
    stored_project,
)
from regun.runs.setup import family_of
from regun.store import Store

SCOPES = {"all": "all forgotten", "new": "this request"}
SHOWN = ("retain_acc", "forget_acc", "val_acc", "heldout_acc", "test_acc")


def run(args: argparse.Namespace) -> int:
    problems = Problems()
    asked = problems.attempt(lambda: read_asked(Path(args.ids)).filled(args.reason, args.requester, args.date))
    options = problems.attempt(lambda: _options(args))
    problems.attempt(lambda: use_threads(args.threads))
    display = Display("forget", args.quiet)
    project = problems.attempt(lambda: read_project(args, display))
    problems.stop_if_any()
    if asked is None or options is None or project is None:
        return 2
    if args.dry_run:
        ready = prepare(project, asked, Path(args.out), options)
        emit(_plan_json(ready.plan)) if args.json else _print_dry(ready)
        refuse_unknown(ready)
        return 0
    watch = Watch(
        lambda plan: _print_plan(plan, asked, args),
        lambda note: _print_note(note, display),
        display.epoch,
    )
    done = forget(project, asked, Path(args.out), options, watch)
    display.close()
    emit(_json(done)) if args.json else _print(done)
    return 0 if done.accepted else 1


def read_project(args: argparse.Namespace, display: Display) -> Project:
    """The project of --project, or the one a model of the store makes with --base."""
    if (args.project is None) == (args.base is None):
        raise SettingsError(["give either --project FILE.py:FUNCTION or --base KEY (a model of the store)."])
    if args.project is not None:
        project = load_project(args.project)
        return project if args.device == "auto" else replace(project, device=read_device(args.device))
    store = Store(args.store)
    base = find_base(args.base, store)
    setup = setup_of(base, args)
    data, kept = load(setup, display)
    return stored_project(base, data, kept, store, read_device(args.device), family_of(setup.model.name))


def _options(args: argparse.Namespace) -> Options:
    return Options(
        method=args.method,
        accept=args.accept,
        fallback=args.fallback,
        seed=args.seed,
        bootstrap=args.bootstrap,
        sign=Path(args.sign) if args.sign else None,
        naming=read_naming(Path(args.salt) if args.salt else None),
        ignore_unknown=args.ignore_unknown,
        check_content=args.check_content,
    )


def _print_note(note: str, display: Display) -> None:
    """Also with --quiet: what was cleared up after a killed run, or rejected on the way, must not go unread."""
    display.close()
    print(f"forget: {note}", file=sys.stderr, flush=True)


def _print_plan(plan: Plan, asked: Asked, args: argparse.Namespace) -> None:
    """What is about to happen, before it does; on standard error where the result is JSON."""
    if not args.quiet:
        out = sys.stderr if args.json else sys.stdout
        print("\n".join(_plan_lines(plan, asked)), file=out, flush=True)


def _plan_lines(plan: Plan, asked: Asked) -> list[str]:
    matched = plan.matched
    lines = [f"{len(asked.lines):,} lines: {len(plan.names):,} ids to forget ({len(plan.new):,} training examples)"]
    for some, what in (
        (matched.duplicate, "named twice; counted once"),
        (matched.already, "already forgotten by an earlier request; left out"),
        (matched.unknown, "unknown"),
        *((some, f"in the {name} set, never trained on; taken out of it") for name, some in matched.unseen.items()),
    ):
        if some:
            lines.append(f"  {len(some):,} {what}: {_few(some)}")
    if asked.ignored:
        lines.append(f"  columns not read: {_few(asked.ignored)}")
    if plan.gone:
        lines.append(f"  {plan.gone:,} ids of earlier requests are no longer in the data")
    return lines


def _few(texts: tuple[str, ...]) -> str:
    shown = ", ".join(repr(text[:40]) for text in texts[:3])
    return f"{shown}, ..." if len(texts) > 3 else shown


def _print_dry(ready: Prepared) -> None:
    plan = ready.plan
    print("\n".join(_plan_lines(plan, ready.asked)))
    if plan.empty:
        print("Nothing would be done.")
        return
    kept = ", ".join(f"{name} {len(rows):,}" for name, rows in plan.kept.items())
    if not len(plan.new):
        print(f"request {plan.number} would be recorded; the model was never trained on these and stays as it is")
        print("Nothing was written.")
        return
    print(f"request {plan.number} would forget {len(plan.forget):,} examples in all and retain {len(plan.retain):,}")
    print(f"unseen: {kept}")
    print(f"method {ready.method}" + (f", fallback {ready.options.fallback}" if ready.options.fallback else ""))
    print(f"accepted if {ready.rule.text}")
    print("Nothing was written.")


def _plan_json(plan: Plan) -> dict[str, Any]:
    matched = plan.matched
    return {
        "number": plan.number,
        "ids": len(plan.names),
        "new": len(plan.new),
        "forget": len(plan.forget),
        "retain": len(plan.retain),
        "unseen": {name: len(rows) for name, rows in plan.kept.items()},
        "duplicate": list(matched.duplicate),
        "already": list(matched.already),
        "unknown": list(matched.unknown),
        "never_trained_on": {name: list(some) for name, some in matched.unseen.items()},
    }


def _json(done: Done) -> dict[str, Any]:
    plan, folder = _plan_json(done.plan), done.folder
    if folder is None or done.receipt is None:
        return {"done": False, "plan": plan}
    audit, acceptance = done.receipt["audit"], done.receipt["acceptance"]
    return {
        "done": True,
        "accepted": done.accepted,
        "plan": plan,
        "folder": str(folder),
        "model": str(folder / "model.safetensors"),
        "weights": done.receipt["model"]["after"],
        "acceptance": acceptance,
        "numbers": {scope: found["after"]["numbers"] for scope, found in audit["scopes"].items()},
    }


def _print(done: Done) -> None:
    folder, receipt = done.folder, done.receipt
    if folder is None or receipt is None:
        print("Nothing to do: every id that is known is already forgotten. Nothing was written.")
        return
    scopes = receipt["audit"]["scopes"]
    if scopes:
        before, after = scopes["all"]["before"]["numbers"], scopes["all"]["after"]["numbers"]
        names = [n for n in after if n in SHOWN or n.startswith(("smia_auc", "rmia_auc"))]
        print(table(["%", "before", "after", "95 % interval"], [_row(n, before, after) for n in names]))
    for finding in receipt["acceptance"]["findings"]:
        mark = "met    " if finding["passed"] else "NOT MET"
        scope = f" ({SCOPES[finding['scope']]})" if len(scopes) > 1 and finding["scope"] in SCOPES else ""
        print(f"{mark} {finding['condition']}{scope}: {finding['why']}")
    if not len(done.plan.new):
        print(f"recorded: request {done.plan.number} names unseen records only; they are left out from now on, and the")
        print("model, which was never trained on them, stays as it is")
    elif done.accepted:
        print(f"accepted: request {done.plan.number} is done and its model is the current one")
    else:
        print(f"REJECTED: request {done.plan.number} failed; its model is kept apart, the one before it stays current")
    print(f"model    {folder / 'model.safetensors'}\nreceipt  {folder / 'receipt.html'}")
    print(f"check    regun verify {folder / 'receipt.json'}")


def _row(name: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    value, low, high = after[name]
    interval = f"{low:.2f} to {high:.2f}" if low is not None and high is not None else ""
    return [describe(name).label, f"{before[name][0]:.2f}", f"{value:.2f}", interval]
