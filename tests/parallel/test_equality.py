"""One, two and three processes compute the same: weights of every method, predictions, resumed runs."""

import socket
from pathlib import Path

import pytest
import torch
from cases import (
    METHODS,
    Kept,
    forward_passes,
    predictions,
    prepared_tables,
    quick_part,
    resumed,
    run_methods,
    snapshot_of_training,
    train,
)
from group import in_processes
from torch import Tensor

import regun
from regun.methods import method_names
from regun.parallel.local import connect

TOLERANCE = 1e-5


def assert_near(one: dict[str, Tensor], several: list[dict[str, Tensor]]) -> None:
    """All processes hold the same bits, and these are near those of one process."""
    for name, tensor in one.items():
        for each in several:
            assert torch.equal(each[name], several[0][name]), name
        assert several[0][name].shape == tensor.shape, name
        assert torch.allclose(several[0][name].double(), tensor.double(), rtol=0, atol=TOLERANCE), name


def part(results: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.partition("/")[2]: tensor for key, tensor in results.items() if key.partition("/")[0] == name}


@pytest.fixture(scope="module")
def two() -> list[dict[str, Tensor]]:
    """What two processes compute; they are started once for all tests of the default run."""
    return in_processes(2, quick_part)


def test_gradients_dropout_and_batchnorm_are_those_of_the_whole_batch(two: list[dict[str, Tensor]]) -> None:
    assert_near(forward_passes(), [part(each, "forward") for each in two])


def test_predictions_are_equal_bit_by_bit(two: list[dict[str, Tensor]]) -> None:
    one = predictions()
    for each in two:
        assert all(torch.equal(tensor, part(each, "predictions")[name]) for name, tensor in one.items())


def test_methods(two: list[dict[str, Tensor]]) -> None:
    several = [part(each, "methods") for each in two]
    assert_near(run_methods(list(dict.fromkeys(key.partition("/")[0] for key in several[0])), norm=True), several)


def test_a_run_of_two_processes_goes_on_in_one(two: list[dict[str, Tensor]]) -> None:
    snapshots = [part(each, "snapshot") for each in two]
    assert snapshots[0]
    assert not snapshots[1], "one process saves"
    assert_near(train(Kept()), [resumed(snapshots[0])])


def test_sums_and_stacks_over_processes(two: list[dict[str, Tensor]]) -> None:
    numbers = torch.arange(700_000, dtype=torch.float32)
    for each in (part(results, "exchanges") for results in two):
        assert bool(each["fast"]) == hasattr(socket, "AF_UNIX")
        for way in ("fast", "narrow", "gloo"):
            assert all(torch.equal(each[f"{way}/long/{turn}"], 3 * numbers) for turn in range(3))
            assert torch.equal(each[f"{way}/parts"], 3 * numbers)
            assert torch.equal(each[f"{way}/short/0"], 3 * numbers[:5])
            assert torch.equal(each[f"{way}/short/1"], 3 * numbers[:3].long())
            assert torch.equal(each[f"{way}/short/2"], 3 * torch.arange(24.0).view(1, 2, 3, 4))
            assert bool(each[f"{way}/layout"]), "sums have the memory layout of the weights"
            assert torch.equal(each[f"{way}/stack"], torch.stack([numbers[:4], numbers[:4] + 1]))


def test_processes_of_several_machines_exchange_by_gloo(tmp_path: Path) -> None:
    """The first process has another host, or a folder that this one cannot see."""
    for first in (["another host", str(tmp_path)], [socket.gethostname(), str(tmp_path / "absent")], ["", ""]):
        assert connect(1, 2, lambda _, first=first: first, lambda value: value) is None
    assert not list(tmp_path.iterdir())


def test_prepared_tables_are_equal_bit_by_bit(two: list[dict[str, Tensor]]) -> None:
    one = prepared_tables()
    for each in two:
        assert all(torch.equal(tensor, part(each, "tables")[name]) for name, tensor in one.items())


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_table_in_a_file_is_that_of_one_process(world: int, tmp_path: Path) -> None:
    """Also with more processes than folds; one of them writes, and what it wrote is what all return."""
    one = prepared_tables()
    several = in_processes(world, prepared_tables, str(tmp_path / "table.safetensors"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.safetensors"]
    table = regun.Prepared.load(tmp_path / "table.safetensors")
    assert torch.equal(torch.tensor(table.log_probs), one["recipe/log_probs"])
    assert table.about["cost"]["backward"] == int(one["recipe/cost"][2])
    for each in several:
        assert all(torch.equal(tensor, each[name]) for name, tensor in one.items())


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("world", [2, 3])
def test_a_run_goes_on_in_another_number_of_processes(world: int) -> None:
    assert_near(train(Kept()), in_processes(world, resumed, snapshot_of_training()))


def test_every_method_is_compared() -> None:
    assert {name.partition("-")[0].partition("@")[0] for name in METHODS} == set(method_names())


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batchnorm"])
@pytest.mark.parametrize("world", [2, 3])
def test_every_method(world: int, norm: bool) -> None:
    """Batches of 13 examples, the last of a pass smaller, are cut into parts of different size."""
    assert_near(run_methods(list(METHODS), norm), in_processes(world, run_methods, list(METHODS), norm))
