"""regun: machine unlearning for trained classifiers, with evidence.

The public list, nothing else; names are imported when first used, so that `regun --help` stays quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regun.api import audit, relearn, unlearn
    from regun.errors import RegunError
    from regun.evaluate import Evaluation
    from regun.requests import Project, asked_of, forget
    from regun.runs.unlearning import Outcome
    from regun.show.card import model_card
    from regun.splits import Request, Splits, make_splits, reserve
    from regun.store import Store
    from regun.training.job import Budget, Job

_HOMES = {
    "unlearn": "api",
    "audit": "api",
    "relearn": "api",
    "Outcome": "runs.unlearning",
    "Evaluation": "evaluate",
    "Request": "splits",
    "Splits": "splits",
    "make_splits": "splits",
    "reserve": "splits",
    "Job": "training.job",
    "Budget": "training.job",
    "Project": "requests",
    "asked_of": "requests",
    "forget": "requests",
    "model_card": "show.card",
    "Store": "store",
    "RegunError": "errors",
}

__all__ = [
    "Budget",
    "Evaluation",
    "Job",
    "Outcome",
    "Project",
    "RegunError",
    "Request",
    "Splits",
    "Store",
    "asked_of",
    "audit",
    "forget",
    "make_splits",
    "model_card",
    "relearn",
    "reserve",
    "unlearn",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regun' has no attribute {name!r}")
    return getattr(importlib.import_module(f"regun.{_HOMES[name]}"), name)
