"""Trained models as artefacts: what decides one, making it, taking one in from outside, and back again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regun.code import code_digest
from regun.data.examples import Data, Indices
from regun.errors import DivergedError, StoreError
from regun.models import ModelSpec, build_model
from regun.plugins import trusted_name
from regun.seeds import chance, derive, digest
from regun.settings import bind, to_json
from regun.store import Artefact, Made, Slot, Store, read_weights, state_digest
from regun.training.job import Budget, Cost, Epoch, Job, Progress, private_copy
from regun.training.recipes import Recipe, resolve_precision
from regun.training.scratch import train_from_scratch

ImageShape = tuple[int, int, int]


@dataclass(frozen=True)
class Watch:
    """What to tell the person who waits."""

    on_epoch: Callable[[Epoch, nn.Module], None] = lambda epoch, model: None
    on_progress: Callable[[Progress], None] = lambda progress: None
    on_resume: Callable[[int, int], None] = lambda epoch, step: None


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
        cls, artefact: Artefact, data: Data, *, trained_on: Indices | None = None, seed: int | None = None
    ) -> "Training":
        """The training that made an artefact, or the same on other examples or from another seed.

        `data` are those it was trained on, with its own augmentation.
        """
        inputs = artefact.inputs
        if not {"recipe", "trained_on"} <= inputs.keys():
            raise StoreError(f"{artefact.key[:12]} was not trained by regun, so its training cannot be repeated.")
        return cls(
            data=data,
            trained_on=artefact.tensors("trained_on")["indices"].numpy() if trained_on is None else trained_on,
            model=model_of(artefact),
            recipe=bind(Recipe, inputs["recipe"], "recipe"),
            seed=inputs["seed"] if seed is None else seed,
            budget=Budget.of(inputs["budget"]),
        )

    def input_shape(self) -> ImageShape | None:
        """Channels, height and width as the model sees them, after the input pipeline."""
        return input_shape(self.data, self.trained_on)

    def inputs(self, device: torch.device) -> dict[str, Any]:
        recipe = replace(self.recipe, precision=resolve_precision(self.recipe.precision, device))
        return {
            **_kind(self.data, self.model, self.input_shape()),
            "inputs": self.data.train.describe_inputs(),
            "trained_on": digest(np.sort(self.trained_on)),
            "recipe": to_json(recipe),
            "budget": self.budget.to_json() if self.budget else None,
            "seed": self.seed,
            "code": code_digest("regun.training.scratch"),
        }


def train_model(
    training: Training, store: Store, device: torch.device, *, about: Mapping[str, Any], watch: Watch | None = None
) -> Artefact:
    """The trained model of `training`, from the store or trained now; a killed run goes on at its last snapshot.

    All randomness comes from the artefact's own inputs, so a model is the same whatever was trained before it.
    """
    inputs = training.inputs(device)
    luck = chance(inputs)
    watch, data = watch or Watch(), training.data.train
    trained_on = np.sort(training.trained_on)

    def make(slot: Slot) -> Made:
        saved = slot.load()
        if saved is not None:
            watch.on_resume(saved.meta["epoch"], saved.meta["step"])
        fresh = build_model(training.model, data.num_classes, training.input_shape(), derive(luck, "init"))
        job = Job(
            model=private_copy(fresh, device),
            examples=data,
            seed=derive(luck, "train"),
            device=device,
            on_epoch=watch.on_epoch,
            on_progress=watch.on_progress,
            budget=training.budget,
        )
        fitted = train_from_scratch(job, trained_on, training.recipe, "train", checkpoint=slot)
        if fitted.diverged:
            raise DivergedError(f"training stopped: {fitted.diverged}. Lower the learning rate. Nothing was saved.")
        count = sum(p.numel() for p in job.model.parameters())
        more = {"epochs": [vars(e) for e in fitted.epochs], "cost": vars(job.cost), "parameters": count}
        return _made(job.model.state_dict(), training.data, trained_on, {**about, **more})

    return store.make("model", inputs, make)


def import_model(
    path: Path, data: Data, trained_on: Indices, model: ModelSpec, store: Store, *, about: Mapping[str, Any]
) -> Artefact:
    """A model trained elsewhere, from its safetensors file; that it was trained on `trained_on` is the user's word."""
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
) -> Artefact:
    """Weights from outside as an artefact, named by their own digest."""
    broken = _not_finite(state)
    if broken is not None:
        raise StoreError(f"the weights hold NaN or infinity, first in {broken!r}; give a model that works.")
    rows = np.sort(trained_on)
    inputs = {
        **_kind(data, model, input_shape(data, trained_on)),
        "imported": state_digest(state),
        "trained_on": digest(rows),
    }
    count = sum(t.numel() for t in state.values())
    more: dict[str, Any] = {"role": "imported", "epochs": [], "cost": vars(Cost()), "parameters": count}
    return store.make("model", inputs, lambda _: _made(state, data, rows, {**about, **more}))


