"""`regun verify`."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from regun.cli.arguments import FAILED, for_shell
from regun.cli.display import open_display
from regun.cli.forget import path_of, read_project
from regun.cli.options import use_threads
from regun.cli.terminal import emit
from regun.deletion import Check, read_pseudonyms, reaudit_receipt, verify_folder, verify_receipt
from regun.errors import SettingsError
from regun.render.numbers import many
from regun.render.tables import plain

MARKS = {True: "ok     ", False: "CHANGED", None: "-      "}


def run(args: argparse.Namespace) -> int:
    use_threads(args.threads)
    if os.path.isdir(args.receipt):
        if args.project is not None or args.base is not None or args.alone:
            raise SettingsError(
                [f"{args.receipt} is a folder; --project, --base and --alone go with one receipt.json."]
            )
        verified = verify_folder(Path(args.receipt), public_key=path_of(args.public_key), expect=args.expect)
    else:
        verified = _receipt(args)
    groups: dict[str, list[Check]] = {}
    for name, checks in verified:
        groups[name] = checks
        if not args.json:
            print(f"{name}:")
            for check in checks:  # notes quote the receipt
                print(plain(f"  {MARKS[check.passed]} {check.name}: {for_shell(check.note, args)}"))
    failed = sum(check.passed is False for checks in groups.values() for check in checks)
    if args.json:
        emit(
            {
                "passed": not failed,
                "checks": {name: [vars(check) for check in checks] for name, checks in groups.items()},
            }
        )
    else:
        print(f"{many(failed, 'check')} failed." if failed else "Nothing was changed.")
    return FAILED if failed else 0


def _receipt(args: argparse.Namespace) -> Iterator[tuple[str, list[Check]]]:
    path = Path(args.receipt)
    if args.expect is not None:
        raise SettingsError(["--expect goes with a whole ledger; name its folder, not a receipt."])
    checks = verify_receipt(path, public_key=path_of(args.public_key), alone=args.alone)
    yield path.name, checks
    if args.project is None and args.base is None:
        return
    if any(check.passed is False for check in checks):
        yield "data", [Check("audit", None, "not repeated: the receipt is not intact")]
        return
    project = read_project(args, open_display(args, "verify"))
    yield "data", reaudit_receipt(path, project, read_pseudonyms(path_of(args.salt)))
