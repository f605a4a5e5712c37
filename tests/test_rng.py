"""Seeds depend on their names alone, digests on content alone, and nobody's global generator moves."""

import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regun.hashing import canonical_json, digest
from regun.rng import derive, generator, isolated, rng_key

names = st.lists(st.integers(0, 10**9) | st.text(max_size=8), max_size=4)


@given(st.integers() | st.text(max_size=8), names, names)
def test_a_derived_seed_depends_on_the_seed_and_every_name(seed: int | str, first: list, second: list) -> None:
    assert derive(seed, *first) == derive(seed, *first)
    assert (derive(seed, *first) == derive(seed, *second)) == (first == second)
    assert 0 <= derive(seed, *first) < 2**60


def test_derived_seeds_are_pinned() -> None:
    """Another derivation would give every stored model another name and every study other numbers."""
    assert derive(0) == int(digest([0])[:15], 16) == 940_067_122_129_020_947
    assert derive(0, "order", 1) != derive(0, "order", "1") != derive("0", "order", "1")
    assert derive(1, "ab", "c") != derive(1, "a", "bc")
    assert generator(3, "x").initial_seed() == derive(3, "x")


def test_generators_of_one_name_draw_the_same_and_leave_the_global_one_alone() -> None:
    before = torch.random.get_rng_state()
    assert torch.equal(torch.rand(5, generator=generator(1, "a")), torch.rand(5, generator=generator(1, "a")))
    assert not torch.equal(torch.rand(5, generator=generator(1, "a")), torch.rand(5, generator=generator(1, "b")))
    assert torch.equal(before, torch.random.get_rng_state())


def global_states() -> tuple:
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    return torch.random.get_rng_state().tolist(), (name, keys.tolist(), *rest), random.getstate()


def draw() -> tuple:
    return torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()  # noqa: NPY002


def test_isolated_seeds_all_three_generators_and_gives_them_back() -> None:
    before = global_states()
    drawn = []
    for seed in (5, 5, 6, 2**60 - 1):
        with isolated(seed):
            drawn.append(draw())
        assert global_states() == before
    assert drawn[0] == drawn[1]
    for one, other in itertools.pairwise(drawn[1:]):
        assert all(a != b for a, b in zip(one, other, strict=True))


def test_isolated_gives_the_states_back_after_an_error_and_when_nested() -> None:
    def fails() -> None:
        with isolated(1):
            draw()
            raise KeyError("x")

    before = global_states()
    with pytest.raises(KeyError):
        fails()
    assert global_states() == before
    with isolated(1):
        expected = draw()
    with isolated(1):
        with isolated(2):
            draw()
        assert draw() == expected
    assert global_states() == before


def test_an_array_s_digest_depends_on_type_shape_and_content_but_not_on_layout() -> None:
    array = np.arange(12, dtype=np.int64).reshape(3, 4)
    strided = np.arange(24).reshape(3, 8)[:, ::2]
    assert digest(array) == digest(array.copy()) == digest(np.asfortranarray(array)) != digest(strided)
    assert digest(strided) == digest(strided.copy())
    changed = array.copy()
    changed[2, 3] += 1
    others = [
        array.astype(np.int32),
        array.reshape(4, 3),
        array.T,
        changed,
        array.astype(">i8"),
        array[:0],
        array[:0].T,
    ]
    assert len({digest(array), *(digest(a) for a in others)}) == 8
    assert digest(np.array(3)) != digest(np.array([3]))


def test_digests_of_bytes_and_json_are_sha_256() -> None:
    assert digest(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest("abc") == digest(b'"abc"')
    assert digest({"b": 1, "a": [1.5, None, True, "é"]}) == digest('{"a":[1.5,null,true,"é"],"b":1}'.encode())
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 2, "b": 1})


def test_canonical_json_is_the_same_before_and_after_storing() -> None:
    """Keys that are numbers sort as text once they were stored: they must do so from the start."""
    value = {2: "b", 10: "a", "t": (1, 2)}
    assert canonical_json(value) == '{"10":"a","2":"b","t":[1,2]}' == canonical_json({"2": "b", "10": "a", "t": [1, 2]})


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), {"a": [-float("inf")]}])
def test_numbers_that_are_not_finite_have_no_digest(bad: object) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        digest(bad)


def test_chance_follows_from_all_but_code() -> None:
    inputs = {"seed": 1, "method": {"name": "regun", "code": "a"}, "code": "b", "parts": [{"code": "c", "x": 1}]}
    other = {"seed": 1, "method": {"name": "regun", "code": "z"}, "code": "y", "parts": [{"code": "x", "x": 1}]}
    assert rng_key(inputs) == rng_key(other)
    assert rng_key(inputs) != rng_key({**inputs, "seed": 2})
    assert rng_key(inputs) != rng_key({**inputs, "method": {"name": "ssd", "code": "a"}})


def test_settings_added_later_change_no_seed_at_their_defaults() -> None:
    """Results that were published before still follow from their seeds; other values have seeds of their own."""
    before = {"method": {"name": "crossfit", "config": {"share": 0.16, "w": 0.4}}}
    added = {"temperature": None, "label_logit": None}
    later = {"method": {"name": "crossfit", "config": {"share": 0.16, "w": 0.4, **added}}}
    assert rng_key(later) == rng_key(before)
    for name in added:
        later["method"]["config"] = {"share": 0.16, "w": 0.4, **added, name: 1.0}
        assert rng_key(later) != rng_key(before)
