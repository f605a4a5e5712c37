"""Examples over a user's own Dataset, over tensors, and with made-up examples behind them."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, TensorDataset, default_collate

from expect import error
from regun.data.dataset import DatasetExamples
from regun.data.examples import Batch, Examples
from regun.data.sources import as_examples
from regun.data.tensors import TensorExamples
from regun.data.views import Joined, Selected
from regun.errors import DataError
from regun.hashing import code_digest
from regun.rng import generator
from toys import blobs, images

PLAN = [np.array([3, 1, 4]), np.array([11, 5]), np.array([9, 2, 6, 0])]


class Noisy(Dataset):
    """Twelve items, each with noise from all three of the global generators."""

    def __init__(self, scale: float = 1.0, size: int = 12) -> None:
        self.scale, self.size = scale, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = torch.rand(1) + torch.tensor([np.random.rand() + random.random()])  # noqa: NPY002
        return index + self.scale * noise.float().expand(2), index % 3


class Items(Dataset):
    """Eight items made by a function of their index, with any further attributes."""

    def __init__(self, item, size: int = 8, **more) -> None:
        self.item, self.size = item, size
        vars(self).update(more)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int):
        return self.item(index)


def pair(index: int) -> tuple[torch.Tensor, int]:
    return torch.full((2,), float(index)), index % 3


def batches(examples, seed: int = 7, augment: bool = True, **more) -> list:
    return list(examples.stream(PLAN, augment=augment, seed=seed, **more))


def same(one: list, other: list) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a.x, b.x) and torch.equal(a.y, b.y) and torch.equal(a.indices, b.indices)
        for a, b in zip(one, other, strict=True)
    )


# --------------------------------------------------------------------------------------------------------- randomness


@pytest.mark.parametrize("workers", [1, 2])
def test_batches_do_not_depend_on_the_number_of_workers(workers: int) -> None:
    expected = batches(DatasetExamples(Noisy(), 3))
    assert same(batches(DatasetExamples(Noisy(), 3, workers=workers)), expected)
    assert [b.indices.tolist() for b in expected] == [p.tolist() for p in PLAN]
    assert all(torch.equal(b.y, b.indices % 3) for b in expected)


def test_batches_repeat_with_their_seed_and_differ_with_another() -> None:
    examples = DatasetExamples(Noisy(), 3)
    expected = batches(examples)
    assert same(batches(examples), expected)
    others = batches(examples, seed=8)
    assert all(not torch.equal(a.x, b.x) for a, b in zip(expected, others, strict=True))
    drawn = torch.cat([b.x[:, 0] - b.indices for b in expected])
    assert len(drawn.unique()) == len(drawn)  # no two items share their noise


def test_a_stream_may_start_anywhere_and_is_made_of_fetches() -> None:
    examples = DatasetExamples(Noisy(), 3)
    expected = batches(examples)
    later = list(examples.stream(PLAN[1:], augment=True, seed=7, first=1))
    assert same(later, expected[1:])
    fetched = [examples.fetch(p, augment=True, generator=generator(7, n)) for n, p in enumerate(PLAN)]
    assert same(fetched, expected)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_caller_s_generators_are_left_alone(workers: int) -> None:
    examples = DatasetExamples(Noisy(), 3, workers=workers)
    before = torch.random.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    batches(examples)
    examples.fetch(PLAN[0], augment=True)
    assert examples.labels.tolist() == [0, 1, 2] * 4
    after = torch.random.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_a_reader_who_stops_early_does_no_harm() -> None:
    examples = DatasetExamples(Noisy(), 3, workers=1)
    first = next(iter(examples.stream(PLAN, augment=True, seed=7)))
    assert same([first], batches(examples)[:1])


def test_the_evaluation_view_is_used_without_augmentation() -> None:
    examples = DatasetExamples(Noisy(), 3, evaluation=Noisy(scale=0))
    for batch in [*batches(examples, augment=False), examples.fetch(np.array([2, 7]))]:
        assert torch.equal(batch.x[:, 0], batch.indices.float())
    assert not torch.equal(batches(examples)[0].x[:, 0], torch.tensor([3.0, 1.0, 4.0]))
    only = DatasetExamples(Noisy(), 3)
    assert same(batches(only, augment=False), batches(only, augment=False))


def test_the_digest_is_that_of_the_evaluation_view_and_its_labels() -> None:
    plain = DatasetExamples(Noisy(), 3, evaluation=Noisy(scale=0))
    assert plain.digest == DatasetExamples(Noisy(scale=5), 3, evaluation=Noisy(scale=0), workers=1).digest
    assert DatasetExamples(Noisy(), 3).digest == DatasetExamples(Noisy(), 3).digest
    others = [Items(lambda i: (pair(i)[0], 0)), Items(lambda i: (pair(i)[0] * 2, i % 3)), Items(pair), Items(pair, 7)]
    assert len({plain.digest, *(DatasetExamples(d, 3).digest for d in others)}) == 5
    assert plain.describe_inputs()["class"].endswith("Noisy")


# --------------------------------------------------------------------------------------------- labels, batches, items


def test_labels_come_from_the_user_the_dataset_or_a_pass() -> None:
    expected = [i % 3 for i in range(8)]
    unread = Items(lambda i: pytest.fail("an item was read"), targets=expected)
    assert DatasetExamples(unread, 3).labels.tolist() == expected
    assert DatasetExamples(Items(None, labels=np.array(expected, dtype=np.uint8)), 3).labels.dtype == np.int64
    assert DatasetExamples(Items(None, targets=torch.tensor(expected)), 3).labels.tolist() == expected
    assert DatasetExamples(Items(None, targets=[0] * 8), 3, item_labels=expected).labels.tolist() == expected
    assert DatasetExamples(Items(pair), 3).labels.tolist() == expected
    assert DatasetExamples(TensorDataset(torch.randn(8, 2), torch.tensor(expected)), 3).labels.tolist() == expected


def test_images_come_channels_last() -> None:
    batch = DatasetExamples(Items(lambda i: (torch.randn(3, 4, 4), 0)), 3).fetch(np.arange(5))
    assert batch.x.shape == (5, 3, 4, 4)
    assert batch.x.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("key", ["labels", "label", "y", "target"])
@pytest.mark.parametrize("workers", [0, 1])
def test_items_may_be_mappings(key: str, workers: int) -> None:
    data = Items(lambda i: {"ids": torch.tensor([i, i]), "mask": torch.ones(2), key: i % 3})
    examples = DatasetExamples(data, 3, workers=workers)
    (batch,) = examples.stream([np.array([5, 1])])
    assert batch.x.keys() == {"ids", "mask"}
    assert batch.x["ids"].tolist() == [[5, 5], [1, 1]]
    assert batch.y.tolist() == [2, 1]
    assert examples.digest == DatasetExamples(data, 3).digest


@pytest.mark.parametrize("workers", [0, 1])
def test_the_user_s_collate_function_is_used(workers: int) -> None:
    def padded(items: list) -> dict:
        width = max(len(x) for x, _ in items)
        rows = [torch.nn.functional.pad(x, (0, width - len(x))) for x, _ in items]
        return {"ids": torch.stack(rows), "labels": [y for _, y in items]}

    examples = DatasetExamples(Items(lambda i: (torch.ones(i + 1), i % 3)), 3, collate=padded, workers=workers)
    first, second = examples.stream([np.array([0, 2]), np.array([6])])
    assert first.x["ids"].tolist() == [[1, 0, 0], [1, 1, 1]]
    assert second.x["ids"].shape == (1, 7)
    assert first.y.tolist() == [0, 2]
    assert examples.fetch(np.array([0, 2])).x["ids"].tolist() == first.x["ids"].tolist()


# ------------------------------------------------------------------------------------------------------------- faults


def broken_at_six(index: int) -> tuple[torch.Tensor, int]:
    if index == 6:
        raise OSError("cannot identify image file")
    return pair(index)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_item_that_cannot_be_read_is_named(workers: int) -> None:
    examples = DatasetExamples(Items(broken_at_six), 3, workers=workers)
    with error(DataError, 6, "OSError") as caught:
        list(examples.stream([np.array([0, 1]), np.array([5, 6])]))
    assert "in broken_at_six" in caught.value.__notes__[0]  # where it happened, for the one who mends it
    with error(DataError, 6, "OSError"):
        examples.fetch(np.array([6]))
    with error(DataError, 6, "OSError"):
        examples.labels  # noqa: B018


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("item", "names"),
    [
        (lambda i: (object(), 0), "TypeError collate"),
        (lambda i: None, "TypeError NoneType"),
        (lambda i: (torch.zeros(i + 1), 0), "RuntimeError size"),
        (lambda i: torch.zeros(2), "Tensor collate_fn"),
        (lambda i: (torch.zeros(2),), "list collate_fn"),
        (lambda i: (torch.zeros(2), 0, 7), "item 0 7 3 2"),
        (lambda i: {"x": torch.zeros(2)}, "'x' 'labels' 'target'"),
        (lambda i: ((torch.zeros(2), "a"), 0), "'1' tensors"),
        (lambda i: {"x": torch.zeros(2), "name": "a", "y": 0}, "'name' list"),
        (lambda i: (torch.zeros(2), "cat"), "labels 'cat'"),
        (lambda i: (torch.zeros(2), 0.5), "labels (2 torch.float64"),
        (lambda i: (torch.zeros(2), float("nan")), "labels torch.float64"),
        (lambda i: (torch.zeros(2), torch.eye(3)[0]), "labels (2 torch.float32"),
        (lambda i: (torch.zeros(2), torch.tensor([0])), "labels (2 torch.int64"),
        (lambda i: (torch.tensor([1.0, float("nan") if i == 1 else 0.0]), 0), "'x' NaN item 1"),
    ],
)
def test_a_batch_that_cannot_be_used_is_said(item, names: str, workers: int) -> None:
    examples = DatasetExamples(Items(item), 3, workers=workers)
    with error(DataError, *names.split()):
        list(examples.stream([np.array([0, 1])]))


@pytest.mark.parametrize(
    ("collate", "names"),
    [
        (lambda items: default_collate(items[:-1]), "labels 2 (1"),
        (lambda items: (torch.zeros(5, 2), torch.zeros(2)), "'x' (5"),
        (lambda items: (torch.tensor(1.0), [0, 1]), "'x' 2"),
        (lambda items: {"x": torch.zeros(2), "y": [0]}, "labels 2 (1"),
        (lambda items: items[5], "IndexError"),
    ],
)
def test_a_collate_function_must_keep_all_items(collate, names: str) -> None:
    with error(DataError, *names.split()):
        DatasetExamples(Items(pair), 3, collate=collate).fetch(np.array([0, 1]))


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([0] * 7, "labels 7 8"),
        ([[0]] * 8, "labels (8"),
        ([0, 1, 2, 3, 0, 1, 2, 3], "labels[3] 3 0 2"),
        ([0, 1, -1, 0, 0, 0, 0, 0], "labels[2] -1"),
        ([0.5] * 8, "labels float64"),
        ([float("nan")] * 8, "labels float64"),
        (["cat"] * 8, "labels <U3"),
        ([None] * 8, "labels object"),
        ([[0], [1, 2]] * 4, "labels lists"),
        ([], "labels (0"),
    ],
)
def test_stated_labels_must_fit(labels: list, names: str) -> None:
    for examples in (
        DatasetExamples(Items(pair, targets=labels), 3),
        DatasetExamples(Items(pair), 3, item_labels=labels),
    ):
        with error(DataError, *names.split()):
            examples.labels  # noqa: B018


def test_labels_found_in_a_pass_must_be_in_range() -> None:
    with error(DataError, "item", 3):
        DatasetExamples(Items(lambda i: (torch.zeros(1), i)), 3).labels  # noqa: B018


def test_items_must_have_the_labels_that_are_stated() -> None:
    """A target transform changes the items' labels, but not the list of them."""
    examples = DatasetExamples(Items(lambda i: (torch.zeros(1), 1), targets=[0, 1, 2, 0, 1, 2, 0, 1]), 3)
    assert examples.fetch(np.array([1, 4])).y.tolist() == [1, 1]
    with error(DataError, 5, 1, 2, "item_labels"):
        examples.fetch(np.array([4, 5]))


