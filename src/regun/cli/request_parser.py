"""The arguments of `regun forget` and `regun verify`."""

import argparse

from regun.cli.arguments import Commands, add_data_dir, add_machine, command


def add_forget(commands: Commands) -> None:
    parser = command(
        commands,
        "forget",
        "carry out a deletion request: unlearn, audit, accept or reject, and write a receipt; 1 = rejected",
        "forget:run",
        "regun forget --project app.py:project --ids ids.csv --out deletions --accept 'smia_auc~50, val_drop<1'",
    )
    parser.add_argument("--ids", required=True, metavar="FILE", help=".csv with a column id, .json, or one id a line")
    parser.add_argument("--out", required=True, metavar="DIR", help="holds the ledger, the receipts and the models")
    parser.add_argument("--dry-run", action="store_true", help="only say what would happen")
    _add_project(parser)
    parser.add_argument("--method", metavar="NAME[@PRESET][,KEY=VALUE...]", help="default: the project's, or regun")
    parser.add_argument("--accept", metavar="RULE", help="what must hold; default: smia_auc~50, val_drop<1")
    parser.add_argument(
        "--fallback", metavar="METHOD", help="if rejected, try this instead: retrain[,KEY=VALUE...], say"
    )
    parser.add_argument("--ignore-unknown", action="store_true", help="go on although some ids are unknown")
    parser.add_argument("--check-content", action="store_true", help="also search for overlap by content")
    parser.add_argument("--sign", metavar="FILE", help="sign the receipt with this Ed25519 private key (PEM)")
    for name, help in (
        ("reason", "why, where the file does not say"),
        ("requester", "a reference to who asked (a ticket, not a name), where the file does not say"),
        ("date", "when it was asked, where the file does not say"),
    ):
        parser.add_argument(f"--{name}", default="", metavar="TEXT", help=help)
    parser.add_argument("--seed", type=int, default=0, help="seed of the unlearning run (default 0)")
    parser.add_argument("--bootstrap", type=int, default=1000, metavar="N", help="resamples for intervals (1000)")
    add_machine(parser)


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
    _add_project(parser)
    add_machine(parser)


def _add_project(parser: argparse.ArgumentParser) -> None:
    """Whose model and data; what a stored model settles itself cannot be said."""
    parser.add_argument("--project", metavar="FILE.py:FUNCTION", help="function that returns a regun.Project")
    parser.add_argument("--base", metavar="KEY", help="instead: a model of the store; ids are training indices")
    add_data_dir(parser)
    parser.add_argument("--augment", metavar="NAME", help="with --base: input pipeline")
    parser.add_argument("--salt", metavar="FILE", help="ids are written as hashes under this secret (>= 16 bytes)")
    settled = dict.fromkeys(("data", "model", "recipe", "split_seed", "heldout", "val", "stratified"))
    parser.set_defaults(**settled)
