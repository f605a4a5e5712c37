"""`regun verify`."""

import argparse
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from regun.cli.arguments import Commands, add_machine, command
from regun.cli.forget import add_project, path_of, read_project
from regun.errors import SettingsError
from regun.render.numbers import many
from regun.render.tables import plain

if TYPE_CHECKING:
    from regun.deletion import Check

WORDS = {True: "ok     ", False: "CHANGED", None: "-      "}


def add_verify(commands: Commands) -> None:
    parser = command(
        commands,
        "verify",
        "check a receipt: its sections, files, signature and the ledger's chain; 1 = something was changed",
        "verify:run",
        "regun verify deletions/requests/0001/receipt.json",
    )
    parser.add_argument("receipt", metavar="FILE|DIR", help="a receipt.json, or the folder of a ledger to check it all")
    parser.add_argument("--public-key", metavar="FILE", help="the Ed25519 public key (PEM) that must have signed")
    parser.add_argument("--alone", action="store_true", help="the receipt only, without files and ledger")
    parser.add_argument("--expect", metavar="HASH", help="with DIR: the hash of a line that the ledger must have")
    parser.add_argument("--witness", metavar="FILE", help="with DIR: hashes that it must have; the last one is added")
    add_project(parser)
    add_machine(parser)


def run(args: argparse.Namespace) -> int:
    from regun.cli.options import use_threads
    from regun.cli.terminal import emit

    use_threads(args.threads)
    found = _folder(args) if os.path.isdir(args.receipt) else _receipt(args)
    if not args.json:
        return 1 if _printed(found) else 0
    checks = {name: [vars(check) for check in some] for name, some in found}
    fine = all(check["fine"] is not False for some in checks.values() for check in some)
    emit({"fine": fine, "checks": checks})
    return 0 if fine else 1


def _folder(args: argparse.Namespace) -> "Iterator[tuple[str, list[Check]]]":
    from regun.deletion import verify_folder

    if args.project is not None or args.base is not None or args.alone:
        raise SettingsError([f"{args.receipt} is a folder; --project, --base and --alone go with one receipt.json."])
    key, witness = path_of(args.public_key), path_of(args.witness)
    return verify_folder(Path(args.receipt), public_key=key, expect=args.expect, witness=witness)


def _receipt(args: argparse.Namespace) -> "Iterator[tuple[str, list[Check]]]":
    from regun.cli.terminal import Display
    from regun.deletion import Check, read_pseudonyms, verify_audit, verify_receipt

    path = Path(args.receipt)
    if args.expect is not None or args.witness is not None:
        raise SettingsError(["--expect and --witness are about a whole ledger; name its folder, not a receipt."])
    checks = verify_receipt(path, public_key=path_of(args.public_key), alone=args.alone)
    yield path.name, checks
    if args.project is None and args.base is None:
        return
    if any(check.fine is False for check in checks):
        yield "data", [Check("audit", None, "not done again: the receipt itself is not intact")]
        return
    project = read_project(args, Display("verify", args.quiet))
    yield "data", verify_audit(path, project, read_pseudonyms(path_of(args.salt)))


def _printed(found: "Iterable[tuple[str, list[Check]]]") -> int:
    """How many checks failed; each is shown as it is made."""
    wrong = 0
    for name, checks in found:
        print(f"{name}:")
        for check in checks:
            print(plain(f"  {WORDS[check.fine]} {check.what}: {check.note}"))  # some of it is the receipt's own words
            wrong += check.fine is False
    print("Nothing was changed." if not wrong else f"{many(wrong, 'check')} failed.")
    return wrong
