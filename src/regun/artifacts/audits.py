"""Models of the store, judged: signals once a model and split, one noise floor for all judged by it, evaluations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regun.artifacts import Artifact, Made, Slot, Store
from regun.artifacts.out_models import OutPredictions
from regun.artifacts.trainings import answers_by, load_model
from regun.auditing import Evaluation, NoiseFloor, Risk, evaluate, judged_by, noise_floor, risk_list
from regun.auditing.predictions import UNSEEN, Predictions
from regun.data.examples import Data, Examples
from regun.errors import AuditError, NotFiniteError
from regun.hashing import code_digest, digest
from regun.predict import predict
from regun.splits import Splits
from regun.types import Device, Indices


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Everything that decides an evaluation: the model, the one before unlearning, those retrained without the forget
    set that it is compared with (the first is the truth, the others show the noise), further models that never saw the
    forgotten examples (short trainings, say), on which examples, by which attacks and metrics."""

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
        """What decides the evaluation: its content key."""
        return {
            "target": answers_by(self.target),
            "before": answers_by(self.before) if self.before else None,
            "out_models": [out.key for out in self.out_models],
            "judged": list(self.judged),
            **self.floor_inputs(),
            "bootstrap": self.bootstrap,
        }

    def floor_inputs(self) -> dict[str, Any]:
        """What decides the noise floor, which does not depend on the target."""
        return {
            "retrain": answers_by(self.retrain) if self.retrain else None,
            "references": [answers_by(reference) for reference in self.references],
            "data": [self.data.train.digest, self.data.test.digest],
            "inputs": _evaluated(self.data.train),
            "splits": self.splits.digest,
            "judged_by": judged_by(self.attacks, self.metrics, len(self.references), bool(len(self.splits.val))),
            "signals": code_digest("regun.predict"),
            "seed": self.seed,
        }

    @property
    def judged(self) -> tuple[str, ...]:
        """The unseen sets that are judged: those that there are, but for one that the method trained towards."""
        there = audited_parts(self.data, self.splits)
        return tuple(name for name in UNSEEN if name in there and name not in self.target.info.get("towards", ()))

    @property
    def has_floor(self) -> bool:
        return self.retrain is not None and len(self.references) >= 2


def audit_model(audit: Audit, store: Store, device: Device = "cpu") -> Evaluation:
    """The evaluation of the target, from the store or computed from signals that are computed once.

    That a target's answers are not finite is kept as well, and raised again as `NotFiniteError`.
    """
    check_unfit_references(audit)

    def said(artifact: Artifact) -> dict[str, Predictions]:
        return split_predictions(artifact, audit.data, audit.splits, store, device)

    def make(_: Slot) -> Made:
        about = {"model": audit.target.key, "data_name": audit.data.name}
        try:
            target = said(audit.target)
        except NotFiniteError as fault:
            return Made({}, {**about, "evaluation": None, "not_finite": str(fault)})
        found = evaluate(
            target,
            said(audit.retrain) if audit.retrain else None,
            [said(reference) for reference in audit.references],
            before=said(audit.before) if audit.before else None,
            outs=[out.predictions for out in audit.out_models],
            unseen=audit.judged,
            attacks=audit.attacks,
            metrics=audit.metrics,
            bootstrap=audit.bootstrap,
            seed=audit.seed,
            floor=floor_of(audit, store, device) or False,
        )
        return Made({}, {**about, "evaluation": found.to_json()})

    kept = store.make("evaluation", audit.inputs(), make)
    if kept.info["evaluation"] is None:
        raise NotFiniteError(kept.info["not_finite"])
    return Evaluation.from_json(kept.info["evaluation"])


