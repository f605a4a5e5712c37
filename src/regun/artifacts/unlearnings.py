"""Unlearned models as artifacts: unlearn, and lead back from an artifact to its run."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regun.artifacts import Artifact, Contents, Store, state_digest
from regun.artifacts.out_of_fold import out_of_fold_probabilities
from regun.artifacts.trainings import build_like, load_model, model_identity
from regun.data.examples import Data
from regun.devices import describe_device
from regun.errors import SettingsError, StoreError
from regun.hashing import digest
from regun.methods import Method, MethodSpec, get_method
from regun.plugins import trusted_name
from regun.rng import derive, rng_key
from regun.settings import bind
from regun.splits import Splits
from regun.training.job import Budget, Callbacks, Job, private_copy
from regun.training.recipes import Recipe
from regun.unlearning import Outcome, log_warnings, unlearn_job


@dataclass(frozen=True, kw_only=True)
class Unlearning:
    """Everything that decides the weights of an unlearned model; its `inputs()` are the content key."""

    base: Artifact
    data: Data
    splits: Splits
    method: Method
    config: Any
    seed: int
    budget: Budget | None = None
    keep: str = "last"
    criterion: str = "val_accuracy"
    teacher: Artifact | None = None
    out_of_fold: Artifact | None = None
    """The table of out-of-fold predictions (`artifacts.out_of_fold`), where the method uses one."""

    @classmethod
    def of(cls, artifact: Artifact, data: Data, store: Store) -> "Unlearning":
        """Return the run that made an artifact; `data` are those it used, with its input pipeline."""
        inputs, info = artifact.inputs, artifact.info
        if "method" not in inputs:
            raise StoreError(f"{artifact.key[:12]} is not an unlearned model, so there is no run to repeat.")
        for text in (inputs["method"]["name"], *map(str, inputs["method"]["config"].values())):
            with suppress(SettingsError):  # a setting that is no method; RUM's are, with ; between their settings
                trusted_name(MethodSpec.parse(text.replace(";", ",")).name, None, store.trusted, "--method")
        method = get_method(inputs["method"]["name"])
        config = method.configure(inputs["method"]["config"])
        if method.describe(config) != inputs["method"]:
            raise StoreError(
                f"the method {method.name} has changed since {artifact.key[:12]} was made, so its run cannot be "
                f"repeated; unlearn again with today's."
            )
        keep, *criterion = inputs["keep"]
        return cls(
            base=store.load("model", info["base"]),
            data=data,
            splits=stored_splits(artifact, len(data.train.labels)),
            method=method,
            config=config,
            seed=inputs["seed"],
            budget=Budget.of(inputs["budget"]),
            keep=keep,
            criterion=criterion[0] if criterion else "val_accuracy",
            teacher=store.load("model", info["teacher"]) if info["teacher"] else None,
            out_of_fold=store.load("out_of_fold", info["out_of_fold"]) if info.get("out_of_fold") else None,
        )

    def inputs(self) -> dict[str, Any]:
        inputs = {
            "base": self.base.info["weights"],
            "model": self.base.inputs["model"],
            "num_classes": self.base.inputs["num_classes"],
            "image_size": self.base.inputs["image_size"],
            "data": self.data.train.digest,
            "inputs": self.data.train.describe_inputs(),
            "splits": self.splits.digest,
            "method": self.method.describe(self.config),
            "recipe": self.base.inputs.get("recipe"),
            "budget": self.budget.to_json() if self.budget else None,
            "keep": [self.keep, self.criterion] if self.keep == "best" else [self.keep],
            "reference": model_identity(self.teacher) if self.teacher else None,
            "seed": self.seed,
        }
        # seeds follow from these inputs, so runs without a table must not name one
        return inputs | ({"out_of_fold": self.out_of_fold.info["digest"]} if self.out_of_fold else {})


def unlearn_model(
    run: Unlearning, store: Store, device: torch.device, *, about: Mapping[str, Any], watch: Callbacks | None = None
) -> Artifact:
    """Return the unlearned model, from the store or made now; `about` is written to its manifest."""
    base, splits, watch = run.base, run.splits, watch or Callbacks()
    check_training_set(base, run.data, splits)
    inputs = run.inputs()

    def make(_: object) -> Contents:
        recipe = base.inputs.get("recipe")
        job = Job(
            model=private_copy(load_model(base, device), device),
            examples=run.data.train,
            splits=splits,
            seed=derive(rng_key(inputs), "unlearn"),
            device=device,
            on_epoch=watch.on_epoch,
            on_progress=watch.on_progress,
            budget=run.budget,
            teacher=load_model(run.teacher, device) if run.teacher else None,
            rebuild=lambda seed: build_like(base, seed),
            recipe=bind(Recipe, recipe, "recipe") if recipe else None,
            out_of_fold=out_of_fold_probabilities(run.out_of_fold, splits.forget) if run.out_of_fold else None,
        )
        outcome = unlearn_job(job, run.method, run.config, keep=run.keep, criterion=run.criterion)
        log_warnings(outcome.warnings)
        info = {**about, **_outcome_info(run, outcome), "device": describe_device(device)}
        indices = {"retain": splits.retain, "forget": splits.forget, "heldout": splits.heldout, "val": splits.val}
        parts = {name: torch.from_numpy(part) for name, part in indices.items()}
        return Contents({"weights": outcome.model.state_dict(), "splits": parts}, info)

    return store.make("model", inputs, make)


def _outcome_info(run: Unlearning, outcome: Outcome) -> dict[str, Any]:
    """Return what the manifest of an unlearned model tells of its run."""
    uses_heldout = run.method.needs_of(run.config).uses_heldout and not outcome.from_scratch
    return {
        "role": "unlearned",
        "method": run.method.name,
        "title": run.method.title,
        "config": outcome.config,
        "base": run.base.key,
        "teacher": run.teacher.key if run.teacher else None,
        "out_of_fold": run.out_of_fold.key if run.out_of_fold else None,
        "data_name": run.data.name,
        "examples": len(run.splits.retain),
        "forgotten": len(run.splits.forget),
        "parameters": sum(p.numel() for p in outcome.model.parameters()),
        "weights": state_digest(outcome.model.state_dict()),
        "epochs": [vars(e) for e in outcome.epochs],
        "cost": vars(outcome.cost),
        "diverged": outcome.diverged,
        "notes": outcome.notes,
        "towards": ["heldout"] if uses_heldout else [],
        "warnings": list(outcome.warnings),
        "from_scratch": outcome.from_scratch,
        "watched": outcome.watched,
    }


def stored_splits(artifact: Artifact, total: int) -> Splits:
    """Return the splits that an unlearned model was made with."""
    parts = {name: tensor.numpy() for name, tensor in artifact.tensors("splits").items()}
    return Splits(**parts, total=total)


def check_training_set(base: Artifact, data: Data, splits: Splits) -> None:
    """Raise unless the base was trained on exactly the retain and forget sets of these data."""
    if base.inputs["data"] != data.train.digest:
        raise StoreError(
            f"the base model {base.key[:12]} was trained on other data (digest {base.inputs['data'][:12]}, these have "
            f"{data.train.digest[:12]}); give the data it was trained on."
        )
    if base.inputs["trained_on"] != digest(splits.base):
        trained = base.tensors("trained_on")["indices"].numpy()
        extra = len(np.setdiff1d(splits.forget, trained))
        unseen = len(np.intersect1d(trained, np.union1d(splits.heldout, splits.val)))
        raise StoreError(
            f"the base model {base.key[:12]} was trained on another split: {extra} of the {len(splits.forget)} "
            f"examples to forget were never in it, {unseen} held-out or validation examples were. Use its split "
            f"({base.info.get('split')})."
        )