def test_empty_and_unequal_datasets_are_refused() -> None:
    with error(DataError, "dataset", "empty"):
        DatasetExamples(Items(pair, 0), 3)
    with error(DataError, "evaluation", 8, 7):
        DatasetExamples(Items(pair), 3, evaluation=Items(pair, 7))


# ------------------------------------------------------------------------------------------------------------ tensors


def test_tensors_come_in_the_order_asked_for() -> None:
    examples = blobs(20)
    order = np.array([7, 0, 7, 19])
    batch = examples.fetch(order)
    assert torch.equal(batch.x, examples.x[torch.tensor(order)])
    assert batch.y.tolist() == examples.labels[order].tolist()
    assert same(list(examples.stream([order, order[:1]], augment=True, seed=3)), [batch, examples.fetch(order[:1])])
    assert images(6).fetch(np.arange(3)).x.is_contiguous(memory_format=torch.channels_last)
    mapping = TensorExamples({"a": torch.arange(4), "b": torch.ones(4, 2)}, np.array([0, 1, 0, 1]), 2)
    assert mapping.fetch(np.array([3, 1])).x["a"].tolist() == [3, 1]


def test_a_tensor_s_digest_depends_on_inputs_names_and_labels_not_on_layout() -> None:
    x, labels = torch.randn(4, 3, 2, 2), np.array([0, 1, 0, 1])
    plain = TensorExamples(x, labels, 2).digest
    assert TensorExamples(x.to(memory_format=torch.channels_last), labels.astype(np.int32), 2).digest == plain
    others = [(x + 1, labels), (x.double(), labels), (x, 1 - labels), ({"z": x}, labels), ({"x": x, "y": x}, labels)]
    assert len({plain, *(TensorExamples(*other, 2).digest for other in others)}) == 6


