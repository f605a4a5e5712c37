"""The search for a method's settings, with a retrained model at hand or without."""

from regun.tune.in_memory import search_job
from regun.tune.objectives import OBJECTIVES, check_objective
from regun.tune.outcome import Tried, Tuned
from regun.tune.proposals import need_optuna
from regun.tune.space import Space, searchable
from regun.tune.stored import Search, search

__all__ = [
    "OBJECTIVES",
    "Search",
    "Space",
    "Tried",
    "Tuned",
    "check_objective",
    "need_optuna",
    "search",
    "search_job",
    "searchable",
]
