"""Audits of stored models: predictions once per model and split, one noise floor per set of references, evaluations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regun.artifacts import Artifact, Contents, SnapshotFolder, Store
from regun.artifacts.out_models import OutPredictions
from regun.artifacts.trainings import load_model, model_identity
from regun.auditing import Evaluation, NoiseFloor, Risk, evaluate, judged_by, noise_floor, risk_list
from regun.auditing.predictions import PER_EXAMPLE, UNSEEN, PerExampleValues, Predictions
from regun.data.examples import Data, Examples
from regun.errors import AuditError, NotFiniteError
from regun.hashing import code_digest, digest
from regun.predict import predict
from regun.splits import Splits
from regun.types import Device, Indices

STORED = ("log_probs", "labels", "indices")
"""What a file of predictions holds."""


@dataclass(frozen=True, kw_only=True)
class Auditing:
    """Everything that decides an evaluation.

    `before` is the model before unlearning. `retrain` and `references` were trained without the forget set; the
    references measure the noise between such models. `out_models` stand in for them where there are none.
    """

    target: Artifact
    data: Data
    splits: Splits
    before: Artifact | None = None
    retrain: Artifact | None = None
    references: tuple[Artifact, ...] = ()
    out_models: tuple[OutPredictions, ...] = ()
    attacks: tuple[str, ...] | None = None
    metrics: tuple[str, ...] = ()
    bootstrap: int = 1000
    seed: int = 0

    def inputs(self) -> dict[str, Any]:
        """Return what decides the evaluation."""
        return {
            "target": model_identity(self.target),
            "before": model_identity(self.before) if self.before else None,
            "out_models": [out.key for out in self.out_models],
            "judged": list(self.judged),
            **self.floor_inputs(),
            "bootstrap": self.bootstrap,
        }

    def floor_inputs(self) -> dict[str, Any]:
        """Return what decides the noise floor; it does not depend on the target."""
        return {
            "retrain": model_identity(self.retrain) if self.retrain else None,
            "references": [model_identity(reference) for reference in self.references],
            "data": [self.data.train.digest, self.data.test.digest],
            "inputs": evaluation_inputs(self.data.train),
            "splits": self.splits.digest,
            "judged_by": judged_by(self.attacks, self.metrics, len(self.references), bool(len(self.splits.val))),
            "predictions": code_digest("regun.predict"),
            "seed": self.seed,
        }

    @property
    def judged(self) -> tuple[str, ...]:
        """The unseen sets that count; a set that the method trained towards does not."""
        parts = audited_parts(self.data, self.splits)
        return tuple(name for name in UNSEEN if name in parts and name not in self.target.info.get("towards", ()))


def audit_model(audit: Auditing, store: Store, device: Device = "cpu") -> Evaluation:
    """Return the evaluation of the target, from the store or computed now from stored predictions.

    If the target's predictions are not finite, that is stored too and raised as `NotFiniteError`.
    """
    check_references(audit)

    def predictions(artifact: Artifact) -> dict[str, Predictions]:
        return split_predictions(artifact, audit.data, audit.splits, store, device)

    def make(_: SnapshotFolder) -> Contents:
        about = {"model": audit.target.key, "data_name": audit.data.name}
        try:
            target = predictions(audit.target)
        except NotFiniteError as fault:
            return Contents({}, {**about, "evaluation": None, "not_finite": str(fault)})
        evaluation = evaluate(
            target,
            predictions(audit.retrain) if audit.retrain else None,
            [predictions(reference) for reference in audit.references],
            before=predictions(audit.before) if audit.before else None,
            out_models=[out.predictions for out in audit.out_models],
            unseen=audit.judged,
            attacks=audit.attacks,
            metrics=audit.metrics,
            bootstrap=audit.bootstrap,
            seed=audit.seed,
            floor=stored_noise_floor(audit, store, device) or False,
        )
        return Contents({}, {**about, "evaluation": evaluation.to_json()})

    stored = store.make("evaluation", audit.inputs(), make)
    if stored.info["evaluation"] is None:
        raise NotFiniteError(stored.info["not_finite"])
    return Evaluation.from_json(stored.info["evaluation"])


def stored_noise_floor(audit: Auditing, store: Store, device: Device = "cpu") -> NoiseFloor | None:
    """Return the noise floor of the retrained models, from the store or computed now; None if there are too few."""
    retrain = audit.retrain
    if retrain is None or len(audit.references) < 2:
        return None

    def make(_: SnapshotFolder) -> Contents:
        retrained, *references = (
            split_predictions(model, audit.data, audit.splits, store, device) for model in (retrain, *audit.references)
        )
        floor = noise_floor(retrained, references, attacks=audit.attacks, metrics=audit.metrics, seed=audit.seed)
        return Contents({}, {"model": retrain.key, "data_name": audit.data.name, "floor": floor.to_json()})

    return NoiseFloor.from_json(store.make("floor", audit.floor_inputs(), make).info["floor"])


def risks(audit: Auditing, store: Store, device: Device = "cpu") -> list[Risk]:
    """Return the forgotten examples, those that look most like members first."""
    target, *references = (
        split_predictions(model, audit.data, audit.splits, store, device) for model in (audit.target, *audit.references)
    )
    before = split_predictions(audit.before, audit.data, audit.splits, store, device) if audit.before else None
    return risk_list(target, references, before=before)


def model_before(target: Artifact, splits: Splits, store: Store) -> Artifact | None:
    """Return the model before unlearning: the base, or the target itself if it was trained on the forget set.

    None if the store does not have it.
    """
    key = target.info.get("base")
    if key is not None:
        return store.load("model", key) if store.has("model", key) else None
    trained_on_all = "recipe" in target.inputs and target.inputs["trained_on"] == digest(splits.base)
    return target if trained_on_all else None


def split_predictions(
    artifact: Artifact, data: Data, splits: Splits, store: Store, device: Device = "cpu"
) -> dict[str, Predictions]:
    """Return predictions on retain, forget, test and, where they exist, validation and held-out."""
    return {
        name: cached_predictions(artifact, examples, indices, store, device)
        for name, (examples, indices) in audited_parts(data, splits).items()
    }


def audited_parts(data: Data, splits: Splits) -> dict[str, tuple[Examples, Indices]]:
    """Return the examples and rows of each split that an audit uses, without empty ones."""
    parts: dict[str, tuple[Examples, Indices]] = {
        "retain": (data.train, splits.retain),
        "forget": (data.train, splits.forget),
        "test": (data.test, np.arange(len(data.test.labels))),
        "val": (data.train, splits.val),
        "heldout": (data.train, splits.heldout),
    }
    return {name: part for name, part in parts.items() if len(part[1])}


def cached_predictions(
    artifact: Artifact, examples: Examples, indices: Indices, store: Store, device: Device = "cpu"
) -> Predictions:
    """Return the model's predictions on `indices`, from the store or from one forward pass.

    The file holds log-probabilities, labels and indices, so that a number can be computed from it without the data. If
    predictions are not finite, that is stored too.
    """

    def make(_: SnapshotFolder) -> Contents:
        about = {"model": artifact.key, "data_name": artifact.info["data_name"], "examples": len(indices)}
        try:
            predictions = predict(load_model(artifact, device), examples, indices, device)
        except NotFiniteError as fault:
            return Contents({}, {**about, "not_finite": str(fault)})
        names = STORED if predictions.complete else (*PER_EXAMPLE, *STORED[1:])
        arrays = {name: getattr(predictions, name).view() for name in names}
        for array in arrays.values():
            array.flags.writeable = True  # torch warns about read-only arrays
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return Contents({"predictions": tensors}, {**about, "classes": predictions.num_classes})

    stored = store.make("predictions", predictions_inputs(artifact, examples, indices), make)
    if "not_finite" in stored.info:
        raise NotFiniteError(stored.info["not_finite"])
    arrays = {name: tensor.numpy() for name, tensor in stored.tensors("predictions").items()}
    if "log_probs" in arrays:
        return Predictions(**{name: arrays[name] for name in STORED})
    return PerExampleValues(arrays, arrays["labels"], arrays["indices"], stored.info["classes"])


def predictions_inputs(artifact: Artifact, examples: Examples, indices: Indices) -> dict[str, Any]:
    """Return what decides the predictions of a model on some examples."""
    return {
        **model_identity(artifact),
        "data": examples.digest,
        "inputs": evaluation_inputs(examples),
        "indices": digest(indices),
        "code": code_digest("regun.predict"),
        "holds": list(STORED),
    }


def check_references(audit: Auditing) -> None:
    """Raise if a retrained model was trained on forgotten examples, so that it cannot serve as a reference."""
    for artifact in (a for a in (audit.retrain, *audit.references) if a is not None):
        if "trained_on.safetensors" not in artifact.manifest["files"]:
            raise AuditError(f"{artifact.key[:12]} is not a model trained from scratch; name retrained models.")
        overlap = np.intersect1d(artifact.tensors("trained_on")["indices"].numpy(), audit.splits.forget)
        if len(overlap):
            raise AuditError(
                f"the reference model {artifact.key[:12]} was trained on {len(overlap)} of the "
                f"{len(audit.splits.forget)} forgotten examples (the first is {overlap[0]}); train references without "
                f"them: regun train --without FORGET --seed N."
            )


def evaluation_inputs(examples: Examples) -> Mapping[str, Any]:
    """Return the part of the input pipeline that evaluation uses."""
    return {k: v for k, v in examples.describe_inputs().items() if k != "train"}