@pytest.mark.parametrize(
    ("x", "labels", "names"),
    [
        (
            torch.tensor([[0.0], [float("nan")], [1.0]]),
            [0, 1, 0],
            "'x' NaN 1",
        ),
        (
            {"a": torch.ones(3), "b": torch.tensor([0, 0, float("inf")])},
            [0, 1, 0],
            "'b' NaN 2",
        ),
        (torch.zeros(4, 2), [0, 1, 0], "'x' 4 3"),
        ({"a": torch.zeros(3), "b": torch.zeros(2)}, [0, 1, 0], "'b' 2 3"),
        (torch.zeros(3, 2), [0, 1, 2], "labels[2] 2 0 1"),
        (torch.zeros(3, 2), [0, -1, 1], "labels[1] -1"),
        (torch.zeros(3, 2), [0, 0.5, 1], "labels float64"),
        (torch.zeros(0, 2), [], "labels (0"),
        (torch.zeros(3, 2), [[0], [1], [0]], "labels (3"),
    ],
)
def test_bad_tensors_are_refused(x, labels: list, names: str) -> None:
    with error(DataError, *names.split()):
        TensorExamples(x, np.array(labels), 2)


# --------------------------------------------------------------------------------------------------- made-up examples


def behind(real, x, labels) -> Joined:
    """Made-up examples numbered on after the real ones."""
    return Joined((real, TensorExamples(x, labels, real.num_classes)))


