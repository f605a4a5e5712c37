"""Out models: models that never saw the forgotten records, to say how hard each of these is for such a model.

Retrained ones where the project gives them; otherwise a few short trainings on the retain set, from fresh weights. What
they said is kept as soon as one is made, so that a killed request does not lose it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import nn

from regun.data.examples import Indices
from regun.data.views import Joined
from regun.errors import NotFiniteError, RegunError
from regun.evaluate import Signals, SplitSignals
from regun.evaluate.signals import FloatArray
from regun.methods import get_method
from regun.methods._fresh import reset
from regun.methods._teacher import TeacherSettings, teacher_recipe, teacher_work
from regun.requests.plan import RequestPlan
from regun.requests.private import Workplace
from regun.requests.project import Case, Project
from regun.runs.signals import signals_of
from regun.runs.unlearning import unlearn_job
from regun.seeds import derive, digest
from regun.settings import to_json
from regun.show.numbers import many
from regun.splits import Splits
from regun.store import state_digest, versions
from regun.training.job import Cost, Epoch, Job, private_copy
from regun.training.recipes import Recipe

RETRAINED, SHORT, NONE = "retrained", "short", "none"


@dataclass(frozen=True)
class Outs:
    """What out models said of the forgotten and the unseen records, of which kind they are, how the short ones were
    trained and what that cost; `why` says why there are none."""

    kind: str
    said: tuple[SplitSignals, ...] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cost: Cost = field(default_factory=Cost)
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        kept = {"kind": self.kind, "models": len(self.said), "why": self.why}
        return {**kept, "recipe": dict(self.recipe), "cost": vars(self.cost)}


@dataclass(frozen=True)
class Shown:
    """Who is told what is being done, and how far it has come."""

    stage: Callable[[str], None] = lambda text: None
    epoch: Callable[[Epoch], None] = lambda epoch: None


def out_recipe(project: Project) -> Recipe:
    """How a short out model is trained: as the project retrains, or as usual, for a share of the epochs."""
    return teacher_recipe(project.recipe, TeacherSettings(teacher_share=project.out_share))


def out_plan(case: Case, plan: RequestPlan, count: int) -> str:
    """What will be trained for the judging, in words; empty if nothing is."""
    if not count:
        return ""
    recipe = out_recipe(case.project)
    work = teacher_work(recipe, len(plan.retain))
    each = f"{many(recipe.epochs, 'epoch')} or {many(work.steps, 'step')} each"
    return f"{many(count, 'short training')} on the retain set, {each}"


def why_no_fresh_model(case: Case) -> str:
    """Why the model cannot be made afresh; empty if it can."""
    if case.project.rebuild is not None:
        return ""
    try:
        reset(case.project.model, 0)
    except RegunError as fault:
        return str(fault)
    return ""


def retrained_outs(models: Sequence[SplitSignals]) -> Outs:
    """Models that the project has retrained without the records."""
    return Outs(RETRAINED, tuple(models))


def short_outs(case: Case, plan: RequestPlan, count: int, place: Workplace, shown: Shown) -> Outs:
    """`count` short trainings on the retain set, made now or by a run that was killed since."""
    if not count:
        return Outs(NONE, why="no models that never saw the records were asked for (out_models=0)")
    fault = why_no_fresh_model(case)
    if fault:
        return Outs(NONE, why=f"no model that never saw the records can be made: {fault}")
    recipe = out_recipe(case.project)
    made = Outs(SHORT, recipe=to_json(recipe))
    for number in range(count):
        content = place.read(_key(case, plan, recipe, number))
        if content is None:
            shown.stage(f"out model {number + 1} of {count}: {recipe.epochs} epochs on the retain set, for the judging")
            content = _train(case, plan, recipe, number, shown.epoch)
            place.write(_key(case, plan, recipe, number), content)
        said, about = unpacked(content, case, plan)
        made.cost.add(**about["cost"])
        if about["stopped"]:
            why = f"the training of a model without the records stopped: {about['stopped']}"
            return replace(made, kind=NONE, said=(), why=why)
        made = replace(made, said=(*made.said, *said))
    return made


def _train(case: Case, plan: RequestPlan, recipe: Recipe, number: int, on_epoch: Callable[[Epoch], None]) -> bytes:
    """An out model is a short retraining; what looks odd of one is nobody's concern, so there is no guard."""
    sets, project, method = plan.sets(case), case.project, get_method("retrain")
    joined = Joined((sets["retain"], sets["forget"]))
    nothing: Indices = np.zeros(0, dtype=np.int64)
    splits = Splits(retain=joined.indices(0), forget=joined.indices(1), heldout=nothing, val=nothing, total=len(joined))
    job = Job(
        model=private_copy(project.model, case.device),
        examples=joined,
        splits=splits,
        seed=_seed(plan, number),
        device=case.device,
        on_epoch=lambda epoch, _: on_epoch(epoch),
        rebuild=project.rebuild,
    )
    outcome = unlearn_job(job, method, method.configure(to_json(recipe)), guard=False)
    said, stopped = dict[str, Signals](), outcome.diverged or ""
    try:
        said = {} if stopped else _asked(outcome.model, case, plan)
    except NotFiniteError as fault:
        stopped = str(fault)
    return packed([said], {"cost": vars(outcome.cost), "stopped": stopped})


