"""Trained models as artifacts: train, import, load, and lead back from an artifact to its training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regun.artifacts import Artifact, Contents, SnapshotFolder, Store, read_weights, state_digest
from regun.data.examples import Data
from regun.devices import describe_device
from regun.errors import DivergedError, StoreError
from regun.hashing import code_digest, digest
from regun.models import ModelSpec, build_model
from regun.plugins import trusted_name
from regun.rng import derive, rng_key
from regun.settings import bind, to_json
from regun.training.job import Budget, Callbacks, Cost, Epoch, Job, private_copy
from regun.training.recipes import Recipe, resolve_precision
from regun.training.scratch import train_from_scratch
from regun.training.weights import first_not_finite, misfits
from regun.types import Indices

ImageShape = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Training:
    """Everything that decides the weights of a trained model; its `inputs()` are the content key."""

    data: Data
    trained_on: Indices
    model: ModelSpec
    recipe: Recipe
    seed: int
    budget: Budget | None = None

    @classmethod
    def of(
        cls, artifact: Artifact, data: Data, *, trained_on: Indices | None = None, seed: int | None = None
    ) -> "Training":
        """Return the training that made an artifact, or the same on other examples or from another seed.

        `data` are those it was trained on, with the input pipeline of that training.
        """
        inputs = artifact.inputs
        if not {"recipe", "trained_on"} <= inputs.keys():
            raise StoreError(f"{artifact.key[:12]} was not trained by regun, so its training cannot be repeated.")
        return cls(
            data=data,
            trained_on=artifact.tensors("trained_on")["indices"].numpy() if trained_on is None else trained_on,
            model=model_of(artifact),
            recipe=bind(Recipe, inputs["recipe"], "recipe"),
            seed=inputs["seed"] if seed is None else seed,
            budget=Budget.of(inputs["budget"]),
        )

    def input_shape(self) -> ImageShape | None:
        """Return channels, height and width as the model sees them, after the input pipeline."""
        return input_shape(self.data, self.trained_on)

    def inputs(self, device: torch.device) -> dict[str, Any]:
        recipe = replace(self.recipe, precision=resolve_precision(self.recipe.precision, device))
        return {
            **_model_inputs(self.data, self.model, self.input_shape()),
            "inputs": self.data.train.describe_inputs(),
            "trained_on": digest(np.sort(self.trained_on)),
            "recipe": to_json(recipe),
            "budget": self.budget.to_json() if self.budget else None,
            "seed": self.seed,
            "code": code_digest("regun.training.scratch"),
        }


def train_model(
    training: Training, store: Store, device: torch.device, *, about: Mapping[str, Any], watch: Callbacks | None = None
) -> Artifact:
    """Return the model of `training`, from the store or trained now; a killed run resumes from its last snapshot.

    `about` is written to the manifest. All randomness follows from `training.inputs()`, so a model does not depend
    on what was trained before it.
    """
    inputs = training.inputs(device)
    key = rng_key(inputs)
    trained_on = np.sort(training.trained_on)

    def make(snapshots: SnapshotFolder) -> Contents:
        job, epochs = fit_from_scratch(training, trained_on, key, device, watch or Callbacks(), snapshots)
        count = sum(p.numel() for p in job.model.parameters())
        more: dict[str, Any] = {"epochs": [vars(e) for e in epochs], "cost": vars(job.cost), "parameters": count}
        more["device"] = describe_device(device)
        return _contents(job.model.state_dict(), training.data, trained_on, {**about, **more})

    return store.make("model", inputs, make)


def fit_from_scratch(
    training: Training, rows: Indices, key: str, device: torch.device, watch: Callbacks, snapshots: SnapshotFolder
) -> tuple[Job, Sequence[Epoch]]:
    """Train on `rows` from weights drawn by `key`, or resume; return the job with the trained model, and its epochs."""
    saved, data = snapshots.load(), training.data.train
    if saved is not None:
        watch.on_resume(saved.meta["epoch"], saved.meta["step"])
    fresh = build_model(training.model, data.num_classes, training.input_shape(), derive(key, "init"))
    job = Job(
        model=private_copy(fresh, device),
        examples=data,
        seed=derive(key, "train"),
        device=device,
        on_epoch=watch.on_epoch,
        on_progress=watch.on_progress,
        budget=training.budget,
    )
    fitted = train_from_scratch(job, rows, training.recipe, "train", checkpoint=snapshots)
    if fitted.diverged:
        raise DivergedError(f"training stopped: {fitted.diverged}. Lower the learning rate. Nothing was saved.")
    return job, fitted.epochs


def import_model(
    path: Path, data: Data, trained_on: Indices, model: ModelSpec, store: Store, *, about: Mapping[str, Any]
) -> Artifact:
    """Store a model trained elsewhere, from its safetensors file; the user vouches for `trained_on`."""
    state = read_weights(path)
    fresh = build_model(model, data.train.num_classes, input_shape(data, trained_on), 0)
    problems = misfits(state, fresh.state_dict())
    if problems:
        raise StoreError(f"{path} does not fit the model {model.name!r}: {'; '.join(problems[:3])}. Name its model.")
    return import_state(state, data, trained_on, model, store, about=about)


def import_state(
    state: Mapping[str, Tensor],
    data: Data,
    trained_on: Indices,
    model: ModelSpec,
    store: Store,
    *,
    about: Mapping[str, Any],
) -> Artifact:
    """Store weights from elsewhere as an artifact, named by their digest."""
    broken = first_not_finite(state)
    if broken is not None:
        raise StoreError(f"the weights hold NaN or infinity, first in {broken!r}; give finite weights.")
    rows = np.sort(trained_on)
    inputs = {
        **_model_inputs(data, model, input_shape(data, trained_on)),
        "imported": state_digest(state),
        "trained_on": digest(rows),
    }
    count = sum(t.numel() for t in state.values())
    more: dict[str, Any] = {"role": "imported", "epochs": [], "cost": vars(Cost()), "parameters": count}
    return store.make("model", inputs, lambda _: _contents(state, data, rows, {**about, **more}))


def input_shape(data: Data, rows: Indices) -> ImageShape | None:
    """Return channels, height and width of an example as models see it; None if it is not an image."""
    x = data.train.fetch(rows[:1]).x
    return (int(x.shape[1]), int(x.shape[2]), int(x.shape[3])) if isinstance(x, Tensor) and x.ndim == 4 else None


def model_of(artifact: Artifact) -> ModelSpec:
    """Return the definition of a stored model; a user's code runs only if the user has named it too."""
    model = artifact.inputs["model"]
    name = trusted_name(model["name"], model.get("file"), artifact.trusted, "--model")
    return ModelSpec(name, model["settings"])