def appended() -> tuple[Joined, torch.Tensor, np.ndarray]:
    """Ten real images and four made-up ones, and all fourteen in a row."""
    real, made = images(10, size=3), images(4, size=3, seed=1)
    return behind(real, made.x, 2 - made.labels), torch.cat([real.x, made.x]), np.r_[real.labels, 2 - made.labels]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 13), min_size=1, max_size=6), min_size=1, max_size=4))
def test_real_and_made_up_examples_come_in_the_order_asked_for(plan: list[list[int]]) -> None:
    examples, x, y = appended()
    arrays = [np.array(p) for p in plan]
    for batch, indices in zip(examples.stream(arrays, augment=True, seed=3), plan, strict=True):
        assert torch.equal(batch.x, x[indices])
        assert batch.y.tolist() == y[indices].tolist()
        assert batch.indices.tolist() == indices
        assert same([batch], [examples.fetch(np.array(indices))])


def test_made_up_examples_are_numbered_from_the_end_of_the_real_ones() -> None:
    examples, _, y = appended()
    assert examples.starts.tolist() == [0, 10, 14]
    assert examples.labels.tolist() == y.tolist()
    assert examples.num_classes == 3
    assert examples.describe_inputs()["parts"] == [part.describe_inputs() for part in examples.parts]
    batch = examples.fetch(np.array([11, 2]))
    assert batch.x.is_contiguous(memory_format=torch.channels_last)


