"""What the parts of a method that runs several loops share: the budget, and who may look."""

from dataclasses import replace

from torch import nn

from regun.methods._contract import Work
from regun.training.job import Budget, Epoch, Job


def first_part(job: Job, first: Work, second: Work) -> Job:
    """The job of the first of two loops: its share of a budget, and nobody who watches epochs to choose from.

    Budgets are shared in proportion to planned work, at least 1 each. Costs add up, so the second loop may simply run
    up to the whole budget.
    """
    return replace(job, budget=_share(job, first, second), on_epoch=_unseen)


def _share(job: Job, first: Work, second: Work) -> Budget | None:
    if job.budget is None:
        return None
    if job.budget.steps is not None:
        spent, left, ours, theirs = job.cost.steps, job.budget.steps - job.cost.steps, first.steps, second.steps
    else:
        spent, left = job.cost.backward, (job.budget.samples or 0) - job.cost.backward
        ours, theirs = first.samples, second.samples
    share = round(left * ours / max(1, ours + theirs))
    until = spent + max(1, min(share, left - 1 if theirs else left))
    return Budget(steps=until) if job.budget.steps is not None else Budget(samples=until)


def _unseen(epoch: Epoch, model: nn.Module) -> None:
    """An observer that looks away."""