def floor_of(audit: Audit, store: Store, device: Device = "cpu") -> NoiseFloor | None:
    """The noise floor of the retrained models, once for all that are judged by them; None if there are too few."""
    retrain = audit.retrain
    if retrain is None or not audit.has_floor:
        return None

    def make(_: Slot) -> Made:
        truth, *others = (
            split_predictions(model, audit.data, audit.splits, store, device) for model in (retrain, *audit.references)
        )
        found = noise_floor(truth, others, attacks=audit.attacks, metrics=audit.metrics, seed=audit.seed)
        return Made({}, {"model": retrain.key, "data_name": audit.data.name, "floor": found.to_json()})

    return NoiseFloor.from_json(store.make("floor", audit.floor_inputs(), make).info["floor"])


def risks(audit: Audit, store: Store, device: Device = "cpu") -> list[Risk]:
    """Forgotten examples, those that look most like members first."""
    target, *others = (
        split_predictions(model, audit.data, audit.splits, store, device) for model in (audit.target, *audit.references)
    )
    before = split_predictions(audit.before, audit.data, audit.splits, store, device) if audit.before else None
    return risk_list(target, others, before=before)


def before_of(target: Artifact, splits: Splits, store: Store) -> Artifact | None:
    """The model before unlearning: the base of an unlearned one; of a model trained on all that is to be forgotten,
    itself. None where the store does not know it."""
    key = target.info.get("base")
    if key is not None:
        return store.load("model", key) if store.has("model", key) else None
    own = "recipe" in target.inputs and target.inputs["trained_on"] == digest(splits.base)
    return target if own else None


def split_predictions(
    artifact: Artifact, data: Data, splits: Splits, store: Store, device: Device = "cpu"
) -> dict[str, Predictions]:
    """Signals on retain, forget, test and, where they exist, validation and held-out."""
    return {
        name: cached_predictions(artifact, examples, indices, store, device)
        for name, (examples, indices) in audited_parts(data, splits).items()
    }


def audited_parts(data: Data, splits: Splits) -> dict[str, tuple[Examples, Indices]]:
    """Which examples an audit looks at, by split; those that exist."""
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
    """The model's signals on `indices`, from the store or from one forward pass; not finite is kept too."""

    def make(_: Slot) -> Made:
        about = {"model": artifact.key, "data_name": artifact.info["data_name"], "examples": len(indices)}
        try:
            found = predict(load_model(artifact, device), examples, indices, device)
        except NotFiniteError as fault:
            return Made({}, {**about, "not_finite": str(fault)})
        readable = found.log_probs.view()
        readable.flags.writeable = True  # torch warns of what it may not write to, and has no other word for it
        return Made({"signals": {"log_probs": torch.from_numpy(readable)}}, about)

    kept = store.make("signals", predictions_inputs(artifact, examples, indices), make)
    if "not_finite" in kept.info:
        raise NotFiniteError(kept.info["not_finite"])
    return Predictions(kept.tensors("signals")["log_probs"].numpy(), examples.labels[indices], indices)


def predictions_inputs(artifact: Artifact, examples: Examples, indices: Indices) -> dict[str, Any]:
    """What decides the signals of a model on some examples: their content key."""
    return {
        **answers_by(artifact),
        "data": examples.digest,
        "inputs": _evaluated(examples),
        "indices": digest(indices),
        "code": code_digest("regun.predict"),
    }


def check_unfit_references(audit: Audit) -> None:
    """A retrained model that saw a forgotten example cannot show what not having seen it looks like."""
    for artifact in (a for a in (audit.retrain, *audit.references) if a is not None):
        if "trained_on.safetensors" not in artifact.manifest["files"]:
            raise AuditError(f"{artifact.key[:12]} is not a model trained from scratch; name retrained models.")
        seen = np.intersect1d(artifact.tensors("trained_on")["indices"].numpy(), audit.splits.forget)
        if len(seen):
            raise AuditError(
                f"the reference model {artifact.key[:12]} was trained on {len(seen)} of the "
                f"{len(audit.splits.forget)} forgotten examples (the first is {seen[0]}); train references without "
                f"them: regun train --without REQUEST --seed N."
            )


def _evaluated(examples: Examples) -> Mapping[str, Any]:
    """The input pipeline as far as evaluation goes."""
    return {k: v for k, v in examples.describe_inputs().items() if k != "train"}
