"""A forget step before every few retain steps, as a stream."""

from collections.abc import Iterator, Mapping

from regun.data.examples import Batch
from regun.training.job import Job
from regun.training.streams import Stream, one_pass


def interleaved(job: Job, forget_batch: int, retain_batch: int, every: int) -> Stream:
    """An epoch is a pass over the retain set, in steps of one part each: F R..R F R..R, an F before `every` R.

    The forget set is gone through pass after pass, and on across epochs.
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
