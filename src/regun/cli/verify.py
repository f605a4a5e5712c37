"""`regun verify`."""

import argparse
from pathlib import Path

from regun.cli.forget import read_project
from regun.cli.options import use_threads
from regun.cli.terminal import Display, emit
from regun.errors import SettingsError
from regun.requests import Check, read_naming, verify_audit, verify_folder, verify_receipt

WORDS = {True: "ok     ", False: "CHANGED", None: "-      "}


def run(args: argparse.Namespace) -> int:
    use_threads(args.threads)
    path, key = Path(args.receipt), Path(args.public_key) if args.public_key else None
    with_data = args.project is not None or args.base is not None
    if path.is_dir():
        if with_data or args.alone:
            raise SettingsError([f"{path} is a folder; --project, --base and --alone go with one receipt.json."])
        found = verify_folder(path, public_key=key)
    else:
        found = {path.name: verify_receipt(path, public_key=key, alone=args.alone)}
    checks = [check for some in found.values() for check in some]
    if with_data and all(check.fine is not False for check in checks):
        project = read_project(args, Display("verify", args.quiet))
        found["data"] = verify_audit(path, project, read_naming(Path(args.salt) if args.salt else None))
        checks += found["data"]
    wrong = [check for check in checks if check.fine is False]
    if args.json:
        emit({"fine": not wrong, "checks": {name: [vars(check) for check in some] for name, some in found.items()}})
    else:
        _print(found, len(wrong))
        if with_data and "data" not in found:
            print("The audit was not done again: the receipt itself is not intact.")
    return 1 if wrong else 0


def _print(found: dict[str, list[Check]], wrong: int) -> None:
    for name, checks in found.items():
        if len(found) > 1:
            print(f"{name}:")
        for check in checks:
            print(f"{WORDS[check.fine]} {check.what}: {check.note}")
    print("Nothing was changed." if not wrong else f"{wrong} checks failed.")
