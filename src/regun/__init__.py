"""regun: machine unlearning for trained classifiers, with evidence.

Public names are imported when first used, so that `regun --help` stays quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regun import auditing as auditing
    from regun import data as data
    from regun import deletion as deletion
    from regun import errors as errors
    from regun import experiments as experiments
    from regun import methods as methods
    from regun import models as models
    from regun import parallel as parallel
    from regun import settings as settings
    from regun import training as training
    from regun.api import audit, relearn, unlearn
    from regun.arguments import InputOptions, RunOptions
    from regun.artifacts import Store
    from regun.auditing import Evaluation
    from regun.card import model_card
    from regun.crossfit import prepare
    from regun.deletion import DeletionRequest, Project, forget
    from regun.errors import RegunError
    from regun.experiments.search import tune
    from regun.experiments.study import run_study
    from regun.forget_spec import ForgetSpec
    from regun.own_loop import steps
    from regun.prepared import Prepared
    from regun.splits import Splits, make_splits, reserve
    from regun.training.job import Budget, Job
    from regun.training.recipe_sources import recipe_from_torch, recipe_from_training_arguments
    from regun.training.recipes import Recipe
    from regun.unlearning import Outcome

_MODULE_OF = {
    "unlearn": "api",
    "audit": "api",
    "relearn": "api",
    "steps": "own_loop",
    "prepare": "crossfit",
    "Prepared": "prepared",
    "tune": "experiments.search",
    "run_study": "experiments.study",
    "forget": "deletion",
    "InputOptions": "arguments",
    "RunOptions": "arguments",
    "Outcome": "unlearning",
    "Evaluation": "auditing",
    "model_card": "card",
    "Job": "training.job",
    "Recipe": "training.recipes",
    "recipe_from_torch": "training.recipe_sources",
    "recipe_from_training_arguments": "training.recipe_sources",
    "Budget": "training.job",
    "ForgetSpec": "forget_spec",
    "Splits": "splits",
    "make_splits": "splits",
    "reserve": "splits",
    "Project": "deletion",
    "DeletionRequest": "deletion",
    "Store": "artifacts",
    "RegunError": "errors",
}

_PACKAGES = {
    # package: the module that is imported with it, so that `regun.package.name` works
    "auditing": "auditing",
    "data": "data",
    "deletion": "deletion",
    "errors": "errors",
    "experiments": "experiments.study",
    "methods": "methods",
    "models": "models",
    "parallel": "parallel",
    "settings": "settings",
    "training": "training.fit",
}

__all__ = [
    "Budget",
    "DeletionRequest",
    "Evaluation",
    "ForgetSpec",
    "InputOptions",
    "Job",
    "Outcome",
    "Prepared",
    "Project",
    "Recipe",
    "RegunError",
    "RunOptions",
    "Splits",
    "Store",
    "audit",
    "forget",
    "make_splits",
    "model_card",
    "prepare",
    "recipe_from_torch",
    "recipe_from_training_arguments",
    "relearn",
    "reserve",
    "run_study",
    "steps",
    "tune",
    "unlearn",
]


def __getattr__(name: str) -> Any:
    home = name if name in _PACKAGES else _MODULE_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'regun' has no attribute {name!r}")
    package = home.partition(".")[0]
    importlib.import_module(f"regun.{_PACKAGES.get(package, package)}")
    module = importlib.import_module(f"regun.{home}")
    return module if name in _PACKAGES else getattr(module, name)