def build_like(artifact: Artifact, seed: int) -> nn.Module:
    """Return a model like the artifact's, with fresh weights."""
    size = artifact.inputs["image_size"]
    return build_model(model_of(artifact), artifact.inputs["num_classes"], tuple(size) if size else None, seed)


def model_identity(artifact: Artifact) -> dict[str, Any]:
    """Return what decides a model's predictions: its weights and its definition."""
    return {"weights": artifact.info["weights"], "model": artifact.inputs["model"]}


def load_model(artifact: Artifact, device: torch.device | str = "cpu") -> nn.Module:
    """Return the stored model, rebuilt from its definition and its verified weights."""
    spec = model_of(artifact)
    if {**spec.describe(), "name": artifact.inputs["model"]["name"]} != artifact.inputs["model"]:
        raise StoreError(
            f"the definition of model {spec.name!r} has changed since {artifact.key[:12]} was trained; "
            f"restore the definition, or train again."
        )
    model = build_like(artifact, 0)
    model.load_state_dict(artifact.tensors("weights"))
    return private_copy(model, torch.device(device)).eval()


def find_retrained(store: Store, base: Artifact, retain: Indices) -> list[Artifact]:
    """Return models trained like `base` but on the retain set alone; the one with the base's seed first."""
    like_base = {**{k: v for k, v in base.inputs.items() if k != "seed"}, "trained_on": digest(np.sort(retain))}
    retrained = [
        a
        for a in store.artifacts("model")
        if "seed" in a.inputs and {k: v for k, v in a.inputs.items() if k != "seed"} == like_base
    ]
    return sorted(retrained, key=lambda a: (a.inputs["seed"] != base.inputs.get("seed"), a.inputs["seed"]))


def _model_inputs(data: Data, model: ModelSpec, shape: ImageShape | None) -> dict[str, Any]:
    return {
        "data": data.train.digest,
        "model": model.describe(),
        "num_classes": data.train.num_classes,
        "image_size": list(shape) if shape else None,
    }


def _contents(state: Mapping[str, Tensor], data: Data, trained_on: Indices, info: Mapping[str, Any]) -> Contents:
    facts = {
        "data_name": data.name,
        "examples": len(trained_on),
        "weights": state_digest(state),
    }
    return Contents({"weights": state, "trained_on": {"indices": torch.from_numpy(trained_on)}}, {**info, **facts})
