"""Which batches a step sees."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from regun.data.examples import Batch, Examples
from regun.errors import RegunError
from regun.rng import derive, generator
from regun.training.job import Job
from regun.types import Indices


@dataclass(frozen=True)
class Stream:
    """`run(epoch, start)` yields the parts of steps start, start+1, ... of an epoch of `steps(epoch)` steps.

    `samples(epoch)` counts the examples of an epoch; it plans budgets.
    """

    steps: Callable[[int], int]
    samples: Callable[[int], int]
    run: Callable[[int, int], Iterator[Mapping[str, Batch]]]


def one_pass(job: Job, part: str, indices: Indices, batch_size: int, *, augment: bool = True) -> Stream:
    """Return a stream whose epochs go once through `indices`, reshuffled; the last batch may be smaller."""
    source = _Endless(job.examples, indices, batch_size, derive(job.seed, part), augment)

    def run(epoch: int, start: int) -> Iterator[Mapping[str, Batch]]:
        first = epoch * source.per_pass
        for batch in source.batches(first + start, first + source.per_pass, job.device):
            yield {part: batch}

    return Stream(lambda _: source.per_pass, lambda _: len(indices), run)


def paired(
    job: Job,
    forget_batch: int,
    retain_batch: int,
    *,
    epoch: str = "forget",
    augment: bool = True,
    forget: Indices | None = None,
) -> Stream:
    """Return a stream of steps with a forget and a retain batch, each from its own endlessly reshuffled source.

    `epoch` says what ends an epoch: one pass over `forget`, over `retain`, or over the `shorter` of the two. The
    source that ends the epoch starts again with the next one; the other goes on where it was. `forget` names other
    examples than the forget set's to stand in for it.
    """
    forget = job.indices("forget") if forget is None else forget
    first = _Endless(job.examples, forget, forget_batch, derive(job.seed, "forget"), augment)
    second = _Endless(job.examples, job.indices("retain"), retain_batch, derive(job.seed, "retain"), augment)
    shorter = min(first.per_pass, second.per_pass)
    lengths = {"forget": first.per_pass, "retain": second.per_pass, "shorter": shorter}
    if epoch not in lengths:
        raise RegunError(f"an epoch of a paired stream ends with forget, retain or shorter; got {epoch!r}.")
    steps = lengths[epoch]

    def run(number: int, start: int) -> Iterator[Mapping[str, Batch]]:
        span = (number * steps + start, (number + 1) * steps, job.device)
        for forget_part, retain_part in zip(first.batches(*span), second.batches(*span), strict=True):
            yield {"forget": forget_part, "retain": retain_part}

    def samples(number: int) -> int:
        return sum(
            source.examples_before((number + 1) * steps) - source.examples_before(number * steps)
            for source in (first, second)
        )

    return Stream(lambda _: steps, samples, run)


def side_by_side(streams: Sequence[Stream]) -> Stream:
    """Return the steps of streams of equal length together, each step with the parts of all."""

    def run(epoch: int, start: int) -> Iterator[Mapping[str, Batch]]:
        for parts in zip(*(stream.run(epoch, start) for stream in streams), strict=True):
            yield {name: batch for part in parts for name, batch in part.items()}

    return Stream(streams[0].steps, lambda epoch: sum(stream.samples(epoch) for stream in streams), run)


def chained(plan: Callable[[int], Sequence[tuple[Stream, int]]]) -> Stream:
    """Return one stream after the other within an epoch: `plan(epoch)` lists them, each with its epoch number."""

    def run(epoch: int, start: int) -> Iterator[Mapping[str, Batch]]:
        for stream, number in plan(epoch):
            steps = stream.steps(number)
            yield from stream.run(number, min(start, steps))
            start = max(0, start - steps)

    return Stream(
        lambda epoch: sum(stream.steps(number) for stream, number in plan(epoch)),
        lambda epoch: sum(stream.samples(number) for stream, number in plan(epoch)),
        run,
    )


def interleaved(job: Job, forget_batch: int, retain_batch: int, every: int) -> Stream:
    """Steps of one part each, F R..R F R..R: a forget step before `every` retain steps.

    An epoch is one pass over the retain set. Passes over the forget set continue across epochs.
    """
    forget = one_pass(job, "forget", job.indices("forget"), forget_batch)
    retain = one_pass(job, "retain", job.indices("retain"), retain_batch)
    retains = retain.steps(0)
    forgets = -(-retains // every)
    per_pass = forget.steps(0)

    def forget_from(number: int) -> Iterator[Mapping[str, Batch]]:
        while True:
            yield from forget.run(number // per_pass, number % per_pass)
            number += per_pass - number % per_pass

    def run(epoch: int, start: int) -> Iterator[Mapping[str, Batch]]:
        done = -(-start // (every + 1))  # forget steps of this epoch before `start`
        forget_steps = forget_from(epoch * forgets + done)
        retain_steps = retain.run(epoch, start - done)
        for step in range(start, retains + forgets):
            yield next(retain_steps if step % (every + 1) else forget_steps)

    least = min(forget_batch, len(job.indices("forget")))
    return Stream(lambda _: retains + forgets, lambda _: len(job.indices("retain")) + forgets * least, run)


@dataclass(frozen=True)
class _Endless:
    """Pass after pass over `indices`, each shuffled by its own number; batch n belongs to pass n // per_pass."""

    examples: Examples
    indices: Indices
    batch_size: int
    seed: int
    augment: bool

    def __post_init__(self) -> None:
        if not len(self.indices):
            raise RegunError("a stream needs at least one example; the index set it was given is empty.")
        if self.batch_size < 1:
            raise RegunError(f"a batch holds at least one example; got a batch size of {self.batch_size}.")

    @property
    def per_pass(self) -> int:
        return -(-len(self.indices) // self.batch_size)

    @cached_property
    def cuts(self) -> list[int]:
        """Where a pass is cut into batches."""
        cuts = list(range(self.batch_size, len(self.indices), self.batch_size))
        if cuts and len(self.indices) - cuts[-1] == 1 and self.batch_size > 2:
            cuts[-1] -= 1  # BatchNorm cannot train on one example: the last batch takes a second from its neighbour
        return cuts

    def examples_before(self, batches: int) -> int:
        """Return how many examples the first so many batches hold."""
        passes, rest = divmod(batches, self.per_pass)
        return passes * len(self.indices) + (self.cuts[rest - 1] if rest else 0)

    def batches(self, first: int, last: int, device: torch.device) -> Iterator[Batch]:
        """Yield batches first..last-1, prefetched along the plan one pass at a time."""
        while first < last:
            number, start = divmod(first, self.per_pass)
            stop = min(self.per_pass, start + last - first)
            order = torch.randperm(len(self.indices), generator=generator(self.seed, "order", number)).numpy()
            plan = list(np.split(self.indices[order], self.cuts))[start:stop]
            seed = derive(self.seed, "inputs", number)
            yield from self.examples.stream(plan, augment=self.augment, seed=seed, first=start, device=device)
            first += stop - start


def in_rounds(stream: Stream, each: int) -> Stream:
    """Return the same batches with an epoch every `each` steps, whatever a pass over the forget set takes."""
    per_pass, samples = stream.steps(0), stream.samples(0)

    def run(epoch: int, start: int) -> Iterator[Mapping[str, Batch]]:
        place, end = epoch * each + start, (epoch + 1) * each
        while place < end:
            number, first = divmod(place, per_pass)
            for parts in stream.run(number, first):
                yield parts
                place += 1
                if place == end:
                    return

    return Stream(lambda _: each, lambda _: round(each * samples / per_pass), run)
