"""regun on plain objects: tensors, datasets, loaders, mappings; the user's model is left alone."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import regun
from regun.auditing import VERDICTS
from regun.data.tensors import TensorExamples
from regun.data.views import Joined, Selected
from regun.errors import DataError, RegunError
from regun.inputs import count_classes
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
            method="regun",
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
    assert report.gaps["gap_rftp"].verdict in VERDICTS
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
        regun.unlearn(mlp(), forget=data["forget"], retain=data["retain"], method="regun")
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


# ------------------------------------------------------------------------------------ what a user has, as it is


def test_the_given_model_changes_only_when_asked_and_only_at_the_end() -> None:
    data, model = parts(), mlp()
    known = {name: data[name] for name in ("forget", "retain", "heldout")}
    outcome = regun.unlearn(model, **known, method="regun", settings={"epochs": 1}, inplace=True)
    assert outcome.model is model
    assert same_state(model, regun.unlearn(mlp(), **known, method="regun", settings={"epochs": 1}).model)
    assert model.training

    def fail(job: regun.Job) -> None:
        with torch.no_grad():
            job.model[0].weight.zero_()
        raise ZeroDivisionError

    untouched = mlp()
    with pytest.raises(RegunError, match="failed: ZeroDivisionError"):
        regun.unlearn(untouched, forget=data["forget"], method=fail, inplace=True)
    assert same_state(untouched, mlp())


def test_the_user_s_transforms_and_collate_function_are_used() -> None:
    """Items are texts of different lengths; only the user's own code can make a batch of them."""
    data = parts()

    class Texts(Dataset):
        def __init__(self, pair) -> None:
            self.pair = pair

        def __len__(self) -> int:
            return len(self.pair[1])

        def __getitem__(self, i: int):
            return {"length": 3 + i % 4, "x": self.pair[0][i], "y": int(self.pair[1][i])}

    def collate(items):
        longest = max(item["length"] for item in items)
        mask = torch.tensor([[1] * item["length"] + [0] * (longest - item["length"]) for item in items])
        return {"features": torch.stack([i["x"] for i in items]), "mask": mask, "label": [i["y"] for i in items]}

    class Model(MappedModel):
        def forward(self, features, mask):
            assert mask.shape[0] == features.shape[0]
            return super().forward(features * (mask.sum(1, keepdim=True) > 0))

    loaders = {name: DataLoader(Texts(pair), batch_size=4, collate_fn=collate) for name, pair in data.items()}
    known = {name: loaders[name] for name in ("forget", "retain", "heldout")}
    outcome = regun.unlearn(Model(), **known, method="regun", settings={"epochs": 1, "batch_size": 8})
    plain = regun.unlearn(
        MappedModel(),
        **{name: Mapped(data[name]) for name in known},
        method="regun",
        settings={"epochs": 1, "batch_size": 8},
    )
    assert same_state(outcome.model, plain.model)
    assert regun.audit(outcome.model, **known, test=loaders["test"], bootstrap=0).numbers["test_acc"].value >= 0
    with pytest.raises(DataError, match="let your collate function pad all batches to one length"):
        regun.unlearn(
            Model(), forget=loaders["forget"], retain=loaders["retain"], method="ssd", settings={"micro_batch": 3}
        )


def test_subsets_of_one_data_set_that_overlap_are_refused() -> None:
    examples = blobs(n=100)
    whole = TensorDataset(examples.x, torch.from_numpy(examples.labels))
    cuts = {"forget": range(10), "retain": range(10, 60), "heldout": range(60, 80)}
    sets = {name: Subset(whole, list(rows)) for name, rows in cuts.items()}
    regun.unlearn(mlp(), **sets, method="regun", settings={"epochs": 1})
    for name, rows, message in (
        ("heldout", [59, 60, 61], "retain and heldout share 1 examples (by position in the same data set; the first is 59)"),
        ("retain", range(9, 60), "forget and retain share 1 examples (by position in the same data set; the first is 9)"),
    ):  # fmt: skip
        with pytest.raises(DataError) as caught:
            regun.unlearn(mlp(), **{**sets, name: DataLoader(Subset(whole, list(rows)))})
        assert message in str(caught.value)
    nested = Subset(Subset(whole, range(50, 100)), [0, 20, 30])
    with pytest.raises(DataError, match="retain and test share 1 examples"):
        regun.audit(mlp(), forget=sets["forget"], retain=sets["retain"], test=nested)
    sampled = DataLoader(whole, sampler=SubsetRandomSampler(range(5, 30)))
    with pytest.raises(DataError, match="forget and heldout share 5 examples"):
        regun.unlearn(mlp(), forget=sets["forget"], heldout=sampled, method="neggrad")
    with pytest.raises(DataError, match="forget and test share 10 examples"):
        regun.audit(mlp(), forget=sets["forget"], retain=sets["retain"], test=whole)


