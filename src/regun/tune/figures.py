"""Pictures of finished searches: history, importance of the settings, forgetting against utility."""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regun.page.look import ACCENT, COLOURS, MUTED, UNIT, label_of, look
from regun.tune.outcome import Tuned

OTHER = COLOURS[1]


def history(found: Mapping[str, Tuned]) -> Figure:
    """The score of every trial and the best so far, a panel a method."""

    def draw(axes: Axes, tuned: Tuned) -> None:
        numbers, scores = [t.number for t in tuned.trials], [t.score for t in tuned.trials]
        best = [min(scores[: k + 1]) for k in range(len(scores))]
        axes.scatter(numbers, scores, s=14, color=MUTED, label="trial")
        axes.step(numbers, best, where="post", color=ACCENT, label="best so far")
        axes.axhline(tuned.default_score, color=OTHER, linewidth=1.0, linestyle="--", label="default")
        finite = [t.score for t in tuned.trials if not t.judged.diverged] or scores
        axes.set_ylim(0, 1.1 * max(*finite, 1.0))
        axes.set_xlabel("trial")

    return _panels(found, draw, "score (good: 0)")


def importance_bars(found: Mapping[str, Tuned]) -> Figure:
    """How much of the score's variation each setting explains, a panel a method."""

    def draw(axes: Axes, tuned: Tuned) -> None:
        shares = importance(tuned)
        axes.barh(list(shares), list(shares.values()), color=ACCENT)
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of variation")
        if not shares:
            axes.set_yticks([])

    return _panels(found, draw, "")


def front(found: Mapping[str, Tuned]) -> Figure:
    """Forgetting against utility, both to be small, with the trials no other beats joined."""

    def draw(axes: Axes, tuned: Tuned) -> None:
        kept = [t for t in tuned.trials if not t.judged.diverged] or list(tuned.trials)
        axes.scatter([t.judged.utility for t in kept], [t.judged.forgetting for t in kept], s=14, color=MUTED)
        line = [t for t in tuned.front if not t.judged.diverged]
        axes.plot([t.judged.utility for t in line], [t.judged.forgetting for t in line], "o-", ms=4, color=ACCENT)
        axes.plot(tuned.best.judged.utility, tuned.best.judged.forgetting, "*", ms=12, color=OTHER)
        axes.set_xlabel("utility lost")

    return _panels(found, draw, "not forgotten")


def importance(tuned: Tuned) -> dict[str, float]:
    """Each setting's share of the score's variation (functional ANOVA of a random forest); empty where untellable."""
    axes = sorted({name for t in tuned.trials for name in t.values})
    if len({t.score for t in tuned.trials}) < 2 or len(tuned.trials) < 4 or not axes:
        return {}
    if len(axes) == 1:
        return {axes[0]: 1.0}
    import optuna

    from regun.tune.storage import quiet

    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # experimental features say so
        study = optuna.create_study()
        kinds = {name: _distribution([t.values[name] for t in tuned.trials]) for name in axes}
        study.add_trials(
            [optuna.create_trial(params=dict(t.values), distributions=kinds, value=t.score) for t in tuned.trials]
        )
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(found[name]) for name in sorted(found, key=lambda n: found[n])}


def _distribution(values: list[Any]) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if all(isinstance(v, float) for v in values) and len(set(values)) > 5:
        return FloatDistribution(min(values), max(values), log=min(values) > 0 and max(values) > 100 * min(values))
    return CategoricalDistribution(sorted(set(values), key=str))


def _panels(found: Mapping[str, Tuned], draw: Callable[[Axes, Tuned], None], ylabel: str) -> Figure:
    columns = min(4, len(found))
    rows = math.ceil(len(found) / columns)
    with look():
        figure = Figure(figsize=(210 * columns * UNIT, 180 * rows * UNIT), layout="constrained")
        grid: Any = figure.subplots(rows, columns, squeeze=False)
        for place, (name, tuned) in enumerate(found.items()):
            axes: Axes = grid[place // columns][place % columns]
            draw(axes, tuned)
            axes.set_title(label_of(name), loc="left")
            if place % columns == 0:
                axes.set_ylabel(ylabel)
        for place in range(len(found), rows * columns):
            grid[place // columns][place % columns].set_axis_off()
    return figure
