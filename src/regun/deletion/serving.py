"""The current model of a folder of requests: where its weights are, and loading them."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
from torch import Tensor, nn

from regun.artifacts import state_digest
from regun.deletion.folder import MODEL, open_history, repair
from regun.errors import RegunError
from regun.training.weights import misfits


@dataclass(frozen=True)
class CurrentModel:
    """The model in use: the digest of its weights, its request and its files.

    Until a request is accepted, `request`, `path` and `link` are None: the project's own model is the current one.
    """

    digest: str
    """SHA-256 of the weights, as receipts and `regun.artifacts.state_digest` give it."""
    request: int | None = None
    status: str = ""
    time: str = ""
    path: Path | None = None
    """The file of the request; it never changes."""
    link: Path | None = None
    """DIR/current.safetensors, which every accepted request switches; None if it is out of date."""


def find_current(out: str | Path) -> CurrentModel:
    """Return the current model of a folder as its ledger states it; raise if its file was changed.

    What a run that was killed right after its commit left undone is completed, where the folder can be written.
    """
    with suppress(RegunError):  # another process is at work, or the folder is read-only: the ledger decides anyhow
        repair(out)
    folder, ledger = open_history(out)
    line = ledger.current
    if line is None:
        return CurrentModel(ledger.lines[0].base)
    folder.read(line, MODEL)
    link = folder.current if folder.served(ledger) == line else None
    return CurrentModel(line.after, line.number, line.status, line.time, folder.place(line.number) / MODEL, link)


def current(out: str | Path, model: nn.Module) -> nn.Module:
    """Load the current weights of a folder of requests into `model`, and return it.

    The file is compared with its digest in the ledger first. Until a request is accepted, `model` must be the first
    model itself.

    >>> model = regun.deletion.current("deletions", build_model())  # doctest: +SKIP
    """
    newest = find_current(out)
    weights: Mapping[str, Tensor] = model.state_dict()
    if newest.path is None:
        if state_digest(weights) != newest.digest:
            raise RegunError(
                f"no request in {out} is accepted yet, so the model it starts from ({newest.digest[:12]}) is the "
                f"current one; load that. This one is {state_digest(weights)[:12]}."
            )
        return model
    state = safetensors.torch.load(newest.path.read_bytes())
    wrong = misfits(weights, state)
    if wrong:
        raise RegunError(f"model does not fit the weights of {newest.path}: {'; '.join(wrong[:3])}.")
    model.load_state_dict(state)
    return model
