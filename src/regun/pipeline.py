"""From settings to finished artefacts: train a model, run it over a split.

Belongs here: the only code that knows the store, training, methods and evaluation together.
Does not: printing, arguments. May import: every room below.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.data.examples import Data, Examples, Indices
from regun.errors import DivergedError, StoreError
from regun.evaluate.signals import Signals
from regun.forward import eval_logits
from regun.job import Budget, Epoch, Job, Progress, Step, private_copy
from regun.models import ModelSpec, build_model
from regun.recipes import Recipe, resolve_precision
from regun.seeds import derive, digest
from regun.settings import to_json
from regun.store import Artefact, Made, Slot, Store, state_digest
from regun.streams import one_pass
from regun.train import fit


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


def load_model(artefact: Artefact, device: torch.device | str = "cpu") -> nn.Module:
    """The stored model, rebuilt and filled with its checked weights."""
    spec = ModelSpec(artefact.inputs["model"]["name"], artefact.inputs["model"]["settings"])
    if spec.describe() != artefact.inputs["model"]:
        raise StoreError(
            f"the definition of model {spec.name!r} has changed since {artefact.key[:12]} was trained; "
            f"restore the definition, or train again."
        )
    size = artefact.inputs["image_size"]
    model = build_model(spec, artefact.inputs["num_classes"], tuple(size) if size else None, 0)
    model.load_state_dict(artefact.tensors("weights"))
    return private_copy(model, torch.device(device)).eval()


def cached_signals(
    artefact: Artefact, examples: Examples, indices: Indices, store: Store, device: torch.device | str = "cpu"
) -> Signals:
    """The model's signals on `indices`, from the store or from one forward pass."""
    inputs = {
        "weights": artefact.info["weights"],
        "model": artefact.inputs["model"],
        "data": examples.digest,
        "inputs": {k: v for k, v in examples.describe_inputs().items() if k != "train"},
        "indices": digest(indices),
    }

    def make(slot: Slot) -> Made:
        logits = eval_logits(load_model(artefact, device), examples, indices, device)
        found = Signals.from_logits(logits.numpy(), examples.labels[indices], indices)
        tensors = {"log_probs": torch.tensor(found.log_probs)}
        return Made({"signals": tensors}, {"model": artefact.key, "examples": len(indices)})

    log_probs = store.make("signals", inputs, make).tensors("signals")["log_probs"].numpy()
    return Signals(log_probs, examples.labels[indices], indices)
