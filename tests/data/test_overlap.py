"""Examples that occur in two sets: by position, by id, by content."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from expect import error
from regun.data.overlap import BLOCK_BYTES, check_overlap, content_hashes
from regun.data.tensors import TensorExamples
from regun.errors import DataError
from toys import blobs


def tensors(x) -> TensorExamples:
    first = x if isinstance(x, torch.Tensor) else next(iter(x.values()))
    return TensorExamples(x, np.zeros(len(first), dtype=np.int64), 2)


def test_the_same_examples_in_two_sets_overlap_by_position() -> None:
    both = blobs(9)
    with error(DataError, "forget", "retain", 9):
        check_overlap({"forget": both, "retain": both}, {"forget": both, "retain": both}, None, False)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_rows_have_equal_hashes_exactly_when_their_bytes_are_equal(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(1,), (3,), (2, 2), (3, 1, 5)]))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.bool]))
    seed = data.draw(st.integers(0, 2**32))
    values = torch.randint(-1, 2, (40, *shape), generator=torch.Generator().manual_seed(seed)).to(dtype)
    hashes = content_hashes(tensors(values))
    rows = [tuple(row.flatten().tolist()) for row in values]
    for a in range(40):
        assert [rows[a] == row for row in rows] == (hashes == hashes[a]).tolist()


def test_rows_that_differ_in_two_sign_bits_or_by_a_swap_have_other_hashes() -> None:
    x = torch.randn(2000, 20, generator=torch.Generator().manual_seed(0))
    flipped, swapped = x.clone(), x.clone()
    flipped[:, [1, 3]] *= -1
    swapped[:, [0, 2]] = x[:, [2, 0]]
    hashes = np.concatenate([content_hashes(tensors(part)) for part in (x, flipped, swapped, x.abs() * 2)])
    assert len(np.unique(hashes)) == len(hashes)


def test_a_hash_depends_on_name_dtype_and_shape_but_not_on_the_batch() -> None:
    x = torch.arange(24).reshape(6, 4)
    same = content_hashes(tensors(x))
    assert (content_hashes(tensors(x[2:])) == same[2:]).all()
    for other in (x.int(), x.reshape(6, 2, 2), {"a": x}, {"a": x, "b": x}, {"a": x, "b": x + 1}):
        assert not np.isin(content_hashes(tensors(other)), same).any()
    rows = torch.arange(BLOCK_BYTES // 8 + 5).reshape(-1, 1)  # more than one block
    assert len(np.unique(content_hashes(tensors(rows)))) == len(rows)


def test_no_inputs_and_empty_sets_are_hashed() -> None:
    assert len(np.unique(content_hashes(tensors(torch.zeros(3, 0))))) == 1
    assert check_overlap({}, {"retain": tensors(torch.randn(4, 2)), "test": tensors(torch.randn(3, 2))}, None) == []


@pytest.mark.parametrize("content", [None, True])
def test_copies_are_counted_in_the_unseen_set(content: bool | None) -> None:
    x = torch.randn(300, 5, generator=torch.Generator().manual_seed(1))
    sets = {"retain": tensors(x), "test": tensors(torch.cat([torch.ones(2, 5), x[[7, 7, 100]]]))}
    with error(DataError, "retain", "test", 3):
        check_overlap({}, sets, None, content)


def test_duplicates_that_are_common_within_a_set_are_a_warning() -> None:
    x = torch.randint(0, 2, (200, 2), generator=torch.Generator().manual_seed(2))
    sets = {"retain": tensors(x), "test": tensors(x[:50])}
    (warning,) = check_overlap({}, sets, None)
    assert "50" in warning
    with error(DataError, "retain", "test", 50):
        check_overlap({}, sets, None, True)
