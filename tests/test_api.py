"""regun on plain objects: tensors, datasets, loaders, mappings; the user's model is left alone."""

import copy
import inspect
import re
import subprocess
import sys
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
from expect import error
from regun.auditing import ATTACKS, VERDICTS
from regun.data.tensors import TensorExamples
from regun.data.views import Joined, Selected
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
    assert any("retrained" in claim or "reference" in claim for claim in report.limits)


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
        retrained=retrained[:4], bootstrap=100,
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
    with error(RegunError, "ReGUn", "heldout"):
        regun.unlearn(mlp(), forget=data["forget"], retain=data["retain"], method="regun")
    with error(RegunError, "Finetune", "retain"):
        regun.unlearn(mlp(), forget=data["forget"], method="finetune")
    with error(DataError, "forget", "str", "Dataset"):
        regun.unlearn(mlp(), forget="everything")
    with error(RegunError, "forget", "labels[0]", 7, 3):
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
    with pytest.raises(DataError):
        joined.fetch(np.array([16]))
    with error(DataError, "[2,", "3]"):
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


def test_a_method_that_fails_leaves_the_model_as_it_was() -> None:
    data = parts()

    def fail(job: regun.Job) -> None:
        with torch.no_grad():
            job.model[0].weight.zero_()
        raise ZeroDivisionError

    untouched = mlp()
    with error(RegunError, "ZeroDivisionError"):
        regun.unlearn(untouched, forget=data["forget"], method=fail)
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
    with error(DataError, "collate", "pad"):
        regun.unlearn(
            Model(), forget=loaders["forget"], retain=loaders["retain"], method="ssd", settings={"micro_batch": 3}
        )


def test_subsets_of_one_data_set_that_overlap_are_refused() -> None:
    examples = blobs(n=100)
    whole = TensorDataset(examples.x, torch.from_numpy(examples.labels))
    cuts = {"forget": range(10), "retain": range(10, 60), "heldout": range(60, 80)}
    sets = {name: Subset(whole, list(rows)) for name, rows in cuts.items()}
    regun.unlearn(mlp(), **sets, method="regun", settings={"epochs": 1})
    for name, rows, names in (
        ("heldout", [59, 60, 61], ("retain", "heldout", 1, 59)),
        ("retain", range(9, 60), ("forget", "retain", 1, 9)),
    ):
        with error(DataError, *names):
            regun.unlearn(mlp(), **{**sets, name: DataLoader(Subset(whole, list(rows)))})
    nested = Subset(Subset(whole, range(50, 100)), [0, 20, 30])
    with error(DataError, "retain", "test"):
        regun.audit(mlp(), forget=sets["forget"], retain=sets["retain"], test=nested)
    sampled = DataLoader(whole, sampler=SubsetRandomSampler(range(5, 30)))
    with error(DataError, "forget", "heldout", 5):
        regun.unlearn(mlp(), forget=sets["forget"], heldout=sampled, method="neggrad")
    with error(DataError, "forget", "test", 10):
        regun.audit(mlp(), forget=sets["forget"], retain=sets["retain"], test=whole)


def test_overlap_is_found_by_id_and_by_content() -> None:
    data = parts()
    known = {name: data[name] for name in ("forget", "retain", "heldout")}
    ids = {"forget": range(20), "retain": np.arange(20, 120), "heldout": [str(n) for n in range(119, 149)]}
    with error(DataError, "retain", "heldout", 1, "id", 119):
        regun.unlearn(mlp(), **known, inputs=regun.InputOptions(ids=ids))
    with error(DataError, "ids['forget']", 3, 20):
        regun.unlearn(mlp(), **known, inputs=regun.InputOptions(ids={"forget": [1, 2, 3]}))
    with error(DataError, "ids", "'forgot'", "'forget'"):
        regun.audit(mlp(), forget=data["forget"], test=data["test"], inputs=regun.InputOptions(ids={"forgot": []}))
    copied = (
        torch.cat([data["heldout"][0], data["forget"][0][4:6]]),
        torch.cat([data["heldout"][1], torch.tensor([0, 0])]),
    )
    mixed = {**known, "heldout": copied}
    regun.unlearn(
        mlp(), **mixed, method="regun", settings={"epochs": 1}, inputs=regun.InputOptions(check_content=False)
    )
    for asked in (None, True):
        with error(DataError, "forget", "heldout", 2, "content", 30):
            regun.unlearn(mlp(), **mixed, inputs=regun.InputOptions(check_content=asked))
    with error(DataError, "forget", "test", 2):
        regun.audit(mlp(), forget=TensorDataset(*data["forget"]), test=TensorDataset(*copied))
    items = {"forget": Mapped(data["forget"]), "test": Mapped(copied)}  # which would have to be read for it
    with error(DataError, "forget", "test", 2):
        regun.audit(MappedModel(), **items, inputs=regun.InputOptions(check_content=True))
    regun.audit(MappedModel(), **items, bootstrap=20)
    with error(DataError, "retain", "heldout", 100):
        regun.unlearn(mlp(), forget=data["forget"], retain=data["retain"], heldout=data["retain"])


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.zeros(6), 0


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (Endless(), ("forget", "Endless", "__len__")),
        (DataLoader(Endless()), ("forget", "Endless", "__len__")),
        (
            DataLoader(TensorDataset(torch.zeros(9, 6), torch.zeros(9)), sampler=WeightedRandomSampler([1.0] * 9, 9)),
            ("WeightedRandomSampler", "torch.utils.data.Subset(dataset,"),
        ),
        (
            DataLoader(TensorDataset(torch.zeros(9, 6), torch.zeros(9)), sampler=RandomSampler(range(9), num_samples=3)),
            ("RandomSampler",),
        ),
        (DataLoader(TensorDataset(torch.zeros(9, 6), torch.zeros(9)), batch_sampler=[[0, 1], [3]]), ("list",)),
        ({"x": 1}, ("forget", "dict", "Dataset")),
        (torch.zeros(3), ("forget", "Tensor", "Dataset")),
    ],
)  # fmt: skip
def test_sources_that_do_not_say_which_examples_they_mean(source, names: tuple) -> None:
    with error(DataError, *names):
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
    with error(DataError, 30):
        Selected(examples, np.array([30]))


