"""The commands of deletion requests with their arguments; imports nothing heavy, so that help is quick."""

from regun.cli.arguments import (
    JSON,
    Commands,
    Option,
    command,
    data_dir_option,
    machine_options,
    non_empty,
    number,
    whole,
)


def add_prepare(commands: Commands) -> None:
    parser = command(
        commands,
        "prepare",
        "predict every training record with models that never saw it, so that later requests train only the update",
        "prepare:run",
        "regun prepare --project app.py:project --out prepared.safetensors --workers 2",
        Option("--out FILE", "file of the table; after a kill, the same command continues", required=True),
        *_project_options(),
        Option("--folds N", "parts of the training data, each left out of one model (default 4)", whole(2), 4),
        Option("--repeats N", "times to repeat, with different folds (default 1)", whole(1), 1),
        Option(
            "--share S", "share of the epochs per model (default 0.25); not with train_function", number(0, 1), 0.25
        ),
        Option("--top N", "with many classes: store the label's and the N largest predictions", whole(1)),
        Option("--seed N", "seed of folds and trainings (default 0)", whole(), 0),
        Option("--workers N", "processes that share the folds (default 1)", whole(1, 1000), 1),
        Option("--refresh", "prepare again from the current data, in place of FILE"),
        Option("--deletions DIR", "leave out what the requests of this folder (regun forget --out) have forgotten"),
        *machine_options(),
    )
    parser.set_defaults(**DECIDED_BY_PROJECT)


def add_forget(commands: Commands) -> None:
    out_models = "short models to train for the audit, if there are no retrained models (default 2; 0: none)"
    requester = "reference to the requester (a ticket, not a name), if the file has none"
    accept = "acceptance rule; default: forgotten, and no more accuracy lost than a retrained model might lose"
    parser = command(
        commands,
        "forget",
        "execute a deletion request: unlearn, audit, decide, write a receipt; exit code 1: rejected, 4: inconclusive",
        "forget:run",
        "regun forget --project app.py:project --ids ids.csv --out deletions --fallback retrain",
        Option("--ids FILE", ".csv with a column id, .json, or one id per line", required=True),
        Option("--out DIR", "holds the ledger, the receipts and the models", required=True),
        Option("--dry-run", "only print what would happen"),
        *_project_options(),
        Option("--prepared FILE", "table of regun prepare: only the update is trained; default: the project's"),
        Option("--method NAME[@PRESET][,KEY=VALUE...]", "default: the project's, or auto"),
        Option("--accept RULE", accept),
        Option("--accept-inconclusive", "accept the model although the tests are inconclusive; the receipt records it"),
        Option("--out-models N", out_models, whole(0, 1000)),
        Option("--fallback METHOD", "method to try if the first is not accepted, as in retrain[,KEY=VALUE...]"),
        Option("--ignore-unknown", "continue if some ids are unknown"),
        Option("--check-content", "also compare the sets by content, to detect overlap"),
        Option("--sign FILE", "sign the receipt with this Ed25519 private key (PEM)"),
        Option("--reason TEXT", "reason of the request, if the file has none", non_empty),
        Option("--requester TEXT", requester, non_empty),
        Option("--received DAY", "day of receipt (2026-11-30), if the file has none; default: today", non_empty),
        Option("--due DAY", "due day, if the file has none; default: a month after receipt", non_empty),
        Option("--role TEXT", "who is responsible, for the receipt; default: the project's", non_empty),
        Option("--seed N", "seed of the unlearning run (default 0)", whole(), 0),
        Option("--bootstrap N", "resamples for the intervals (default 1000)", whole(0, 1_000_000), 1000),
        *machine_options(),
    )
    parser.set_defaults(**DECIDED_BY_PROJECT)


def add_current(commands: Commands) -> None:
    command(
        commands,
        "current",
        "print the current model of a folder of requests: its file, its digest and its request",
        "current:run",
        "regun current deletions --json",
        Option("folder DIR", "the folder of regun forget --out"),
        JSON,
    )


def add_verify(commands: Commands) -> None:
    parser = command(
        commands,
        "verify",
        "verify a receipt: its files, the ledger's chain and the signature; exit code 1: something was changed",
        "verify:run",
        "regun verify deletions/requests/0001/receipt.json",
        Option("receipt FILE|DIR", "a receipt.json, or the folder of a ledger to check all its receipts"),
        Option("--public-key FILE", "the Ed25519 public key (PEM) that must have signed"),
        Option("--alone", "check a signed receipt without its files and ledger"),
        Option("--expect HASH", "with DIR: a hash, stored elsewhere, that a line of the ledger must have"),
        *_project_options(),
        *machine_options(),
    )
    parser.set_defaults(**DECIDED_BY_PROJECT)


DECIDED_BY_PROJECT = dict.fromkeys(("data", "recipe", "split"))
"""Options of other commands that the project or the stored model decides here."""


def _project_options() -> tuple[Option, ...]:
    """Return the options of the model and the data."""
    return (
        Option("--project FILE.py:FUNCTION", "function that returns a regun.Project"),
        Option("--base KEY", "instead of --project: a model of the store; ids are training indices"),
        data_dir_option(),
        Option("--pipeline NAME", "with --base: input pipeline"),
        Option("--salt FILE", "file with a secret (16 bytes or more), to hash ids in receipts and ledger"),
        Option("--model FILE.py:FUNCTION", "with --base: the code of your model, if it is not one of regun's"),
    )
