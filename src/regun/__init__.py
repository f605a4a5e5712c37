"""regun: machine unlearning for trained classifiers, with evidence.

The public list and the rooms, nothing else; they are imported when first used, so that `regun --help` stays quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regun import data as data
    from regun import errors as errors
    from regun import evaluate as evaluate
    from regun import methods as methods
    from regun import models as models
    from regun import requests as requests
    from regun import settings as settings
    from regun import study as study
    from regun import training as training
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

_ROOMS = {
    # room: what is imported for `regun.room.name` to be there
    "data": "data",
    "errors": "errors",
    "evaluate": "evaluate",
    "methods": "methods",
    "models": "models",
    "requests": "requests",
    "settings": "settings",
    "study": "study",
    "training": "training.fit",
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
    home = name if name in _ROOMS else _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'regun' has no attribute {name!r}")
    room = home.partition(".")[0]
    importlib.import_module(f"regun.{_ROOMS.get(room, room)}")
    module = importlib.import_module(f"regun.{home}")
    return module if name in _ROOMS else getattr(module, name)
