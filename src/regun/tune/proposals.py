"""Which settings the next trial tries.

Trial k is a function of the seed, of k and of the trials finished before it: nothing is remembered between trials, so
a search that was killed goes on as if it had not been. Trial 0 is the start. A finite space is walked through in a
drawn order, without repeats. In a space with ranges the next few trials spread out evenly (a Halton sequence), and from
then on a tree-structured Parzen estimator proposes.
"""

import os
import socket
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from scipy.stats import qmc

from regun.methods import Choice, Range
from regun.seeds import derive
from regun.tune.space import Space, Values

SPREAD = 6
"""Trials, the start included, before the model-based proposals begin."""
LIVE = (TrialState.RUNNING, TrialState.COMPLETE)

Inner = Callable[[int], BaseSampler]


def tpe(seed: int) -> BaseSampler:
    """The estimator over all axes jointly; running trials count as bad ones, so that two workers do not meet."""
    return TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=1)


class Proposals(BaseSampler):
    """Proposes settings, and marks each trial with its place in the search and who runs it."""

    def __init__(
        self, space: Space, seed: int, storage: BaseStorage, study: str, inner: Inner = tpe, spread: int = SPREAD
    ) -> None:
        self.space, self.seed, self.storage, self.study = space, seed, storage, study
        self.inner, self.spread = inner, spread
        self.distributions = distributions(space)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        place = next_place(study.get_trials(deepcopy=False, states=LIVE), trial.number)
        number = self.storage.get_trial_id_from_study_id_trial_number(
            self.storage.get_study_id_from_name(self.study), trial.number
        )
        self.storage.set_trial_user_attr(number, "owner", owner())
        self.storage.set_trial_user_attr(number, "place", place)
        if place == 0:
            return dict(self.space.start)
        if self.space.size is not None:
            combinations = self.space.combinations(self.seed)
            return combinations[min(place, len(combinations) - 1)]
        modelled = self._modelled(study, trial, place) if place >= self.spread else {}
        return modelled or self.space.point(self._spread(place))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Never asked for: `sample_relative` gives every axis a value."""
        return self.space.start[param_name]

    def _spread(self, place: int) -> Sequence[float]:
        """The point of the unit cube at this place of a scrambled Halton sequence."""
        halton = qmc.Halton(len(self.space.axes), rng=derive(self.seed, "spread") % 2**32)
        return [float(u) for u in halton.fast_forward(place).random(1)[0]]

    def _modelled(self, study: Study, trial: FrozenTrial, place: int) -> Values:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # remarks on experimental options
            inner = self.inner(derive(self.seed, "trial", place) % 2**32)
            drawn = inner.sample_relative(study, trial, {n: d for n, d in self.distributions.items() if not d.single()})
        return {**self.space.start, **drawn} if drawn else {}


def next_place(live: Sequence[FrozenTrial], number: int) -> int:
    """The first place of the search that no other live trial holds.

    A trial of a lower number that has not marked its place yet will take the first one that is free to it.
    """
    taken = {int(t.user_attrs["place"]) for t in live if t.number != number and "place" in t.user_attrs}
    for _ in (t for t in live if t.number < number and "place" not in t.user_attrs):
        taken.add(_first_free(taken))
    return _first_free(taken)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """The space in Optuna's terms."""
    return {name: _distribution(axis) for name, axis in space.axes.items()}


def _distribution(axis: Choice | Range) -> BaseDistribution:
    if isinstance(axis, Choice):
        return CategoricalDistribution(axis.values)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def owner() -> Mapping[str, Any]:
    """This process, as others can find out whether it is still there."""
    namespace = Path("/proc/self/ns/pid")  # two containers may share a host's name, but not their process numbers
    try:
        home = f"{socket.gethostname()} {namespace.readlink()}"
    except OSError:
        home = socket.gethostname()
    return {"host": home, "process": os.getpid()}


def _first_free(taken: set[int]) -> int:
    return next(k for k in range(len(taken) + 1) if k not in taken)