def _asked(model: nn.Module, case: Case, plan: RequestPlan) -> dict[str, Signals]:
    """What an out model says of the forgotten and the unseen records."""
    sets = {name: some for name, some in plan.sets(case).items() if name != "retain"}
    return {name: signals_of(model, some, device=case.device) for name, some in sets.items()}


def _seed(plan: RequestPlan, number: int) -> int:
    """Of the request alone: who tries again is judged by the same out models."""
    return derive(plan.base, plan.request, "out model", number)


def _key(case: Case, plan: RequestPlan, recipe: Recipe, number: int) -> str:
    """What decides an out model: data, recipe, seed, the model's kind and the weights it starts from, versions."""
    project, seed = case.project, _seed(plan, number)
    fresh = project.rebuild(seed) if project.rebuild is not None else reset(project.model, seed)
    sets = {name: some.digest for name, some in plan.sets(case).items()}
    kind = f"{type(project.model).__module__}.{type(project.model).__qualname__}"
    return digest([sets, to_json(recipe), seed, kind, state_digest(fresh.state_dict()), str(case.device), versions()])


# ------------------------------------------------------------------------------------------- what they said, as a file


def packed(outs: Sequence[SplitSignals], about: Mapping[str, Any] | None = None) -> bytes:
    """A file of what out models said: their confidence in the true labels as log p, set by set."""
    tensors = {
        f"{number}.{name}": torch.from_numpy(signals.true_log_prob.copy())
        for number, said in enumerate(outs)
        for name, signals in said.items()
    }
    return safetensors.torch.save(tensors, {"about": json.dumps(dict(about or {}))})


def unpacked(content: bytes, case: Case, plan: RequestPlan) -> tuple[list[SplitSignals], dict[str, Any]]:
    """What `packed` was given; of answers to other labels than the true ones, only their sum is known."""
    head = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    examples, classes = plan.sets(case), case.sets["train"].num_classes
    found: dict[int, dict[str, Signals]] = {}
    for text, log_prob in safetensors.torch.load(content).items():
        number, _, name = text.partition(".")
        signals = _of_true_labels(log_prob.numpy(), examples[name].labels, classes)
        found.setdefault(int(number), {})[name] = signals
    return [found[number] for number in sorted(found)], json.loads(head["__metadata__"]["about"])


def _of_true_labels(log_prob: FloatArray, labels: Indices, classes: int) -> Signals:
    """Signals with these confidences in the labels; what is left goes to the other classes in equal parts."""
    with np.errstate(divide="ignore"):
        rest = np.log(-np.expm1(log_prob)) - np.log(classes - 1)
    rows = np.arange(len(labels))
    whole = np.repeat(rest[:, None], classes, axis=1)
    whole[rows, labels] = log_prob
    return Signals(whole, labels, rows)
