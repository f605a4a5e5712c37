"""Out-of-sample models of a request: models that never saw the forgotten records show how hard each record is.

They are the project's retrained models or, without, a few short trainings on the retain set. The store of the request
keeps what a short one predicts as soon as it is trained, so that a killed request does not lose it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch

from regun.artifacts import Store
from regun.artifacts.out_models import OutModel, out_model_predictions, predictions_from_true_log_prob
from regun.auditing import Predictions, SplitPredictions
from regun.deletion.options import Callbacks
from regun.deletion.plan import Plan
from regun.deletion.table import KEYS
from regun.rng import derive
from regun.settings import to_json
from regun.training.job import Callbacks as TrainingCallbacks
from regun.training.job import Cost
from regun.unlearning import Outcome

RETRAINED, SHORT, TABLE, NONE = "retrained", "short", "prepared", "none"


@dataclass(frozen=True)
class OutModels:
    """What out-of-sample models predict of the forgotten and the unseen records, their kind, how the short ones were
    trained and what that cost; `why` says why there are none."""

    kind: str = NONE
    predictions: tuple[SplitPredictions, ...] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cost: Cost = field(default_factory=Cost)
    why: str = "no out-of-sample models were needed"

    def to_json(self) -> dict[str, Any]:
        about = {"kind": self.kind, "models": len(self.predictions), "why": self.why}
        return {**about, "recipe": dict(self.recipe), "cost": vars(self.cost)}


def find_out_models(
    plan: Plan, retrained: Sequence[SplitPredictions], outcome: Outcome, store: Store, callbacks: Callbacks
) -> OutModels:
    """Return the out-of-sample models that the rule needs to judge an outcome.

    They are the project's retrained models, the prepared table, or short trainings. A model retrained from scratch
    needs none.
    """
    needed = plan.rule.needs_influence
    if retrained:
        return OutModels(RETRAINED, tuple(retrained), why="") if needed else OutModels()
    table = table_out_models(plan)
    if table is not None or not needed:
        return table or OutModels()
    if plan.table is not None:
        callbacks.on_note("the prepared table lacks records of earlier requests, so short models judge this one")
    if outcome.from_scratch or outcome.diverged is not None:
        return OutModels()
    return train_out_models(plan, store, callbacks)


def train_out_models(plan: Plan, store: Store, callbacks: Callbacks) -> OutModels:
    """Train short models on the retain set, or load those that a killed run has stored."""
    opened, project = plan.opened, plan.opened.project
    if not plan.out_models:
        return OutModels(why="no out-of-sample models were requested (out_models=0)")
    if opened.why_no_fresh_model:
        return OutModels(why=f"no out-of-sample model can be trained: {opened.why_no_fresh_model}")
    recipe, cost, predictions = project.out_recipe(len(plan.retain)), Cost(), list[SplitPredictions]()
    sets = {part: (data, np.arange(len(data.labels))) for part, data in plan.sets().items() if part != "retain"}
    watch = TrainingCallbacks(on_epoch=lambda epoch, _: callbacks.on_epoch(epoch))
    for number in range(plan.out_models):
        which = f"out-of-sample model {number + 1} of {plan.out_models}"
        callbacks.on_stage(f"{which}: {recipe.epochs} epochs on the retain set, to judge by")
        out = OutModel(
            model=project.model,
            examples=opened.sets["train"],
            retain=plan.retain,
            recipe=recipe,
            # the seed follows from the request alone: a second try is judged by the same models
            seed=derive(plan.base, plan.request, "out model", number),
            rebuild=project.rebuild,
        )
        result = out_model_predictions(out, sets, store, opened.device, watch=watch)
        cost.add(**vars(result.cost))
        if result.stopped:
            why = f"the training of an out-of-sample model stopped: {result.stopped}"
            return OutModels(recipe=to_json(recipe), cost=cost, why=why)
        predictions.append(result.predictions)
    return OutModels(SHORT, tuple(predictions), to_json(recipe), cost, why="")


def table_out_models(plan: Plan) -> OutModels | None:
    """Return what the prepared table predicts, one model per repeat; None if it lacks records of earlier requests."""
    table, classes = plan.table, plan.opened.sets["train"].num_classes
    if table is None:
        return None
    models: list[dict[str, Predictions]] = [{} for _ in table.prepared.log_probs]
    for part, examples in plan.sets().items():
        if part == "retain":
            continue
        values = table.true_log_probs(*plan.parts[part])
        if values is None:
            return None
        for model, log_probs in zip(models, values, strict=True):
            model[part] = predictions_from_true_log_prob(log_probs, examples.labels, classes)
    about = table.prepared.about
    return OutModels(TABLE, tuple(models), about["recipe"] or {}, Cost(**about["cost"]), why="")


def to_bytes(models: Sequence[SplitPredictions], keys: npt.NDArray[np.uint8] | None = None) -> bytes:
    """Return the content of out_models.safetensors: the log-probabilities of the true labels by model and set.

    With a prepared table also the `keys` of the forgotten records, by which later requests find them.
    """
    tensors = {
        f"{number}.{name}": torch.from_numpy(predictions.true_log_prob.copy())
        for number, sets in enumerate(models)
        for name, predictions in sets.items()
    }
    if keys is not None:
        tensors[KEYS] = torch.from_numpy(keys.copy())
    return safetensors.torch.save(tensors)


def from_bytes(content: bytes, plan: Plan) -> OutModels:
    """Return the models whose predictions `to_bytes` wrote."""
    sets, classes = plan.sets(), plan.opened.sets["train"].num_classes
    models: dict[int, dict[str, Predictions]] = {}
    for key, values in safetensors.torch.load(content).items():
        if key == KEYS:
            continue
        number, _, name = key.partition(".")
        predictions = predictions_from_true_log_prob(values.numpy(), sets[name].labels, classes)
        models.setdefault(int(number), {})[name] = predictions
    return OutModels(SHORT, tuple(models[number] for number in sorted(models)), why="")
