"""Resolve a `ForgetSpec` that needs models (`hard`, `easy`, `like`, `cluster`, `subclass`) to ids.

A spec is resolved once and stored as ids; every key that depends on it holds those ids. The models that rank the
examples follow from data, split and recipe alone, not from what else a store holds, so any two stores agree.

`hard` and `easy` rank by the loss early in training: what a model does not fit early, it must memorize. Models trained
without parts of the data would measure memorization directly, at many times the cost, and no better (docs/studies.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from regun.artifacts import Artifact, Contents, SnapshotFolder, Store
from regun.artifacts.audits import cached_predictions, evaluation_inputs
from regun.artifacts.ranking import by_features, by_hardness, hardness
from regun.artifacts.trainings import Training, load_model, model_identity, train_model
from regun.data.examples import Data
from regun.errors import SplitError
from regun.forget_spec import ForgetSpec
from regun.hashing import code_digest, digest
from regun.splits import Reserve
from regun.training.forward import eval_features
from regun.training.job import Callbacks
from regun.training.recipes import Recipe, shorten

EARLY, EARLY_SHARE, EARLY_EPOCHS = 4, 1 / 8, 3
"""Number of models that measure hardness, their share of the recipe's epochs, and their minimum of epochs."""
FIRST_EARLY = 2001
"""Training seed of the first of them; all other seeds of a study are lower."""


def early_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe of the models that measure hardness."""
    return shorten(recipe, EARLY_SHARE, EARLY_EPOCHS)


def early_trainings(base: Training) -> list[Training]:
    """Return short trainings like the base's, on the same examples, with other seeds."""
    recipe = early_recipe(base.recipe)
    return [replace(base, recipe=recipe, seed=FIRST_EARLY + number) for number in range(EARLY)]


def selection_inputs(spec: ForgetSpec, models: Sequence[Artifact], data: Data, reserved: Reserve) -> dict[str, Any]:
    """Return what decides the ids."""
    return {
        "request": {k: v for k, v in vars(spec).items() if k not in ("text", "ids")},
        "models": [model_identity(model) for model in models],
        "data": data.train.digest,
        "inputs": evaluation_inputs(data.train),
        "pool": digest(reserved.pool),
        "val": len(reserved.val),
        "code": code_digest("regun.artifacts.ranking"),
    }


def select(
    spec: ForgetSpec, models: Sequence[Artifact], data: Data, reserved: Reserve, store: Store, device: torch.device
) -> ForgetSpec:
    """Return the spec as ids, from the store or ranked now by the models' predictions or features."""

    def make(_: SnapshotFolder) -> Contents:
        if spec.needs_early_models:
            predictions = [cached_predictions(model, data.train, reserved.base, store, device) for model in models]
            ids = by_hardness(spec, hardness([p.true_log_prob for p in predictions]), reserved)
        else:
            model = load_model(models[0], device)
            features = eval_features(model, data.train, np.arange(len(data.train)), device).double().numpy()
            ids = by_features(spec, features, data.train.labels, reserved)
        about = {"data_name": data.name, "model": models[0].key, "examples": len(ids)}
        return Contents({"ids": {"ids": torch.from_numpy(np.sort(ids))}}, about)

    return resolved_ids(store.make("selection", selection_inputs(spec, models, data, reserved), make))


def resolved_ids(artifact: Artifact) -> ForgetSpec:
    """Return the spec of ids that an artifact holds."""
    return ForgetSpec.of_ids(artifact.tensors("ids")["ids"].numpy())


def resolve(
    spec: ForgetSpec,
    base: Training | Artifact,
    data: Data,
    reserved: Reserve,
    store: Store,
    device: torch.device,
    *,
    about: Mapping[str, Any],
    watch: Callbacks | None = None,
) -> ForgetSpec:
    """Return a spec that `make_splits` accepts; models it needs come from the store or are trained now.

    `base` is the training of the base model with the split's seed. It may be a model trained elsewhere: that has
    features, but no recipe for the early models of `hard` and `easy`. `about` is written to manifests.
    """
    if not spec.needs_model:
        return spec
    if isinstance(base, Artifact):
        if spec.needs_early_models:
            raise SplitError(
                f"{spec.text} needs models trained like the base, and regun did not train the base; name "
                f"the examples with ids:FILE."
            )
        return select(spec, [base], data, reserved, store, device)
    trainings = early_trainings(base) if spec.needs_early_models else [base]
    role = "early" if spec.needs_early_models else "base"
    models = [
        train_model(one, store, device, about={**about, "role": role, "without": None}, watch=watch)
        for one in trainings
    ]
    return select(spec, models, data, reserved, store, device)
