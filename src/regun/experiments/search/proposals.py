"""The settings of the next trial, and the loop over trials.

Trial k is a function of the seed, of k and of the trials before it. So a killed search continues as if nothing had
happened, and a short search is the beginning of a long one. Trial 0 is the start. A finite
space is walked through in a drawn order, without repeats. In a space with ranges the next few trials spread out evenly
(a Halton sequence), and from then on a tree-structured Parzen estimator proposes.
"""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from regun.errors import RegunError, not_installed
from regun.experiments.search.space import Space, Values
from regun.experiments.search.trials import Trial
from regun.rng import derive

SPREAD = 6
"""Trials, the start included, before the model-based proposals begin."""

Attempt = Callable[[int, Values], Trial]
"""Runs and scores the trial of this number with these settings."""


@dataclass(frozen=True, kw_only=True)
class Proposer:
    """Proposes settings from a space and a seed.

    `sampler` makes one of Optuna's samplers from a seed; None is the Parzen estimator.
    """

    space: Space
    seed: int = 0
    spread: int = SPREAD
    sampler: Callable[[int], Any] | None = None

    def propose(self, done: Sequence[Trial]) -> Values:
        """Return the settings to try after these trials."""
        number = len(done)
        if number == 0:
            return dict(self.space.start)
        if self.space.size is not None:
            return self.space.combinations(self.seed)[number]
        if number < self.spread:
            from scipy.stats import qmc  # slow to import

            halton = qmc.Halton(len(self.space.axes), rng=derive(self.seed, "spread") % 2**32)
            unit = [float(u) for u in halton.fast_forward(number).random(1)[0]]
            return self.space.rounded(self.space.point(unit))
        from regun.experiments.search.tpe import proposed  # an extra: only spaces with ranges need it

        seed = derive(self.seed, "trial", number) % 2**32
        return self.space.rounded(proposed(self.space, done, seed, self.sampler))


def run_trials(
    proposer: Proposer, trials: int, attempt: Attempt, on_trial: Callable[[Trial], None] | None = None
) -> tuple[Trial, ...]:
    """Run so many trials, or all combinations if there are fewer, one after the other."""
    if proposer.space.size is None:
        need_optuna()
    done: list[Trial] = []
    for number in range(proposer.space.at_most(trials)):
        done.append(attempt(number, proposer.propose(done)))
        if on_trial is not None:
            on_trial(done[-1])
    return tuple(done)


def need_optuna() -> None:
    """Raise unless Optuna is installed."""
    if importlib.util.find_spec("optuna") is None:
        raise RegunError(not_installed("a search", "Optuna", "tune"))
