"""What a search may choose from."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expect import error
from regun.errors import SettingsError
from regun.experiments.search import Space
from regun.methods import Choice, Range, get_method, method_names

METHODS = [name for name in method_names() if name != "retrain"]


def space_of(name: str, family: str = "resnet", **values) -> Space:
    method = get_method(name)
    return Space.of(method, method.configure(values), family)


@pytest.mark.parametrize("family", ["resnet", "swin"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_offers_its_own_ranges_and_starts_inside_them(name: str, family: str) -> None:
    method = get_method(name)
    preset = family if family in method.presets else None
    space = Space.of(method, method.configure({}, preset), family)
    assert list(space.axes) == list(method.search[family])
    for axis_name, axis in space.axes.items():
        published = method.search[family][axis_name]
        assert type(axis) is type(published)
        start = space.start[axis_name]
        assert start in axis.values if isinstance(axis, Choice) else axis.low <= start <= axis.high


def test_the_papers_ranges() -> None:
    assert space_of("regun").axes == {"lr": Choice((0.1, 0.05, 0.01, 0.005)), "w": Range(0.1, 0.9)}
    assert space_of("l1_sparse").axes["gamma"] == Range(5e-6, 5e-3, log=True)
    assert space_of("ssd").axes == {}
    assert space_of("ssd", "swin").axes == {"alpha": Range(1, 10), "dampening": Range(0.7, 1.0)}


def test_a_start_outside_widens_the_space_and_nothing_else() -> None:
    assert space_of("regun", lr=0.02).axes["lr"] == Choice((0.1, 0.05, 0.01, 0.005, 0.02))
    assert space_of("regun", w=0.97).axes["w"] == Range(0.1, 0.97)
    assert space_of("l1_sparse", gamma=1e-7).axes["gamma"] == Range(1e-7, 5e-3, log=True)


def test_what_is_given_is_not_searched() -> None:
    method = get_method("regun")
    assert list(Space.of(method, method.configure({"lr": 0.2}), "resnet", ["lr"]).axes) == ["w"]
    assert Space.of(method, method.configure({}), "resnet", ["lr", "w"]).size == 1


def test_a_start_that_has_no_place_in_a_range_is_refused() -> None:
    with error(SettingsError, "l1_sparse.gamma", 5e-06, 0.005, 0):
        space_of("l1_sparse", gamma=0)


def test_finite_spaces_are_counted_and_listed_once_each() -> None:
    space = space_of("amun")
    assert space.size == 16
    listed = space.combinations(3)
    assert listed[0] == dict(space.start)
    assert len({tuple(v.items()) for v in listed}) == len(listed) == 16
    assert space.combinations(3) == listed
    assert sorted(map(str, space.combinations(4))) == sorted(map(str, listed))
    assert space.combinations(4) != listed
    assert space_of("regun").size is None


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=2, max_size=2))
def test_every_point_is_inside_and_rounding_keeps_it_there(unit: list[float]) -> None:
    for name in ("regun", "l1_sparse", "neggrad_plus"):
        space = space_of(name)
        for values in (space.point(unit), space.rounded(space.point(unit))):
            for key, value in values.items():
                axis = space.axes[key]
                if isinstance(axis, Choice):
                    assert value in axis.values
                else:
                    assert (
                        axis.low <= value <= axis.high
                        or math.isclose(value, axis.low)
                        or math.isclose(value, axis.high)
                    )
        again = space.rounded(space.rounded(space.point(unit)))
        assert again == space.rounded(space.point(unit))


def test_ranges_are_even_on_their_own_scale() -> None:
    linear, log = Space({"x": Range(1, 3)}, {"x": 1}), Space({"x": Range(1e-4, 1e-2, log=True)}, {"x": 1e-3})
    assert linear.point([0.5]) == {"x": 2}
    np.testing.assert_allclose(log.point([0.5])["x"], 1e-3)
    assert Space({"x": Choice(("a", "b"))}, {"x": "a"}).point([0.49]) == {"x": "a"}


def test_the_start_is_not_rounded() -> None:
    space = space_of("regun", w=0.123456789)
    assert space.rounded(space.start)["w"] == 0.123456789
    assert space.rounded({"lr": 0.1, "w": 0.123456789})["w"] == 0.1235
