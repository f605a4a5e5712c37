"""The relearning check on stored models: train on retained examples only, and measure what returns.

Each curve is an artifact. `regun.relearning` does the same for models in memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from regun.artifacts import Artifact, Contents, SnapshotFolder, Store
from regun.artifacts.trainings import load_model, model_identity
from regun.auditing.durability import Relearned, RelearningCurve
from regun.data.examples import Data
from regun.errors import NotFiniteError
from regun.hashing import code_digest
from regun.relearning import MeasuredSets, compare_curves, relearn_updates, relearning_curve, relearning_sets
from regun.rng import derive, rng_key
from regun.settings import bind, to_json
from regun.splits import Splits
from regun.training.job import Callbacks, Job, private_copy
from regun.training.recipes import Recipe, Updates


@dataclass(frozen=True, kw_only=True)
class Relearning:
    """Everything that decides the curve of one stored model; `data` have the input pipeline of unlearning.

    All models of a comparison take the same steps in the same order: the seed does not depend on the model.
    """

    target: Artifact
    data: Data
    splits: Splits
    updates: Updates
    seed: int = 0

    @classmethod
    def of(cls, target: Artifact, data: Data, splits: Splits, base: Artifact) -> "Relearning":
        """Return the default check, with the updates of the base's recipe."""
        recipe = base.inputs.get("recipe")
        return cls(
            target=target,
            data=data,
            splits=splits,
            updates=relearn_updates(bind(Recipe, recipe, "recipe") if recipe else None),
        )

    def inputs(self) -> dict[str, Any]:
        return {
            **model_identity(self.target),
            "data": [self.data.train.digest, self.data.test.digest],
            "inputs": self.data.train.describe_inputs(),
            "splits": self.splits.digest,
            "updates": to_json(self.updates),
            "seed": self.seed,
            "code": code_digest("regun.relearning", "regun.predict"),
        }

    def rng_key(self) -> str:
        """Return the key of the seed, which all models of this split share."""
        return rng_key({name: value for name, value in self.inputs().items() if name not in ("weights", "model")})

    def sets(self) -> MeasuredSets:
        """Return the examples to measure: forgotten, retained, and the first unseen set there is."""
        test = np.arange(len(self.data.test))
        unseen = {"test": (self.data.test, test), "heldout": (self.data.train, self.splits.heldout)}
        unseen["val"] = (self.data.train, self.splits.val)
        return relearning_sets(self.data.train, self.splits, unseen)


def relearn_model(
    run: Relearning, store: Store, device: torch.device, watch: Callbacks | None = None
) -> RelearningCurve:
    """Return the curve of a stored model, from the store or made now; a model that diverges is stored too."""
    watch = watch or Callbacks()

    def make(_: SnapshotFolder) -> Contents:
        job = Job(
            model=private_copy(load_model(run.target, device), device),
            examples=run.data.train,
            splits=run.splits,
            seed=derive(run.rng_key(), "relearn"),
            device=device,
            on_epoch=watch.on_epoch,
            on_progress=watch.on_progress,
        )
        about = {"model": run.target.key, "data_name": run.data.name, "cost": vars(job.cost)}
        try:
            curve = relearning_curve(job, run.updates, run.sets())
        except NotFiniteError as fault:
            return Contents({}, {**about, "not_finite": str(fault)})
        arrays = {f"log_probs.{name}": torch.from_numpy(values) for name, values in curve.log_probs.items()}
        arrays |= {f"right.{name}": torch.from_numpy(values) for name, values in curve.right.items()}
        return Contents({"curve": arrays}, {**about, "steps": list(curve.steps)})

    return stored_curve(store.make("relearned", run.inputs(), make))


def stored_curve(artifact: Artifact) -> RelearningCurve:
    """Return the curve of an artifact."""
    if "not_finite" in artifact.info:
        raise NotFiniteError(artifact.info["not_finite"])
    arrays = {name.partition(".")[::2]: tensor.numpy() for name, tensor in artifact.tensors("curve").items()}
    return RelearningCurve(
        tuple(artifact.info["steps"]),
        {split: values for (what, split), values in arrays.items() if what == "log_probs"},
        {split: values for (what, split), values in arrays.items() if what == "right"},
    )


def relearn_models(
    target: Relearning,
    retrain: Artifact | None,
    references: Sequence[Artifact],
    store: Store,
    device: torch.device,
    *,
    before: Artifact | None = None,
    on_model: Callable[[int, int], None] | None = None,
) -> Relearned:
    """Compare how a stored model relearns with Retrain and the references.

    The model `before` unlearning shows the power of the comparison. Each curve is made once.
    """
    retrained = [retrain, *references] if retrain is not None else []
    control = [before] if before is not None and retrained else []
    models, curves = [target.target, *retrained, *control], list[RelearningCurve]()
    for number, model in enumerate(models):
        if on_model is not None:
            on_model(number + 1, len(models))
        curves.append(relearn_model(replace(target, target=model), store, device))
    return compare_curves(curves, with_before=bool(control))