def test_only_the_real_examples_are_augmented_each_by_its_place_in_the_plan() -> None:
    real = DatasetExamples(Noisy(), 3)
    examples = behind(real, torch.full((2, 2), 99.0), np.array([0, 1]))
    plan = [np.array([13, 3, 12, 1]), np.array([12, 13]), np.array([5])]
    first, second, third = examples.stream(plan, augment=True, seed=7, first=4)
    alone = list(real.stream([np.array([3, 1]), np.array([0]), np.array([5])], augment=True, seed=7, first=4))
    assert torch.equal(first.x[[0, 2]], torch.full((2, 2), 99.0))
    assert torch.equal(first.x[[1, 3]], alone[0].x)
    assert torch.equal(second.x, torch.full((2, 2), 99.0))
    assert torch.equal(third.x, alone[2].x)


def test_made_up_examples_may_be_mappings() -> None:
    real = TensorExamples({"a": torch.arange(4), "b": torch.ones(4, 2)}, np.array([0, 1, 0, 1]), 2)
    examples = behind(real, {"a": torch.tensor([70, 80]), "b": torch.zeros(2, 2)}, np.array([1, 0]))
    for indices, a in (([5, 0, 4], [80, 0, 70]), ([4, 5], [70, 80]), ([3, 1], [3, 1])):
        batch = examples.fetch(np.array(indices))
        assert batch.x["a"].tolist() == a
        assert batch.x["b"].sum(1).tolist() == [2.0 * (i < 4) for i in indices]
        assert batch.y.tolist() == examples.labels[indices].tolist()


def test_the_digest_sees_real_and_made_up_parts() -> None:
    examples, *_ = appended()
    real, made = examples.parts
    others = [
        Joined((images(10, size=3, seed=5), made)),
        behind(real, made.x + 1, made.labels),
        behind(real, made.x, 2 - made.labels),
    ]
    assert len({examples.digest, *(other.digest for other in others)}) == 4
    assert examples.digest == appended()[0].digest


# -------------------------------------------------------------------------------------------------- one's own Examples


class Duck(Examples):
    """Examples of one's own: labels, the number of classes, and how to fetch."""

    labels, num_classes = np.array([0, 1, 2]), 3

    def fetch(self, indices, *, augment=False, generator=None, device="cpu"):
        return Batch(torch.zeros(len(indices), 1), torch.tensor(self.labels[indices]), torch.tensor(indices))


def test_examples_of_one_s_own_are_taken_as_they_are() -> None:
    duck = Duck()
    assert as_examples(duck, 3, "forget") is duck
    assert Joined((blobs(6, features=1), duck)).fetch(np.array([7, 0])).y.tolist() == [1, 0]
    lazy = DatasetExamples(Items(lambda i: pytest.fail("an item was read")), 3)
    assert as_examples(lazy, 3, "forget") is lazy
    looks = type("MeasuredSets", (), {"labels": [0], "num_classes": 1, "fetch": None, "stream": None})()
    with error(DataError, "forget", "MeasuredSets", "regun.data.Examples"):
        as_examples(looks, 3, "forget")


def test_every_kind_is_keyed_by_its_code_and_by_what_it_is_made_of() -> None:
    tensors, dataset = blobs(6), DatasetExamples(Noisy(), 3)
    joined, selected = Joined((tensors, dataset)), Selected(dataset, np.array([1]))
    for examples, module in ((tensors, "tensors"), (dataset, "dataset"), (joined, "views"), (selected, "views")):
        assert examples.describe_inputs()["code"] == code_digest(f"regun.data.{module}")
    assert joined.describe_inputs()["parts"] == [tensors.describe_inputs(), dataset.describe_inputs()]
    assert selected.describe_inputs()["of"] == dataset.describe_inputs()