def broken_weights(model: nn.Module) -> str | None:
    """The first parameter that holds NaN or infinity, or buffer that holds NaN (a mask may well be infinite)."""
    buffers = {name: b for name, b in model.named_buffers() if b.is_floating_point() and not b.is_meta}
    return _not_finite(dict(model.named_parameters())) or next((n for n, b in buffers.items() if b.isnan().any()), None)


def _not_finite(state: Mapping[str, Tensor]) -> str | None:
    numbers = {name: t for name, t in state.items() if t.is_floating_point() and not t.is_meta}
    return next((name for name, t in numbers.items() if not bool(torch.isfinite(t).all())), None)


def input_shape(data: Data, rows: Indices) -> ImageShape | None:
    """Channels, height and width of an example as models see it; None for what is not an image."""
    x = data.train.fetch(rows[:1]).x
    return (int(x.shape[1]), int(x.shape[2]), int(x.shape[3])) if isinstance(x, Tensor) and x.ndim == 4 else None


def misfits(state: Mapping[str, Tensor], template: Mapping[str, Tensor]) -> list[str]:
    """How a state dict differs in names and shapes from what a model expects."""
    missing, extra = sorted(set(template) - set(state)), sorted(set(state) - set(template))
    shapes = [
        f"{name} has shape {tuple(state[name].shape)}, expected {tuple(template[name].shape)}"
        for name in template
        if name in state and state[name].shape != template[name].shape
    ]
    lacks = [f"it lacks {len(missing)} tensors (the first is {missing[0]!r})"] if missing else []
    surplus = [f"it has {len(extra)} others (the first is {extra[0]!r})"] if extra else []
    return [*lacks, *surplus, *shapes]


def model_of(artefact: Artefact) -> ModelSpec:
    """The definition of a stored model; code of a user's is run only if the user has named the same code too."""
    made = artefact.inputs["model"]
    name = trusted_name(made["name"], made.get("file"), artefact.trusted, "--model")
    return ModelSpec(name, made["settings"])


def build_like(artefact: Artefact, seed: int) -> nn.Module:
    """A fresh model of the artefact's kind."""
    size = artefact.inputs["image_size"]
    return build_model(model_of(artefact), artefact.inputs["num_classes"], tuple(size) if size else None, seed)


def answers_by(artefact: Artefact) -> dict[str, Any]:
    """What decides a model's answers: its weights, and the definition that they are the weights of."""
    return {"weights": artefact.info["weights"], "model": artefact.inputs["model"]}


def load_model(artefact: Artefact, device: torch.device | str = "cpu") -> nn.Module:
    """The stored model, rebuilt and filled with its checked weights."""
    spec = model_of(artefact)
    if {**spec.describe(), "name": artefact.inputs["model"]["name"]} != artefact.inputs["model"]:
        raise StoreError(
            f"the definition of model {spec.name!r} has changed since {artefact.key[:12]} was trained; "
            f"restore the definition, or train again."
        )
    model = build_like(artefact, 0)
    model.load_state_dict(artefact.tensors("weights"))
    return private_copy(model, torch.device(device)).eval()


def find_retrained(store: Store, base: Artefact, retain: Indices) -> list[Artefact]:
    """Models trained like `base` but on the retain set alone; that of the base's own seed first, then by seed."""
    free = {"trained_on", "seed"}
    wanted = {**{k: v for k, v in base.inputs.items() if k not in free}, "trained_on": digest(np.sort(retain))}
    found = [
        a
        for a in store.artefacts("model")
        if "seed" in a.inputs and {k: v for k, v in a.inputs.items() if k != "seed"} == wanted
    ]
    return sorted(found, key=lambda a: (a.inputs["seed"] != base.inputs.get("seed"), a.inputs["seed"]))


def _kind(data: Data, model: ModelSpec, shape: ImageShape | None) -> dict[str, Any]:
    return {
        "data": data.train.digest,
        "model": model.describe(),
        "num_classes": data.train.num_classes,
        "image_size": list(shape) if shape else None,
    }


def _made(state: Mapping[str, Tensor], data: Data, trained_on: Indices, info: Mapping[str, Any]) -> Made:
    facts = {
        "data_name": data.name,
        "examples": len(trained_on),
        "weights": state_digest(state),
    }
    return Made({"weights": state, "trained_on": {"indices": torch.from_numpy(trained_on)}}, {**info, **facts})
