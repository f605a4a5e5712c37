"""Out-of-sample models: models that never saw the forgotten records, to measure how hard each record is.

They are the project's retrained models or, without, a few short trainings on the retain set from fresh weights. What a
short one predicts is stored as soon as it is trained, so that a killed request does not lose it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from regun.artifacts import Made, Store, state_digest, versions
from regun.auditing import Predictions, SplitPredictions
from regun.data.examples import Indices
from regun.data.views import Joined
from regun.deletion.options import Callbacks
from regun.deletion.plan import Plan
from regun.errors import NotFiniteError
from regun.hashing import digest
from regun.methods import get_method
from regun.methods._fresh_weights import reset
from regun.predict import predict
from regun.rng import derive
from regun.settings import to_json
from regun.splits import Splits
from regun.training.job import Cost, Job, private_copy
from regun.training.recipes import Recipe
from regun.unlearning import unlearn_job

RETRAINED, SHORT, NONE = "retrained", "short", "none"
LogProbs = Mapping[str, Tensor]
"""The log-probability of each record's true label, by set."""


@dataclass(frozen=True)
class OutModels:
    """What out-of-sample models predict of the forgotten and the unseen records, their kind, how the short ones were
    trained and what that cost; `why` says why there are none."""

    kind: str = NONE
    predictions: tuple[SplitPredictions, ...] = ()
    log_probs: tuple[LogProbs, ...] = ()
    """Of short ones, as they are stored next to the receipt."""
    recipe: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cost: Cost = field(default_factory=Cost)
    why: str = "no out-of-sample models were needed"

    def to_json(self) -> dict[str, Any]:
        about = {"kind": self.kind, "models": len(self.predictions), "why": self.why}
        return {**about, "recipe": dict(self.recipe), "cost": vars(self.cost)}


def train_out_models(plan: Plan, store: Store, callbacks: Callbacks) -> OutModels:
    """Train short models on the retain set, or load those that a killed run has stored."""
    if not plan.out_models:
        return OutModels(why="no out-of-sample models were requested (out_models=0)")
    if plan.opened.why_no_fresh_model:
        return OutModels(why=f"no out-of-sample model can be trained: {plan.opened.why_no_fresh_model}")
    recipe, log_probs, cost = plan.opened.project.out_recipe, list[LogProbs](), Cost()
    for number in range(plan.out_models):

        def train(_: object, number: int = number) -> Made:
            which = f"out-of-sample model {number + 1} of {plan.out_models}"
            callbacks.on_stage(f"{which}: {recipe.epochs} epochs on the retain set, to judge by")
            return _train(plan, recipe, number, callbacks)

        stored = store.make("signals", {"out_model": _digest(plan, recipe, number)}, train)
        cost.add(**stored.info["cost"])
        if stored.info["stopped"]:
            why = f"the training of an out-of-sample model stopped: {stored.info['stopped']}"
            return OutModels(recipe=to_json(recipe), cost=cost, why=why)
        log_probs.append(stored.tensors("log_probs"))
    return short_models(log_probs, plan, recipe=to_json(recipe), cost=cost)


def short_models(log_probs: Sequence[LogProbs], plan: Plan, **about: Any) -> OutModels:
    """Return short models with these log-probabilities of the true labels; only their predictions are known."""
    sets, classes = plan.sets(), plan.opened.sets["train"].num_classes
    predictions = tuple(
        {name: _of_true_labels(values, sets[name].labels, classes) for name, values in one.items()} for one in log_probs
    )
    return OutModels(SHORT, predictions, tuple(log_probs), why="", **about)


def to_bytes(log_probs: Sequence[LogProbs]) -> bytes:
    """Return the content of out_models.safetensors: one tensor per model and set."""
    return safetensors.torch.save({f"{n}.{name}": v for n, one in enumerate(log_probs) for name, v in one.items()})


def from_bytes(content: bytes) -> list[LogProbs]:
    """Return what `to_bytes` was given."""
    models: dict[int, dict[str, Tensor]] = {}
    for key, values in safetensors.torch.load(content).items():
        number, _, name = key.partition(".")
        models.setdefault(int(number), {})[name] = values
    return [models[number] for number in sorted(models)]


def _train(plan: Plan, recipe: Recipe, number: int, callbacks: Callbacks) -> Made:
    opened, sets, method = plan.opened, plan.sets(), get_method("retrain")
    joined = Joined((sets["retain"], sets["forget"]))
    nothing: Indices = np.zeros(0, dtype=np.int64)
    splits = Splits(retain=joined.indices(0), forget=joined.indices(1), heldout=nothing, val=nothing, total=len(joined))
    job = Job(
        model=private_copy(opened.project.model, opened.device),
        examples=joined,
        splits=splits,
        seed=_seed(plan, number),
        device=opened.device,
        on_epoch=lambda epoch, _: callbacks.on_epoch(epoch),
        rebuild=opened.project.rebuild,
    )
    outcome = unlearn_job(job, method, method.configure(to_json(recipe)), guard=False)
    log_probs, stopped = dict[str, Tensor](), outcome.diverged or ""
    try:
        for name, examples in sets.items() if not stopped else ():
            if name != "retain":
                predictions = predict(outcome.model, examples, device=opened.device)
                log_probs[name] = torch.from_numpy(predictions.true_log_prob.copy())
    except NotFiniteError as fault:
        log_probs, stopped = {}, str(fault)
    return Made({"log_probs": log_probs}, {"cost": vars(outcome.cost), "stopped": stopped})


def _seed(plan: Plan, number: int) -> int:
    """Return a seed that follows from the request alone: a second try is judged by the same out-of-sample models."""
    return derive(plan.base, plan.request, "out model", number)


def _digest(plan: Plan, recipe: Recipe, number: int) -> str:
    """Return one digest of all that decides a model; a digest, since the data's own digests must not be stored."""
    project, seed, device = plan.opened.project, _seed(plan, number), str(plan.opened.device)
    fresh = project.rebuild(seed) if project.rebuild is not None else reset(project.model, seed)
    sets = {name: some.digest for name, some in plan.sets().items()}
    kind = f"{type(project.model).__module__}.{type(project.model).__qualname__}"
    return digest([sets, to_json(recipe), seed, kind, state_digest(fresh.state_dict()), device, versions()])


def _of_true_labels(values: Tensor, labels: Indices, classes: int) -> Predictions:
    """Return predictions with these log-probabilities of the labels; the rest goes to the other classes equally."""
    log_prob = values.numpy()
    with np.errstate(divide="ignore"):
        rest = np.log(-np.expm1(log_prob)) - np.log(classes - 1)
    rows = np.arange(len(labels))
    whole = np.repeat(rest[:, None], classes, axis=1)
    whole[rows, labels] = log_prob
    return Predictions(whole, labels, rows)
