"""The relearning check: models go on training on retained examples alone, and what comes back is measured.

On models in memory (`relearn`), and on models of the store, where every curve is an artefact (`relearn_model`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from regun.code import code_digest
from regun.data.examples import Data, Examples, Indices
from regun.errors import AuditError, NotFiniteError
from regun.evaluate.relearning import Curve, Relearned, relearned
from regun.evaluate.signals import UNSEEN
from regun.runs.relearn_steps import relearn_points, relearn_steps, relearn_updates
from regun.runs.signals import signals_of
from regun.runs.training import Watch, answers_by, load_model
from regun.seeds import chance, derive
from regun.settings import bind, to_json
from regun.splits import Splits
from regun.store import Artefact, Made, Slot, Store
from regun.training.job import Cost, Job, device_of, private_copy
from regun.training.recipes import Recipe, Updates

RETAINED = 2000
"""Retained examples that are looked at, evenly spread over the retain set: enough to see accuracy fall."""
Looks = Mapping[str, tuple[Examples, Indices]]
"""Which examples are looked at, by split."""


@dataclass(frozen=True, kw_only=True)
class Relearning:
    """Everything that decides the curve of one model of the store; `data` are seen as unlearning sees them.

    All models that are compared take the same steps, in the same order: the seed is not the model's.
    """

    target: Artefact
    data: Data
    splits: Splits
    updates: Updates
    seed: int = 0

    @classmethod
    def of(cls, target: Artefact, data: Data, splits: Splits, base: Artefact) -> "Relearning":
        """The usual check, as gentle as the base's own recipe says."""
        recipe = base.inputs.get("recipe")
        return cls(
            target=target,
            data=data,
            splits=splits,
            updates=relearn_updates(bind(Recipe, recipe, "recipe") if recipe else None),
        )

    def inputs(self) -> dict[str, Any]:
        return {
            **answers_by(self.target),
            "data": [self.data.train.digest, self.data.test.digest],
            "inputs": self.data.train.describe_inputs(),
            "splits": self.splits.digest,
            "updates": to_json(self.updates),
            "seed": self.seed,
            "code": code_digest("regun.runs.relearn_steps", "regun.runs.signals"),
        }

    def luck(self) -> str:
        """The seed of the steps: that of all models of this split."""
        return chance({name: value for name, value in self.inputs().items() if name not in ("weights", "model")})

    def looks(self) -> Looks:
        """Forgotten and retained examples, and the first unseen ones there are."""
        test = np.arange(len(self.data.test))
        unseen = {"test": (self.data.test, test), "heldout": (self.data.train, self.splits.heldout)}
        unseen["val"] = (self.data.train, self.splits.val)
        return looked_at(self.data.train, self.splits, unseen)


def looked_at(examples: Examples, splits: Splits, unseen: Looks) -> Looks:
    """The splits that a check looks at: forget, a part of retain, and the first unseen one that has examples."""
    there = next((name for name in UNSEEN if name in unseen and len(unseen[name][1])), None)
    if there is None:
        raise AuditError(
            "the relearning check compares with examples that no model saw, and there are none; give test."
        )
    if not len(splits.retain):
        raise AuditError("the relearning check trains on retained examples, and there are none; give retain.")
    part = np.linspace(0, len(splits.retain) - 1, min(RETAINED, len(splits.retain))).round().astype(np.int64)
    return {"forget": (examples, splits.forget), there: unseen[there], "retain": (examples, splits.retain[part])}


def curve_of(job: Job, updates: Updates, looks: Looks) -> Curve:
    """What the job's model says about every split before, during and after its steps."""
    log_probs: dict[str, list[Any]] = {name: [] for name in looks}
    right: dict[str, list[Any]] = {name: [] for name in looks}

    def look(model: nn.Module) -> None:
        for name, (examples, rows) in looks.items():
            said = signals_of(model, examples, rows, job.device)
            log_probs[name].append(said.true_log_prob)
            right[name].append(said.predictions == said.labels)

    fitted = relearn_steps(job, updates, look)
    if fitted.diverged:
        raise NotFiniteError(f"relearning stopped: {fitted.diverged}.")
    return Curve(
        relearn_points(updates, len(job.indices("retain"))),
        {name: np.stack(values) for name, values in log_probs.items()},
        {name: np.stack(values) for name, values in right.items()},
    )


