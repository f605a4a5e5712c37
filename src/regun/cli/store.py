"""`regun store list|show|verify|gc`."""

import argparse
from pathlib import Path

from regun.cli.terminal import emit, table
from regun.errors import StoreError
from regun.store import Store


def list(args: argparse.Namespace) -> int:
    artefacts = _existing(args.store).artefacts()
    if args.json:
        emit([{"key": a.key, "kind": a.kind, "created": a.manifest["created"], "info": a.info} for a in artefacts])
        return 0
    rows = [
        [
            a.key[:12],
            a.kind,
            str(a.info.get("role", "")),
            str(a.info.get("data_name", "")),
            f"{a.info.get('examples', '')}",
            a.manifest["created"][:19],
        ]
        for a in artefacts
    ]
    print(table(["key", "kind", "role", "data", "examples", "created"], rows) if rows else f"{args.store} is empty.")
    return 0


def show(args: argparse.Namespace) -> int:
    emit(dict(_existing(args.store).find(args.key).manifest))
    return 0


def verify(args: argparse.Namespace) -> int:
    findings = _existing(args.store).verify()
    if args.json:
        emit({"checked": findings.checked, "problems": findings.problems})
    else:
        for problem in findings.problems:
            print(f"DAMAGED  {problem}")
        print(f"{findings.checked} artefacts checked, {len(findings.problems)} damaged.")
    return 1 if findings.problems else 0


def gc(args: argparse.Namespace) -> int:
    findings = _existing(args.store).gc(dry_run=args.dry_run, partial_days=args.partial_days)
    if args.json:
        emit({"removed": findings.removed, "freed": findings.freed, "problems": findings.problems})
        return 0
    verb = "would remove" if args.dry_run else "removed"
    for path in findings.removed:
        print(f"{verb} {path}")
    for problem in findings.problems:
        print(problem)
    print(f"{verb} {len(findings.removed)} leftovers, {findings.freed / 1e6:.1f} MB.")
    return 0


def _existing(root: str) -> Store:
    """The store at `root`; to look into one is not to make one."""
    if not (Path(root) / "artefacts").is_dir():
        raise StoreError(f"there is no store at {root}; name one with --store, or train a model first.")
    return Store(root)
