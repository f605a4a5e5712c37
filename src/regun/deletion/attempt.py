"""One run of a method on the current model; its result is stored, so that a killed request does not repeat it."""

import copy
import json
from collections.abc import Container
from dataclasses import replace
from typing import Any

from torch import nn

from regun.api import unlearn
from regun.arguments import InputOptions, RunOptions
from regun.artifacts import Contents, Store, state_digest, versions
from regun.auditing import UNSEEN
from regun.data.views import Selected
from regun.deletion.options import Callbacks, ConfiguredMethod
from regun.deletion.plan import Plan, describe_copies
from regun.deletion.rule import ALL
from regun.hashing import digest
from regun.prepared import Prepared
from regun.rng import derive, isolated
from regun.settings import to_json
from regun.training.job import Cost
from regun.unlearning import Outcome

NO_METHOD = "none"
"""The method of a request whose records the model never trained on."""


def run_method(method: ConfiguredMethod, current: nn.Module, plan: Plan, store: Store, callbacks: Callbacks) -> Outcome:
    """Run a method on a copy of the current model, or load what a killed run has stored."""
    table = plan.table.prepared if plan.table is not None and method.needs.uses_out_of_fold else None
    seed = derive(plan.base, plan.request, plan.number, plan.options.seed)

    def run(_: object) -> Contents:
        callbacks.on_stage(f"{method.spec.text} on the current model")
        outcome = _unlearn(method, current, plan, table, seed, callbacks)
        info = {
            "method": outcome.method,
            "config": outcome.config,
            "cost": vars(outcome.cost),
            "diverged": outcome.diverged,
            "notes": {str(name): _plain(value) for name, value in outcome.notes.items()},
            "warnings": [str(warning) for warning in outcome.warnings],
            "from_scratch": outcome.from_scratch,
        }
        return Contents({"weights": outcome.model.state_dict()}, info)

    inputs = {"attempt": _digest(method, current, plan, table, seed)}
    if store.has("model", store.key("model", inputs)):
        callbacks.on_stage(f"{method.spec.text} was run before, by a request that was killed")
    stored = store.make("model", inputs, run)
    model = copy.deepcopy(current)
    model.load_state_dict(stored.tensors("weights"))
    info: dict[str, Any] = json.loads(json.dumps(stored.info))
    info |= {"cost": Cost(**info["cost"]), "warnings": tuple(info["warnings"])}
    return Outcome(model=model, epochs=[], **info)


def unseen_sets(method: ConfiguredMethod, sets: Container[str]) -> list[str]:
    """Return the unseen sets to judge a method by: not the held-out one if it uses it, unless there is no other."""
    unseen = [name for name in UNSEEN if name in sets]
    return [name for name in unseen if name != "heldout" or not method.needs.uses_heldout] or unseen


def _unlearn(
    method: ConfiguredMethod, current: nn.Module, plan: Plan, table: Prepared | None, seed: int, callbacks: Callbacks
) -> Outcome:
    sets, opened, ids = plan.sets(), plan.opened, None
    if table is not None:  # it no longer has the records of earlier requests, which are forgotten already
        sets["forget"] = Selected(opened.sets["train"], plan.new)
        ids = {"forget": [opened.ids["train"][int(row)] for row in plan.new]}
    outcome = unlearn(
        current,
        forget=sets["forget"],
        retain=sets["retain"],
        heldout=sets.get("heldout"),
        val=sets.get("val"),
        method=method.spec.name if method.preset is None else f"{method.spec.name}@{method.preset}",
        settings=method.spec.settings,
        seed=seed,
        rebuild=opened.project.rebuild,
        recipe=opened.project.recipe,
        prepared=table,
        inputs=InputOptions(
            device=opened.device,
            num_classes=opened.sets["train"].num_classes,
            check_content=False,  # the plan has compared what has to be
            ids=ids,
        ),
        run=RunOptions(on_epoch=lambda epoch, _: callbacks.on_epoch(epoch)),
    )
    copies = plan.options.pseudonyms.of(plan.copies[ALL])
    warnings = [*plan.remarks, *outcome.warnings]
    if copies:
        warnings.insert(
            len(plan.remarks),
            f"{describe_copies(copies)}, and the model goes on learning from them. Make a request for these ids too, "
            "or remove them from train.",
        )
    return replace(outcome, warnings=tuple(warnings))


def _digest(method: ConfiguredMethod, current: nn.Module, plan: Plan, table: Prepared | None, seed: int) -> str:
    """Return one digest of all that decides a run; a digest, since the data's own digests must not be stored."""
    opened, project = plan.opened, plan.opened.project
    fresh = ""
    if project.rebuild is not None:
        with isolated(0):
            fresh = state_digest(project.rebuild(0).state_dict())
    kind = f"{type(current).__module__}.{type(current).__qualname__}"
    sets = {name: examples.digest for name, examples in plan.sets().items()}
    start = [kind, state_digest(current.state_dict()), fresh, sets, opened.sets["train"].num_classes]
    start += [table.digest] if table is not None else []
    recipe = None if project.recipe is None else to_json(project.recipe)
    run = [method.spec.text, method.preset, method.method.describe(method.config), recipe, seed]
    return digest([start, run, list(plan.remarks), plan.copies[ALL], str(opened.device), versions()])


def _plain(value: Any) -> Any:
    """Return a method's note as JSON, or the beginning of its text: no note may cost the work its receipt."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:200]
