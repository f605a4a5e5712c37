"""The search for a method's settings, with a retrained model at hand or without."""

from regun.tune.objectives import OBJECTIVES, check_objective
from regun.tune.outcome import Judged, Trial, Tuned, trials_csv
from regun.tune.space import Space, searchable
from regun.tune.tuning import Tuning, check_oracle, need_optuna, tune, tune_method

__all__ = [
    "OBJECTIVES",
    "Judged",
    "Space",
    "Trial",
    "Tuned",
    "Tuning",
    "check_objective",
    "check_oracle",
    "need_optuna",
    "searchable",
    "trials_csv",
    "tune",
    "tune_method",
]