def test_indices_from_the_end_are_the_same_examples() -> None:
    whole = TensorDataset(*parts()["retain"])
    sets = {"forget": Subset(whole, [0, 1, 99]), "retain": Subset(whole, range(2, 99)), "test": Subset(whole, [-1])}
    with error(DataError, "forget", "test", 1):
        regun.audit(mlp(), **sets)


# ------------------------------------------------------------------------------------------------------ single values


def margin(evidence) -> np.ndarray:
    return np.sort(evidence.target.log_probs, axis=1)[:, -1]


def retained(splits, retrain) -> float:
    return float(len(splits["retain"]))


@pytest.mark.parametrize("attack", ["smia", ATTACKS["smia"], margin])
def test_one_attack_metric_or_set_is_a_list_of_one(attack) -> None:
    sets = {name: pair for name, pair in parts().items() if name != "heldout"}
    single = regun.audit(mlp(), **sets, attacks=attack, metrics=retained, unseen="test", bootstrap=20)
    listed = regun.audit(mlp(), **sets, attacks=[attack], metrics=[retained], unseen=["test"], bootstrap=20)
    assert single.to_json() == listed.to_json()
    assert len(single.attacks) == 1


def test_integers_of_numpy_are_integers() -> None:
    sets = {name: parts()[name] for name in ("forget", "retain")}
    options = regun.InputOptions(num_classes=np.int64(3), device=torch.device("cpu"))
    ours = regun.unlearn(mlp(), **sets, method="finetune,epochs=1", seed=np.int64(3), inputs=options)
    assert same_state(ours.model, regun.unlearn(mlp(), **sets, method="finetune,epochs=1", seed=3).model)


def test_a_method_that_leaves_no_numbers_has_diverged() -> None:
    def overflow(job: regun.Job) -> None:
        with torch.no_grad():
            next(job.model.parameters()).fill_(float("inf"))

    options = regun.InputOptions(logits=lambda output: output)
    outcome = regun.unlearn(mlp(), forget=parts()["forget"], method=overflow, inputs=options)
    assert outcome.diverged is not None
    assert "0.weight" in outcome.diverged
    assert not any("lr" in warning for warning in outcome.warnings)  # which this method does not have


# --------------------------------------------------------------------------------------------------------- the package

ROOT = Path(__file__).parent.parent
GENERATED = ("reference", "develop", "howto", "tables")  # pages that `make docs` writes
TEXTS = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if p.parent.name not in GENERATED)]
NAMES = {name for text in TEXTS for name in re.findall(r"\bregun((?:\.[a-z_]+)+(?:\.[A-Za-z_]+)+)", text.read_text())}
PACKAGES = sorted({name.split(".")[1] for name in NAMES})
CHILD = "import operator, sys, regun; [operator.attrgetter(name[1:])(regun) for name in sys.argv[1:]]"


@pytest.mark.parametrize("package", PACKAGES)
def test_what_the_docs_name_is_there_after_import_regun_alone(package: str) -> None:
    names = sorted(name for name in NAMES if name.split(".")[1] == package)
    done = subprocess.run([sys.executable, "-c", CHILD, *names], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_regun_imports_nothing_else() -> None:
    child = "import sys, regun; print(sorted(name for name in sys.modules if name.startswith(('regun.', 'torch'))))"
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize("name", regun.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    public = getattr(regun, name)
    text = inspect.getdoc(public) or ""
    assert text
    if inspect.isfunction(public):
        assert ">>>" in text
        assert len(inspect.signature(public).parameters) <= 20
    if inspect.isfunction(public) and "Args:" in text:
        named = re.findall(r"^    ([a-z_, ]+): ", text.split("Args:")[1], re.MULTILINE)
        assert {one for line in named for one in line.split(", ")} == set(inspect.signature(public).parameters)
