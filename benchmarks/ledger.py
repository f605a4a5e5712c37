"""Reading a ledger and verifying all its receipts, for 10, 1,000 and 100,000 requests without weights.

    python benchmarks/ledger.py [10 1000 100000] [--ledger-only]

One real request is executed, for a record the model never saw; its receipt is then written again under every number, each
line with the hash of the one before. What is measured must grow with the number of requests and no
faster. Limit: 20,000 lines of the ledger a second of processor time. 100,000 receipts take 2 GB of disk for a while.
"""

import argparse
import hashlib
import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

import regun
from regun.deletion import verify_folder
from regun.deletion.ledger import BEGINNING, LEDGER, LedgerLine, read_ledger
from regun.deletion.receipt import Receipt

SIZES, LIMIT = (10, 1_000, 100_000), 20_000


def one_request(folder: Path) -> tuple[Receipt, LedgerLine, Path]:
    """The receipt, the line and the folder of a real request."""
    x, y = torch.randn(40, 4), torch.arange(40) % 2
    given = regun.Project(
        model=nn.Linear(4, 2),
        train=(x, y),
        ids=range(40),
        heldout=(x + 9, y),
        unseen_ids={"heldout": [f"h{n}" for n in range(40)]},
    )
    done = regun.forget(given, regun.DeletionRequest.of(["h7"], reason="benchmark"), folder)
    assert done.receipt is not None
    assert done.folder is not None
    return done.receipt, read_ledger(folder / LEDGER).lines[0], done.folder


def lines(receipt: Receipt, line: LedgerLine, first: Path, count: int, out: Path | None) -> Iterator[str]:
    """The ledger's lines; their folders are written on the way where `out` says to where."""
    tip = BEGINNING
    for number in range(1, count + 1):
        if out is not None:
            folder = out / f"requests/{number:04d}"
            shutil.copytree(first, folder)
            place = {"number": number, "previous": tip}
            content = json.dumps({**receipt, "ledger": place}).encode()
            (folder / "receipt.json").write_bytes(content)
            line = line._replace(files={**line.files, "receipt.json": hashlib.sha256(content).hexdigest()})
        line = line._replace(number=number, previous=tip)
        tip = line.hash
        yield line.text() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--ledger-only", action="store_true", help="no receipts")
    args = parser.parse_args()
    slowest = float("inf")
    print("requests   ledger read        lines/s   receipts verified     receipts/s   peak memory")
    for count in args.sizes:
        with tempfile.TemporaryDirectory() as place:
            out = Path(place) / "out"
            out.mkdir()
            made = lines(*one_request(Path(place) / "one"), count, None if args.ledger_only else out)
            with (out / LEDGER).open("w") as file:
                file.writelines(made)
            start = time.process_time()
            ledger = read_ledger(out / LEDGER)
            seconds = time.process_time() - start
            assert (len(ledger.lines), ledger.problems) == (count, ())
            del ledger
            start = time.perf_counter()
            faults = [] if args.ledger_only else _faults(out)
            checked = time.perf_counter() - start
            assert not faults, faults[:3]
        slowest = min(slowest, count / seconds) if count >= 1_000 else slowest
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        receipts = f"{checked:14.2f} s {count / checked:14,.0f}" if not args.ledger_only else f"{'-':>31}"
        print(f"{count:8,} {seconds:11.3f} s {count / seconds:14,.0f} {receipts} {peak:10,.0f} MB", flush=True)
    return 0 if slowest >= LIMIT else 1


def _faults(out: Path) -> list[str]:
    return [json.dumps(vars(check)) for _, some in verify_folder(out) for check in some if check.passed is False]


if __name__ == "__main__":
    sys.exit(main())