def test_overlap_is_found_by_id_and_by_content() -> None:
    data = parts()
    known = {name: data[name] for name in ("forget", "retain", "heldout")}
    ids = {"forget": range(20), "retain": np.arange(20, 120), "heldout": [str(n) for n in range(119, 149)]}
    with pytest.raises(DataError, match=r"retain and heldout share 1 examples \(by id; the first is 119\)"):
        regun.unlearn(mlp(), **known, ids=ids)
    with pytest.raises(DataError, match=r"ids\['forget'\] has 3 ids for 20 examples; give one for each"):
        regun.unlearn(mlp(), **known, ids={"forget": [1, 2, 3]})
    with pytest.raises(DataError, match="unknown set in ids 'forgot'. Did you mean 'forget'"):
        regun.audit(mlp(), forget=data["forget"], test=data["test"], ids={"forgot": []})
    copied = (
        torch.cat([data["heldout"][0], data["forget"][0][4:6]]),
        torch.cat([data["heldout"][1], torch.tensor([0, 0])]),
    )
    mixed = {**known, "heldout": copied}
    regun.unlearn(mlp(), **mixed, method="regun", settings={"epochs": 1}, check_content=False)
    for asked in (None, True):
        with pytest.raises(
            DataError,
            match=r"forget and heldout share 2 examples \(by content; counted in heldout, by position; the first is 30\)",
        ):
            regun.unlearn(mlp(), **mixed, check_content=asked)
    with pytest.raises(DataError, match="forget and test share 2 examples"):
        regun.audit(mlp(), forget=TensorDataset(*data["forget"]), test=TensorDataset(*copied))
    items = {"forget": Mapped(data["forget"]), "test": Mapped(copied)}  # which would have to be read for it
    with pytest.raises(DataError, match="forget and test share 2 examples"):
        regun.audit(MappedModel(), **items, check_content=True)
    regun.audit(MappedModel(), **items, bootstrap=20)
    with pytest.raises(DataError, match="retain and heldout share 100 examples"):
        regun.unlearn(mlp(), forget=data["forget"], retain=data["retain"], heldout=data["retain"])


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.zeros(6), 0


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Endless(), "forget is a Endless whose items cannot be counted and had by number"),
        (DataLoader(Endless()), "forget is a Endless whose items cannot be counted"),
        (
            DataLoader(TensorDataset(torch.zeros(9, 6), torch.zeros(9)), sampler=WeightedRandomSampler([1.0] * 9, 9)),
            "draws its items with a WeightedRandomSampler, so which examples it stands for is not known",
        ),
        (
            DataLoader(TensorDataset(torch.zeros(9, 6), torch.zeros(9)), sampler=RandomSampler(range(9), num_samples=3)),
            "draws its items with a RandomSampler",
        ),
        (DataLoader(TensorDataset(torch.zeros(9, 6), torch.zeros(9)), batch_sampler=[[0, 1], [3]]), "with a list"),
        ({"x": 1}, "forget is a dict; give a torch Dataset"),
        (torch.zeros(3), "forget is a Tensor; give a torch Dataset"),
    ],
)  # fmt: skip
def test_sources_that_do_not_say_which_examples_they_mean(source, message: str) -> None:
    with pytest.raises(DataError, match=message):
        regun.unlearn(mlp(), forget=source, method="neggrad")


def test_a_loader_over_some_items_and_a_set_that_only_looks_like_one() -> None:
    data = parts()
    whole = TensorDataset(
        torch.cat([data["forget"][0], data["retain"][0]]), torch.cat([data["forget"][1], data["retain"][1]])
    )
    rows = list(range(20))
    sampled = DataLoader(whole, batch_size=3, sampler=SubsetRandomSampler(rows))

    class Rows:
        """As Hugging Face's data sets are: items by number, no torch class."""

        def __len__(self) -> int:
            return 20

        def __getitem__(self, i: int):
            return data["forget"][0][i], int(data["forget"][1][i])

    models = [
        regun.unlearn(mlp(), forget=source, retain=data["retain"], method="neggrad_plus", settings={"epochs": 1}).model
        for source in (data["forget"], sampled, Rows())
    ]
    assert same_state(models[0], models[1])
    assert same_state(models[0], models[2])


def test_a_selection_is_its_rows() -> None:
    examples = blobs(n=30)
    some = Selected(examples, np.array([7, 3, 29]))
    batch = some.fetch(np.array([2, 0]))
    assert torch.equal(batch.x, examples.x[[29, 7]])
    assert batch.indices.tolist() == [2, 0]
    assert some.labels.tolist() == examples.labels[[7, 3, 29]].tolist()
    streamed = list(some.stream([np.array([1]), np.array([0, 2])]))
    assert torch.equal(streamed[1].x, examples.x[[7, 29]])
    assert some.digest != Selected(examples, np.array([3, 7, 29])).digest
    with pytest.raises(DataError, match="a selected row is out of range; there are 30 examples"):
        Selected(examples, np.array([30]))


def test_classes_are_counted_where_the_model_is() -> None:
    assert count_classes(mlp().to("meta"), parts()["forget"], "forget") == 3


def test_indices_from_the_end_are_the_same_examples() -> None:
    whole = TensorDataset(*parts()["retain"])
    sets = {"forget": Subset(whole, [0, 1, 99]), "retain": Subset(whole, range(2, 99)), "test": Subset(whole, [-1])}
    with pytest.raises(DataError, match="forget and test share 1 examples"):
        regun.audit(mlp(), **sets)