def relearn_model(run: Relearning, store: Store, device: torch.device, watch: Watch | None = None) -> Curve:
    """The curve of a model of the store, from the store or made now; that a model cannot relearn is kept too."""
    watch = watch or Watch()

    def make(_: Slot) -> Made:
        job = Job(
            model=private_copy(load_model(run.target, device), device),
            examples=run.data.train,
            splits=run.splits,
            seed=derive(run.luck(), "relearn"),
            device=device,
            on_epoch=watch.on_epoch,
            on_progress=watch.on_progress,
        )
        about = {"model": run.target.key, "data_name": run.data.name, "cost": vars(job.cost)}
        try:
            curve = curve_of(job, run.updates, run.looks())
        except NotFiniteError as fault:
            return Made({}, {**about, "not_finite": str(fault)})
        arrays = {f"log_probs.{name}": torch.from_numpy(values) for name, values in curve.log_probs.items()}
        arrays |= {f"right.{name}": torch.from_numpy(values) for name, values in curve.right.items()}
        return Made({"curve": arrays}, {**about, "steps": list(curve.steps)})

    return curve_in(store.make("relearned", run.inputs(), make))


def curve_in(artefact: Artefact) -> Curve:
    """The curve that an artefact holds."""
    if "not_finite" in artefact.info:
        raise NotFiniteError(artefact.info["not_finite"])
    arrays = {name.partition(".")[::2]: tensor.numpy() for name, tensor in artefact.tensors("curve").items()}
    return Curve(
        tuple(artefact.info["steps"]),
        {split: values for (what, split), values in arrays.items() if what == "log_probs"},
        {split: values for (what, split), values in arrays.items() if what == "right"},
    )


def relearn_models(
    target: Relearning,
    retrain: Artefact | None,
    references: Sequence[Artefact],
    store: Store,
    device: torch.device,
    *,
    before: Artefact | None = None,
    on_model: Callable[[int, int], None] | None = None,
) -> Relearned:
    """The check of a model of the store next to Retrain and the references, and next to the model `before` unlearning,
    which shows what the comparison can tell; every curve is made once."""
    others = [retrain, *references] if retrain is not None else []
    known = [before] if before is not None and others else []
    models, curves = [target.target, *others, *known], list[Curve]()
    for number, model in enumerate(models):
        if on_model is not None:
            on_model(number + 1, len(models))
        run = replace(target, target=model)
        curves.append(relearn_model(run, store, device))
    return _told(curves, len(others), known=bool(known))


def relearn(
    models: Sequence[nn.Module],
    examples: Examples,
    splits: Splits,
    unseen: Looks,
    *,
    updates: Updates,
    seed: int = 0,
    device: torch.device | None = None,
    before: bool = False,
) -> tuple[Relearned, Cost]:
    """The check on models in memory: the audited one, then, where they are, Retrain and references; with `before`, the
    last is the one before unlearning. All are copied."""
    looks, cost, curves = looked_at(examples, splits, unseen), Cost(), list[Curve]()
    for model in models:
        where = device if device is not None else device_of(model)
        copy = private_copy(model, where)
        job = Job(model=copy, examples=examples, splits=splits, seed=derive(seed, "relearn"), device=where)
        curves.append(curve_of(job, updates, looks))
        cost.add(**vars(job.cost))
    return _told(curves, len(curves) - 1 - before, known=before), cost


def _told(curves: Sequence[Curve], others: int, *, known: bool) -> Relearned:
    """What curves say: the audited model's, those of so many others, and that of the model before if it is `known`."""
    target, *rest = curves
    return relearned(target, rest[0] if others else None, rest[1:others], before=rest[-1] if known else None)
