"""`regun store list|show|verify|gc`."""

from __future__ import annotations

import argparse
import sys

from regun.cli.arguments import FAILED, Commands, add_json, add_number, add_options, add_store_option, command, number
from regun.cli.terminal import emit, print_table
from regun.render.numbers import many
from regun.render.tables import plain


def add_store(commands: Commands) -> None:
    parser = command(commands, "store", "list, check and clean up the store", "store:list_all", "regun store verify")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = "list the entries; exit code 1 if one is damaged"
    listed = command(actions, "list", listing, "store:list_all", "regun store list --json")
    manifest = "print the manifest of one entry"
    shown = command(actions, "show", manifest, "store:show", "regun store show 3f2a")
    shown.add_argument("key", help="the key, or enough of its first digits")
    verify = "read all files and list damaged ones; exit code 1 if there are any"
    verified = command(actions, "verify", verify, "store:verify", "regun store verify --store ~/models")
    add_options(verified, {"--quick": "check manifests and sizes only"})
    collect = "remove temporary files and snapshots of finished runs"
    collected = command(actions, "gc", collect, "store:gc", "regun store gc --dry-run")
    add_options(collected, {"--dry-run": "only print what would be removed"})
    partial = "also drop snapshots of unfinished runs older than D days"
    add_number(collected, "--partial-days D", number(low=0), None, partial)
    for action in (listed, shown, verified, collected):
        add_store_option(action)
        add_json(action)


def list_all(args: argparse.Namespace) -> int:
    from regun.artifacts import Store

    damaged: list[str] = []
    artifacts = Store.existing(args.store, on_damage=damaged.append).artifacts()
    if args.json:
        emit([{"key": a.key, "kind": a.kind, "created": a.manifest["created"], "info": a.info} for a in artifacts])
    elif artifacts:
        facts = ("role", "data_name", "examples")
        rows = [
            [a.key[:12], a.kind, *(str(a.info.get(fact, "")) for fact in facts), a.manifest["created"][:19]]
            for a in artifacts
        ]
        print_table(["key", "kind", "role", "data", "examples", "created"], rows)
    elif not damaged:
        print(f"{args.store} is empty.")
    for problem in damaged:
        print(f"DAMAGED  {plain(problem)}", file=sys.stderr)
    return FAILED if damaged else 0


def show(args: argparse.Namespace) -> int:
    from regun.artifacts import Store

    emit(dict(Store.existing(args.store).find(args.key).manifest))
    return 0


def verify(args: argparse.Namespace) -> int:
    from regun.artifacts import Store

    findings = Store.existing(args.store).verify(quick=args.quick)
    if args.json:
        emit({"checked": findings.checked, "problems": findings.problems})
    else:
        for problem in findings.problems:
            print(f"DAMAGED  {plain(problem)}")
        print(f"{many(findings.checked, 'artifact')} checked, {len(findings.problems)} damaged.")
    return FAILED if findings.problems else 0


def gc(args: argparse.Namespace) -> int:
    from regun.artifacts import Store

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
