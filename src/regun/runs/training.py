"""From settings to finished models: train one, take one in, unlearn from one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.data.examples import Data, Indices
from regun.errors import DivergedError, StoreError
from regun.methods import Method
from regun.models import ModelSpec, build_model
from regun.runs.unlearning import unlearn_job
from regun.seeds import derive, digest
from regun.settings import to_json
from regun.splits import Splits
from regun.store import Artefact, Made, Slot, Store, read_weights, state_digest
from regun.training.fit import fit
from regun.training.job import Budget, Cost, Epoch, Job, Progress, Step, private_copy
from regun.training.recipes import Recipe, resolve_precision
from regun.training.streams import one_pass


@dataclass(frozen=True)
class Training:
    """Everything that decides the weights of a trained model; its `inputs()` are the content key."""

    data: Data
    trained_on: Indices
    model: ModelSpec
    recipe: Recipe
    seed: int
    budget: Budget | None = None

    def input_shape(self) -> tuple[int, int, int] | None:
        """Channels, height and width as the model sees them, after the input pipeline."""
        x = self.data.train.fetch(self.trained_on[:1]).x
        return (int(x.shape[1]), int(x.shape[2]), int(x.shape[3])) if isinstance(x, Tensor) and x.ndim == 4 else None

    def inputs(self, device: torch.device) -> dict[str, Any]:
        shape = self.input_shape()
        recipe = replace(self.recipe, precision=resolve_precision(self.recipe.precision, device))
        return {
            "data": self.data.train.digest,
            "inputs": self.data.train.describe_inputs(),
            "trained_on": digest(np.sort(self.trained_on)),
            "model": self.model.describe(),
            "num_classes": self.data.train.num_classes,
            "image_size": list(shape) if shape else None,
            "recipe": to_json(recipe),
            "budget": None if self.budget is None else {"steps": self.budget.steps, "samples": self.budget.samples},
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Watch:
    """What to tell the person who waits."""

    on_epoch: Callable[[Epoch, nn.Module], None] = lambda epoch, model: None
    on_progress: Callable[[Progress], None] = lambda progress: None
    on_resume: Callable[[int, int], None] = lambda epoch, step: None


def train_model(
    training: Training, store: Store, device: torch.device, *, about: dict[str, Any], watch: Watch | None = None
) -> Artefact:
    """The trained model of `training`, from the store or trained now; a killed run goes on at its last snapshot.

    All randomness comes from the artefact's own key, so a model is the same whatever was trained before it.
    """
    inputs = training.inputs(device)
    key = store.key("model", inputs)
    watch = watch or Watch()

    def make(slot: Slot) -> Made:
        saved = slot.load()
        if saved is not None:
            watch.on_resume(saved.meta["epoch"], saved.meta["step"])
        fresh = build_model(
            training.model, training.data.train.num_classes, training.input_shape(), derive(key, "init")
        )
        job = Job(
            private_copy(fresh, device),
            training.data.train,
            None,
            derive(key, "train"),
            device,
            watch.on_epoch,
            watch.on_progress,
            training.budget,
        )
        stream = one_pass(job, "train", np.sort(training.trained_on), training.recipe.batch_size)
        smoothing = training.recipe.label_smoothing

        def loss(step: Step) -> Tensor:
            logits = job.logits(step.train.x)
            return functional.cross_entropy(logits.float(), step.train.y, label_smoothing=smoothing)

        fitted = fit(job, stream, loss, training.recipe, checkpoint=slot)
        if fitted.diverged:
            raise DivergedError(f"training stopped: {fitted.diverged}. Lower the learning rate. Nothing was saved.")
        state = job.model.state_dict()
        info = {
            **about,
            "data_name": training.data.name,
            "examples": len(training.trained_on),
            "parameters": sum(p.numel() for p in job.model.parameters()),
            "weights": state_digest(state),
            "epochs": [vars(e) for e in fitted.epochs],
            "cost": vars(job.cost),
        }
        trained_on = torch.from_numpy(np.sort(training.trained_on))
        return Made({"weights": state, "trained_on": {"indices": trained_on}}, info)

    return store.make("model", inputs, make)


def import_model(
    path: Path, data: Data, trained_on: Indices, model: ModelSpec, store: Store, *, about: dict[str, Any]
) -> Artefact:
    """A model trained elsewhere, from its safetensors file; that it was trained on `trained_on` is the user's word."""
    shape = Training(data, trained_on, model, Recipe(), 0).input_shape()
    state = read_weights(path)
    problems = misfits(state, build_model(model, data.train.num_classes, shape, 0).state_dict())
    if problems:
        raise StoreError(f"{path} does not fit the model {model.name!r}: {'; '.join(problems[:3])}. Name its model.")
    return import_state(state, data, trained_on, model, shape, store, about=about)


def import_state(
    state: Mapping[str, Tensor],
    data: Data,
    trained_on: Indices,
    model: ModelSpec,
    shape: tuple[int, int, int] | None,
    store: Store,
    *,
    about: dict[str, Any],
) -> Artefact:
    """Weights from outside as an artefact, named by their own digest."""
    broken = [name for name, t in state.items() if t.is_floating_point() and not bool(torch.isfinite(t).all())]
    if broken:
        raise StoreError(f"the weights hold NaN or infinity, first in {broken[0]!r}; give a model that works.")
    inputs = {
        "imported": state_digest(state),
        "data": data.train.digest,
        "trained_on": digest(np.sort(trained_on)),
        "model": model.describe(),
        "num_classes": data.train.num_classes,
        "image_size": list(shape) if shape else None,
    }
    info: dict[str, Any] = {
        **about,
        "role": "imported",
        "data_name": data.name,
        "examples": len(trained_on),
        "parameters": sum(t.numel() for t in state.values()),
        "weights": state_digest(state),
        "epochs": [],
        "cost": vars(Cost()),
    }
    indices = torch.from_numpy(np.sort(trained_on))
    return store.make("model", inputs, lambda _: Made({"weights": state, "trained_on": {"indices": indices}}, info))


