"""Batches: every pass sees everything once, streams are pure functions of seed and number, epochs end where they say."""

import numpy as np
import pytest

from expect import error
from regun.errors import RegunError
from regun.training.streams import chained, one_pass, paired
from toys import blobs, job_for, mlp


def taken(stream, part, epoch, start=0):
    return [b[part].indices.numpy() for b in stream.run(epoch, start)]


def test_a_pass_sees_every_example_once_in_a_new_order() -> None:
    job = job_for(mlp(), blobs())
    stream = one_pass(job, "retain", job.indices("retain"), 16)
    first, second = (np.concatenate(taken(stream, "retain", e)) for e in (0, 1))
    assert np.array_equal(np.sort(first), job.indices("retain"))
    assert np.array_equal(np.sort(second), job.indices("retain"))
    assert not np.array_equal(first, second)


def test_a_stream_can_start_anywhere() -> None:
    job = job_for(mlp(), blobs())
    stream = paired(job, 5, 7)
    whole = taken(stream, "retain", 2)
    for start in range(len(whole)):
        rest = taken(stream, "retain", 2, start)
        assert all(np.array_equal(a, b) for a, b in zip(whole[start:], rest, strict=True))


@pytest.mark.parametrize(("epoch", "steps"), [("forget", 5), ("retain", 13), ("shorter", 5)])
def test_what_ends_a_paired_epoch(epoch: str, steps: int) -> None:
    job = job_for(mlp(), blobs())  # 22 forget, 75 retain
    assert (len(job.indices("forget")), len(job.indices("retain"))) == (22, 75)
    stream = paired(job, 5, 6, epoch=epoch)
    assert stream.steps(0) == steps
    assert len(taken(stream, "forget", 0)) == steps


def test_the_retain_source_goes_on_across_epochs_without_repeating_a_pass() -> None:
    job = job_for(mlp(), blobs())
    stream = paired(job, 5, 6)
    seen = np.concatenate([np.concatenate(taken(stream, "retain", e)) for e in range(3)])
    assert np.array_equal(np.sort(seen[:75]), job.indices("retain"))


@pytest.mark.parametrize("part", ["forget", "retain"])
def test_one_pass_and_paired_give_the_same_batches(part: str) -> None:
    """The name of the part is the name of its seed."""
    job = job_for(mlp(), blobs())
    alone = taken(one_pass(job, part, job.indices(part), 5), part, 0)
    together = taken(paired(job, 5, 5), part, 0)
    assert all(np.array_equal(a, b) for a, b in zip(together, alone, strict=False))


def test_no_batch_of_one_is_left_over() -> None:
    job = job_for(mlp(), blobs())
    sizes = [len(b) for b in taken(one_pass(job, "retain", job.indices("retain")[:33], 16), "retain", 0)]
    assert sizes == [16, 15, 2]


@pytest.mark.parametrize(("forget", "retain"), [(5, 6), (7, 8), (21, 74), (22, 16), (100, 2), (3, 1)])
@pytest.mark.parametrize("epoch", ["forget", "retain", "shorter"])
def test_the_samples_of_an_epoch_are_those_that_its_batches_hold(forget: int, retain: int, epoch: str) -> None:
    job = job_for(mlp(), blobs())  # 22 forget, 75 retain: last batches of one, of two, of all
    stream = paired(job, forget, retain, epoch=epoch)
    for number in range(4):
        held = sum(len(part) for parts in stream.run(number, 0) for part in parts.values())
        assert stream.samples(number) == held


def test_the_papers_number_of_steps() -> None:
    examples = blobs(n=50)
    job = job_for(mlp(), examples)
    sizes = {
        450: 4,
        4_500: 36,
        22_500: 176,
        40_050: 313,
        36_000: 282,
        18_000: 141,
        40_500: 317,
        80_100: 626,
        45_000: 352,
    }
    for size, steps in sizes.items():
        assert one_pass(job, "retain", np.arange(size), 128).steps(0) == steps


def test_bad_streams_are_refused() -> None:
    job = job_for(mlp(), blobs())
    with error(RegunError, "empty"):
        one_pass(job, "retain", np.array([], dtype=np.int64), 4)
    with error(RegunError, "0"):
        one_pass(job, "retain", job.indices("retain"), 0)
    with error(RegunError, "forget", "retain", "shorter", "both"):
        paired(job, 4, 4, epoch="both")
    with error(RegunError, "val", "retain", "forget", "heldout", "base"):
        job.indices("val")


def test_chained_streams_come_one_after_the_other_from_any_step_on() -> None:
    job = job_for(mlp(), blobs())  # 22 forget, 75 retain
    forget, retain = (one_pass(job, part, job.indices(part), 10) for part in ("forget", "retain"))
    stream = chained(lambda epoch: [(forget, epoch), (retain, 3 * epoch)] if epoch < 2 else [(retain, epoch)])
    for epoch, (steps, samples) in enumerate([(11, 97), (11, 97), (8, 75)]):
        assert (stream.steps(epoch), stream.samples(epoch)) == (steps, samples)
        expected = [*forget.run(epoch, 0), *retain.run(3 * epoch, 0)] if epoch < 2 else [*retain.run(epoch, 0)]
        for start in range(steps + 1):
            found = list(stream.run(epoch, start))
            assert [list(parts) for parts in found] == [list(parts) for parts in expected[start:]]
            for parts, wanted in zip(found, expected[start:], strict=True):
                assert all(np.array_equal(parts[name].indices, wanted[name].indices) for name in wanted)


def test_each_pass_is_augmented_by_a_seed_of_its_own_wherever_it_starts() -> None:
    seeds: list[tuple[int, int]] = []

    class Recording(type(blobs())):
        def stream(self, plan, *, augment=False, seed=0, first=0, device="cpu"):
            assert augment
            seeds.append((seed, first))
            return super().stream(plan, augment=augment, seed=seed, first=first, device=device)

    examples = Recording(blobs().x, blobs().labels, 3)
    stream = one_pass(job_for(mlp(), examples), "retain", np.arange(40), 10)
    for epoch, start in [(0, 0), (1, 0), (2, 0), (1, 3)]:
        list(stream.run(epoch, start))
    assert len({seed for seed, _ in seeds[:3]}) == 3
    assert [first for _, first in seeds] == [0, 0, 0, 3]
    assert seeds[3][0] == seeds[1][0]
