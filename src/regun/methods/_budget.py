"""Jobs of a method that runs several training loops: each loop's share of the budget, and who observes its epochs."""

from dataclasses import replace

from torch import nn

from regun.methods._contract import Work
from regun.training.job import Budget, Epoch, Job


def first_part(job: Job, first: Work, second: Work) -> Job:
    """Return the job of the first of two loops: its share of a budget, without an observer that chooses epochs.

    Budgets are shared in proportion to planned work, at least 1 each. Costs add up, so the second loop may simply run
    up to the whole budget.
    """
    if job.budget is None:
        return unobserved(job)
    if job.budget.steps is not None:
        spent, left, ours, theirs = job.cost.steps, job.budget.steps - job.cost.steps, first.steps, second.steps
    else:
        spent, left = job.cost.backward, (job.budget.samples or 0) - job.cost.backward
        ours, theirs = first.samples, second.samples
    share = round(left * ours / max(1, ours + theirs))
    until = spent + max(1, min(share, left - 1 if theirs else left))
    budget = Budget(steps=until) if job.budget.steps is not None else Budget(samples=until)
    return replace(job, budget=budget, on_epoch=_ignore)


def unobserved(job: Job) -> Job:
    """Return the job for training another model than the unlearned one: without observer and without budget."""
    return replace(job, budget=None, on_epoch=_ignore)


def _ignore(epoch: Epoch, model: nn.Module) -> None:
    """Observe nothing."""
