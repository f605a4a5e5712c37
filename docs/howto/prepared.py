"""Prepare once at training time, then answer deletion requests without training another model.

The patients of tabular.py, with a training loop of one's own. `regun.prepare` trains four short models, each without a
quarter of the records, and stores what they predict for the records they never saw. Later, in another process, that
table replaces the models that unlearning, audits and deletion requests would train.

On the command line:

    regun prepare --project docs/howto/prepared.py:project --out prepared.safetensors
    regun forget --project docs/howto/prepared.py:project --prepared prepared.safetensors --ids ids.csv --out deletions

Run: python docs/howto/prepared.py
"""

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import regun
from regun.deletion import Options, reaudit_receipt, verify_receipt

sys.path.insert(0, str(Path(__file__).parent))
from tabular import records, trained

RECIPE = {"epochs": 200, "lr": 0.01, "batch_size": 64, "optimizer": "adamw"}
METHOD = "crossfit,steps=200"  # auto would retrain these few patients: that is short


def train(dataset: Dataset, seed: int) -> nn.Module:
    """Your own loop, for a quarter of the usual epochs."""
    x, y = next(iter(DataLoader(dataset, batch_size=len(dataset))))
    return trained(x, y, seed, epochs=50)


def patients() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    data = records()
    known = tuple(torch.cat(parts) for parts in zip(data["forget"], data["retain"], strict=True))
    return {"train": known, **data}


def ids(count: int) -> list[str]:
    return [f"patient-{n}" for n in range(count)]


def project() -> regun.Project:
    data = patients()
    x, y = data["train"]
    return regun.Project(
        model=trained(x, y, seed=0),
        train=(x, y),
        ids=ids(len(y)),
        heldout=data["heldout"],
        test=data["test"],
        method=METHOD,
        retrain=RECIPE,
        train_function=train,
    )


def prepare(path: Path) -> None:
    """At training time: the table, by id."""
    data = patients()
    unseen = {name: data[name] for name in ("heldout", "test")}
    print(regun.prepare(train, data["train"], **unseen, ids=ids(len(data["train"][1])), path=path))


def answer(path: Path, out: Path) -> str:
    """When a request comes: unlearn and audit by hand, or `forget` with a receipt."""
    data, table, mine = patients(), regun.Prepared.load(path), project()
    sets = {name: data[name] for name in ("forget", "retain", "heldout")}
    named = regun.InputOptions(ids={"forget": ids(len(data["forget"][1]))})
    outcome = regun.unlearn(mine.model, **sets, method=METHOD, recipe=RECIPE, prepared=table, inputs=named)
    compare = {"test": data["test"], "before": mine.model, "prepared": table, "inputs": named}
    audit = regun.audit(outcome.model, **sets, **compare, bootstrap=100)
    print(f"influence left: {audit.influence.share.value:.0f} % ({audit.influence.verdict})")

    request = regun.DeletionRequest.of(ids(30), reason="erasure")
    mine = replace(mine, prepared=path)
    result = regun.forget(mine, request, out, Options(accept_inconclusive=True, bootstrap=100), on_note=print)
    about, receipt = result.receipt["prepared"], result.folder / "receipt.json"
    print(f"request: {result.status}, {about['records_erased']} rows erased, {len(regun.Prepared.load(path))} left")
    assert all(check.passed is not False for check in [*verify_receipt(receipt), *reaudit_receipt(receipt, mine)])
    return result.status


def main() -> str:
    folder = Path(tempfile.mkdtemp())
    path = folder / "prepared.safetensors"
    subprocess.run([sys.executable, __file__, str(path)], check=True)  # another process
    return answer(path, folder / "deletions")


if __name__ == "__main__":
    prepare(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
