"""The only file that uses Optuna: proposals by its estimator, and the importance of settings."""

import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, TPESampler

from regun.experiments.search.space import Space, Values
from regun.experiments.search.trials import SearchResult, Trial
from regun.methods import Choice


def proposed(
    space: Space, done: Sequence[Trial], seed: int, sampler: Callable[[int], BaseSampler] | None = None
) -> Values:
    """Return the proposal of a fresh sampler (by default a multivariate Parzen estimator) after these trials."""
    chosen = sampler(seed) if sampler else TPESampler(seed=seed, multivariate=True, n_startup_trials=1)
    kinds: dict[str, BaseDistribution] = {}
    for name, axis in space.axes.items():
        if isinstance(axis, Choice):
            kinds[name] = CategoricalDistribution(axis.values)
        else:
            kinds[name] = FloatDistribution(axis.low, axis.high, log=axis.log)
    with _quiet():
        return _study(done, kinds, chosen).ask(kinds).params


def importance(tuned: SearchResult) -> dict[str, float]:
    """Return each setting's share of the score's variation (functional ANOVA of a random forest); empty if unknown."""
    trials = tuned.trials
    axes = sorted({name for t in trials for name in t.values})
    if len({t.score for t in trials}) < 2 or len(trials) < 4 or not axes:
        return {}
    if len(axes) == 1:
        return {axes[0]: 1.0}
    kinds: dict[str, BaseDistribution] = {}
    for name in axes:  # distributions that the values could come from
        values = [trial.values[name] for trial in trials]
        if all(isinstance(v, float) for v in values) and len(set(values)) > 5:
            low, high = min(values), max(values)
            kinds[name] = FloatDistribution(low, high, log=low > 0 and high > 100 * low)
        else:
            kinds[name] = CategoricalDistribution(sorted(set(values), key=str))
    with _quiet():
        study = _study(trials, kinds)
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(shares[name]) for name in sorted(shares, key=lambda n: shares[n])}


def _study(
    trials: Sequence[Trial], kinds: Mapping[str, BaseDistribution], sampler: BaseSampler | None = None
) -> optuna.Study:
    """Return the trials as an Optuna study in memory."""
    study = optuna.create_study(sampler=sampler)
    for trial in trials:
        study.add_trial(optuna.create_trial(params=dict(trial.values), distributions=dict(kinds), value=trial.score))
    return study


@contextmanager
def _quiet() -> Generator[None]:
    """Silence Optuna, which logs to standard error and warns of experimental features."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)
