"""regun on plain objects: tensors, datasets, loaders, mappings; the user's model is left alone."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import regun
from regun.data.joined import Joined
from regun.data.tensors import TensorExamples
from regun.errors import DataError, RegunError
from toys import blobs, mlp, same_state


def parts(times: int = 1):
    examples = blobs(n=200 * times, seed=1)
    x, y = examples.x, torch.from_numpy(examples.labels)
    ends = {"forget": (0, 20), "retain": (20, 120), "heldout": (120, 150), "test": (150, 200)}
    cuts = {name: slice(start * times, end * times) for name, (start, end) in ends.items()}
    return {name: (x[cut], y[cut]) for name, cut in cuts.items()}


class Mapped(Dataset):
    """Items as a Hugging Face data set has them."""

    def __init__(self, pair) -> None:
        self.x, self.y = pair

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int):
        return {"features": self.x[i], "labels": self.y[i]}


class MappedModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, features):
        return {"logits": self.inner(features)}


SHAPES = {
    "tensors": lambda pair: pair,
    "numpy": lambda pair: (pair[0].numpy(), pair[1].numpy()),
    "dataset": lambda pair: TensorDataset(*pair),
    "loader": lambda pair: DataLoader(TensorDataset(*pair), batch_size=7),
}


def test_every_shape_of_data_gives_the_same_model_and_leaves_the_given_one_alone() -> None:
    model = mlp()
    before = copy.deepcopy(model.state_dict())
    results = []
    for shape in SHAPES.values():
        data = {k: shape(v) for k, v in parts().items()}
        outcome = regun.unlearn(
            model,
            forget=data["forget"],
            retain=data["retain"],
            heldout=data["heldout"],
            settings={"epochs": 2, "batch_size": 8},
        )
        results.append(outcome.model)
        assert outcome.cost.steps == 2 * 3
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert model.training
    assert all(same_state(results[0], other) for other in results[1:])
    assert not same_state(results[0], model)


def test_mappings_and_output_objects() -> None:
    data = {k: Mapped(v) for k, v in parts().items()}
    outcome = regun.unlearn(
        MappedModel(), forget=data["forget"], retain=data["retain"], method="finetune", settings={"epochs": 1}
    )
    report = regun.audit(outcome.model, forget=data["forget"], retain=data["retain"], test=data["test"], bootstrap=50)
    assert set(report.numbers) >= {"retain_acc", "forget_acc", "test_acc", "smia_auc"}
    assert any("retrained" in claim or "reference" in claim for claim in report.claims)


def test_audit_with_retrained_models_gives_gaps_and_a_verdict() -> None:
    data = parts(times=8)
    recipe = {"epochs": 15, "lr": 0.05, "batch_size": 16}
    retrained = [
        regun.unlearn(
            mlp(), forget=data["forget"], retain=data["retain"], method="retrain", settings=recipe, seed=s
        ).model
        for s in range(5)
    ]
    report = regun.audit(
        retrained[4], forget=data["forget"], retain=data["retain"], test=data["test"], val=data["heldout"],
        retrain=retrained[0], references=retrained[1:4], bootstrap=100,
    )  # fmt: skip
    assert report.gaps["gap_rftp"].verdict in ("indistinguishable", "borderline")
    assert report.numbers["rmia_auc"].low <= report.numbers["rmia_auc"].value <= report.numbers["rmia_auc"].high


def test_a_function_of_the_user_s_is_a_method_and_an_attack() -> None:
    data = parts()

    def halve(job: regun.Job) -> None:
        with torch.no_grad():
            for parameter in job.model.parameters():
                parameter.mul_(0.5)

    outcome = regun.unlearn(mlp(), forget=data["forget"], method=halve)
    assert torch.equal(outcome.model[0].weight, mlp()[0].weight * 0.5)

    def margin(evidence) -> np.ndarray:
        ordered = np.sort(evidence.target.log_probs, axis=1)
        return ordered[:, -1] - ordered[:, -2]

    report = regun.audit(outcome.model, forget=data["forget"], test=data["test"], attacks=[margin], bootstrap=20)
    assert 0 <= report.numbers["margin_auc"].value <= 100


def test_what_is_missing_is_said_before_any_work() -> None:
    data = parts()
    with pytest.raises(
        RegunError, match="ReGUn needs a held-out set: labelled examples the model was never trained on"
    ):
        regun.unlearn(mlp(), forget=data["forget"], retain=data["retain"])
    with pytest.raises(RegunError, match="Finetune needs retain examples"):
        regun.unlearn(mlp(), forget=data["forget"], method="finetune")
    with pytest.raises(DataError, match="forget is a str; give a torch Dataset"):
        regun.unlearn(mlp(), forget="everything")
    with pytest.raises(RegunError, match=r"labels\[0\] is 7; with 3 classes"):
        regun.unlearn(mlp(), forget=(torch.zeros(2, 6), [7, 0]), retain=data["retain"], method="finetune")


def test_joined_sets_keep_order_and_refuse_what_does_not_fit() -> None:
    first, second = blobs(n=10, seed=1), blobs(n=6, seed=2)
    joined = Joined((first, second))
    batch = joined.fetch(np.array([12, 3, 15, 0]))
    expected = torch.stack([second.x[2], first.x[3], second.x[5], first.x[0]])
    assert torch.equal(batch.x, expected)
    assert batch.y.tolist() == [int(joined.labels[i]) for i in (12, 3, 15, 0)]
    streamed = list(joined.stream([np.array([12, 3]), np.array([4])]))
    assert torch.equal(streamed[0].x, expected[:2])
    assert joined.indices(1).tolist() == list(range(10, 16))
    with pytest.raises(DataError, match="out of range"):
        joined.fetch(np.array([16]))
    with pytest.raises(DataError, match=r"have \[2, 3\] classes"):
        Joined((first, TensorExamples(torch.zeros(4, 6), np.arange(4) % 2, 2)))


def test_the_ten_lines_of_the_readme() -> None:
    text = (Path(__file__).parent.parent / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    lines = [line for line in code.splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 10
    data = parts()
    scope = {
        "model": mlp(),
        "forget": data["forget"],
        "retain": data["retain"],
        "heldout": data["heldout"],
        "test": data["test"],
    }
    exec(code, scope)
    assert isinstance(scope["outcome"], regun.Outcome)
    assert isinstance(scope["report"], regun.Evaluation)
