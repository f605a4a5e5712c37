"""Data that augment at random: every audit reads plain inputs or refuses, with the same words."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_project import LENIENT, QUICK, data, failed, forget, ids, network, project, receipt_of, receipt_path
from torch.utils.data import Dataset

import regun
from expect import assert_names, error
from regun.cli import main
from regun.data.dataset import DatasetExamples
from regun.data.examples import Examples
from regun.data.plain import AugmentedExamples
from regun.deletion import prepare_table, reaudit_receipt
from regun.deletion.project import open_project
from regun.errors import DataError


class Noisy(Dataset):
    """The records with noise, as a random crop would be; with `scale` 0 the same records plain."""

    def __init__(self, name: str = "train", scale: float = 1.0) -> None:
        self.x, labels = data()[name]
        self.targets, self.scale = labels.tolist(), scale

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, n: int) -> tuple[torch.Tensor, int]:
        return self.x[n] + self.scale * torch.randn(8), self.targets[n]


def refusals() -> dict[str, Callable[[Path], object]]:
    """Every way to audit these data."""
    forgotten = (data()["train"][0][:20], data()["train"][1][:20])
    sets = {"forget": forgotten, "retain": Noisy(), "test": data()["test"]}
    own = regun.InputOptions(check_content=False)
    train = lambda dataset, seed: network(seed)  # noqa: E731
    request = regun.DeletionRequest.of(ids()[:5])
    return {
        "audit": lambda out: regun.audit(network(), **sets, inputs=own),
        "relearn": lambda out: regun.relearn(network(), **sets, inputs=own),
        "prepare": lambda out: regun.prepare(train, Noisy()),
        "prepare, unseen": lambda out: regun.prepare(train, data()["train"], val=Noisy("val")),
        "forget": lambda out: forget(out, ids()[:5], train=Noisy()),
        "dry run": lambda out: regun.deletion.plan_request(project(train=Noisy()), request, out),
        "forget, unseen": lambda out: forget(out, ids()[:5], val=Noisy("val")),
        "forget, train_eval": lambda out: forget(out, ids()[:5], train=Noisy(), train_eval=Noisy()),
        "prepare_table": lambda out: prepare_table(project(train=Noisy(), train_function=train), out),
        "verify": lambda out: open_project(project(train=Noisy())),
    }


@pytest.mark.parametrize("way", refusals())
def test_augmented_data_are_refused_everywhere_with_the_same_words(tmp_path: Path, way: str) -> None:
    texts: list[str] = []
    for one in ("audit", way):
        with error(DataError, "augments") as caught:
            refusals()[one](tmp_path / "out")
        texts.append(str(caught.value))
    words = [re.sub(r"^\w+ |Give .* with", "", text) for text in texts]
    assert words[0] == words[1]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("way", "argument"), [("forget", "train_eval"), ("prepare", "eval_data")])
def test_the_refusal_names_the_argument_to_pass(tmp_path: Path, way: str, argument: str) -> None:
    with error(DataError, argument):
        refusals()[way](tmp_path / "out")


def noisy_data() -> tuple[Dataset, tuple[torch.Tensor, torch.Tensor]]:
    return Noisy(), data()["test"]


def noisy_and_plain_data() -> tuple[Examples, tuple[torch.Tensor, torch.Tensor]]:
    return DatasetExamples(Noisy(), 3, evaluation=Noisy(scale=0.0)), data()["test"]


def test_commands_on_augmented_data_of_one_s_own_refuse_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--store", str(tmp_path), "--threads", str(torch.get_num_threads()), "--quiet")
    how = ("--model", "mlp,features=8", "--recipe", "digits,epochs=1,batch_size=16")
    assert main(["train", "--data", f"{__file__}:noisy_data", *how, *where]) == 2
    assert_names(capsys.readouterr().err, "noisy_data", "augments", "evaluation=...")
    assert not list(tmp_path.glob("model/*"))
    assert main(["train", "--data", f"{__file__}:noisy_and_plain_data", *how, *where]) == 0


def test_a_request_trains_on_augmented_and_audits_plain_records(tmp_path: Path) -> None:
    """The audit of train_eval is that of the same records given plain."""
    augmented = forget(tmp_path / "augmented", ids()[:20], method=QUICK, train=Noisy(), train_eval=Noisy(scale=0.0))
    plain = forget(tmp_path / "plain", ids()[:20], method=QUICK)
    before = [one.receipt["audit"]["scopes"]["all"]["before"]["numbers"] for one in (augmented, plain)]
    assert before[0] == before[1]
    after = [one.receipt["ledger"]["after"] for one in (augmented, plain)]
    assert after[0] != after[1], "the update saw augmented records"
    assert augmented.receipt["data"]["train_inputs"] == "train_eval"
    assert plain.receipt["data"]["train_inputs"] == "train"
    assert "train_eval" in (augmented.folder / "receipt.html").read_text()
    assert any("train_eval" in limit for limit in receipt_of(tmp_path / "augmented")["limits"])
    both = project(method=QUICK, train=Noisy(), train_eval=Noisy(scale=0.0))
    assert failed(reaudit_receipt(receipt_path(tmp_path / "augmented"), both)) == []


def test_a_table_of_augmented_data_holds_predictions_on_plain_records(tmp_path: Path) -> None:
    seen: list[torch.Tensor] = []

    def train(dataset: Dataset, seed: int):
        seen.append(torch.stack([dataset[n][0] for n in range(3)]))
        return network(3)

    both = {"train": Noisy(), "train_eval": Noisy(scale=0.0), "train_function": train}
    table = prepare_table(project(**both), tmp_path / "p", folds=2)
    log_probs = torch.log_softmax(network(3)(data()["train"][0]), dim=1).detach().numpy()
    np.testing.assert_allclose(table.log_probs[0][:160], log_probs, atol=1e-5)
    assert not any(torch.isin(row, data()["train"][0]).all() for rows in seen for row in rows)
    assert forget(tmp_path / "out", ids()[:5], LENIENT, **both, prepared=table).accepted


def test_the_two_forms_must_hold_the_same_records() -> None:
    x, y = data()["train"]
    with error(DataError, "train", "train_eval", 160, 100):
        open_project(project(train=Noisy(), train_eval=(x[:100], y[:100])))
    with error(DataError, "train", "train_eval", "label"):
        open_project(project(train=Noisy(), train_eval=(x, (y + 1) % 3)))
    opened = open_project(project(train=Noisy(), train_eval=(x, y)))
    assert isinstance(opened.sets["train"], AugmentedExamples)
    assert torch.equal(opened.sets["train"].fetch(np.arange(4)).x, x[:4])
