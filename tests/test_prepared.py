"""Cross-fitted references: folds, the table and its file, and what makes it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import regun
from expect import error
from regun.data.sources import as_examples
from regun.errors import DataError, RegunError
from regun.folds import assign_folds, merge_groups
from regun.prepared import Prepared, record_keys

CLASSES = 3


def records(n: int = 60, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=draw), torch.randint(0, CLASSES, (n,), generator=draw)


class Remembers(nn.Module):
    """Knows the records it was trained on by heart: class 0 is certain for those, class 1 for all others."""

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("x", x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        known = (x[:, None] == self.x[None]).all(2).any(1)
        answers = torch.zeros(len(x), CLASSES)
        answers[known, 0] = 9.0
        answers[~known, 1] = 9.0
        return answers


def by_heart(dataset: Dataset[Any], seed: int) -> nn.Module:
    return Remembers(torch.stack([dataset[i][0] for i in range(len(dataset))]))


def linear(dataset: Dataset[Any], seed: int) -> nn.Module:
    """Depends on the order of the records and on the seed, as a real training does."""
    x = torch.stack([dataset[i][0] for i in range(len(dataset))])
    model = nn.Linear(4, CLASSES)
    with torch.no_grad():
        model.weight.copy_(torch.randn(CLASSES, 4, generator=torch.Generator().manual_seed(seed % 2**31)) + x[:3, :1])
        model.bias.copy_(x[-1, :CLASSES])
    return model


def small(**changes: Any) -> Prepared:
    return regun.prepare(**{"train": linear, "data": records(), "test": records(30, 1), **changes})


def random_keys(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 16), dtype=np.uint8)


# ------------------------------------------------------------------------------------------------------------ folds


@given(
    n=st.integers(4, 80),
    folds=st.integers(2, 6),
    classes=st.integers(1, 5),
    groups=st.integers(6, 40),
    seed=st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_folds_are_whole_groups_and_follow_the_records(
    n: int, folds: int, classes: int, groups: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    keys, labels = random_keys(n, seed), draw.integers(0, classes, n)
    group = merge_groups(n, draw.integers(0, groups, n))
    if folds > len(np.unique(group)):
        with error(DataError, "folds", len(np.unique(group))):
            assign_folds(keys, labels, folds, seed, group)
        return
    found = assign_folds(keys, labels, folds, seed, group)
    assert all(len(np.unique(found[group == g])) == 1 for g in np.unique(group))
    order = draw.permutation(n)
    assert np.array_equal(assign_folds(keys[order], labels[order], folds, seed, group[order]), found[order])


@given(n=st.integers(6, 120), folds=st.integers(2, 6), classes=st.integers(1, 4), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_folds_of_single_records_are_stratified(n: int, folds: int, classes: int, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, classes, n)
    found = assign_folds(random_keys(n, seed), labels, folds, seed)
    for label in np.unique(labels):
        shares = np.bincount(found[labels == label], minlength=folds)
        assert shares.max() - shares.min() <= 1
    sizes = np.bincount(found, minlength=folds)
    assert sizes.max() - sizes.min() <= 1


def test_as_many_folds_as_records_leave_one_out() -> None:
    assert sorted(assign_folds(random_keys(9), np.zeros(9, dtype=np.int64), 9, 0)) == list(range(9))
    table = small(data=records(9), test=None, folds=9, train=by_heart)
    assert len(set(table.folds[0])) == 9
    assert (table.probabilities(np.arange(9)).argmax(1) == 1).all()


def test_groups_that_meet_in_any_labeling_are_one() -> None:
    found = merge_groups(5, ["a", "a", "b", "c", "d"], [1, 2, 3, 3, 4])
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert len(set(found)) == 3
    with error(DataError, "groups", 4, 5):
        merge_groups(5, [1, 2, 3, 4])


# ------------------------------------------------------------------------------------------------------ the table


@pytest.mark.parametrize("folds", [2, 4])
def test_no_prediction_comes_from_a_model_that_saw_the_record(folds: int) -> None:
    seen: list[set[tuple[float, ...]]] = []

    def watched(dataset: Dataset[Any], seed: int) -> nn.Module:
        seen.append({tuple(dataset[i][0].tolist()) for i in range(len(dataset))})
        return by_heart(dataset, seed)

    x, y = records()
    table = small(train=watched, folds=folds, repeats=2)
    assert (table.probabilities(np.arange(90)).argmax(1) == 1).all()
    assert len(seen) == 2 * folds
    for repeat in range(2):
        for row in range(60):
            fold = int(table.folds[repeat, row])
            assert tuple(x[row].tolist()) not in seen[repeat * folds + fold]


def test_rows_of_one_user_and_copies_are_left_out_together() -> None:
    x, y = records()
    x[1], y[1] = x[0], y[0]
    users = [n // 3 for n in range(60)]
    table = small(data=(x, y), groups=users, folds=3)
    for user in range(20):
        assert len(set(table.folds[0, [n for n in range(60) if users[n] == user]])) == 1
    table = small(data=(x, y), ids=[f"r{n}" for n in range(60)], folds=3)
    assert table.folds[0, 0] == table.folds[0, 1]


def test_permuting_the_records_permutes_the_table() -> None:
    x, y = records()
    order = torch.randperm(60, generator=torch.Generator().manual_seed(3))
    whole, shuffled = small(), small(data=(x[order], y[order]))
    assert torch.equal(shuffled.probabilities(np.arange(60)), whole.probabilities(order.numpy()))


def test_a_record_is_looked_up_by_content_or_id() -> None:
    x, y = records()
    part = as_examples((x[[7, 3]], y[[7, 3]]), CLASSES, "forget")
    assert small().rows(part).tolist() == [7, 3]
    named = small(ids={"train": [f"r{n}" for n in range(60)]})
    assert named.rows(part, ["r7", "r3"]).tolist() == [7, 3]
    with error(DataError, "ids"):
        named.rows(part)


def test_top_keeps_the_label_and_the_largest() -> None:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 4, generator=draw), torch.randint(0, 10, (40,), generator=draw)

    def wide(dataset: Dataset[Any], seed: int) -> nn.Module:
        model = nn.Linear(4, 10)
        nn.init.normal_(model.weight, generator=torch.Generator().manual_seed(1))
        nn.init.zeros_(model.bias)
        return model

    whole, cut = (regun.prepare(wide, (x, y), top=top) for top in (None, 3))
    exact, kept = whole.probabilities(np.arange(40)), cut.probabilities(np.arange(40))
    assert cut.log_probs.shape == (1, 40, 4)
    assert torch.allclose(kept.sum(1), torch.ones(40))
    rows = torch.arange(40)
    assert torch.allclose(kept[rows, y], exact[rows, y], atol=1e-6)
    assert torch.allclose(kept.max(1).values, exact.max(1).values, atol=1e-6)


# --------------------------------------------------------------------------------------------------------- the file


def test_a_saved_table_comes_back_bit_for_bit(tmp_path: Path) -> None:
    table = small(repeats=2)
    table.save(tmp_path / "p.safetensors")
    again = Prepared.load(tmp_path / "p.safetensors")
    assert again.digest == table.digest
    assert torch.equal(again.probabilities(np.arange(90)), table.probabilities(np.arange(90)))


def test_a_killed_run_goes_on_with_the_folds_that_are_left(tmp_path: Path) -> None:
    calls: list[int] = []

    def dies(dataset: Dataset[Any], seed: int) -> nn.Module:
        calls.append(seed)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return linear(dataset, seed)

    path = tmp_path / "p.safetensors"
    with pytest.raises(KeyboardInterrupt):
        small(train=dies, path=path)
    assert not path.exists()
    table = small(train=dies, path=path)
    assert len(calls) == 5  # two folds were kept, the third began twice
    assert torch.equal(table.probabilities(np.arange(90)), small().probabilities(np.arange(90)))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.safetensors"]


def test_workers_make_the_same_table(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    alone, shared = small(), small(workers=2, path=path)
    assert np.array_equal(alone.log_probs, shared.log_probs)
    assert np.array_equal(alone.folds, shared.folds)
    assert alone.about["trained_on"] == shared.about["trained_on"]
    assert Prepared.load(path).digest == shared.digest


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"train": lambda dataset, seed: linear(dataset, seed)}, "train"), ({"workers": 0}, "workers")],
)
def test_what_cannot_be_sent_to_workers_is_named(changes: dict[str, Any], name: str) -> None:
    with error(RegunError, name, "workers" if name == "workers" else "workers=1"):
        small(**{"workers": 2, **changes})


def test_every_altered_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    small(data=records(12), test=None).save(path)
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(RegunError):
            Prepared.load(path)
    for end in (0, 7, 100, len(content) - 1):
        path.write_bytes(content[:end])
        with error(DataError, path):
            Prepared.load(path)


def wrong_fold(table: Prepared) -> dict[str, Any]:
    folds = table.folds.copy()
    folds[0, 0] = (folds[0, 0] + 1) % 4
    return {"folds": folds}


def with_nan(table: Prepared) -> dict[str, Any]:
    values = table.log_probs.copy()
    values[0, 3, 1] = np.nan
    return {"log_probs": values}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (wrong_fold, ["fold"]),
        (with_nan, ["log_probs", "NaN"]),
        (lambda t: {"log_probs": t.log_probs - 1}, []),
        (lambda t: {"labels": t.labels + CLASSES}, ["labels"]),
        (lambda t: {"folds": t.folds[:, :-1]}, ["folds"]),
        (lambda t: {"about": {k: v for k, v in t.about.items() if k != "folds"}}, ["folds"]),
    ],
)
def test_a_table_that_cannot_be_is_refused(
    change: Callable[[Prepared], dict[str, Any]], names: list[str], tmp_path: Path
) -> None:
    table = small()
    with error(DataError, *names):
        replace(table, **change(table))


def test_another_tables_data_are_refused() -> None:
    table, (x, y) = small(), records()
    with error(DataError, "train"):
        table.rows(as_examples(records(5, seed=9), CLASSES, "forget"))
    with error(DataError, "train", "label"):
        table.rows(as_examples((x[:5], (y[:5] + 1) % CLASSES), CLASSES, "forget"))
    with error(DataError, "val"):
        table.rows(as_examples((x[:5], y[:5]), CLASSES, "val"), which="val")


def test_erased_records_leave_the_table(tmp_path: Path) -> None:
    table, (x, y) = small(), records()
    left = table.without(np.array([3, 7]))
    assert len(left) == 58
    assert left.digest != table.digest
    assert left.about["version"] == 2
    assert left.erased_share == pytest.approx(2 / 60)
    with error(DataError, "train"):
        left.rows(as_examples((x[[3]], y[[3]]), CLASSES, "forget"))
    assert not any(np.array_equal(key, table.keys[3]) for key in left.keys)
    rows = left.rows(as_examples((x[[4]], y[[4]]), CLASSES, "forget"))
    assert torch.equal(left.probabilities(rows), table.probabilities(np.array([4])))
    left.save(tmp_path / "p.safetensors")
    assert Prepared.load(tmp_path / "p.safetensors").digest == left.digest


# ------------------------------------------------------------------------------------------------- ways of training


def test_a_function_that_returns_probabilities_and_a_dataset_work() -> None:
    x, y = records()

    def even(dataset: Dataset[Any], seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
        assert len(dataset) == 45
        return lambda batch: torch.full((len(batch), CLASSES), 1 / CLASSES)

    table = regun.prepare(even, TensorDataset(x, y))
    assert torch.allclose(table.probabilities(np.arange(60)), torch.full((60, CLASSES), 1 / CLASSES))


def test_a_training_without_source_works() -> None:
    class Trains:
        def __call__(self, dataset: Dataset[Any], seed: int) -> nn.Module:
            return linear(dataset, seed)

    scope: dict[str, Any] = {"linear": linear}
    exec("def typed(dataset, seed):\n    return linear(dataset, seed)", scope)  # as at a prompt
    expected = small().probabilities(np.arange(60))
    for train in (Trains(), scope["typed"]):
        assert torch.equal(small(train=train).probabilities(np.arange(60)), expected)


def test_reguns_own_loop_trains_by_a_shortened_recipe() -> None:
    def rebuild(seed: int) -> nn.Module:
        model = nn.Linear(4, CLASSES)
        nn.init.normal_(model.weight, generator=torch.Generator().manual_seed(seed % 2**31))
        return model

    recipe = {"epochs": 8, "lr": 0.1, "batch_size": 16}
    once, again = (regun.prepare(None, records(), recipe=recipe, rebuild=rebuild, share=0.25) for _ in range(2))
    assert once.about["recipe"]["epochs"] == 2
    assert once.about["cost"]["backward"] == 2 * 3 * 60  # four folds of 45 records, two epochs each
    assert torch.equal(once.probabilities(np.arange(60)), again.probabilities(np.arange(60)))


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"folds": 1}, ["folds", 2]),
        ({"repeats": 0}, ["repeats", 1]),
        ({"train": None}, ["recipe", "rebuild"]),
        ({"train": 3}, ["train"]),
        ({"recipe": "digits"}, ["train", "recipe"]),
        ({"train": None, "recipe": "digits", "rebuild": lambda seed: nn.Linear(4, 3), "share": 0}, ["share", 0]),
        ({"ids": ["a"]}, ["ids", 60]),
        ({"ids": ["a"] * 60}, ["ids"]),
        ({"ids": {"tset": []}}, ["ids", "tset", "test"]),
        ({"groups": [1, 2]}, ["groups", 60]),
        ({"eval_data": records(5)}, ["eval_data", 5, 60]),
    ],
)
def test_what_cannot_be_prepared_is_named(changes: dict[str, Any], names: list[Any]) -> None:
    with error(RegunError, *names):
        small(**changes)


def test_keys_do_not_show_ids() -> None:
    table = small(ids={"train": [f"patient-{n}" for n in range(60)]})
    content = safetensors.torch.save({"keys": torch.from_numpy(table.keys)})
    assert b"patient" not in content
    assert len(record_keys(as_examples(records(), CLASSES, "d"))) == 60
