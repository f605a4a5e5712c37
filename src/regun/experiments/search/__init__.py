"""The search for a method's settings, with a retrained model at hand or without."""

from regun.experiments.search.in_memory import search_job, tune
from regun.experiments.search.objectives import OBJECTIVES, check_objective
from regun.experiments.search.proposals import need_optuna
from regun.experiments.search.space import Space, searchable
from regun.experiments.search.stored import Search, search
from regun.experiments.search.trials import SearchResult, Trial

__all__ = [
    "OBJECTIVES",
    "Search",
    "SearchResult",
    "Space",
    "Trial",
    "check_objective",
    "need_optuna",
    "search",
    "search_job",
    "searchable",
    "tune",
]
