"""Requests that models answer: the hardest or easiest examples, those like one, clusters of them.

    hard:0.1, easy:0.1     by the loss that models have on an example early in training
    like:17,50             the 50 training examples nearest to example 17 in the base's features
    cluster:1/8            the largest of 8 clusters of the training examples' features
    subclass:3/2/4         the second largest of 4 clusters within class 3

Such a request is resolved once, kept in the store as ids, and from then on is a request of those ids: every key that
depends on it holds them. The models that answer follow from data, split and recipe alone, not from what else a store
happens to hold, so that any two stores agree.

What early training does not fit is what a model must learn by heart: it treats such an example differently with and
without having seen it. Models trained without parts of the data would show that directly, at many times the cost, and
no better (docs/studies.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from regun.artifacts import Artifact, Made, Slot, Store
from regun.artifacts.audits import cached_predictions
from regun.artifacts.ranking import FloatArray, by_features, by_hardness, hardness
from regun.artifacts.trainings import Training, answers_by, load_model, train_model
from regun.data.examples import Data
from regun.errors import SplitError
from regun.forget_spec import ForgetSpec
from regun.hashing import code_digest, digest
from regun.splits import Reserve
from regun.training.forward import eval_features
from regun.training.job import Callbacks
from regun.training.recipes import shorten

EARLY, EARLY_SHARE, EARLY_EPOCHS = 4, 1 / 8, 3
"""Models that say how hard an example is, how long they train as a share of the recipe's epochs, and at least."""
FIRST_EARLY = 2001
"""Training seed of the first of them; references and a study's own seeds stay below."""


def early_trainings(base: Training) -> list[Training]:
    """Short trainings like the base's, on the same examples, from seeds of their own."""
    recipe = shorten(base.recipe, EARLY_SHARE, EARLY_EPOCHS)
    return [replace(base, recipe=recipe, seed=FIRST_EARLY + number) for number in range(EARLY)]


def selection_inputs(spec: ForgetSpec, models: Sequence[Artifact], data: Data, reserved: Reserve) -> dict[str, Any]:
    """What decides the ids: their content key."""
    return {
        "request": {k: v for k, v in vars(spec).items() if k not in ("text", "ids")},
        "models": [answers_by(model) for model in models],
        "data": data.train.digest,
        "inputs": {k: v for k, v in data.train.describe_inputs().items() if k != "train"},
        "pool": digest(reserved.pool),
        "val": len(reserved.val),
        "code": code_digest("regun.artifacts.ranking"),
    }


def select(
    spec: ForgetSpec, models: Sequence[Artifact], data: Data, reserved: Reserve, store: Store, device: torch.device
) -> ForgetSpec:
    """The ids that the models' answers name, from the store or found now."""

    def make(_: Slot) -> Made:
        if spec.needs_early_models:
            said = [cached_predictions(model, data.train, reserved.base, store, device) for model in models]
            ids = by_hardness(spec, hardness([one.true_log_prob for one in said]), reserved)
        else:
            ids = by_features(spec, _features(models[0], data, device), data.train.labels, reserved)
        about = {"data_name": data.name, "model": models[0].key, "examples": len(ids)}
        return Made({"ids": {"ids": torch.from_numpy(np.sort(ids))}}, about)

    return ids_in(store.make("selection", selection_inputs(spec, models, data, reserved), make))


def ids_in(artifact: Artifact) -> ForgetSpec:
    """The request that a selection became."""
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
    """A request as ids, wherever models must answer it; those that are not in the store are trained first.

    `about` is what their manifests remember.

    `base` is how the base model is trained, from the seed of the split; or one that was trained elsewhere, which can
    give features, but has no recipe to train others by.
    """
    if not spec.needs_model:
        return spec
    if isinstance(base, Artifact):
        if spec.needs_early_models:
            raise SplitError(
                f"{spec.kind}: is answered by models trained like the base for a short while, and the base was not "
                f"trained by regun; name the examples with ids:FILE."
            )
        return select(spec, [base], data, reserved, store, device)
    trainings = early_trainings(base) if spec.needs_early_models else [base]
    role = "early" if spec.needs_early_models else "base"
    models = [
        train_model(one, store, device, about={**about, "role": role, "without": None}, watch=watch)
        for one in trainings
    ]
    return select(spec, models, data, reserved, store, device)


def _features(model: Artifact, data: Data, device: torch.device) -> FloatArray:
    found = eval_features(load_model(model, device), data.train, np.arange(len(data.train)), device)
    return found.double().numpy()
