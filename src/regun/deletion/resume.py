"""A method's run that outlives a stop: what it led to is kept while the models to judge it by are made."""

import copy
import json
from typing import Any

import safetensors.torch
from torch import nn

from regun.artifacts import state_digest, versions, weights_bytes
from regun.deletion.attempt import run_method, seed_of
from regun.deletion.folder import Folder
from regun.deletion.options import Chosen, Listener
from regun.deletion.plan import Plan
from regun.hashing import digest
from regun.rng import isolated
from regun.settings import read_json, to_json
from regun.training.job import Cost
from regun.unlearning import Outcome

TOLD = ("method", "config", "notes", "warnings")


def run_or_kept(how: Chosen, current: nn.Module, plan: Plan, folder: Folder, listener: Listener) -> Outcome:
    """Run a method on the current model, or take what a run that was stopped since has kept."""
    key = _key(how, current, plan)
    content = folder.kept(plan.number, key)
    if content is not None:
        listener.stage(f"{how.spec.text} was done before, by a run that was stopped")
        return _unpacked(content, current)
    listener.stage(f"{how.spec.text} on the current model")
    outcome = run_method(how, current, plan, listener)
    content = _packed(outcome) if plan.judging and not outcome.from_scratch and outcome.diverged is None else None
    if content is not None:
        folder.keep(plan.number, key, content)
    return outcome


def _key(how: Chosen, current: nn.Module, plan: Plan) -> str:
    """What decides a run: method and settings, the model, data, recipe, fresh weights, seed and versions."""
    project, case = plan.case.project, plan.case
    fresh = ""
    if project.rebuild is not None:
        with isolated(0):
            fresh = state_digest(project.rebuild(0).state_dict())
    sets = {name: some.digest for name, some in plan.sets().items()}
    kind = f"{type(current).__module__}.{type(current).__qualname__}"
    start = [kind, state_digest(current.state_dict()), fresh, sets, case.sets["train"].num_classes]
    recipe = None if project.recipe is None else to_json(project.recipe)
    made = [how.spec.text, how.preset, how.method.describe(how.config), recipe, seed_of(plan)]
    return digest(["unlearned", start, made, list(plan.remarks), plan.all_copies, str(case.device), versions()])


def _packed(outcome: Outcome) -> bytes | None:
    """A line about the run, then its weights; None if what a method has noted is no JSON."""
    about: dict[str, Any] = {name: getattr(outcome, name) for name in TOLD}
    try:
        head = json.dumps({**about, "cost": vars(outcome.cost)}, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return head.encode() + b"\n" + weights_bytes(outcome.model.state_dict())


def _unpacked(content: bytes, current: nn.Module) -> Outcome:
    head, _, weights = content.partition(b"\n")
    about: dict[str, Any] = read_json(head, "an unfinished run")
    model = copy.deepcopy(current)
    model.load_state_dict(safetensors.torch.load(weights))
    method, config, notes, warnings = (about[name] for name in TOLD)
    return Outcome(model, method, config, Cost(**about["cost"]), [], None, notes, warnings=tuple(warnings))