@dataclass(frozen=True)
class Unlearning:
    """Everything that decides the weights of an unlearned model; its `inputs()` are the content key."""

    base: Artefact
    data: Data
    splits: Splits
    method: Method
    config: Any
    seed: int
    budget: Budget | None = None
    keep: str = "last"
    criterion: str = "val_accuracy"
    reference: Artefact | None = None

    def inputs(self) -> dict[str, Any]:
        return {
            "base": self.base.info["weights"],
            "model": self.base.inputs["model"],
            "num_classes": self.base.inputs["num_classes"],
            "image_size": self.base.inputs["image_size"],
            "data": self.data.train.digest,
            "inputs": self.data.train.describe_inputs(),
            "splits": self.splits.digest,
            "method": self.method.describe(self.config),
            "budget": None if self.budget is None else {"steps": self.budget.steps, "samples": self.budget.samples},
            "keep": [self.keep, self.criterion] if self.keep == "best" else [self.keep],
            "reference": self.reference.info["weights"] if self.reference else None,
            "seed": self.seed,
        }


def unlearn_model(
    unlearning: Unlearning, store: Store, device: torch.device, *, about: dict[str, Any], watch: Watch | None = None
) -> Artefact:
    """The unlearned model, from the store or made now, saved with where it came from."""
    base, splits, watch = unlearning.base, unlearning.splits, watch or Watch()
    refuse_other_training_set(base, unlearning.data, splits)
    inputs = unlearning.inputs()
    key = store.key("model", inputs)

    def make(slot: Slot) -> Made:
        model = load_model(base, device)
        job = Job(
            private_copy(model, device),
            unlearning.data.train,
            splits,
            derive(key, "unlearn"),
            device,
            watch.on_epoch,
            watch.on_progress,
            unlearning.budget,
            load_model(unlearning.reference, device) if unlearning.reference else None,
            lambda seed: build_like(base, seed),
        )
        outcome = unlearn_job(
            job, unlearning.method, unlearning.config, keep=unlearning.keep, criterion=unlearning.criterion
        )
        state = outcome.model.state_dict()
        info = {
            **about,
            "role": "unlearned",
            "method": unlearning.method.name,
            "title": unlearning.method.title,
            "config": outcome.config,
            "base": base.key,
            "data_name": unlearning.data.name,
            "examples": len(splits.retain),
            "forgotten": len(splits.forget),
            "parameters": sum(p.numel() for p in outcome.model.parameters()),
            "weights": state_digest(state),
            "epochs": [vars(e) for e in outcome.epochs],
            "cost": vars(outcome.cost),
            "diverged": outcome.diverged,
            "notes": outcome.notes,
            "watched": outcome.watched,
        }
        indices = {"retain": splits.retain, "forget": splits.forget, "heldout": splits.heldout, "val": splits.val}
        parts = {name: torch.from_numpy(part) for name, part in indices.items()}
        return Made({"weights": state, "splits": parts}, info)

    return store.make("model", inputs, make)


def refuse_other_training_set(base: Artefact, data: Data, splits: Splits) -> None:
    """The base must have been trained on exactly these data's retain and forget sets."""
    if base.inputs["data"] != data.train.digest:
        raise StoreError(
            f"the base model {base.key[:12]} was trained on other data (digest {base.inputs['data'][:12]}, these have "
            f"{data.train.digest[:12]}); give the data it was trained on."
        )
    if base.inputs["trained_on"] != digest(splits.base):
        trained = base.tensors("trained_on")["indices"].numpy()
        extra = len(np.setdiff1d(splits.forget, trained))
        seen = len(np.intersect1d(trained, np.union1d(splits.heldout, splits.val)))
        raise StoreError(
            f"the base model {base.key[:12]} was trained on another split: {extra} of the {len(splits.forget)} "
            f"examples to forget were never in it, {seen} held-out or validation examples were. Use its split seed "
            f"({base.info.get('split_seed')}) and fractions."
        )


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


def build_like(artefact: Artefact, seed: int) -> nn.Module:
    """A fresh model of the artefact's kind."""
    spec = ModelSpec(artefact.inputs["model"]["name"], artefact.inputs["model"]["settings"])
    size = artefact.inputs["image_size"]
    return build_model(spec, artefact.inputs["num_classes"], tuple(size) if size else None, seed)


def load_model(artefact: Artefact, device: torch.device | str = "cpu") -> nn.Module:
    """The stored model, rebuilt and filled with its checked weights."""
    spec = ModelSpec(artefact.inputs["model"]["name"], artefact.inputs["model"]["settings"])
    if spec.describe() != artefact.inputs["model"]:
        raise StoreError(
            f"the definition of model {spec.name!r} has changed since {artefact.key[:12]} was trained; "
            f"restore the definition, or train again."
        )
    model = build_like(artefact, 0)
    model.load_state_dict(artefact.tensors("weights"))
    return private_copy(model, torch.device(device)).eval()
