"""Out models: models that never saw the forgotten records, to say how hard each of these is for such a model.

Retrained ones where the project gives them; otherwise a few short trainings on the retain set, from fresh weights. What
they said is kept as soon as one is made, so that a killed request does not lose it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import nn

from regun.artifacts import state_digest, versions
from regun.auditing import Predictions, SplitPredictions
from regun.auditing.predictions import FloatArray
from regun.data.views import Joined
from regun.deletion.folder import Folder
from regun.deletion.options import Listener
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
from regun.types import Indices
from regun.unlearning import unlearn_job

RETRAINED, SHORT, NONE = "retrained", "short", "none"


@dataclass(frozen=True)
class OutModels:
    """What out models said of the forgotten and the unseen records, of which kind they are, how the short ones were
    trained and what that cost; `why` says why there are none."""

    kind: str
    said: tuple[SplitPredictions, ...] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cost: Cost = field(default_factory=Cost)
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        kept = {"kind": self.kind, "models": len(self.said), "why": self.why}
        return {**kept, "recipe": dict(self.recipe), "cost": vars(self.cost)}


def train_out_models(plan: Plan, folder: Folder, listener: Listener) -> OutModels:
    """Short trainings on the retain set, made now or by a run that was killed since."""
    if not plan.out_models:
        return OutModels(NONE, why="no models that never saw the records were asked for (out_models=0)")
    fault = plan.case.why_no_fresh_model
    if fault:
        return OutModels(NONE, why=f"no model that never saw the records can be made: {fault}")
    recipe = plan.case.project.out_recipe(len(plan.retain))
    made = OutModels(SHORT, recipe=to_json(recipe))
    for number in range(plan.out_models):
        key = _key(plan, recipe, number)
        content = folder.kept(plan.number, key)
        if content is None:
            which = f"out model {number + 1} of {plan.out_models}"
            listener.stage(f"{which}: {recipe.epochs} epochs on the retain set, for the judging")
            content = _train(plan, recipe, number, listener)
            folder.keep(plan.number, key, content)
        said, about = unpacked(content, plan)
        made.cost.add(**about["cost"])
        if about["stopped"]:
            why = f"the training of a model without the records stopped: {about['stopped']}"
            return replace(made, kind=NONE, said=(), why=why)
        made = replace(made, said=(*made.said, *said))
    return made


def _train(plan: Plan, recipe: Recipe, number: int, listener: Listener) -> bytes:
    """An out model is a short retraining; what looks odd of one is nobody's concern, so there is no guard."""
    case, sets, method = plan.case, plan.sets(), get_method("retrain")
    joined = Joined((sets["retain"], sets["forget"]))
    nothing: Indices = np.zeros(0, dtype=np.int64)
    splits = Splits(retain=joined.indices(0), forget=joined.indices(1), heldout=nothing, val=nothing, total=len(joined))
    job = Job(
        model=private_copy(case.project.model, case.device),
        examples=joined,
        splits=splits,
        seed=_seed(plan, number),
        device=case.device,
        on_epoch=lambda epoch, _: listener.epoch(epoch),
        rebuild=case.project.rebuild,
    )
    outcome = unlearn_job(job, method, method.configure(to_json(recipe)), guard=False)
    said, stopped = dict[str, Predictions](), outcome.diverged or ""
    try:
        said = {} if stopped else _asked(outcome.model, plan)
    except NotFiniteError as fault:
        stopped = str(fault)
    return packed([said], {"cost": vars(outcome.cost), "stopped": stopped})


def _asked(model: nn.Module, plan: Plan) -> dict[str, Predictions]:
    """What an out model says of the forgotten and the unseen records."""
    sets = {name: some for name, some in plan.sets().items() if name != "retain"}
    return {name: predict(model, some, device=plan.case.device) for name, some in sets.items()}


def _seed(plan: Plan, number: int) -> int:
    """Of the request alone: who tries again is judged by the same out models."""
    return derive(plan.base, plan.request, "out model", number)


def _key(plan: Plan, recipe: Recipe, number: int) -> str:
    """What decides an out model: data, recipe, seed, the model's kind and the weights it starts from, versions."""
    project, seed, device = plan.case.project, _seed(plan, number), str(plan.case.device)
    fresh = project.rebuild(seed) if project.rebuild is not None else reset(project.model, seed)
    sets = {name: some.digest for name, some in plan.sets().items()}
    kind = f"{type(project.model).__module__}.{type(project.model).__qualname__}"
    return digest([sets, to_json(recipe), seed, kind, state_digest(fresh.state_dict()), device, versions()])


# ------------------------------------------------------------------------------------------- what they said, as a file


def packed(outs: Sequence[SplitPredictions], about: Mapping[str, Any] | None = None) -> bytes:
    """A file of what out models said: their confidence in the true labels as log p, set by set."""
    tensors = {
        f"{number}.{name}": torch.from_numpy(signals.true_log_prob.copy())
        for number, said in enumerate(outs)
        for name, signals in said.items()
    }
    return safetensors.torch.save(tensors, {"about": json.dumps(dict(about or {}))})


def unpacked(content: bytes, plan: Plan) -> tuple[list[SplitPredictions], dict[str, Any]]:
    """What `packed` was given; of answers to other labels than the true ones, only their sum is known."""
    head = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    examples, classes = plan.sets(), plan.case.sets["train"].num_classes
    found: dict[int, dict[str, Predictions]] = {}
    for text, log_prob in safetensors.torch.load(content).items():
        number, _, name = text.partition(".")
        signals = _of_true_labels(log_prob.numpy(), examples[name].labels, classes)
        found.setdefault(int(number), {})[name] = signals
    return [found[number] for number in sorted(found)], json.loads(head["__metadata__"]["about"])


def _of_true_labels(log_prob: FloatArray, labels: Indices, classes: int) -> Predictions:
    """Signals with these confidences in the labels; what is left goes to the other classes in equal parts."""
    with np.errstate(divide="ignore"):
        rest = np.log(-np.expm1(log_prob)) - np.log(classes - 1)
    rows = np.arange(len(labels))
    whole = np.repeat(rest[:, None], classes, axis=1)
    whole[rows, labels] = log_prob
    return Predictions(whole, labels, rows)
