"""`regun store list|show|verify|gc`."""

from __future__ import annotations

import argparse
import sys

from regun.cli.arguments import FAILED, Commands, add_json, add_store_option, command, number
from regun.cli.terminal import emit
from regun.show.numbers import many
from regun.show.text import plain, table


def add_store(commands: Commands) -> None:
    parser = command(
        commands, "store", "look into the store, check it, clean it up", "store:list_all", "regun store verify"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = command(
        actions, "list", "one line an artefact; 1 = some are damaged", "store:list_all", "regun store list --json"
    )
    shown = command(actions, "show", "the manifest of one artefact", "store:show", "regun store show 3f2a")
    shown.add_argument("key", help="the key, or enough of its first digits")
    verified = command(
        actions,
        "verify",
        "read everything and name what is damaged; 1 = something is",
        "store:verify",
        "regun store verify --store ~/models",
    )
    verified.add_argument("--quick", action="store_true", help="look at manifests and sizes only, not at every byte")
    collected = command(
        actions, "gc", "remove temporary files and snapshots of finished runs", "store:gc", "regun store gc --dry-run"
    )
    collected.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    collected.add_argument(
        "--partial-days",
        type=number(low=0),
        metavar="D",
        help="also drop snapshots of unfinished runs older than D days",
    )
    for action in (listed, shown, verified, collected):
        add_store_option(action)
        add_json(action)


def list_all(args: argparse.Namespace) -> int:
    from regun.store import Store

    damaged: list[str] = []
    artefacts = Store.existing(args.store, on_damage=damaged.append).artefacts()
    if args.json:
        emit([{"key": a.key, "kind": a.kind, "created": a.manifest["created"], "info": a.info} for a in artefacts])
    elif artefacts:
        facts = ("role", "data_name", "examples")
        rows = [
            [a.key[:12], a.kind, *(str(a.info.get(fact, "")) for fact in facts), a.manifest["created"][:19]]
            for a in artefacts
        ]
        print(table(["key", "kind", "role", "data", "examples", "created"], rows))
    elif not damaged:
        print(f"{args.store} is empty.")
    for problem in damaged:
        print(f"DAMAGED  {plain(problem)}", file=sys.stderr)
    return FAILED if damaged else 0


def show(args: argparse.Namespace) -> int:
    from regun.store import Store

    emit(dict(Store.existing(args.store).find(args.key).manifest))
    return 0


def verify(args: argparse.Namespace) -> int:
    from regun.store import Store

    findings = Store.existing(args.store).verify(quick=args.quick)
    if args.json:
        emit({"checked": findings.checked, "problems": findings.problems})
    else:
        for problem in findings.problems:
            print(f"DAMAGED  {plain(problem)}")
        print(f"{many(findings.checked, 'artefact')} checked, {len(findings.problems)} damaged.")
    return FAILED if findings.problems else 0


def gc(args: argparse.Namespace) -> int:
    from regun.store import Store

    findings = Store.existing(args.store).gc(dry_run=args.dry_run, partial_days=args.partial_days)
    if args.json:
        emit({"removed": findings.removed, "freed": findings.freed, "problems": findings.problems})
        return 0
    verb = "would remove" if args.dry_run else "removed"
    for path in findings.removed:
        print(f"{verb} {path}")
    for problem in findings.problems:
        print(plain(problem))
    print(f"{verb} {many(len(findings.removed), 'leftover')}, {findings.freed / 1e6:.1f} MB.")
    return 0
