"""The relearning check: models go on training on retained examples alone, and what comes back is measured.

On models in memory (`relearn`), and on models of the store, where every curve is an artifact (`relearn_model`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from regun.artifacts import Artifact, Made, Slot, Store
from regun.artifacts.trainings import answers_by, load_model
from regun.auditing.durability import Curve, Relearned
from regun.data.examples import Data
from regun.errors import NotFiniteError
from regun.hashing import code_digest
from regun.relearning import Looks, compare_curves, curve_of, looked_at, relearn_updates
from regun.rng import derive, rng_key
from regun.settings import bind, to_json
from regun.splits import Splits
from regun.training.job import Callbacks, Job, private_copy
from regun.training.recipes import Recipe, Updates


@dataclass(frozen=True, kw_only=True)
class Relearning:
    """Everything that decides the curve of one model of the store; `data` are seen as unlearning sees them.

    All models that are compared take the same steps, in the same order: the seed is not the model's.
    """

    target: Artifact
    data: Data
    splits: Splits
    updates: Updates
    seed: int = 0

    @classmethod
    def of(cls, target: Artifact, data: Data, splits: Splits, base: Artifact) -> "Relearning":
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
            "code": code_digest("regun.relearning", "regun.predict"),
        }

    def rng_key(self) -> str:
        """The seed of the steps: that of all models of this split."""
        return rng_key({name: value for name, value in self.inputs().items() if name not in ("weights", "model")})

    def looks(self) -> Looks:
        """Forgotten and retained examples, and the first unseen ones there are."""
        test = np.arange(len(self.data.test))
        unseen = {"test": (self.data.test, test), "heldout": (self.data.train, self.splits.heldout)}
        unseen["val"] = (self.data.train, self.splits.val)
        return looked_at(self.data.train, self.splits, unseen)


def relearn_model(run: Relearning, store: Store, device: torch.device, watch: Callbacks | None = None) -> Curve:
    """The curve of a model of the store, from the store or made now; that a model cannot relearn is kept too."""
    watch = watch or Callbacks()

    def make(_: Slot) -> Made:
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
            curve = curve_of(job, run.updates, run.looks())
        except NotFiniteError as fault:
            return Made({}, {**about, "not_finite": str(fault)})
        arrays = {f"log_probs.{name}": torch.from_numpy(values) for name, values in curve.log_probs.items()}
        arrays |= {f"right.{name}": torch.from_numpy(values) for name, values in curve.right.items()}
        return Made({"curve": arrays}, {**about, "steps": list(curve.steps)})

    return curve_in(store.make("relearned", run.inputs(), make))


def curve_in(artifact: Artifact) -> Curve:
    """The curve that an artifact holds."""
    if "not_finite" in artifact.info:
        raise NotFiniteError(artifact.info["not_finite"])
    arrays = {name.partition(".")[::2]: tensor.numpy() for name, tensor in artifact.tensors("curve").items()}
    return Curve(
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
    return compare_curves(curves, len(others), known=bool(known))
