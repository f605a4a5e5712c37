"""`regun store list|show|verify|gc`."""

import argparse
import sys

from regun.artifacts import Store
from regun.cli.arguments import FAILED
from regun.cli.terminal import emit, print_table
from regun.render.numbers import many
from regun.render.tables import plain


def list_all(args: argparse.Namespace) -> int:
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
    emit(dict(Store.existing(args.store).find(args.key).manifest))
    return 0


def verify(args: argparse.Namespace) -> int:
    findings = Store.existing(args.store).verify(quick=args.quick)
    if args.json:
        emit({"checked": findings.checked, "problems": findings.problems})
    else:
        for problem in findings.problems:
            print(f"DAMAGED  {plain(problem)}")
        print(f"{many(findings.checked, 'artifact')} checked, {len(findings.problems)} damaged.")
    return FAILED if findings.problems else 0


def gc(args: argparse.Namespace) -> int:
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
